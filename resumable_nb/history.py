"""What a thread was at any moment: which row is meant, the state there, and what differs between two."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from resumable_nb import comparison
from resumable_nb.errors import ThreadNotFound, UsageError
from resumable_nb.fold import Fold
from resumable_nb.journal import Row
from resumable_nb.panel import Panel

if TYPE_CHECKING:
    from resumable_nb.comparison import Change
    from resumable_nb.journal import Store
    from resumable_nb.state import Image

Moment = int | str
"""A row of the journal; a step's name (after its last run); `newest`, `start`; -1, -2, … count back in the lineage."""
NEWEST, START = "newest", "start"


class Diff(list[dict[str, Any]]):
    """What differs between two states: a row per field, which shows itself as a panel.

    Each row has `field`, `before` and `after` (JSON values; None where the field is missing) and `changes`, a list with
    each place in it that differs.

    Attributes:
        title: from where to where.
        changes: all places that differ, in the order of the fields.
    """

    def __init__(self, title: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        self.title = title
        self.changes: list[Change] = comparison.changes(before, after)
        places: dict[str, list[dict[str, Any]]] = {}
        for change in self.changes:
            places.setdefault(change.field, []).append(change.as_row())
        super().__init__(
            {"field": name, "before": before.get(name), "after": after.get(name), "changes": found}
            for name, found in places.items()
        )

    def panel(self) -> Panel:
        """For a person: of lists what came and went, of texts the words that changed; long values cut."""
        shown = comparison.lines(self.changes)
        return Panel(self.title, shown) if shown else Panel(f"{self.title}: the states are the same")

    def __repr__(self) -> str:
        return self.panel().text()

    def _repr_html_(self) -> str:
        return self.panel().html()


def read(store: Store, thread_id: str) -> Fold:
    """The journal of a thread, folded without opening it, and without trusting the file."""
    fold = Fold()
    fold.apply_all(store.look(thread_id))
    return fold


def find(fold: Fold, thread_id: str, moment: Moment, *, head: int = 0) -> int:
    """The journal row that is meant.

    Args:
        fold: the thread.
        thread_id: its name.
        moment: what a person says.
        head: its newest row, where that is no row that is folded.

    Raises:
        ThreadNotFound: there is no such row or step, it has never ended, or what it left was pruned.
        UsageError: it is neither a whole number nor a text.
    """
    moment = _number(fold, thread_id, moment) if isinstance(moment, str) else _whole(moment)
    if moment < 0:
        if -moment > len(fold.chain):
            raise ThreadNotFound(
                f"Thread {thread_id!r} has {len(fold.chain)} checkpoints in its lineage, so there is no {moment}."
            )
        return fold.chain[moment]
    if not 1 <= moment <= (head := max(head, fold.head)):
        raise ThreadNotFound(
            f"Thread {thread_id!r} has no row {moment}: it has 1 to {head}. See `%resumable history`, or "
            "`resumable-nb history`."
        )
    return moment


def _whole(moment: Any) -> int:
    """The number of a row, which may come out of a DataFrame, where it can be 12.0."""
    with suppress(TypeError, ValueError, OverflowError):
        if int(moment) == moment:
            return int(moment)
    raise UsageError(
        f"{moment!r} is no moment of a thread: give a row's number, a step's name, `{NEWEST}`, `{START}`, or -1, -2, …"
    )


def _number(fold: Fold, thread_id: str, words: str) -> int:
    """What a person writes as a number: a row, or, below 0, a count back in the lineage."""
    if words.removeprefix("-").isdecimal():
        return int(words)
    if runs := finished_runs(fold, words):
        current = [row.seq for row in runs if row.seq in fold.chain_set]
        return max(current or [row.seq for row in runs])
    found = {NEWEST: -1, START: fold.root}.get(words)
    if not found:
        raise _no_such_step(fold, thread_id, words)
    return found


def _no_such_step(fold: Fold, thread_id: str, name: str) -> ThreadNotFound:
    if any(row.step == name for row in fold.pruned.values()):
        left = "See `%resumable history`, or `resumable-nb history`, for the states that are left."
        return ThreadNotFound(f"The states that `{name}` left in thread {thread_id!r} were pruned. {left}")
    if name in fold.step_names():
        return ThreadNotFound(f"`{name}` has never ended in thread {thread_id!r}, so it left no state.")
    return no_step(fold, thread_id, name, f" A row's number, `{NEWEST}`, `{START}`, and -1, -2, … do as well.")


def no_step(fold: Fold, thread_id: str, name: str, more: str = "") -> ThreadNotFound:
    """There is no such step; the message lists those that there are."""
    known = ", ".join(f"`{n}`" for n in fold.step_names()) or "none yet"
    return ThreadNotFound(f"There is no step `{name}` in thread {thread_id!r}. Its steps: {known}.{more}")


def retirement(fold: Fold, thread_id: str, step: str) -> Row:
    """The row that retires the answers and finished runs of a step. Raises ThreadNotFound."""
    cell_id = fold.holder(step)
    if cell_id is None:
        raise no_step(fold, thread_id, step)
    return Row(kind="step", phase="retired", step=step, cell_id=cell_id)


def finished_runs(fold: Fold, step: str) -> list[Row]:
    """The checkpoints that a step left, also where an earlier run was taken up again; oldest first."""
    return [row for row in fold.checkpoints() if row.step == step and row.phase in ("step", "taken up")]


def state(fold: Fold, seq: int) -> Image:
    """The state after a row: that of the newest checkpoint, or progress inside a step, up to it."""
    return fold.image(fold.newest(seq))


def raw(image: Image) -> dict[str, Any]:
    """The fields of a state as the store has them, as JSON values: no class is needed, and nothing is migrated."""
    return {name: json.loads(image.json(name)) for name in image.fields}


def diff(fold: Fold, a: tuple[Moment, int], b: tuple[Moment, int]) -> Diff:
    """What differs between the states at two moments, each with the row that `find` gave for it."""
    before, after = state(fold, a[1]), state(fold, b[1])
    title = f"From {_named(*a)} to {_named(*b)}"
    if before.schema_version != after.schema_version:
        title += f" (state version {before.schema_version} → {after.schema_version})"
    return Diff(title, raw(before), raw(after))


def _named(moment: Moment, seq: int) -> str:
    return str(seq) if str(moment) == str(seq) else f"{moment} ({seq})"
