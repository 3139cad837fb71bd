"""`approve` and `approval`: a step goes on only after a person's yes.

A decision is for one gate: the step, the message with exactly this payload, and how often the same was asked in the
run. It is kept with who decided, when, and for what, whether this kernel lives or not. Nothing is approved in advance,
and the first decision stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from resumable_nb.asking import Question
from resumable_nb.errors import Rejected, UsageError
from resumable_nb.scope import Scope, scope

if TYPE_CHECKING:
    from resumable_nb.gates import Answer, Gate

T = TypeVar("T")


class FrontEnd(Protocol):
    """Where a person can click while a cell awaits."""

    def can_wait(self) -> bool:
        """Whether a click can arrive during an `await` here."""

    async def decided(self, question: Question) -> None:
        """Return when a person has decided, here or elsewhere."""


_front_ends: list[FrontEnd] = []


def wait_with(front_end: FrontEnd) -> None:
    """`approval` waits with this front end from now on."""
    _front_ends.append(front_end)


def wait_no_more_with(front_end: FrontEnd) -> None:
    """Undo `wait_with`."""
    if front_end in _front_ends:
        _front_ends.remove(front_end)


@overload
def approve(message: str, payload: None = None, *, raise_on_reject: bool = True) -> Answer[None]: ...
@overload
def approve(message: str, payload: T, *, raise_on_reject: bool = True) -> Answer[T]: ...
def approve(message: str, payload: Any = None, *, raise_on_reject: bool = True) -> Answer[Any]:
    """Go on only if a person approves; use `.payload` of what this returns, for they may have edited it.

    Until somebody decides, the step stops here without an error, and the notebook with it. The decision is taken in the
    panel, by `%resumable approve NAME`, or by `resumable-nb approve STEP`; the next run passes through, after any
    number of restarts. With another message or payload it is another question.

    Args:
        message: the question.
        payload: what exactly is to be approved: JSON values, dataclasses, pydantic models. Without one, the decision
            is for the state as it is now.
        raise_on_reject: False gives the answer instead of raising; it is then false.

    Raises:
        Paused: nobody has decided yet. It is a BaseException, so that `except Exception` does not swallow it; where
            other code keeps it (a pool, `gather`), no effect begins after it, and the end of the step raises it again.
        Rejected: a person said no.
        ValueNotStorable: the payload has no exact form, or holds a secret.
    """
    question = _question(message, payload)
    with question.scope.noting_pauses():
        return question.pass_or_pause(raise_on_reject=raise_on_reject)


@overload
async def approval(message: str, payload: None = None, *, raise_on_reject: bool = True) -> Answer[None]: ...
@overload
async def approval(message: str, payload: T, *, raise_on_reject: bool = True) -> Answer[T]: ...
async def approval(message: str, payload: Any = None, *, raise_on_reject: bool = True) -> Answer[Any]:
    """Go on only if a person approves, as `approve` does; but the cell waits for the decision and goes on by itself.

    Where no click can arrive while a cell runs (a run without a browser, ipykernel older than 7.4), it stops as
    `approve` does.
    """
    question = _question(message, payload)
    try:
        with question.scope.noting_pauses():
            gate = question.look()
            if gate is None or gate.waits:
                gate = await _decided(question, question.ask())
            return question.settle(gate, raise_on_reject=raise_on_reject)
    except Rejected:
        raise
    except BaseException:
        question.give_up()
        raise


async def _decided(question: Question, asked: Gate) -> Gate:
    if not _front_ends or not _front_ends[-1].can_wait():
        raise question.pause(asked)
    await _front_ends[-1].decided(question)
    gate = question.look()
    if gate is None or gate.waits:  # it was closed meanwhile
        raise question.pause(question.ask())
    return gate


def _question(message: str, payload: Any) -> Question:
    ground = scope()
    if ground is None:
        raise UsageError("No thread is open, so nobody can be asked: open one first, such as `%resumable open NAME`.")
    return Question.about(ground, message, payload, default=_state_of(ground) if payload is None else None)


def _state_of(ground: Scope) -> dict[str, str]:
    """What is approved where the code says nothing else: the state as it is now."""
    ground.uses_state = True
    return {"state": ground.thread.live.image().digest}
