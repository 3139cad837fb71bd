"""Properties of any value that a search can think of."""

from __future__ import annotations

import copy
import datetime as dt
import json
import random
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis.extra.numpy as hnp
import hypothesis.extra.pandas as hpd
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resumable_nb.errors import ValueNotLoadable
from resumable_nb.values import decode, encode, resolver
from tests.values import models as m
from tests.values.samples import everything
from tests.values.strict import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")  # of a strategy; only a matter of speed

ZONES = [
    None,
    dt.UTC,
    ZoneInfo("America/New_York"),
    ZoneInfo("Asia/Kolkata"),
    dt.timezone(dt.timedelta(minutes=-7), "X"),
]
thorough = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
quick = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


def check(value: Any) -> None:
    """Back exactly, with the same text; read through a copy of the blobs, as from a store."""
    encoded = encode(value)
    json.loads(encoded.text.encode().decode())
    again = decode(encoded.text, dict(encoded.blobs).__getitem__, resolver({}))
    assert_same(value, again)
    once_more = encode(again)
    assert (once_more.text, once_more.blobs) == (encoded.text, encoded.blobs)


texts = st.text(st.characters(exclude_categories=[]), max_size=8)
hashable_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 60).map(lambda n: -(3 ** (50 * n))),
    st.floats(),
    texts,
    st.binary(max_size=300),
    st.complex_numbers(allow_nan=True),
    st.decimals().filter(lambda number: not number.is_snan()),
    st.fractions(),
    st.uuids(),
    st.dates(),
    st.timedeltas(),
    st.datetimes(timezones=st.sampled_from(ZONES)),
    st.times(timezones=st.sampled_from(ZONES)),
    st.sampled_from([*m.Color, *m.Level, *m.Mode, m.Access(3), m.Access(0), ..., dt.UTC, range(3, 9, 2)]),
)
hashables = st.recursive(
    hashable_leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.builds(m.Point, inner, inner),
        st.builds(m.Frozen, inner, inner),
        st.builds(m.FrozenSlots, inner, inner),
    ),
    max_leaves=8,
)
leaves = st.one_of(hashables, st.binary(max_size=300).map(bytearray), st.builds(slice, st.integers(), st.none()))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(texts, inner, max_size=3),
        st.dictionaries(st.sampled_from(["$ref", "$type", "a", "$other", "$module"]), inner, max_size=3),
        st.dictionaries(hashables, inner, max_size=3),
        st.dictionaries(hashables, inner, max_size=3).map(OrderedDict),
        st.dictionaries(hashables, inner, max_size=3).map(lambda items: defaultdict(list, items)),
        st.dictionaries(hashables, st.integers(), max_size=3).map(Counter),
        st.sets(hashables, max_size=4),
        st.lists(inner, max_size=3).map(lambda items: deque(items, maxlen=9)),
        st.builds(m.Finding, inner, inner, inner),
        st.builds(m.MoreSlots, inner, inner, inner),
        st.builds(lambda a, b: m.Extra.model_construct(a=a, b=b), inner, inner),
        st.builds(m.Pair, inner, inner),
    ),
    max_leaves=20,
)


@thorough
@given(values)
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    """Nested in any way, with keys and texts of any kind."""
    check(value)


@quick
@given(values, values)
def test_equal_texts_mean_equal_values(one: Any, other: Any) -> None:
    """Two values have one text exactly if nothing tells them apart."""
    if encode(one).text == encode(other).text:
        assert_same(one, other)
    assert encode(copy.deepcopy(one)).text == encode(one).text


@st.composite
def graphs(draw: st.DrawFn) -> Any:
    """Objects that hold each other in any way: shared, crossed, in circles."""
    makers = [list, dict, deque, lambda: m.Node("n"), lambda: m.Slots("s"), OrderedDict, lambda: np.empty(2, object)]
    objects: list[Any] = [draw(st.sampled_from(makers))() for _ in range(draw(st.integers(1, 6)))]
    for holder in objects:
        for i in range(draw(st.integers(0, 3))):
            item = draw(st.sampled_from(objects) | st.integers(0, 3))
            item = (item,) if draw(st.booleans()) else item
            if isinstance(holder, list | deque):
                holder.append(item)
            elif isinstance(holder, dict):
                holder[draw(st.sampled_from(["a", 1, (2,)]))] = item
            elif isinstance(holder, np.ndarray):
                holder[i % 2] = item
            else:
                (holder.links if isinstance(holder, m.Node) else holder.items).append(item)
    return objects


@thorough
@given(graphs())
def test_any_web_of_objects_keeps_its_form(objects: Any) -> None:
    """What was one object is one object, what was two stays two, and circles close."""
    check(objects)


dtypes = st.one_of(
    hnp.scalar_dtypes(),
    hnp.array_dtypes(max_size=3),
    hnp.nested_dtypes(max_leaves=3, max_itemsize=64),
    st.just(np.dtype("S3")),
).filter(
    lambda dtype: (
        "f16" not in str(dtype) and "f12" not in str(dtype) and "c32" not in str(dtype) and "g" not in str(dtype)
    )
)


@thorough
@given(
    dtypes.flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0, max_side=3))),
    st.booleans(),
    st.booleans(),
)
def test_any_array_comes_back_as_it_was(array: Any, transpose: bool, writeable: bool) -> None:
    """Of any dtype, byte order, shape and order."""
    array = array.copy()
    array.setflags(write=writeable)
    check(array.T if transpose else array)


@quick
@given(hnp.scalar_dtypes().filter(lambda d: d.str[1:] not in ("f16", "c32")).flatmap(lambda d: hnp.arrays(d, 1)))
def test_any_numpy_scalar_comes_back_as_it_was(array: Any) -> None:
    """With its own type: a float32 is no float."""
    check([array[0], array.astype(object)[0]])


def series_of(dtype: Any, elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(elements, min_size=4, max_size=4).map(lambda items: pd.Series(items, dtype=dtype))


def missing(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), elements)


stamps = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
columns = st.one_of(
    series_of("Int16", missing(st.integers(-99, 99))),
    series_of("boolean", missing(st.booleans())),
    series_of("Float64", missing(st.floats(allow_nan=False))),
    series_of("str", missing(st.text(max_size=3))),
    series_of(pd.StringDtype("python", na_value=pd.NA), missing(st.text(max_size=3))),
    series_of("float32", st.floats(width=32)),
    series_of("uint64", st.integers(0, 2**64 - 1)),
    series_of("complex64", st.complex_numbers(width=64)),
    series_of("datetime64[s]", missing(stamps)),
    series_of("timedelta64[ms]", missing(st.timedeltas(dt.timedelta(-9), dt.timedelta(9)))),
    series_of("period[W-SUN]", missing(stamps)),
    series_of("category", missing(st.sampled_from([3, 1, 2]))),
    series_of(pd.CategoricalDtype(["b", "a", "unused"], ordered=True), missing(st.sampled_from(["a", "b"]))),
    st.sampled_from(ZONES[1:]).flatmap(
        lambda zone: series_of(pd.DatetimeTZDtype("ns", zone), missing(stamps.map(lambda t: t.replace(tzinfo=dt.UTC))))
    ),
    st.lists(values, min_size=4, max_size=4).map(lambda items: pd.Series(pd.array(object_array(items), dtype=object))),
)


def object_array(items: list[Any]) -> Any:
    array = np.empty(len(items), object)
    for i, item in enumerate(items):
        array[i] = item
    return array


@quick
@given(
    st.lists(columns, min_size=1, max_size=4),
    st.lists(hashables, min_size=4, max_size=4),
    columns,
    st.dictionaries(st.text(max_size=3), values, max_size=2),
)
def test_any_frame_comes_back_as_it_was(parts: list[Any], names: list[Any], index: Any, attrs: dict[str, Any]) -> None:
    """Of any dtypes, under any column names, with any index and attrs."""
    frame = pd.DataFrame(dict(enumerate(parts)))
    frame.columns = pd.Index(object_array(names[: len(parts)]), dtype=object, tupleize_cols=False)
    if index.dtype != object:
        frame.index = pd.Index(index, name=names[-1])
    frame.attrs = attrs
    check([frame, frame.iloc[:, 0], frame.iloc[1:3]])


@quick
@given(
    hpd.data_frames(
        [hpd.column("a", dtype=float), hpd.column("b", dtype=int), hpd.column("c", dtype=bool)],
        index=hpd.range_indexes(max_size=5),
    )
)
def test_ordinary_frames_come_back_as_pandas_itself_compares_them(frame: Any) -> None:
    """The strictest comparison that pandas has finds nothing."""
    encoded = encode(frame)
    again: Any = decode(encoded.text, encoded.blobs.__getitem__, resolver({}))

    pd.testing.assert_frame_equal(
        frame, again, check_exact=True, check_freq=True, check_flags=True, check_column_type=True
    )


ENCODED = [encode(value) for value in everything().values()]
PARTS = [json.loads(encoded.text) for encoded in ENCODED]
BLOBS = {digest: content for encoded in ENCODED for digest, content in encoded.blobs.items()}
JUNK = [
    None,
    True,
    -1,
    10**30,
    1.5,
    "",
    "x",
    [],
    {},
    {"$ref": 0},
    {"$ref": -1},
    {"$ref": "a"},
    {"$type": "list"},
    ["a", 1],
    "<i8",
    "D",
    2**62,
]


def damage(tree: Any, dice: random.Random) -> Any:
    """The same tree with one node lost, or replaced by junk or by a part of another document."""
    if isinstance(tree, dict | list) and tree and dice.random() < 0.85:
        key = dice.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        if dice.random() < 0.1:
            del tree[key]
        else:
            tree[key] = damage(tree[key], dice)
        return tree
    return copy.deepcopy(dice.choice(JUNK if dice.random() < 0.6 else PARTS))


@settings(max_examples=1500, deadline=None)
@given(st.integers(0, len(PARTS) - 1), st.randoms(use_true_random=False))
def test_a_damaged_text_is_refused_or_read_but_never_crashes(which: int, dice: random.Random) -> None:
    """Whatever a stranger writes: a value comes back, or ValueNotLoadable."""
    text = json.dumps(damage(copy.deepcopy(PARTS[which]), dice), ensure_ascii=False)

    try:
        decode(text, BLOBS.__getitem__, resolver({}))
    except ValueNotLoadable as error:
        assert str(error).startswith("a stored value cannot be loaded: ")
