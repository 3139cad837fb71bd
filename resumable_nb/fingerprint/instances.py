"""What an object itself holds, past properties, `__getattr__` and every other code of its class."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, or alike
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


def is_plain_object(kind: type) -> bool:
    """Whether attributes are all that an object of a class can hold: none of its bases is an extension type."""
    return all(base is object or base.__flags__ & _HEAP_TYPE or base.__module__ == "typing" for base in kind.__mro__)


@lru_cache(maxsize=1024)
def _slots(kind: type) -> tuple[tuple[str, MemberDescriptorType], ...]:
    found = {n: m for base in reversed(kind.__mro__) for n, m in vars(base).items() if type(m) is MemberDescriptorType}
    return tuple(found.items())
