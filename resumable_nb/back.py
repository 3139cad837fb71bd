"""Going back: an earlier run of a cell counts again, with what stood above it then. Nothing is taken away.

In the journal that is new checkpoints, `taken up` from the old ones, in one INSERT: what came later stays, and counts
again when it is gone back to, and so do the answers that the run had. By the rules of place (DESIGN section 5) the
cells above are as they were when the run ended, and the cells below have to be run again from there; those that were
done from there before are skipped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resumable_nb.cells import STATE, Cell
from resumable_nb.commit import checkpoint_row, state_facts
from resumable_nb.errors import ThreadNotFound, UsageError
from resumable_nb.fold import Fold
from resumable_nb.history import NEWEST, START, no_step
from resumable_nb.journal import Row
from resumable_nb.terminal import counted
from resumable_nb.thread import FOLDED

if TYPE_CHECKING:
    from resumable_nb.cells import Order, Record
    from resumable_nb.lineage import Lineage
    from resumable_nb.place import Places
    from resumable_nb.state import Image
    from resumable_nb.thread import Thread

_NOWHERE = Cell("(nowhere)", None, "")


@dataclass
class Target:
    """Where to go back to.

    Attributes:
        row: the checkpoint; that of the start has no cell.
        told: how messages name it.
    """

    row: Row
    told: str


def find(thread: Thread, what: str, run: int | None = None) -> Target:
    """The checkpoint that is meant.

    Args:
        thread: the open thread.
        what: the name of a step, the number of a checkpoint, `newest` (the newest that a cell made by running) or
            `start`.
        run: which finished run of the step, counted from 1; None: the last.

    Raises:
        ThreadNotFound: There is no such step, run or checkpoint.
        UsageError: A run of what is no step, or a row that is no cell's checkpoint.
    """
    fold, made = thread.fold, _made_by_running(thread.fold)
    runs = [row for row in made if row.step == what]
    if runs and (run is not None or not what.isdecimal()):
        return _run(what, runs, run)
    if what in fold.step_names() and not runs:
        raise ThreadNotFound(
            f"`{what}` has never ended in thread {thread.thread_id!r}: there is nothing to go back to."
        )
    if what == NEWEST and not made:
        raise ThreadNotFound(f"No step has ended yet in thread {thread.thread_id!r}: there is nothing to go back to.")
    if run is not None:
        raise no_step(fold, thread.thread_id, what)
    if what == NEWEST:
        return Target(made[-1], f"{_label(made[-1])} (checkpoint {made[-1].seq})")
    if what == START and fold.root:
        return Target(_row(fold, fold.root), "the start of the thread")
    if not what.isdecimal():
        raise no_step(fold, thread.thread_id, what, f" A checkpoint's number, `{NEWEST}` and `{START}` do as well.")
    row = fold.row(int(what))
    if row is None or row.kind != "checkpoint" or row.cell_id is None:
        known = [r.seq for r in fold.checkpoints() if r.cell_id is not None]
        near = sorted(known, key=lambda seq: abs(seq - int(what)))[:3]
        listed = ", ".join(map(str, sorted(near))) or "none yet"
        raise ThreadNotFound(
            f"Row {what} of thread {thread.thread_id!r} is no checkpoint that a cell left. Near it: {listed}. See "
            "`%resumable history`."
        )
    return Target(row, f"{_label(row)} (checkpoint {row.seq})")


def _made_by_running(fold: Fold) -> list[Row]:
    """The checkpoints of cells, but for those that going back wrote."""
    return [row for row in fold.checkpoints() if row.cell_id is not None and "back" not in _extra(row)]


def _extra(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row.data) if row.data and row.phase == "taken up" else {}
    return found


def _run(step: str, runs: list[Row], number: int | None) -> Target:
    own = [row for row in runs if row.phase == "step"]
    if number is None:
        return Target(runs[-1], f"the last run of `{step}` (checkpoint {runs[-1].seq})")
    if not 1 <= number <= len(own):
        raise ThreadNotFound(f"`{step}` has {counted(len(own), 'finished run')}, so there is no run {number}.")
    return Target(own[number - 1], f"run {number} of {len(own)} of `{step}` (checkpoint {own[number - 1].seq})")


def _row(fold: Fold, seq: int) -> Row:
    row = fold.row(seq)
    assert row is not None
    return row


def _label(row: Row) -> str:
    return f"`{row.step}`" if row.step is not None else "an edit of the state in an ordinary cell"


@dataclass
class Back:
    """One going back in one notebook.

    Attributes:
        order: where its cells stand now.
        taken_up: cells above, and the target's, of which another run counts than now.
        dropped: cells below that left a state, which stand to be run again. What only read it is left to the rules.
    """

    thread: Thread
    places: Places
    lineage: Lineage
    order: Order
    target: Target
    taken_up: list[Cell] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fold = self.thread.fold
        self.cells = self.places.above(_NOWHERE, self.order)
        self.cell = self._cell_now(self.target.row.cell_id, self.target.row.step)
        if self.cell is None and self.target.row.cell_id is not None:
            seq = self.target.row.seq
            raise UsageError(
                f"{_label(self.target.row)} is no cell of this notebook, so there is no place to go back to. "
                f"`thread.state_at({seq})` is its state; `%resumable fork {seq} NEW` makes a thread that starts there."
            )
        ids = [c.cell_id for c in self.cells]
        at = ids.index(self.cell.cell_id) + 1 if self.cell else 0
        self.above, self.below = self.cells[:at], self.cells[at:]

    def _cell_now(self, cell_id: str | None, step: str | None) -> Cell | None:
        """The cell of this notebook that made a row: by its id, else by the name of the step."""
        found = next((c for c in self.cells if c.cell_id == cell_id), None)
        return found or next((c for c in self.cells if step is not None and c.step == step), None)

    def _left_a_state(self, cell: Cell) -> bool:
        """Whether its run that counts wrote a checkpoint; a cell that changed no field has a row of another kind."""
        seq = self.fold.lineage.get(cell.cell_id)
        return seq is not None and _row(self.fold, seq).kind == "checkpoint"

    # ------------------------------------------------------------------ the rows
    def go(self) -> list[str]:
        """Write it, and forget what this kernel knows otherwise. Returns what to say.

        On return the rows are in the store; where the thread is there already, none is written.
        """
        self.dropped = [c.cell_id for c in self.below if self._left_a_state(c)]
        rows = self._rows()
        if rows:
            self.thread.append(*self.lineage.anchor_rows(), *rows)
        for cell in self.taken_up:
            self.places.seen.pop(cell.cell_id, None)  # its recorded run counts, whatever was executed here since
        for cell_id in [*(c.cell_id for c in self.taken_up), *self.dropped]:
            self.places.ran.pop(cell_id, None)
        return self._lines(is_news=bool(rows))

    def _rows(self) -> list[Row]:
        """A checkpoint for each cell above that stood otherwise then; nothing if the thread is there already."""
        rows: list[Row] = []
        kept: list[Cell] = []
        then = self._then()
        standing = [(cell, seq) for cell in self.above if (seq := then.get(cell.cell_id)) is not None]
        self.taken_up = [cell for cell, seq in standing if not self._stands(cell, seq)]
        while standing and standing[0][0] not in self.taken_up and self._is_at_hand(standing[0][0]):
            kept.append(standing.pop(0)[0])
        parent = self.lineage.parent(kept)
        is_there = not standing and self.fold.chain[-1] == parent and not self.dropped
        if is_there:
            return []
        at, image = None, self.fold.image(parent)  # the place among the rows, once one of them is the parent
        for cell, seq in standing:
            record = self.fold.record(seq)
            if _row(self.fold, seq).kind == "cell":
                rows.append(self._again(cell, seq))
            else:
                start = parent if at is None else at - len(rows)
                rows.append(self._take_up(cell, record, start, image))
                at, image = len(rows) - 1, self.fold.image(record.checkpoint)
        start = parent if at is None else at - len(rows)
        if at is None or at != len(rows) - 1:  # nothing to take up last: the lineage goes back to what it has
            rows.append(Row(kind="checkpoint", phase="taken up", parent_seq=start))
        last = rows[-1]
        extra = _extra(last)
        last.data = json.dumps({**extra, "back": {**extra.get("back", {}), "dropped": self.dropped}})
        return rows

    def _then(self) -> dict[str, int]:
        """Cell of this notebook → the row of the run that counted of it when the target had been written."""
        if self.target.row.cell_id is None:
            return {}
        fold, head = Fold(), self.target.row.seq
        fold.apply_all(row for row in self.thread.session.read(kinds=FOLDED, bodies=False) if row.seq <= head)
        found: dict[str, int] = {}
        for cell_id, seq in fold.lineage.items():
            cell = self._cell_now(cell_id, _row(fold, seq).step)
            if cell is not None and (cell.cell_id == cell_id or cell.cell_id not in fold.lineage):
                found[cell.cell_id] = seq
        return found

    def _stands(self, cell: Cell, seq: int) -> bool:
        """Whether this run counts now, too."""
        record, now = self.fold.record(seq), self.fold.latest(cell.cell_id)
        if not record.equals(now) or cell.cell_id in self.fold.unfinished:
            return False
        assert now is not None
        if now.cell.step is not None and not self.fold.stands(now):
            return False  # retired since
        seen = self.places.seen.get(cell.cell_id, now.cell)
        return seen.code.digest == now.cell.code.digest  # else executed here with other code since

    def _is_at_hand(self, cell: Cell) -> bool:
        """Whether the lineage has the state that it left."""
        seq = self.fold.lineage[cell.cell_id]
        return seq in self.fold.chain_set or _row(self.fold, seq).kind == "cell"

    def _take_up(self, cell: Cell, record: Record, parent: int, before: Image) -> Row:
        extra: dict[str, Any] = {"as": record.source_seq, "back": {"answers": True} if cell in self.taken_up else {}}
        if record.cell.cell_id != cell.cell_id:
            extra["was"] = [record.cell.cell_id, record.cell.step]
        changes = self.fold.image(record.checkpoint).changes_from(before)
        made_by = Cell(cell.cell_id, record.cell.step, "")
        key = record.key if record.cell.step is not None else None
        return checkpoint_row(made_by, "taken up", parent, changes, key=key, data=json.dumps(extra))

    def _again(self, cell: Cell, seq: int) -> Row:
        row = _row(self.fold, seq)
        return Row(
            kind="cell",
            phase="done",
            cell_id=cell.cell_id,
            key=row.key,
            parent_seq=row.parent_seq,
            data=row.data,
        )

    # ------------------------------------------------------------------ what to say
    def _lines(self, *, is_news: bool) -> list[str]:
        newest = self.fold.chain[-1]
        if not is_news:
            return [f"{self.target.told} is where the thread is: nothing to do"]
        lines = [f"back at {self.target.told}: its state is the newest, as checkpoint {newest}. {self._to_run()}"]
        left = self.places.walk(self.above)[STATE]
        if left.blame:
            first = next((c.label for c in self.above if c.cell_id == left.blame), left.blame)
            lines.append(
                f"but in the notebook as it is now that does not stand: an input, or a cell above, is another one than "
                f"then. Put it back; else {first} has to run first, and what it leaves counts. "
                f"`thread.state_at({newest})` has the state"
            )
        made = _made_by_running(self.fold)
        if made and made[-1].seq != self.target.row.seq:
            lines.append(
                f"nothing is lost: `%resumable back {NEWEST}` goes forward again, and `%resumable back {made[-1].seq}` "
                "also after something was run or skipped from here"
            )
        return lines

    def _to_run(self) -> str:
        below = [cell for cell in self.below if cell.step is not None or cell.cell_id in self.dropped]
        if not below:
            return "No cell below it has to run"
        free = self._free(below)
        labels = ", ".join(cell.label for cell in below)
        if not free:
            return f"To run from there: {labels}; questions already answered are free"
        done = "all of them" if len(free) == len(below) > 1 else ", ".join(cell.label for cell in free)
        return (
            f"To run from there: {labels}; done from there before, and skipped if inputs and code are as then: {done}"
        )

    def _free(self, below: list[Cell]) -> list[Cell]:
        """The cells right below that ended before from this state, as far as the state tells."""
        state, found = state_facts(self.fold.image(self.fold.chain[-1])), []
        for cell in below:
            record = self.fold.done_from(cell, state)
            if record is None:
                break
            found.append(cell)
            state = state_facts(self.fold.image(record.checkpoint))
        return found
