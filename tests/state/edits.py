"""Ways to change values in place, among them those that leave what looks the same."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from tests.state.kinds import Claim, Color, Fixed, Note, Pair, Rank, Seal, Slotted, Sourced, Twin

Way = Callable[[], Any]


def zoo() -> list[Any]:
    """Values of every kind, with every kind of container inside every other that can hold it."""
    return [
        "red",
        1,
        0.0,
        [],
        [1, "red", [0.0, [True]], {"k": [None]}],
        {"a": 1, "b": {"c": [1, 2], "red": Color.RED}, "same": "same"},
        {1: "one", "1": [1.0], (1, 2): {"x": {1}}, None: {}},
        ([1], ({"k": 1},), {"s"}),
        {"red", "b"},
        Claim(text="c", tags=["t", ["u"]]),
        Sourced(text="c", score={"n": [1]}, source="s"),
        Fixed(parts=([1], Claim(tags=[1])), inner={"k": [1]}),
        Note("n", [Note("inner", {"k": 1}), Claim()]),
        Slotted("n", [1, Slotted("m", {"k": [1]})]),
        Seal([1, {"k": {2}}]),
        Pair([1], {"k": [2]}),
        deque([1, [2]]),
        bytearray(b"ab"),
        OrderedDict(a=[1], b=1),
        Counter("aab"),
        [deque([{"k": 1}]), Slotted("x", [1])],
        {"k": [Seal(Slotted("y", {"z": [1]}))]},
    ]


def reachable(value: Any) -> list[Any]:
    """Every part of a value that can be changed in place, in a fixed order."""
    found: dict[int, Any] = {}
    _collect(value, found)
    return list(found.values())


def _collect(value: Any, found: dict[int, Any]) -> None:
    if id(value) in found or isinstance(value, str | bytes | int | float | Decimal | dt.date) or value is None:
        return
    if isinstance(value, list | dict | set | deque | bytearray | BaseModel) or dataclasses.is_dataclass(value):
        found[id(value)] = value
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, BaseModel):
        parts = list(value.__dict__.values())
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, f.name) for f in dataclasses.fields(value)]
    else:
        parts = list(value) if isinstance(value, list | tuple | deque) else []
    for part in parts:
        _collect(part, found)


def twins(value: Any) -> list[Any]:
    """Values that are easily taken for this one: itself, a copy, and what compares equal."""
    found = [value, copy.deepcopy(value)]
    if isinstance(value, int | float) and value in (0, 1):
        found += [int(value), float(value), bool(value), -float(value), Rank.ONE if value else -0.0]
    if isinstance(value, str):
        found += ["".join(value), Color.RED if value == "red" else value + "!"]
    return found


def ways(target: Any, new: Any = "new") -> list[Way]:
    """How this container can be changed in place."""
    if isinstance(target, list | deque | bytearray):
        return _of_sequence(target, 7 if isinstance(target, bytearray) else new)
    if isinstance(target, dict):
        return _of_dict(target, 7 if isinstance(target, Counter) else new)
    if isinstance(target, set):
        return [lambda: target.add("new"), target.clear, lambda: target.discard("red"), lambda: target.add("red")]
    if isinstance(target, Fixed | Seal):
        return []
    names = ["text", "score", "tags"] if isinstance(target, Claim) else ["text", "more"]
    values = [(name, twin) for name in names for twin in [new, *twins(getattr(target, name))]]
    found: list[Way] = [lambda name=name, value=value: setattr(target, name, value) for name, value in values]
    if isinstance(target, Claim):
        found.append(lambda: object.__setattr__(target, "__class__", Twin))
    return found


def _of_sequence(target: Any, new: Any) -> list[Way]:
    found: list[Way] = [lambda: target.append(new), target.reverse, lambda: target.insert(0, new), target.clear]
    for i in range(len(target)):
        found += [
            lambda i=i: target.__setitem__(i, new),
            lambda i=i: target.__delitem__(i),
            lambda i=i: target.append(target[i]),
            lambda i=i: target.insert(0, target[i]),
        ]
        if not isinstance(target, bytearray):
            found += [lambda i=i, twin=twin: target.__setitem__(i, twin) for twin in twins(target[i])]
    return found


def _of_dict(target: dict[Any, Any], new: Any) -> list[Way]:
    found: list[Way] = [lambda: target.__setitem__("k", new), target.clear]
    for key in list(target):
        found += [
            lambda key=key: target.pop(key),
            lambda key=key: target.__setitem__("renamed", target.pop(key)),
            lambda key=key: target.__setitem__(key, target.pop(key)),
        ]
        found += [lambda key=key, twin=twin: target.__setitem__(key, twin) for twin in twins(target[key])]
        found += [lambda key=key, twin=twin: target.__setitem__(twin, target.pop(key)) for twin in twins(key)]
    return found
