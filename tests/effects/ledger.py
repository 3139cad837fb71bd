"""What the functions under test did. A module of its own: a list beside them would be an input of theirs."""

from __future__ import annotations

from typing import Any

CALLS: list[Any] = []


def note(what: Any) -> int:
    """Write it down; gives how many there are now."""
    CALLS.append(what)
    return len(CALLS)
