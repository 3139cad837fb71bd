"""What an object itself holds, past properties, `__getattr__` and every other code of its class."""

from __future__ import annotations

from functools import lru_cache
from types import MemberDescriptorType
from typing import Any

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, or alike


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
