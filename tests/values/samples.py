"""One value of every kind, and of every trap that is known, by name."""

from __future__ import annotations

import datetime as dt
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import SimpleNamespace
from typing import Any
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from tests.values import models as m

NEW_YORK = ZoneInfo("America/New_York")
INDIA = dt.timezone(dt.timedelta(hours=5, minutes=30))


def plain() -> dict[str, Any]:
    return {
        "scalars": [None, True, False, 0, 1, -1, 1.0, -0.0, 0.0, 1e300, 5e-324, "", "é😀", "a\x00b", "\x1f\u2028"],
        "big ints": [2**53 + 1, 2**63, -(2**64), 10**400, -(10**5000)],
        "not finite": [float("nan"), float("inf"), -float("inf")],
        "not finite among others": {"a": float("nan"), "b": [1, "x", float("-inf")]},
        "half a pair": ["\ud800", "\udfff and \ud83d\ude00", {"\ud800": 1}],
        "complex": [1 + 2j, complex("nan"), complex(0.0, -0.0)],
        "bytes": [b"", b"\x00\xff", b"x" * 255, b"x" * 256, bytearray(b"q"), bytearray()],
        "key types": {1: "a", "1": "b", None: "c", (1, 2): "d", 1.5: "e", b"k": "f", frozenset({1}): "g", False: "h"},
        "keys with a dollar": {"$type": "list", "$ref": 0, "x": {"$module": "y"}},
        "texts like tags": ['{"$ref": 0}', '"$ref":', "$type", '\\"$ref\\":'],
        "odd keys": {"": 1, "a b": 2, "é": 3, "\n": 4, "a.b": 5},
        "containers": [(), [], {}, set(), frozenset(), ((),), [[]], ([], ()), {"a": {"b": [{"c": (1, [2])}]}}],
        "sets": [{3, 1, 2}, {"a", 1, None, (1, 2), 2.5, b"x"}, frozenset({(1, "a"), frozenset({1})})],
        "collections": [deque([1, 2], maxlen=5), deque(), OrderedDict(b=1, a=2), Counter("aab"), Counter()],
        "defaultdicts": [defaultdict(list, {"a": [1]}), defaultdict(None, {1: 2}), defaultdict(int), defaultdict(dict)],
        "ranges": [range(3), range(1, 10**30, 7), slice(1, None, 2), slice("a", (1, 2)), ..., NotImplemented],
        "types": [int, list, dt.datetime, type(None)],
        "namespace": SimpleNamespace(b=1, a=[SimpleNamespace()]),
        "decimals": [
            Decimal("1.10"),
            Decimal("-0"),
            Decimal("NaN"),
            Decimal("sNaN12"),
            Decimal("1E+5"),
            Decimal("Infinity"),
        ],
        "fractions": [Fraction(1, 3), Fraction(-7), Fraction(10**40, 3)],
        "ids": [UUID(int=5), UUID(int=6, is_safe=SafeUUID.safe)],
        "paths": [Path("/a b/é"), Path(), PurePosixPath("../x"), PureWindowsPath(r"C:\x")],
    }


def times() -> dict[str, Any]:
    return {
        "the hour that comes twice": [dt.datetime(2024, 11, 3, 1, 30, fold=f, tzinfo=NEW_YORK) for f in (0, 1)],
        "offset": dt.datetime(2024, 1, 1, 12, tzinfo=INDIA),
        "naive": [dt.datetime(2024, 1, 1), dt.datetime(1, 1, 1), dt.datetime.max, dt.datetime(2024, 1, 1, fold=1)],
        "time": [dt.time(1, 2, 3, 4), dt.time(1, tzinfo=NEW_YORK), dt.time(1, tzinfo=dt.UTC, fold=1)],
        "date": [dt.date(2024, 2, 29), dt.date.min],
        "timedelta": [dt.timedelta(microseconds=1), dt.timedelta.min, dt.timedelta.max, dt.timedelta(0)],
        "zones": [
            dt.UTC,
            ZoneInfo("UTC"),
            NEW_YORK,
            INDIA,
            dt.timezone(dt.timedelta(0), "UTC"),
            dt.timezone(-dt.timedelta(microseconds=1)),
        ],
    }


def objects() -> dict[str, Any]:
    late = m.Derived(name="x")
    late._late = 9
    checked = m.Checked("c", by=m.Color.RED)
    checked.made.append(1)
    checked.note = "an attribute of its own"  # type: ignore[attr-defined]
    tagged = m.Tagged(1.0)
    tagged.label = [1]  # type: ignore[attr-defined]
    bare = m.Slots.__new__(m.Slots)
    bare.items = [1]
    node = m.Node("a")
    return {
        "enums": [m.Color.RED, m.Color.BLUE, m.Level.HIGH, m.Mode.FAST, m.Odd.PAIR, m.Odd.HALF, m.Finding.Nested.INNER],
        "flags": [
            m.Access.READ,
            m.Access.READ | m.Access.RUN,
            m.Access(0),
            ~m.Access.READ,
            m.Bits.A | m.Bits.B,
            m.Bits(16),
        ],
        "enum keys": {m.Color.RED: 1, m.Level.LOW: 2, "x": {m.Mode.FAST}},
        "dataclass": m.Finding("c", sources=["a"]),
        "dataclass of a dataclass": checked,
        "frozen": [m.Frozen(1, (2, 3)), {m.Frozen(1), m.Frozen(2)}, {m.Frozen(3): "x"}],
        "slots": [m.Slots("a", [1]), m.MoreSlots("b"), m.FrozenSlots("c", m.FrozenSlots("d")), bare],
        "named tuples": [m.Point(1.0), m.Pair([1], (2,)), tagged, {m.Point(1, 2): 1}],
        "model": m.Base(name="n"),
        "fields set": [m.Base(name="n", tags=[]), m.Base.model_construct(name=5), m.Base.model_construct()],
        "a subclass in a list of its base": m.Report(
            items=[m.Base(name="a"), late], color=m.Color.BLUE, finding=checked
        ),
        "private": [late, m.Derived(name="y")],
        "extra": m.Extra(a=2, b=[1], **{"c d": 1, "$e": 2, "claim": "x"}),
        "frozen model": [m.FrozenModel(a=(1,)), {m.FrozenModel()}],
        "not valid by now": m.Strict.model_construct(n=-1),
        "root model": m.Numbers([1, 2]),
        "identity": [node, {node}, {node: 1}],
    }


def arrays() -> dict[str, Any]:
    read_only = np.arange(3)
    read_only.setflags(write=False)
    objects = np.empty(5, object)
    objects[:] = [None, float("nan"), "x", b"y", 1]
    nested = np.empty((2, 2), object)
    nested[0, 0], nested[1, 1], nested[0, 1] = [1, 2], np.arange(2), np.array(5)
    aligned = np.dtype([("a", "i1"), ("b", "f8"), ("c", "U3"), ("d", "O")], align=True)
    return {
        "scalars": [
            np.float32(0.1),
            np.int64(7),
            np.bool_(True),
            np.float16("nan"),
            np.complex64(1 - 2j),
            np.uint8(255),
            np.longlong(3),
        ],
        "text scalars": [np.str_("a\x00"), np.bytes_(b"b\x00"), np.str_("")],
        "time scalars": [
            np.datetime64("NaT"),
            np.datetime64("2024-01-01T00", "h"),
            np.datetime64(3, "25s"),
            np.timedelta64(-4, "D"),
        ],
        "structured scalar": np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])[0],
        "0-d": [np.array(5), np.array("xyz"), np.array(None), np.array(np.nan)],
        "order": [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(24).reshape(2, 3, 4)],
        "byte order": [
            np.arange(3, dtype=">i4"),
            np.array([1.5, np.nan], ">f8"),
            np.array([1 + 1j, np.nan], ">c16"),
            np.array(["é"], ">U2"),
        ],
        "kinds": [np.zeros(2, d) for d in ("i1", "u8", "f2", "f4", "c8", "?", "q", "Q", "S3", "V4", "M8[us]", "m8[W]")],
        "nans": np.array([np.nan, -np.nan, np.inf, -0.0]),
        "texts": [np.array(["a", "longer", "\x00x"]), np.array([b"a", b"bc"]), np.array([], "U5"), np.array([], "U0")],
        "empty": [np.empty((0, 3), "f4"), np.empty((2, 0), object), np.array([], "V0")],
        "structured": [
            np.array([(1, 2.5, "ab", [1])], aligned),
            np.zeros(2, [("p", "i2", (2, 2)), ("q", [("r", "f4")])]),
            np.zeros((), [("a", "?")]),
        ],
        "objects": [objects, nested, nested.T.copy(order="F")],
        "not contiguous": [np.arange(20).reshape(4, 5)[::2, ::-1], np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2)],
        "read-only": read_only,
        "large": np.arange(1000, dtype="f8"),
        "masked": [
            np.ma.MaskedArray([1, 2], mask=[0, 1]),
            np.ma.array([1.0], fill_value=9),
            np.ma.masked,
            np.ma.array(["a"]),
        ],
        "hard mask": np.ma.array([1, 2], mask=[1, 0], hard_mask=True),
        "dtypes": [np.dtype("f4"), np.dtype(">i8"), aligned, np.dtype(("i4", (2,))), np.dtype("M8[ns]")],
    }


def frames() -> dict[str, Any]:
    twice = pd.date_range("2024-11-03 04:00", periods=4, freq="h", tz="UTC").tz_convert(NEW_YORK)
    cells = np.empty(4, object)
    cells[:] = [pd.DataFrame({"x": [1]}), [1], {"a": 1}, None]
    mixed = np.empty(4, object)
    mixed[:] = [None, float("nan"), pd.NA, pd.NaT]
    more = np.empty(4, object)
    more[:] = [1, "1", 1.0, True]
    wide = pd.DataFrame(
        {
            "ints": pd.Categorical([3, 1, 3, None], categories=[3, 2, 1], ordered=True),
            "Int64": pd.array([1, None, 3, 4], "Int64"),
            "boolean": pd.array([True, None, False, None], "boolean"),
            "Float32": pd.array([1.5, None, 2, 3], "Float32"),
            "str": ["a", None, "é", ""],
            "string": pd.array(["a", None, "b", "c"], pd.StringDtype("python", na_value=pd.NA)),
            "twice": twice,
            "seconds": np.array([1, 2, 3, "NaT"], "M8[s]"),
            "delta": pd.to_timedelta([1, 2, 3, None], unit="s"),
            "period": pd.period_range("2020", periods=4, freq="Q-FEB"),
            "interval": pd.interval_range(0, 4),
            "cells": cells,
            "mixed": mixed,
            "more": more,
            "f4": np.array([1, 2, 3, np.nan], "f4"),
            "complex": [1j, 2, 3, 4],
        },
        index=pd.Index(list("wxyz"), name="letters"),
    )
    named = pd.DataFrame(
        [[1, "a", 2.0, None, True]], columns=pd.Index(["c", "c", 7, None, (1, 2)], dtype=object, tupleize_cols=False)
    )
    flagged = pd.DataFrame({"a": [1]}).set_flags(allows_duplicate_labels=False)
    flagged.attrs = {"source": ["x"], "n": 1}
    return {
        "scalars": [
            pd.Timestamp("2024-01-01 00:00:00.123456789"),
            pd.NaT,
            pd.NA,
            pd.Timedelta("1ns"),
            pd.Timedelta(1, "s"),
        ],
        "units": [
            pd.Timestamp("2024", tz=tz).as_unit(u)
            for u in ("s", "ms", "us", "ns")
            for tz in (None, "UTC", NEW_YORK, INDIA)
        ],
        "the hour that comes twice": list(twice),
        "odd folds": [
            pd.Timestamp("2024-06-01", tz=NEW_YORK).replace(fold=1),
            pd.Timestamp("2024-06-01").replace(fold=1),
        ],
        "far": [pd.Timestamp(np.datetime64("-9999-01-01", "s")), pd.Timestamp.max, pd.Timestamp.min],
        "periods": [pd.Period("2024-02", "M"), pd.Period("2024", "Y-MAR"), pd.Period("2024-02-03 04:05", "15min")],
        "intervals": [pd.Interval(1, 2, "both"), pd.Interval(pd.Timestamp("2024"), pd.Timestamp("2025"))],
        "series": [
            pd.Series([1.0, None]),
            pd.Series(["a"], name="n"),
            pd.Series([1], name=(1, 2)),
            pd.Series([], dtype="M8[s]"),
        ],
        "categories": [
            pd.Categorical(["b", "a"]),
            pd.Categorical([], categories=["x"]),
            pd.Categorical([1.5], categories=[2.5, 1.5]),
            pd.Categorical(pd.to_datetime(["2024"])),
            pd.Series(["a"], dtype="category"),
        ],
        "indexes": [
            pd.RangeIndex(3),
            pd.RangeIndex(5, 0, -2, name="r"),
            pd.Index([1, 2]),
            pd.Index([1.5], name=("a", 1)),
            pd.Index([True]),
            pd.Index([1, "a", None]),
            pd.Index(["a"]),
            pd.Index([(1, 2), 3], tupleize_cols=False),
            pd.Index([1, None], dtype="Int8"),
            pd.Index([], dtype="u1"),
            pd.CategoricalIndex(["a", "b"], ordered=True, name="c"),
            pd.interval_range(0.0, 2.0, closed="left"),
        ],
        "time indexes": [
            pd.date_range("2024", periods=3, freq="D"),
            pd.date_range("2024", periods=3, freq="D", unit="s", tz="Asia/Tokyo"),
            pd.date_range("2024-03-30", periods=3, freq="D", tz="Europe/Berlin"),
            pd.DatetimeIndex(["2024", None]),
            twice,
            pd.date_range("2024", periods=3, freq="2W-TUE", name="w"),
            pd.timedelta_range("1s", periods=3, freq="90s"),
            pd.period_range("2024", periods=2, freq="M", name="p"),
            pd.date_range("2024", periods=0, freq="D"),
        ],
        "multi": [
            pd.MultiIndex.from_product(
                [pd.date_range("2024", periods=2, tz=NEW_YORK, freq="D"), ["a", "b"]], names=["t", None]
            ),
            pd.MultiIndex.from_tuples([(1, None), (2, "x")], names=["same", "same"]),
            pd.MultiIndex.from_arrays([[1, 2], [3, 4]])[:1],
            pd.MultiIndex.from_arrays([[], []]),
            pd.MultiIndex.from_product([[1, 2], [3]], sortorder=0),
        ],
        "wide": wide,
        "column names": named,
        "multi columns": pd.DataFrame(
            [[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", "y"])
        ),
        "range columns": [pd.DataFrame([[1, 2]]), pd.DataFrame([[1, 2]], columns=[0, 1])],
        "flags and attrs": flagged,
        "empty": [
            pd.DataFrame({"a": np.array([], "f4"), "b": pd.array([], "Int64")}),
            pd.DataFrame(),
            pd.DataFrame(index=["a"]),
            pd.DataFrame(columns=["a"]),
            wide.iloc[:0],
        ],
        "arrays": [
            pd.array([1, None]),
            pd.array([1.5, None]),
            pd.array(["a"], "string"),
            pd.array(np.array([1], "i2"), dtype=np.dtype("i2")),
            twice.array,
        ],
        "dtypes": [
            wide.dtypes,
            pd.Int64Dtype(),
            pd.CategoricalDtype(["a"], ordered=True),
            pd.DatetimeTZDtype("s", NEW_YORK),
            pd.PeriodDtype("D"),
        ],
        "offsets": [pd.offsets.MonthEnd(2), pd.offsets.Day(3), pd.offsets.Week(weekday=1)],
        "byte order": pd.Series(np.array([1, 2], ">i8")),
        "NaN beside NA": pd.array(
            pd.arrays.FloatingArray(np.array([np.nan, 1.0, 0.0]), np.array([False, False, True]))
        ),
    }


def everything() -> dict[str, Any]:
    groups = {"plain": plain, "times": times, "objects": objects, "arrays": arrays, "frames": frames}
    return {f"{group}: {name}": value for group, make in groups.items() for name, value in make().items()}
