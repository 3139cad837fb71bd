"""What answers cost, counted where they are asked for: recorded ones as they did when they were live.

Where a server tells no tokens, they are estimated from the length of the texts: 4 characters for a token. Estimates
are marked as such wherever they go, and never stand in the accounts (`llm_calls`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from resumable_nb.state.context import CHARACTERS_PER_TOKEN

if TYPE_CHECKING:
    from resumable_nb.llm.questions import Question, Reply


@dataclass(frozen=True)
class Usage:
    """What answers cost.

    Attributes:
        model: that answered.
        ms: how long it took when it was live.
        calls: how many answers these are.
        is_estimated: the tokens are estimated: the server told none.
        seq: a row of the journal, of a call that whoever needs its answer shares: it is counted once; 0: not shared.
    """

    model: str
    input_tokens: int
    output_tokens: int
    ms: float
    calls: int = 1
    is_estimated: bool = False
    seq: int = 0


class Meter(Protocol):
    """Looks on while questions are asked."""

    def before(self) -> None:
        """A question is about to be asked. What this raises is raised by `ask`, and nothing is sent."""

    def after(self, used: Usage) -> None:
        """It was answered, from the journal or live."""

    def knows(self, used: Usage) -> bool:
        """Whether this shared call is counted already."""


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

        def knows(self, used: Usage) -> bool:
            return around is not None and around.knows(used)

    with metered(Counting()):
        yield found


def before_call() -> None:
    """Tell the meter of this context, if there is one, that something is about to be sent."""
    if (meter := _meter.get()) is not None:
        meter.before()


def share(calls: Iterable[Usage]) -> None:
    """Tell the meter of this context that answers of these calls are used: those that it does not know are counted.

    They are looked at one by one as if they were sent now, so that a limit ends a replay where it ended the first run.
    """
    meter = _meter.get()
    for used in calls:
        if meter is not None and not meter.knows(used):
            meter.before()
            meter.after(used)


def is_metered() -> bool:
    """Whether somebody counts here."""
    return _meter.get() is not None


def about(characters: int) -> int:
    """How many tokens a text has, where nobody tells."""
    return characters // CHARACTERS_PER_TOKEN + 1


class Measured:
    """One question on its way: tells the meter of this context, if there is one."""

    def __init__(self, question: Question) -> None:
        self._question, self._meter = question, _meter.get()
        if self._meter is not None:
            self._meter.before()
        self._began = time.monotonic()

    def answered(self, reply: Reply) -> Reply:
        """Count what came."""
        if self._meter is not None:
            ms = (time.monotonic() - self._began) * 1e3 if reply.recorded_ms is None else reply.recorded_ms
            model, tokens = self._question.model, (reply.input_tokens, reply.output_tokens)
            untold = not any(tokens)
            if untold:
                tokens = about(self._question.characters), about(len(reply.text))
            self._meter.after(Usage(model, *tokens, ms, is_estimated=untold))
        return reply
