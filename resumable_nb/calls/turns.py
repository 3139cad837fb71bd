"""One at a time: two calls of one effect in a process wait for each other, threads and tasks alike."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

from resumable_nb.calls.off_loop import off_loop
from resumable_nb.errors import UsageError

Place = tuple[str, str]
"""A session and a key."""


class _Turn:
    """Who has it."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.over = threading.Event()


_lock = threading.Lock()
_turns: dict[Place, _Turn] = {}


def is_taken(place: Place) -> bool:
    """Whether somebody in this process has it."""
    return place in _turns


def _taken(place: Place) -> _Turn | None:
    """None: it is ours now. Else who has it."""
    with _lock:
        other = _turns.get(place)
        if other is None:
            _turns[place] = _Turn()
        return other


def _give_up(place: Place) -> None:
    with _lock:
        _turns.pop(place).over.set()


@contextlib.contextmanager
def turn(place: Place) -> Iterator[None]:
    """Wait for the turn, blocking this thread.

    Raises:
        UsageError: This thread has it already, in the same call or in a task: it would wait for itself.
    """
    while (other := _taken(place)) is not None:
        if other.thread == threading.get_ident():
            raise UsageError(
                f"The effect with the key {place[1]!r} was called again by the thread that is running it. Nothing was "
                "run a second time; call it once, or await the first call."
            )
        other.over.wait()
    try:
        yield
    finally:
        _give_up(place)


@contextlib.asynccontextmanager
async def turn_async(place: Place) -> AsyncIterator[None]:
    """Wait for the turn, without blocking the event loop."""
    while (other := _taken(place)) is not None:
        await off_loop(other.over.wait)
    try:
        yield
    finally:
        _give_up(place)
