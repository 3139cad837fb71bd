"""Every error that the library raises on purpose.

    ResumableError
    ├── UsageError (ValueError)              a magic, a command or a function was called wrongly
    │   └── Misfit                           an edited payload has not the form of the one that was asked about
    ├── StoreError                           the DuckDB file that holds the journal
    │   ├── StoreLocked (TimeoutError)       somebody else holds it
    │   ├── StoreReplaced                    it is not the file that this session wrote to
    │   ├── StoreDamaged                     it, or its WAL, cannot be read whole
    │   ├── StoreUntrusted                   it holds code, or is not what we would have made
    │   ├── TransferDamaged                  a file to be imported is not as it was written
    │   ├── StoreTooNew                      it was written by a newer version
    │   ├── StoreUnwritable (OSError)        disk full, read-only, no locks on this file system
    │   ├── KeyRefused                       the key of an encrypted store is missing, wrong, too weak, or one too many
    │   └── QueryRefused (ValueError)        a query that is no single SELECT or EXPLAIN, or took too long
    ├── ThreadError
    │   ├── ThreadInUse                      another live session has it
    │   ├── ThreadTakenOver                  another session took it over from this one
    │   ├── ThreadNotFound (LookupError)     no such thread, checkpoint or step
    │   ├── NotAsked (LookupError)           a decision about something that nobody asked
    │   └── AlreadyDecided                   a second decision about one gate
    ├── StateError
    │   ├── StateMismatch                    the stored state does not fit the class
    │   └── MigrationFailed                  a migration raised; the snapshot is kept as it is
    ├── ValueNotStorable (TypeError)         a value has no exact form without pickle
    ├── ValueNotLoadable (LookupError)       a stored value needs a class that is not defined here
    ├── StepError
    │   ├── RunFirst                         a cell above has to run before this one
    │   ├── NameTaken                        two cells have one name
    │   └── CallsInFlight                    a step ended before its calls did
    └── CallError
        ├── Rejected                         a person said no
        ├── ResourceGone                     a token, session or handle is gone, and no new one is to be had
        ├── NoModel                          no model is configured, and none is embedded
        └── AnswerRejected (ValueError)      the model's answer does not have the form that was asked for
            └── PromptTooLong                the model takes no prompt of this length

`Paused` and its `Blocked` are not in this tree: they are `BaseException`, so that `except Exception` in a notebook
cannot swallow them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from resumable_nb.asking import Question
    from resumable_nb.gates import Answer
    from resumable_nb.receipts import Doubt


class _OneBlock(BaseException):
    """Show as one block in a notebook instead of a page of traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"\x1b[31m{type(self).__name__}\x1b[0m: {self}"]


def show_as_one_line(error: BaseException, told: str) -> None:
    """Show an exception of Python's own so in a notebook, where the traceback would lead through our code alone."""
    error.__dict__["_render_traceback_"] = lambda: [f"\x1b[31m{type(error).__name__}\x1b[0m: {told}"]


class ResumableError(_OneBlock, Exception):
    """Root of what the library raises on purpose."""


class UsageError(ResumableError, ValueError):
    """A magic, a command or a function was called wrongly."""


class Misfit(UsageError):
    """An edited payload has not the form of the one that was asked about.

    Attributes:
        path: where in the payload: names of fields and numbers of items.
        why: what is wrong there.
    """

    def __init__(self, path: tuple[str | int, ...], why: str) -> None:
        self.path, self.why = path, why
        where = "payload" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        super().__init__(f"{where}: {why}. Nothing was decided.")


class StoreError(ResumableError):
    """Something about the DuckDB file that holds the journal."""


class StoreLocked(StoreError, TimeoutError):
    """Somebody else holds the store."""


class StoreReplaced(StoreError):
    """The file is not the one that this session wrote to: replaced, deleted, or an older copy put back."""


class StoreDamaged(StoreError):
    """The file or its WAL cannot be read whole. Nothing was changed."""


class StoreUntrusted(StoreError):
    """The file holds code, or its tables are not what this library makes."""


class TransferDamaged(StoreError):
    """A file with an exported thread is not as it was written. Nothing was imported."""


class StoreTooNew(StoreError):
    """The file was written by a newer version of this library or of DuckDB."""


class StoreUnwritable(StoreError, OSError):
    """The file cannot be written: disk full, read-only, or a file system without locks."""

    __str__ = Exception.__str__


class KeyRefused(StoreError):
    """The key of an encrypted store is missing, wrong or too weak; or the store is plain, and a key is set."""


class QueryRefused(StoreError, ValueError):
    """A query that is no single SELECT or EXPLAIN, that reaches outside, or that took too long."""


class ThreadError(ResumableError):
    """Something about one thread of research."""


class ThreadInUse(ThreadError):
    """Another live session has the thread."""


class ThreadTakenOver(ThreadError):
    """Another session took the thread over; this one can write no more."""


class ThreadNotFound(ThreadError, LookupError):
    """No such thread, checkpoint or step."""


class NotAsked(ThreadError, LookupError):
    """A decision about something that does not wait for one. Nothing is approved in advance."""


class AlreadyDecided(ThreadError):
    """Somebody decided about this gate before. The first decision stands."""


class StateError(ResumableError):
    """Something about the research state."""


class StateMismatch(StateError):
    """The stored state does not fit the class: a field is missing, or has another type."""


class MigrationFailed(StateError):
    """A migration raised. The stored snapshot is kept as it is."""


class ValueNotStorable(ResumableError, TypeError):
    """A value has no exact form without pickle, or must not be stored (a secret).

    Attributes:
        path: where in the value, such as `names['cfg'][0]`.
        why: one short sentence.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} cannot be stored: {why}")
        self.path, self.why = path, why


class ValueNotLoadable(ResumableError, LookupError):
    """A stored value needs a class that is not defined here, or is damaged."""


class StepError(ResumableError):
    """Something about one step."""


class RunFirst(StepError):
    """A cell above has not ended as it stands now, and this cell needs what it leaves.

    Attributes:
        cell_id: the cell to run first.
        step: its name, or None for an ordinary cell.
    """

    def __init__(self, message: str, *, cell_id: str, step: str | None) -> None:
        super().__init__(message)
        self.cell_id, self.step = cell_id, step


class NameTaken(StepError):
    """Another cell above has this name.

    Attributes:
        cell_id: the cell that has the name.
    """

    def __init__(self, message: str, *, cell_id: str) -> None:
        super().__init__(message)
        self.cell_id = cell_id


class CallsInFlight(StepError):
    """A step ended while calls that it had started were still running."""


class CallError(ResumableError):
    """Something about one durable call."""


class Rejected(CallError):
    """A person said no at a gate.

    Attributes:
        answer: what they decided: who, when, and their comment.
    """

    def __init__(self, message: str, answer: Answer[Any]) -> None:
        super().__init__(message)
        self.answer = answer


class ResourceGone(CallError):
    """Something outside went stale, and acquiring it again failed. Nothing was done with it."""


class NoModel(CallError):
    """No model is configured, and none is embedded."""


class AnswerRejected(CallError, ValueError):
    """The model's answer does not have the form that was asked for."""


class PromptTooLong(AnswerRejected):
    """The model takes no prompt of this length. Nothing was answered, and nothing paid."""


class Paused(_OneBlock):
    """The step waits for a person. No error: `except Exception` does not catch it.

    Attributes:
        question: what is asked, for a panel to show; None where the message says it all.
        doubts: effects that a person has to settle, for panels to show.
    """

    def __init__(self, message: str, question: Question | None = None, doubts: tuple[Doubt, ...] = ()) -> None:
        super().__init__(message)
        self.question, self.doubts = question, doubts

    def _render_traceback_(self) -> list[str]:
        return [str(self)]  # one line without colour: front ends put it on a ground of their own


class Blocked(Paused):
    """The step cannot go on, and no decision would help: it has failed. The message says what to do."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside a group, however nested; an error that is no group is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def main_error(error: BaseException) -> BaseException:
    """The one that counts: a pause before all else, then the only one of a group, else the group."""
    found = list(leaves(error))
    paused = next((leaf for leaf in found if isinstance(leaf, Paused)), None)
    return paused or (found[0] if len(found) == 1 else error)
