"""Too deep, too large, changing, hostile: a clear error, never a crash."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from resumable_nb.errors import ValueNotLoadable, ValueNotStorable
from resumable_nb.values import decode, encode, encode_names, resolver
from tests.values import models as m
from tests.values.strict import assert_same

WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda inner: [inner],
    "tuple": lambda inner: (inner,),
    "dict": lambda inner: {"a": inner},
    "pairs": lambda inner: {1: inner},
    "frozenset": lambda inner: frozenset([inner]),
    "dataclass": lambda inner: m.Node("n", [inner]),
    "frozen": lambda inner: m.FrozenSlots("x", inner),
    "model": lambda inner: m.Extra.model_construct(a=inner),
    "named tuple": lambda inner: m.Point(inner),
    "slice": lambda inner: slice(inner),
}


def nested(wrap: Callable[[Any], Any], depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def unwrap(value: Any) -> None:
    """Take a deep value apart from the top: freeing it at once may exhaust the stack of C."""
    while isinstance(value, list | tuple) and value:
        value = value[0]


@pytest.mark.parametrize("kind", ["list", "tuple", "dict", "pairs", "dataclass", "model"])
def test_nesting_without_end_is_refused(kind: str) -> None:
    """100,000 levels are refused in clear words, by `encode` and by `encode_names`."""
    value = nested(WRAPPERS[kind], 100_000)
    try:
        with pytest.raises(ValueNotStorable, match="nested more than 100 levels deep"):
            encode(value)
        assert "nested more than 100" in encode_names({"v": value, "n": 1}).failed["v"]
        assert encode_names({"v": value, "n": 1}).text == '{"n":1}'
    finally:
        unwrap(value)


@pytest.mark.parametrize("kind", WRAPPERS)
def test_nesting_that_is_stored_can_be_loaded(kind: str) -> None:
    """The deepest value that is taken comes back, also where the stack is half used."""
    depth = {"frozenset": 20, "dataclass": 45}.get(kind, 90)  # this dataclass has a list on every level
    value = nested(WRAPPERS[kind], depth)

    def below(frames: int) -> None:
        if frames:
            below(frames - 1)
        else:
            encoded = encode(value)
            assert encode(decode(encoded.text, encoded.blobs.__getitem__, resolver({}))).text == encoded.text

    below(100)


def test_the_stack_of_the_caller_may_be_short() -> None:
    """No RecursionError, whoever calls."""
    value = nested(WRAPPERS["dataclass"], 45)
    text = encode(value).text

    def call(frames: int, work: Callable[[], Any]) -> Any:
        return call(frames - 1, work) if frames else work()

    spare = sys.getrecursionlimit() - len_of_stack() - 60
    with pytest.raises(ValueNotStorable, match="deep"):
        call(spare, lambda: encode(value))
    with pytest.raises(ValueNotLoadable, match="deep"):
        call(spare, lambda: decode(text, {}.__getitem__, resolver({})))
    assert "deep" in call(spare, lambda: encode_names({"v": value})).failed["v"]


def len_of_stack() -> int:
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return depth


@pytest.mark.parametrize(
    "value",
    [
        "x" * 3000,
        b"x" * 3000,
        ["y" * 10] * 300,
        {f"k{i}": i for i in range(500)},
        np.zeros(500),
        pd.DataFrame({"a": range(500)}),
        [[]] * 5000,
        np.array(["z" * 3000]),
    ],
    ids=["text", "bytes", "list", "dict", "array", "frame", "containers", "texts"],
)
def test_a_value_past_the_limit_is_refused_with_both_sizes(value: Any) -> None:
    """The message says how large it is and how large it may be."""
    with pytest.raises(ValueNotStorable, match=r"it takes [\d.,]+ MiB or more, and the limit is 0\.0 MiB"):
        encode(value, limit_bytes=2000)
    encoded = encode_names({"big": value, "small": "s"}, limit_bytes=2000)
    assert encoded.text == '{"small":"s"}'
    assert encoded.blobs == {}
    assert "the limit is" in encoded.failed["big"]


def test_the_limit_is_one_for_all_names() -> None:
    """Names are taken in alphabetical order while they fit."""
    encoded = encode_names({"a": b"x" * 1000, "b": b"y" * 1500, "c": b"z" * 500}, limit_bytes=2000)

    assert set(encoded.failed) == {"b"}


def test_tuples_that_share_their_parts_do_not_explode() -> None:
    """Equal parts are written each time they occur, and counted."""
    pair: Any = ()
    ordinal: Any = frozenset()
    for _ in range(60):
        pair = (pair, pair)
        ordinal = frozenset([ordinal, (ordinal,)])

    for value in (pair, ordinal):
        with pytest.raises(ValueNotStorable, match="limit"):
            encode(value, limit_bytes=100_000)


def test_a_wide_array_is_refused_before_it_is_copied() -> None:
    """An array that shows a few bytes as terabytes costs nothing."""
    with pytest.raises(ValueNotStorable, match="limit"):
        encode(np.broadcast_to(np.float64(1), (1_000_000, 1_000_000)))


def test_a_value_that_changes_meanwhile_is_refused() -> None:
    """Another thread may fill a dict while it is stored: an error in clear words, or one moment of it."""
    value: dict[str, Any] = {f"k{i}": [i] for i in range(2000)}
    stop = threading.Event()

    def change() -> None:
        for i in range(10**9):
            value[f"n{i % 5000}"] = [i]
            value.pop(f"n{(i * 7) % 5000}", None)
            if stop.is_set():
                return

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(20):
            try:
                json.loads(encode(value).text)
                assert all("changed while" in why for why in encode_names({"v": value}).failed.values())
            except ValueNotStorable as error:
                assert "changed while it was being stored" in error.why
    finally:
        stop.set()
        thread.join()


def test_a_set_in_a_circle_is_refused() -> None:
    """A set, a key or a frame that holds an object that contains it could not be made again."""
    node = m.Node("a")
    node.links = {node}  # type: ignore[assignment]
    keyed = m.Node("b")
    keyed.links = {keyed: 1}  # type: ignore[assignment]
    frame = pd.DataFrame({"a": [None]}, dtype=object)
    frame.iloc[0, 0] = holder = [frame]

    for value in (node, keyed, frame, holder):
        with pytest.raises(ValueNotStorable, match="holds an object that contains it"):
            encode(value)


FIELDS = '{"names":["a"],"formats":["<f8"],"offsets":[0],"itemsize":8,"aligned":false}'
RANGE = '{"$type":"RangeIndex","start":0,"stop":1,"step":1}'
CODES = '{"dtype":"|i1","shape":[1],"base64":"BQ=="}'
HOSTILE = {
    "no json": "{",
    "empty": "",
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "not a number": "[NaN]",
    "infinity": "[Infinity]",
    "a number without end": "9" * 10_000,
    "refers to itself": '{"$ref":0}',
    "refers to a ref": '[{"$ref":2},{"$ref":1}]',
    "refers nowhere": '[{"$ref":9}]',
    "refers before the first": '[{"$ref":-1}]',
    "tuple in a circle": '{"$type":"tuple","items":[{"$ref":0}]}',
    "frozenset in a circle": '{"$type":"frozenset","items":[{"$ref":0}]}',
    "unknown type": '{"$type":"nonsense"}',
    "type is no name": '{"$type":[1]}',
    "unhashable key": '{"$type":"dict","items":[[[],1]]}',
    "unhashable item": '{"$type":"set","items":[{}]}',
    "huge array": '{"$type":"ndarray","dtype":"<f8","shape":[1000000,1000000],"base64":""}',
    "huge objects": '{"$type":"ndarray","dtype":"|O","shape":[1000000000000],"items":[]}',
    "objects from bytes": '{"$type":"ndarray","dtype":"|O","shape":[1],"base64":"AAAAAAAAAAA="}',
    "structured from bytes": '{{"$type":"ndarray","dtype":{},"shape":[1],"base64":"AAAAAAAAAAA="}}'.format(
        FIELDS.replace("<f8", "|O")
    ),
    "huge fields": f'{{"$type":"ndarray","dtype":{FIELDS},"shape":[1000000000000],"fields":[{{"base64":""}}]}}',
    "negative shape": '{"$type":"ndarray","dtype":"<f8","shape":[-1],"base64":"AAAAAAAAAAA="}',
    "code outside": f'{{"$type":"MultiIndex","names":[null],"levels":[{RANGE}],"codes":[{CODES}]}}',
    "folder as a zone": '{"$type":"ZoneInfo","zone":"America"}',
    "path as a zone": '{"$type":"ZoneInfo","zone":"../../etc/passwd"}',
    "factory that is a function": '{"$type":"defaultdict","factory":{"$type":"type","name":"eval"},"items":[]}',
    "factory that is a value": '{"$type":"defaultdict","factory":1,"items":[]}',
    "missing blob": '{"$type":"bytes","sha256":"' + "0" * 64 + '","size":1}',
    "path as a hash": '{"$type":"bytes","sha256":"../../etc/passwd","size":1}',
    "bad base64": '{"$type":"bytes","base64":"?"}',
    "module is no name": '{"$type":"a","$module":[1]}',
    "date outside": '{"$type":"date","value":"0000-00-00"}',
    "division by nothing": '{"$type":"Fraction","numerator":1,"denominator":0}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_refused_in_clear_words(name: str) -> None:
    """Bounded in time and memory, and always as ValueNotLoadable."""
    with pytest.raises(ValueNotLoadable) as caught:
        decode(HOSTILE[name], {}.__getitem__, resolver({}))

    assert str(caught.value).startswith("a stored value cannot be loaded: ")
    assert len(str(caught.value)) < 400


def test_a_blob_that_is_not_what_its_hash_says_is_refused() -> None:
    """Damaged content does not become a value."""
    encoded = encode(b"x" * 300)

    with pytest.raises(ValueNotLoadable, match="is damaged"):
        decode(encoded.text, lambda _digest: b"y" * 300, resolver({}))


def test_errors_of_the_store_are_not_taken_for_damage() -> None:
    """What the store raises passes as it is."""

    def blobs(_digest: str) -> bytes:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        decode(encode(b"x" * 300).text, blobs, resolver({}))


def test_large_values_come_back_exactly() -> None:
    """20 MB of bytes, 5 MB of text with NUL and emoji, a frame of 100,000 rows."""
    frame = pd.DataFrame({"n": np.arange(100_000), "t": [f"row {i}" for i in range(100_000)]})
    value = {"bytes": bytes(range(256)) * 80_000, "text": "a\x00é😀" * 1_250_000, "frame": frame}

    encoded = encode(value)

    assert_same(value, decode(encoded.text, encoded.blobs.__getitem__, resolver({})))


def test_encoding_costs_little_more_than_json() -> None:
    """Plain values are written by the encoder of C: no more than a few calls of Python for each container."""
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    strings, table = ["short"] * 10_000, {f"key {i}": f"value {i}" for i in range(30)}
    for value, limit in [(strings, 150), (table, 300)]:
        calls = 0
        sys.setprofile(count)
        try:
            encode(value)
        finally:
            sys.setprofile(None)
        assert calls < limit + 6 * len(__import__("os").environ)


@dataclass
class Slow:
    a: int = 1


def test_classes_are_looked_up_once_per_object_at_most() -> None:
    """Loading a thousand findings asks for their class a thousand times, and imports nothing."""
    encoded = encode([Slow(i) for i in range(1000)])
    asked: list[str] = []

    def resolve(module: str, qualname: str) -> type:
        asked.append(f"{module}.{qualname}")
        return Slow

    loaded: Any = decode(encoded.text, encoded.blobs.__getitem__, resolve)

    assert loaded == [Slow(i) for i in range(1000)]
    assert len(asked) == 1000
