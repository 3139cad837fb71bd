"""What an object itself holds, past properties, `__getattr__` and every other code of its class."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any

_WORD = struct.calcsize("P")

# What an object of a builtin type, or of a class derived from it, holds beside attributes.
_CONTENT: dict[type, Callable[[Any], object]] = {
    list: list.copy,
    dict: dict.copy,
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    int: int.__int__,
    float: float.__float__,
    deque: deque.copy,
    BaseException: lambda value: value.args,
}


def content_of(value: object) -> object | None:
    """Items, characters or number of a builtin value, or of an object whose class is derived from a builtin one."""
    take = next((take for base, take in _CONTENT.items() if isinstance(value, base)), None)
    return None if take is None else take(value)


def state_of(value: object) -> dict[str, Any]:
    """Attributes of an object: what its slots and its `__dict__` hold."""
    found: dict[str, Any] = {}
    kind: type = type(value)
    for name, slot in _slots(kind):
        try:
            found[name] = slot.__get__(value)
        except AttributeError:  # never filled
            continue
    try:
        found |= object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return found
    return found


@lru_cache(maxsize=4096)
def is_plain_object(kind: type) -> bool:
    """Whether attributes are all that an object of a class can hold: no base keeps anything else in C."""
    return not any(map(_hides_state, kind.__mro__))


def _hides_state(kind: type) -> bool:
    """Whether objects are larger than what the class statement accounts for: slots, `__dict__` and `__weakref__`."""
    if (base := kind.__base__) is None:
        return False
    slots = sum(type(member) is MemberDescriptorType for member in vars(kind).values())
    has_weakref = kind.__weakrefoffset__ > 0 and base.__weakrefoffset__ == 0
    has_dict = kind.__dictoffset__ > 0 and base.__dictoffset__ == 0
    size = base.__basicsize__ + _WORD * (slots + has_weakref + has_dict)
    return kind.__basicsize__ != size or kind.__itemsize__ != base.__itemsize__


@lru_cache(maxsize=1024)
def _slots(kind: type) -> tuple[tuple[str, MemberDescriptorType], ...]:
    found = {n: m for base in reversed(kind.__mro__) for n, m in vars(base).items() if type(m) is MemberDescriptorType}
    return tuple(found.items())
