"""Names that are stored together."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from resumable_nb.values import decode_names, encode_names, resolver
from tests.values import models as m
from tests.values.samples import everything
from tests.values.strict import assert_same


def round_trip(names: dict[str, Any], **options: Any) -> dict[str, Any]:
    encoded = encode_names(names)
    assert encoded.failed == {}
    return decode_names(encoded.text, encoded.blobs.__getitem__, resolver({}), **options)


def test_two_names_for_one_list_come_back_as_one() -> None:
    """Aliases across names and cycles survive: `b` follows `a`."""
    a: list[Any] = []
    c: list[Any] = []
    c.append(c)

    names = round_trip({"a": a, "b": a, "c": c, "d": {"deep": (a,)}})
    names["a"].append(1)

    assert names["b"] == [1]
    assert names["d"]["deep"][0] is names["a"]
    assert names["c"][0] is names["c"]


def test_every_kind_of_mutable_value_keeps_its_identity() -> None:
    """Also objects, arrays and frames; texts and numbers that happen to be one object are no aliases."""
    for value in (
        [1],
        {"a": 1},
        {1: 2},
        {1},
        bytearray(b"x"),
        m.Finding("x"),
        m.Base(name="x"),
        m.Node("x"),
        m.Slots("x"),
        np.arange(3),
        pd.Series([1]),
        pd.DataFrame({"a": [1]}),
        pd.Categorical(["a"]),
        np.ma.array([1]),
    ):
        names = round_trip({"a": value, "b": value, "c": [value]})
        assert names["a"] is names["b"] is names["c"][0]
        assert_same({"a": value, "b": value, "c": [value]}, names)
    assert encode_names({"a": "x", "b": "x"}).text == '{"a":"x","b":"x"}'


def test_all_samples_together_come_back_as_they_were() -> None:
    """In one document, with everything that they share."""
    samples = {f"n{i}": value for i, value in enumerate(everything().values())}

    assert_same(dict(sorted(samples.items())), round_trip(samples))


def test_the_order_of_the_names_does_not_count() -> None:
    """The text is that of the names and values, however they were bound."""
    shared = [1]

    assert encode_names({"b": shared, "a": shared}).text == encode_names({"a": shared, "b": shared}).text


@pytest.mark.parametrize("only", [{"a"}, {"b"}, {"c"}, {"b", "c"}, set(), {"missing"}])
def test_some_of_the_names_can_be_loaded(only: set[str]) -> None:
    """Whatever they share with names that are not wanted."""
    shared = [1]
    names = {"a": [shared], "b": shared, "c": {"x": (shared, 2)}}

    loaded = round_trip(names, only=only)

    assert_same({name: names[name] for name in sorted(only) if name in names}, loaded)


def iterate(shared: list[Any]) -> Any:
    yield from shared


def closure(shared: list[Any]) -> Any:
    return lambda: shared


def default(shared: list[Any]) -> Any:
    def function(x: Any = shared) -> Any:
        return x

    return function


HOLDERS = {
    "list with a lock": lambda shared: [threading.Lock(), shared],
    "list with a lock after it": lambda shared: [shared, threading.Lock()],
    "ordinary object": m.Opaque,
    "object in an object": lambda shared: m.Opaque(m.Opaque({"k": shared})),
    "dataclass with a lock": lambda shared: m.Finding("x", threading.Lock(), shared),  # type: ignore[arg-type]
    "generator": iterate,
    "generator expression": lambda shared: (i for i in shared),
    "iterator": iter,
    "map": lambda shared: map(str, shared),
    "closure": closure,
    "default of an argument": default,
    "bound method": lambda shared: m.Opaque(shared).__init__,  # type: ignore[misc]
    "method of the list": lambda shared: shared.append,
    "partial": lambda shared: partial(print, shared),
    "subclass of dict": lambda shared: m.OwnDict(a=shared),
    "too deep": lambda shared: nest(shared, 500),
    "credential": lambda shared: {"password": "x", "list": shared},
}


def nest(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("kind", HOLDERS)
def test_a_name_that_shares_with_one_that_fails_is_left_out_too(kind: str) -> None:
    """What is restored is never split from what is rebuilt, whatever holds the shared object."""
    shared = [1]
    encoded = encode_names({"holder": HOLDERS[kind](shared), "a": {"x": shared}, "z": shared, "free": [1]})

    assert encoded.text == '{"free":[1]}'
    assert set(encoded.failed) == {"holder", "a", "z"}
    assert encoded.failed["z"].startswith("it shares an object with '")
    assert encoded.failed["z"].endswith("which cannot be stored")


def test_failure_spreads_along_a_chain_and_no_farther() -> None:
    """`c` shares with `b`, `b` with `a`; `d` shares with none of them."""
    one, two = [1], [2]
    encoded = encode_names({"a": [one, threading.Lock()], "b": [one, two], "c": two, "d": [1], "e": (1, "x", None)})

    assert set(encoded.failed) == {"a", "b", "c"}


def test_the_notebook_itself_is_no_shared_object() -> None:
    """An object that knows the notebook's namespace does not keep every name from being stored."""
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": {}, "a": [1]}
    namespace["shell"] = m.Opaque(namespace)

    assert set(encode_names({"a": namespace["a"], "shell": namespace["shell"]}).failed) == {"shell"}


def test_the_reason_says_where() -> None:
    """The place in the value, then why."""
    failed = encode_names({"cfg": {"x": [0, {"y": threading.Lock()}]}, "f": test_the_reason_says_where}).failed

    assert failed["cfg"] == "['x'][1]['y']: a value of type _thread.lock has no exact form without pickle"
    assert failed["f"] == "a value of type function has no exact form without pickle"


def views() -> dict[str, tuple[Any, Any]]:
    base = np.arange(12)
    buffer = bytearray(b"x" * 24)
    frame = pd.DataFrame({"a": base, "b": base}, copy=False)
    structured = np.zeros(3, [("a", "i4"), ("b", "f8")])
    return {
        "slice": (base, base[2:5]),
        "two slices": (base[:6], base[4:]),
        "reshaped": (base, base.reshape(3, 4)),
        "transposed": (base.reshape(3, 4), base.reshape(3, 4).T),
        "other dtype": (base, base.view("u1")),
        "field": (structured, structured["a"]),
        "bytearray": (buffer, np.frombuffer(buffer, "u1")),
        "array of a bytearray, first": (np.frombuffer(buffer, "u1"), buffer),
        "values of a series": (pd.Series([1, 2]), None),
        "column": (frame, base),
        "nullable": (pd.Series(pd.arrays.IntegerArray(base, base > 20), copy=False), base),
        "times": (pd.Series(stamps := np.zeros(3, "M8[s]"), copy=False), stamps),
        "array of a series": (series := pd.Series([1.0, 2.0]), series.array),
        "categories of a series": (labels := pd.Series(["a"], dtype="category"), labels.array),
        "masked": (base, np.ma.MaskedArray(base, copy=False)),
    }


@pytest.mark.parametrize("kind", views())
def test_arrays_over_one_memory_are_left_out_together(kind: str) -> None:
    """They would become two: a change of one would no longer be seen in the other."""
    one, other = views()[kind]
    other = one.to_numpy() if other is None else other
    for names in (
        {"a": one, "b": other, "n": 1},
        {"a": [one], "b": {"k": other}, "n": 1},
        {"b": one, "a": other, "n": 1},
    ):
        encoded = encode_names(names)
        assert encoded.text == '{"n":1}'
        assert all("it shares memory with" in encoded.failed[name] for name in "ab")


def test_arrays_that_only_touch_are_stored() -> None:
    """Parts of one memory that do not overlap; frames among themselves, which copy on write."""
    base = np.arange(10)
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4]})

    assert not encode_names({"a": base[:5], "b": base[5:], "c": base.copy()}).failed
    assert not encode_names({"even": base[::2], "odd": base[1::2]}).failed
    assert not encode_names(
        {"f": frame, "g": frame[["a"]], "s": frame["a"], "v": frame.iloc[1:], "w": frame.copy(deep=False)}
    ).failed
    assert not encode_names({"b": base[2:5]}).failed
