"""After Ctrl-C parallel branches end at their next call: what is on its way may still come, and no other begins."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

_NAP_S = 0.1
_stops: ContextVar[tuple[threading.Event, ...]] = ContextVar("resumable_nb_stops", default=())


@contextlib.contextmanager
def stopped_by(stop: threading.Event) -> Iterator[None]:
    """From the moment that `stop` is set, code in this context begins no call. Branches in branches have both stops."""
    token = _stops.set((*_stops.get(), stop))
    try:
        yield
    finally:
        _stops.reset(token)


def is_stopped() -> bool:
    """Whether this branch is to begin nothing more."""
    return any(stop.is_set() for stop in _stops.get())


def refuse_if_stopped() -> None:
    """Raise what stopped it: `except Exception` in a branch must not keep it."""
    if is_stopped():
        raise KeyboardInterrupt("the step was interrupted, and this branch of it makes no further call")


def nap(seconds: float) -> None:
    """Sleep, until the branch is stopped at the longest."""
    end = time.monotonic() + seconds
    while not is_stopped() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _NAP_S) if _stops.get() else left)
