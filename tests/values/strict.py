"""Comparing two values as strictly as one can: types, bits, dtypes, flags, and which parts are one object.

It shares no code with the value store: it looks at what a user can look at.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
from collections import Counter, OrderedDict, defaultdict, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pydantic

MUTABLE = (list, dict, set, deque, bytearray, SimpleNamespace, np.ndarray, pd.Series, pd.DataFrame, pd.Categorical)


def has_identity(value: Any) -> bool:
    """Whether it matters which object it is: two names for it must stay two names for one."""
    if isinstance(value, pydantic.BaseModel):
        return not value.model_config.get("frozen")
    if dataclasses.is_dataclass(value):
        parameters = type(value).__dataclass_params__
        return not (parameters.frozen and parameters.eq)
    return isinstance(value, MUTABLE)


def assert_same(a: Any, b: Any) -> None:
    """Fail unless `b` is what `a` is, as far as can be seen."""
    _Comparison().same(a, b, "value")


class _Comparison:
    def __init__(self) -> None:
        self.pairs: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.held: list[Any] = []

    def same(self, a: Any, b: Any, at: str) -> None:
        assert type(a) is type(b), f"{at}: {type(a)} and {type(b)}"
        if has_identity(a):
            if id(a) in self.pairs or id(b) in self.back:
                assert self.pairs.get(id(a)) == id(b), f"{at}: one object on one side, two on the other"
                return
            self.pairs[id(a)], self.back[id(b)] = id(b), id(a)
            self.held += [a, b]  # or their ids could be given to others
        self._compare(a, b, at)

    def _compare(self, a: Any, b: Any, at: str) -> None:
        if isinstance(a, float) and type(a) is float:
            assert (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b)), at
        elif type(a) is int:
            assert a == b, at
        elif type(a) is complex:
            self.same(a.real, b.real, at)
            self.same(a.imag, b.imag, at)
        elif isinstance(a, enum.Enum):
            assert a is b or (isinstance(a, enum.Flag) and a == b and repr(a) == repr(b)), at
        elif isinstance(a, np.ndarray | np.generic | np.dtype):
            self._numpy(a, b, at)
        elif type(a).__module__.startswith("pandas"):
            self._pandas(a, b, at)
        elif isinstance(a, dict):
            self._dict(a, b, at)
        elif isinstance(a, tuple | list | deque):
            self._sequence(a, b, at)
        elif isinstance(a, set | frozenset):
            self._set(a, b, at)
        elif isinstance(a, pydantic.BaseModel):
            for name in ("__dict__", "__pydantic_extra__", "__pydantic_private__", "__pydantic_fields_set__"):
                self._part(getattr(a, name), getattr(b, name), f"{at}.{name}")
        elif dataclasses.is_dataclass(a) or type(a) is SimpleNamespace:
            self._part(state(a), state(b), at)
        else:
            self._other(a, b, at)

    def _part(self, a: Any, b: Any, at: str) -> None:
        """What belongs to its owner: compared by content."""
        assert type(a) is type(b), at
        self._compare(a, b, at)

    def _dict(self, a: Any, b: Any, at: str) -> None:
        assert len(a) == len(b), at
        for (ka, va), (kb, vb) in zip(dict.items(a), dict.items(b), strict=True):  # in order
            self.same(ka, kb, f"{at}.key({ka!r})")
            self.same(va, vb, f"{at}[{ka!r}]")
        if isinstance(a, defaultdict):
            assert a.default_factory is b.default_factory, at
        if isinstance(a, OrderedDict):
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                self.same(x, y, f"{at}.key {i}")

    def _sequence(self, a: Any, b: Any, at: str) -> None:
        assert len(a) == len(b), at
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            self.same(x, y, f"{at}[{i}]")
        if isinstance(a, deque):
            assert a.maxlen == b.maxlen, at
        if hasattr(a, "__dict__"):
            self._part(vars(a), vars(b), at)

    def _set(self, a: Any, b: Any, at: str) -> None:
        assert Counter(map(describe, a)) == Counter(map(describe, b)), f"{at}: {a} and {b}"

    def _numpy(self, a: Any, b: Any, at: str) -> None:
        if isinstance(a, np.dtype):
            assert (a, a.char, a.str, a.isalignedstruct, a.fields) == (b, b.char, b.str, b.isalignedstruct, b.fields), (
                at
            )
            return
        self._part(a.dtype, b.dtype, f"{at}.dtype")
        assert a.shape == b.shape, at
        if isinstance(a, np.generic):
            assert repr(a) == repr(b), at
            assert isinstance(a, str | bytes) is False or len(a) == len(b), at
            return
        if a is np.ma.masked:
            assert b is a, at
            return
        if isinstance(a, np.ma.MaskedArray):
            assert np.array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b)), at
            assert (a.mask is np.ma.nomask) == (b.mask is np.ma.nomask), at
            assert a.hardmask == b.hardmask, at
            assert repr(a.fill_value) == repr(b.fill_value), at
            a, b = a.data, b.data
        for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE", "ALIGNED"):
            is_free = flag[0] in "CF" and not a.flags.contiguous and not a.flags.f_contiguous  # no form to keep
            assert is_free or a.flags[flag] == b.flags[flag], f"{at}.flags[{flag}]"
        if a.dtype.names:
            for name in a.dtype.names:
                self._part(a[name], b[name], f"{at}[{name!r}]")
        elif a.dtype.kind == "O":
            for i, (x, y) in enumerate(zip(a.flat, b.flat, strict=True)):
                self.same(x, y, f"{at}.flat[{i}]")
        elif a.dtype.kind in "fc":
            assert np.array_equal(a, b, equal_nan=True), at
            for part in ("real", "imag"):
                x, y = getattr(a, part), getattr(b, part)
                assert np.array_equal(np.signbit(x[~np.isnan(x)]), np.signbit(y[~np.isnan(y)])), f"{at}: signs"
        else:
            assert a.tobytes() == b.tobytes(), at

    def _pandas(self, a: Any, b: Any, at: str) -> None:
        if isinstance(a, pd.DataFrame | pd.Series):
            self._part(a.index, b.index, f"{at}.index")
            self._part(a.attrs, b.attrs, f"{at}.attrs")
            assert a.flags == b.flags, at
            if isinstance(a, pd.Series):
                self.same(a.name, b.name, f"{at}.name")
                self._array(a.array, b.array, at)
                return
            self._part(a.columns, b.columns, f"{at}.columns")
            for i in range(a.shape[1]):
                self._array(a.iloc[:, i].array, b.iloc[:, i].array, f"{at}.iloc[:, {i}]")
        elif isinstance(a, pd.Index):
            self._index(a, b, at)
        elif isinstance(a, pd.api.extensions.ExtensionArray):
            self._array(a, b, at)
        elif isinstance(a, pd.Timestamp | pd.Timedelta):
            assert (repr(a), a.unit, a.asm8.view("i8")) == (repr(b), b.unit, b.asm8.view("i8")), at
            if isinstance(a, pd.Timestamp):
                assert (a.fold, repr(a.tz), a.utcoffset()) == (b.fold, repr(b.tz), b.utcoffset()), at
        elif isinstance(a, pd.Interval):
            self.same((a.left, a.right, a.closed), (b.left, b.right, b.closed), at)
        else:  # Period, NaT, NA, dtypes, offsets
            assert a is b or (a == b and repr(a) == repr(b)), at

    def _index(self, a: Any, b: Any, at: str) -> None:
        self.same(tuple(a.names), tuple(b.names), f"{at}.names")
        if isinstance(a, pd.MultiIndex):
            assert a.sortorder == b.sortorder, at
            for i, (x, y) in enumerate(zip(a.levels, b.levels, strict=True)):
                self._part(x, y, f"{at}.levels[{i}]")
                assert a.codes[i].dtype == b.codes[i].dtype, at
                assert a.codes[i].tolist() == b.codes[i].tolist(), at
        elif isinstance(a, pd.RangeIndex):
            assert (a.start, a.stop, a.step) == (b.start, b.stop, b.step), at
        else:
            assert getattr(a, "freq", None) == getattr(b, "freq", None), f"{at}.freq"
            self._array(a.array, b.array, at)

    def _array(self, a: Any, b: Any, at: str) -> None:
        assert type(a) is type(b), at
        assert a.dtype == b.dtype and repr(a.dtype) == repr(b.dtype), f"{at}: {a.dtype} and {b.dtype}"
        assert len(a) == len(b), at
        if isinstance(a, pd.Categorical):
            self._part(a.categories, b.categories, f"{at}.categories")
            assert a.codes.tolist() == b.codes.tolist() and a.ordered == b.ordered, at
        elif a.dtype.kind in "mM":
            assert (a.asi8.tolist(), a.unit) == (b.asi8.tolist(), b.unit), at
            assert repr(getattr(a, "tz", None)) == repr(getattr(b, "tz", None)), at
        elif (
            isinstance(a, pd.arrays.NumpyExtensionArray) and a.dtype.kind not in "OTU" and a.to_numpy().dtype != object
        ):
            x, y = a.to_numpy(), b.to_numpy()
            assert np.array_equal(x, y, equal_nan=x.dtype.kind in "fc"), at
        else:
            for i, (x, y) in enumerate(zip(a, b, strict=True)):  # each missing value of its own kind
                self.same(x, y, f"{at}[{i}]")

    def _other(self, a: Any, b: Any, at: str) -> None:
        if isinstance(a, dt.datetime | dt.time):
            assert (a.fold, a.utcoffset(), repr(a.tzinfo)) == (b.fold, b.utcoffset(), repr(b.tzinfo)), at
            assert a.replace(tzinfo=None) == b.replace(tzinfo=None), at
        if isinstance(a, slice):
            self.same((a.start, a.stop, a.step), (b.start, b.stop, b.step), at)
        assert repr(a) == repr(b), f"{at}: {a!r} and {b!r}"


def state(value: Any) -> dict[str, Any]:
    """Attributes of an instance, slots included, by name."""
    found = {}
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    if dataclasses.is_dataclass(value):  # a default may stand in the class only
        found |= {
            field.name: getattr(value, field.name) for field in dataclasses.fields(value) if hasattr(value, field.name)
        }
    return dict(sorted((found | getattr(value, "__dict__", {})).items()))


def describe(value: Any) -> str:
    """A text for items of sets: type and content."""
    if isinstance(value, tuple):
        return f"{type(value).__name__}({', '.join(map(describe, value))})"
    if isinstance(value, frozenset):
        return f"frozenset({sorted(map(describe, value))})"
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}({', '.join(f'{name}={describe(part)}' for name, part in state(value).items())})"
    return f"{type(value).__name__}:{value!r}"
