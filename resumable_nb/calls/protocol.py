"""What durable calls need of the step that they are in. `resumable_nb.scope` has the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from resumable_nb.journal import Row


class Claim(Protocol):
    """A number for one call, and the recorded answer that belongs to it."""

    @property
    def occurrence(self) -> int:
        """How often the same was asked before."""
        ...

    @property
    def answer(self) -> Row | None:
        """The whole completing row (phase `done` or `partial`); None: the call goes live."""
        ...


class Scope(Protocol):
    """One run of a step, one object for all its threads and tasks.

    With `step=None` it is the ground outside any step: recorded, never replayed.
    """

    @property
    def step(self) -> str | None:
        """Its name."""
        ...

    def claim(self, key: str, *, kind: str = "llm", request: str = "") -> Claim:
        """The next free number for this question, with the recorded answer if there is one."""
        ...

    def release(self, key: str, occurrence: int, *, kind: str = "llm") -> None:
        """A failed attempt gives its number back."""
        ...

    def append(self, *rows: Row) -> list[int]:
        """Write rows. When it returns they are in the store. Thread-safe."""
        ...

    def notice(self, text: str) -> None:
        """A line for the person, shown when the step ends."""
        ...

    def before_commit(self, callback: Callable[[], None]) -> None:
        """Call this when the step is about to commit."""
        ...

    def context(self) -> str:
        """What a model should know: the state as of the start of this branch."""
        ...


def current_scope() -> Scope | None:
    """The scope of the running step; None if no thread is open. Imported late: `import resumable_nb` stays cheap."""
    from resumable_nb.scope import scope

    return scope()
