"""What the answers of `ask` cost, counted where they are asked for: recorded ones as they did when they were live."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from resumable_nb.llm.questions import Reply


@dataclass(frozen=True)
class Usage:
    """What one answer cost.

    Attributes:
        model: that answered.
        ms: how long it took when it was live.
    """

    model: str
    input_tokens: int
    output_tokens: int
    ms: float


class Meter(Protocol):
    """Looks on while questions are asked."""

    def before(self) -> None:
        """A question is about to be asked. What this raises is raised by `ask`, and nothing is sent."""

    def after(self, used: Usage) -> None:
        """It was answered, from the journal or live."""


_meter: ContextVar[Meter | None] = ContextVar("resumable_nb_meter", default=None)


@contextlib.contextmanager
def metered(meter: Meter) -> Iterator[None]:
    """In this context, each question of `ask` is told to a meter; that of the context around it is not told."""
    token = _meter.set(meter)
    try:
        yield
    finally:
        _meter.reset(token)


@contextlib.contextmanager
def counted() -> Iterator[list[Usage]]:
    """What each answer in this context cost, in the order in which they came. A meter around it is told as well."""
    around, found = _meter.get(), list[Usage]()

    class Counting:
        def before(self) -> None:
            if around is not None:
                around.before()

        def after(self, used: Usage) -> None:
            found.append(used)
            if around is not None:
                around.after(used)

    with metered(Counting()):
        yield found


class Measured:
    """One question on its way: tells the meter of this context, if there is one."""

    def __init__(self, model: str) -> None:
        self._model, self._meter = model, _meter.get()
        if self._meter is not None:
            self._meter.before()
        self._began = time.monotonic()

    def answered(self, reply: Reply) -> Reply:
        """Count what came."""
        if self._meter is not None:
            ms = (time.monotonic() - self._began) * 1e3 if reply.recorded_ms is None else reply.recorded_ms
            self._meter.after(Usage(self._model, reply.input_tokens, reply.output_tokens, ms))
        return reply
