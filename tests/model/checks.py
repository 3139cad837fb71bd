"""Promise 1: what a kernel sees of a thread is what the journal says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from resumable_nb.cells import Record
from resumable_nb.fold import Fold
from resumable_nb.journal import Row
from resumable_nb.state import Image
from tests.model.notebook import visible_state

if TYPE_CHECKING:
    from tests.model.notebook import Process


class Failure(AssertionError):
    """A counterexample: the sequence that leads to it."""

    trace: list[str]


def require(holds: bool, kind: str, *what: object) -> None:
    """One of the checks of `session.py`."""
    if not holds:
        raise Failure(f"{kind}: " + " ".join(map(str, what)))


_STATE_AT = "SELECT field, value FROM state_at($1, (SELECT max(seq) FROM checkpoints WHERE thread_id = $1))"


def stored_state(process: Process, *, for_people: bool = True) -> dict[str, Any]:
    """The state at the newest checkpoint, folded by the store's own macro `state_at`.

    Args:
        process: with the thread.
        for_people: ask as `thread.sql` does; else over the open connection, which takes 2 ms instead of 50.
    """
    thread = process.kernel.thread
    if for_people:
        found = thread.sql(_STATE_AT, [thread.thread_id])
        rows = list(zip(found["field"], found["value"], strict=True))
    else:
        with thread.store._lease.using() as con:
            rows = con.execute(_STATE_AT, [thread.thread_id]).fetchall()
    return {field: json.loads(value) for field, value in rows}


def is_dense(process: Process) -> bool:
    """Whether the journal of the thread has rows 1 to n, and the kernel has seen them all."""
    thread = process.kernel.thread
    with thread.store._lease.using() as con:
        sql = "SELECT count(*), min(seq), max(seq) FROM journal WHERE thread_id = ?"
        count, first, last = con.execute(sql, [thread.thread_id]).fetchall()[0]
    return bool(first == 1 and count == last == thread.session.head)


def read_again(process: Process) -> Fold:
    """The journal of the thread, folded anew."""
    fold = Fold()
    fold.apply_all(process.kernel.thread.session.read(bodies=False))
    return fold


def differences(fold: Fold, other: Fold) -> list[str]:
    """What two folds of one journal say differently; caches and whole rows apart, and what only a living kernel knows."""
    kinds = (int, list, set, dict)
    apart = {"head", "unfinished"}
    mine, theirs = vars(fold), vars(other)
    return [n for n, x in mine.items() if isinstance(x, kinds) and n not in apart and _bare(x) != _bare(theirs[n])]


def _bare(value: Any) -> Any:
    """Without rows and what is made of them when it is asked for."""
    if isinstance(value, dict):
        return {k: _bare(v) for k, v in value.items() if not isinstance(v, Row | Record | Image)}
    return [_bare(v) for v in value if not isinstance(v, Row)] if isinstance(value, list) else value


def check_opening(process: Process) -> None:
    """A kernel that has just opened the thread sees the newest checkpoint."""
    state = process.kernel.thread.state
    require(process.state == visible_state(state), "same", process.state, "but the journal:", state)
    check_stored(process)


def check_stored(process: Process, *, for_people: bool = False) -> None:
    """`thread.state` is what the store's own macro folds, field by field."""
    require(is_dense(process), "same", "the journal has gaps, or the kernel has not seen all of it")
    stored, state = stored_state(process, for_people=for_people), process.kernel.thread.state
    fields = set(type(state).model_fields)
    require(stored.keys() == fields, "same", "fields", sorted(stored), "but the class:", sorted(fields))
    for name, value in stored.items():
        require(value == getattr(state, name), "same", name, value, "but the kernel:", getattr(state, name))


def check_memory(process: Process) -> None:
    """A living kernel knows of the journal what one that reads it anew does, once it looked at what others wrote."""
    process.kernel.thread.session.refresh()
    unlike = differences(process.kernel.thread.fold, read_again(process))
    require(not unlike, "same", "the kernel knows something else than the journal says:", unlike)
