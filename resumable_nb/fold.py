"""What the journal of one thread says: runs, lineage, answers and states, folded row by row."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from resumable_nb.cells import STATE, Cell, Record
from resumable_nb.errors import StateError, StoreDamaged, ThreadNotFound
from resumable_nb.gates import Gates
from resumable_nb.journal import PRUNED
from resumable_nb.receipts import Effects
from resumable_nb.state import Image

if TYPE_CHECKING:
    from resumable_nb.fingerprint import Facts
    from resumable_nb.gates import Gate
    from resumable_nb.journal import Row

ANSWERED = ("done", "partial")
BRANCH = '{"branch":'
"""How the data of an answer begins that a branch of `map` got."""
UPDATES = "updates"
"""What a call put into the state, in the data of an answer that a branch got."""
KEPT = ("effect", "approval")  # of these, what is known stays when answers are retired
CALLS = ("llm", "call", "effect", "approval", "resource")
_IMAGES_KEPT = 64
Owner = tuple[str, str]  # cell id and step name
Question = tuple[str, str, int]  # kind, key, occurrence
Answer = tuple[int, int]  # the row since which it counts, and its own


def with_branch(name: str, data: str | None) -> str:
    """The data of an answer, with the branch that got it. A list is what the call put into the state."""
    if data in (None, "{}"):
        return f'{BRANCH}"{name}"}}'
    return f'{BRANCH}"{name}","{UPDATES}":{data}}}' if data.startswith("[") else f'{BRANCH}"{name}",{data[1:]}'


class Fold:
    """The journal of a thread, folded. It changes by `apply` only, and only by rows that are in the store.

    Attributes:
        chain: the checkpoints of the lineage, oldest first.
        root: the newest checkpoint that says what the thread starts with (0: there is none).
        lineage: cell id → the row of the run that counts of each cell.
        unfinished: cells with a run that was started and did not end.
        resources: names of those that were ever acquired.
        recovered_in: sessions of this process that have written what their resume took.
        budget: limits of the research by name, and prices, as they were told last; None: nobody told any.
        refused: model → what it does not take, see `llm.dialects`.
        too_long: hash of a request → steps (cell id, name) that know it is too long for its model, and what that said.
        pruned: the rows that were checkpoints until their states were merged into a later one.
        pruned_answers: step and question of answers whose content was pruned, and that no later one answers.
    """

    def __init__(self) -> None:
        self.chain: list[int] = []
        self.chain_set: set[int] = set()
        self.root = 0
        self.head = 0
        self.lineage: dict[str, int] = {}
        self.unfinished: set[str] = set()
        self.anchors: dict[str, tuple[str, Any]] = {}
        self.notebooks: list[dict[str, Any]] = []
        self.large_values: dict[str, int] = {}
        self.outputs: dict[int, int] = {}
        self.calls_done = 0
        self.resources: set[str] = set()
        self.recovered_in: set[str] = set()
        self.budget: dict[str, Any] | None = None
        self.refused: dict[str, set[str]] = {}
        self.too_long: dict[str, dict[Owner, str]] = {}
        self.pruned: dict[int, Row] = {}
        self.pruned_answers: set[tuple[str | None, Question]] = set()
        self._run_of: dict[int, int] = {}
        self._branch_of: dict[int, str] = {}
        self._highest: dict[tuple[str, str], int] = {}
        self.effects = Effects()
        self.gates = Gates()
        self._lost: set[tuple[str | None, Question]] = set()
        self._rows: dict[int, Row] = {}
        self._records: dict[int, Record] = {}
        self._runs: dict[str, list[int]] = {}
        self._last: dict[tuple[str, str], int] = {}
        self._answers: dict[Owner, dict[Question, Answer]] = {}
        self._earlier: dict[Owner, list[tuple[Question, Answer]]] = {}  # those that were retired or asked anew
        self._owners: dict[tuple[str, str], set[Owner]] = {}
        self._started: dict[int, Row] = {}
        self._started_like: dict[str, list[Row]] = {}
        self._retired: list[Row] = []
        self._progress: dict[int, list[int]] = {}
        self._images: OrderedDict[int, Image] = OrderedDict()

    # ------------------------------------------------------------------ rows in
    def apply(self, row: Row) -> None:
        """Take one row in. Rows come in the order of `seq`."""
        self.head = row.seq
        handler = getattr(self, f"_apply_{row.kind}", None)
        if handler is not None:
            handler(row)
        if row.kind in CALLS:
            self._apply_answer(row)

    def apply_all(self, rows: Iterable[Row]) -> None:
        """Take rows in."""
        for row in rows:
            self.apply(row)

    def _apply_thread(self, row: Row) -> None:
        if row.phase == "forked":
            self.notebooks = []

    def _apply_notice(self, row: Row) -> None:
        if row.name == "notebook" and row.data:
            self.notebooks.append(json.loads(row.data))
        if row.name == "budget" and row.data:
            self.budget = json.loads(row.data)
        if row.name == "refused" and row.data:
            told = json.loads(row.data)
            self.refused.setdefault(told["model"], set()).add(told["refused"])
        if row.name == "too long" and row.key and row.data:
            self.too_long.setdefault(row.key, {})[row.cell_id or "", row.step or ""] = json.loads(row.data)["told"]
        if row.name == "anchors" and row.data:
            self.anchors |= {cell_id: (after, version) for cell_id, (after, version) in json.loads(row.data).items()}

    def _apply_value(self, row: Row) -> None:
        if row.key:
            self.large_values[row.key] = row.seq

    def _apply_outputs(self, row: Row) -> None:
        if row.ref_seq:
            self.outputs[row.ref_seq] = row.seq

    def _apply_approval(self, row: Row) -> None:
        self.gates.apply(row)

    def _apply_resource(self, row: Row) -> None:
        if row.phase == "done" and row.name:
            self.resources.add(row.name)

    def _apply_recovery(self, row: Row) -> None:
        self.recovered_in.add(row.session_id)

    def _apply_effect(self, row: Row) -> None:
        self.effects.apply(row)

    def _apply_step(self, row: Row) -> None:
        if row.phase == "started":
            self._started[row.seq] = row
            self._started_like.setdefault(row.key or "", []).append(row)
        if row.phase in ("started", "failed", "interrupted", "waiting") and row.cell_id:
            self.unfinished.add(row.cell_id)
        if row.phase == "retired":
            self._retire(row.cell_id, row.step)
            self._retired.append(row)
        if row.phase == "pruned":
            self._apply_pruned(row)

    def _apply_pruned(self, row: Row) -> None:
        """It was a checkpoint: its run has ended, but is done no more. What it said of answers still holds."""
        self.pruned[row.seq] = row
        extra = json.loads(row.data or "{}")
        if row.cell_id is not None:
            self._move_answers(row, extra)
            self.unfinished.discard(row.cell_id)
            self.lineage.pop(row.cell_id, None)
        self._drop_below(extra)

    def _apply_cell(self, row: Row) -> None:
        assert row.cell_id is not None
        self.lineage.pop(row.cell_id, None)
        self.unfinished.discard(row.cell_id)
        if row.phase != "dropped":
            self._rows[row.seq] = row
            self.lineage[row.cell_id] = row.seq

    def _apply_checkpoint(self, row: Row) -> None:
        parent = row.parent_seq or 0
        while self.chain and self.chain[-1] > parent:
            self.chain_set.discard(self.chain.pop())
        if parent != (self.chain[-1] if self.chain else 0):
            raise StoreDamaged(
                f"Checkpoint {row.seq} of thread {row.thread_id!r} starts from {parent}, which is not in its lineage. "
                "The journal was changed by something else. Nothing was written; restore a copy of the store."
            )
        self.chain.append(row.seq)
        self.chain_set.add(row.seq)
        self._rows[row.seq] = row
        if row.phase == "start":
            self.root = row.seq
        extra = json.loads(row.data) if row.data and row.phase == "taken up" else {}
        if row.cell_id is None:
            self._drop_below(extra)
            return
        self._move_answers(row, extra)
        self.unfinished.discard(row.cell_id)
        self.lineage.pop(row.cell_id, None)
        self.lineage[row.cell_id] = row.seq
        self._drop_below(extra)
        if row.step is not None and row.key:
            self._runs.setdefault(row.key, []).append(row.seq)
            self._last["cell", row.cell_id] = self._last["step", row.step] = row.seq

    def _move_answers(self, row: Row, extra: dict[str, Any]) -> None:
        """A run that is taken up takes its answers along: to another name, or back from those that were retired."""
        assert row.cell_id is not None
        was = extra.get("was")
        if was:
            self._rename(was, (row.cell_id, row.step))
        if row.step is not None and extra.get("back", {}).get("answers"):
            self._restore(row, was or [row.cell_id, row.step], extra["as"])

    def _drop_below(self, extra: dict[str, Any]) -> None:
        """Who goes back has the cells below run again."""
        for cell_id in extra.get("back", {}).get("dropped", ()):
            self.lineage.pop(cell_id, None)

    def _apply_answer(self, row: Row) -> None:
        if row.changes and row.run_seq:
            self._progress.setdefault(row.run_seq, []).append(row.seq)
            self._rows[row.seq] = row
        self.calls_done += row.kind in ("llm", "call") and row.phase == "done"
        if row.step is None or row.key is None:
            return
        question = (row.kind, row.key, row.occurrence or 0)
        if row.phase == "lost":
            self._lost.add((row.step, question))
        if row.phase not in ANSWERED:
            return
        self._lost.discard((row.step, question))
        if row.data is not None and row.data.startswith(PRUNED):
            self.pruned_answers.add((row.step, question))
            return
        self.pruned_answers.discard((row.step, question))
        self._run_of[row.seq] = row.run_seq or 0
        self._highest[question[:2]] = max(question[2], self.highest(*question[:2]))
        if row.data is not None and row.data.startswith(BRANCH):
            self._branch_of[row.seq] = json.loads(row.data)["branch"]
        self._own((row.cell_id or "", row.step), question, row.seq)

    def _own(self, owner: Owner, question: Question, seq: int, *, since: int = 0) -> None:
        answers = self._answers.setdefault(owner, {})
        if question in answers:
            self._earlier.setdefault(owner, []).append((question, answers[question]))
        answers[question] = max((since or seq, seq), answers.get(question, (0, 0)))
        for half in (("cell", owner[0]), ("step", owner[1])):
            self._owners.setdefault(half, set()).add(owner)

    def _owned(self, cell_id: str | None, step: str | None) -> set[Owner]:
        """R7, R8: whose answers are those of a step: by cell id or by name."""
        none: set[Owner] = set()
        return self._owners.get(("cell", cell_id or ""), none) | self._owners.get(("step", step or ""), none)

    def _rename(self, was: list[str], now: tuple[str, str | None]) -> None:
        """R8: a rename takes the answers along."""
        taken = [item for owner in self._owned(*was) for item in self._answers[owner].items()]
        for question, (since, seq) in taken:
            self._own((now[0], now[1] or ""), question, seq, since=since)

    def _restore(self, row: Row, was: list[str], until: int) -> None:
        """Who goes back to a run gets the answers that counted when it ended, also those that were retired since."""
        best: dict[Question, Answer] = {}
        for owner in self._owned(row.cell_id, row.step) | self._owned(*was):
            for question, answer in [*self._earlier.get(owner, ()), *self._answers[owner].items()]:
                if answer[0] <= until and question[0] not in KEPT:
                    best[question] = max(answer, best.get(question, (0, 0)))
        for question, (_, seq) in best.items():
            self._own((row.cell_id or "", row.step or ""), question, seq, since=row.seq)

    def _retire(self, cell_id: str | None, step: str | None) -> None:
        """R7: `fresh` retires the answers and runs of a step. Receipts and decisions stay."""
        for owner in self._owned(cell_id, step):
            answers = self._answers[owner]
            self._answers[owner] = {q: answer for q, answer in answers.items() if q[0] in KEPT}
            self._earlier.setdefault(owner, []).extend((q, a) for q, a in answers.items() if q[0] not in KEPT)
        for known in self.too_long.values():
            for owner in [o for o in known if o[0] == cell_id or o[1] == step]:
                del known[owner]
        for key, seqs in list(self._runs.items()):
            rows = [(seq, self._rows[seq]) for seq in seqs]
            self._runs[key] = [seq for seq, r in rows if r.cell_id != cell_id and r.step != step]
        for key, started in list(self._started_like.items()):
            self._started_like[key] = [r for r in started if r.cell_id != cell_id and r.step != step]

    # ------------------------------------------------------------------ questions
    def record(self, seq: int) -> Record:
        """The record of a finished run. Those of earlier runs that were taken up again name the row they came from."""
        if seq not in self._records:
            row = self._rows[seq]
            source, source_seq = row, seq
            while source.phase == "taken up" and source.data and "as" in (extra := json.loads(source.data)):
                source_seq = extra["as"]
                source = self._rows[source_seq]
            self._records[seq] = Record.from_json(
                source.data or "{}",
                cell_id=row.cell_id or "",
                step=row.step,
                seq=seq,
                source_seq=source_seq,
                checkpoint=seq if row.kind == "checkpoint" else (row.parent_seq or 0),
                started_seq=source.ref_seq,
            )
        return self._records[seq]

    def remember(self, record: Record, image: Image) -> Record:
        """The run that was just written, and its exit state, need not be read from their rows."""
        self._records[record.seq] = record
        self._keep_image(record.checkpoint, image)
        return record

    def latest(self, cell_id: str) -> Record | None:
        """The run that counts of this cell."""
        seq = self.lineage.get(cell_id)
        return None if seq is None else self.record(seq)

    def run_like(self, cell: Cell, key: str) -> Record | None:
        """R1, R8: the newest finished run of this step with the same code, inputs and entry state."""
        for seq in reversed(self._runs.get(key, [])):
            row = self._rows[seq]
            if row.cell_id == cell.cell_id or row.step == cell.step:
                return self.record(seq)
        return None

    def done_from(self, cell: Cell, state: Facts) -> Record | None:
        """The newest run of this cell, not retired, with this code and from this state; inputs may be others now."""
        seqs = [seq for seqs in self._runs.values() for seq in seqs if self._same(cell, self._rows[seq])]
        for record in map(self.record, sorted(seqs, reverse=True)):
            if record.cell.code.digest == cell.code.digest and record.before.get(STATE) == state:
                return record
        return None

    def last_run(self, cell: Cell) -> Record | None:
        """The newest finished run of this step, whatever it started from."""
        by_step = self._last.get(("step", cell.step or ""), 0)
        seq = max(self._last.get(("cell", cell.cell_id), 0), by_step)
        return self.record(seq) if seq else None

    def stands(self, record: Record) -> bool:
        """Whether the run is not retired."""
        return record.seq in self._runs.get(record.key, [])

    @staticmethod
    def _same(cell: Cell, row: Row) -> bool:
        return row.cell_id == cell.cell_id or row.step == cell.step

    def answer(self, cell: Cell, kind: str, key: str, occurrence: int) -> int | None:
        """R7: the row of the newest answer over all runs of this step, by content and occurrence."""
        question = (kind, key, occurrence)
        owners = self._owned(cell.cell_id, cell.step)
        return max((self._answers[owner].get(question, (0, 0)) for owner in owners), default=(0, 0))[1] or None

    def answers(self, cell: Cell) -> dict[Question, int]:
        """All answers of a step: what was asked, and the row of the newest answer to it."""
        found: dict[Question, Answer] = {}
        for owner in self._owned(cell.cell_id, cell.step):
            for question, answer in self._answers[owner].items():
                found[question] = max(answer, found.get(question, (0, 0)))
        return {question: seq for question, (_, seq) in found.items()}

    def highest(self, kind: str, key: str) -> int:
        """The highest number under which a question was answered, in whatever step; -1 if it was not."""
        return self._highest.get((kind, key), -1)

    def branch_of(self, answer: int | None) -> str:
        """The branch of `map` that got an answer; "" if none did."""
        return self._branch_of.get(answer or 0, "")

    def code_of_run(self, answer: int) -> str | None:
        """The digest of the code of the run that got an answer."""
        started = self._started.get(self._run_of.get(answer, 0))
        return None if started is None else str(json.loads(started.data or "{}").get("code"))

    def was_pruned(self, cell: Cell, question: Question) -> bool:
        """Whether this was answered, and the answer was pruned."""
        return (cell.step, question) in self.pruned_answers

    def was_lost(self, cell: Cell, question: Question) -> bool:
        """Whether this call was in flight when a session died."""
        return (cell.step, question) in self._lost

    def _named(self) -> list[Row]:
        return [*self._rows.values(), *self._started.values(), *self.pruned.values()]

    def holder(self, step: str) -> str | None:
        """The cell that had this step name last."""
        rows = [r for r in self._named() if r.step == step]
        return max(rows, key=lambda r: r.seq).cell_id if rows else None

    def step_names(self) -> list[str]:
        """All names that steps had, in the order of their first run."""
        rows = sorted(self._named(), key=lambda r: r.seq)
        return list(dict.fromkeys(r.step for r in rows if r.step is not None))

    def started(self, cell: Cell, key: str) -> Row | None:
        """The newest run of this step that was started with this fingerprint."""
        return next((r for r in reversed(self._started_like.get(key, [])) if self._same(cell, r)), None)

    def rejected_before_fresh(self, cell: Cell) -> list[Gate]:
        """Gates of the thread that a person rejected between the first run of this step and its last `fresh`.

        What is rejected later is not among them: a run must see on a replay what it saw at first.
        """
        first = min((seq for seq, row in self._started.items() if self._same(cell, row)), default=self.head)
        fresh = max((row.seq for row in self._retired if self._same(cell, row)), default=0)
        return self.gates.rejected(after=first, before=fresh)

    def started_row(self, seq: int) -> Row | None:
        """The row that says that a run was started."""
        return self._started.get(seq)

    # ------------------------------------------------------------------ states
    def image(self, seq: int) -> Image:
        """The state at a checkpoint (0: nothing yet), or after a row with progress.

        Raises:
            ThreadNotFound: there is no such row.
            StateError: what a row on the way changed cannot be read.
        """
        path: list[int] = []
        while seq and seq not in self._images:
            path.append(seq)
            row = self._rows.get(seq)
            if row is None:
                raise ThreadNotFound(f"There is no checkpoint {seq} in this thread.")
            seq = self._before(row)
        image = self._images[seq] if seq else Image.EMPTY
        for seq in reversed(path):
            changes = self._rows[seq].changes
            try:
                image = image.apply(changes) if changes else image
            except StateError as error:
                raise StateError(f"Row {seq}: {error}") from error
        if path:
            self._keep_image(path[0], image)
        return image

    def _keep_image(self, seq: int, image: Image) -> None:
        self._images[seq] = image
        while len(self._images) > _IMAGES_KEPT:
            self._images.popitem(last=False)

    def _before(self, row: Row) -> int:
        """The row whose state this one starts from: for progress, the progress before it in the same run."""
        if row.kind == "checkpoint":
            return row.parent_seq or 0
        run = self._progress[row.run_seq or 0]
        at = run.index(row.seq)
        return run[at - 1] if at else row.parent_seq or 0

    def newest(self, seq: int | None = None) -> int:
        """The newest row with a state at or before `seq`: a checkpoint, or progress inside a run.

        Raises:
            ThreadNotFound: That state was pruned.
        """
        if seq is None:
            return self.chain[-1] if self.chain else 0
        states = [s for s, r in self._rows.items() if r.kind == "checkpoint" or r.changes]
        found, last = max((s for s in states if s <= seq), default=0), max(self.pruned, default=0)
        if found < last and found != seq:
            raise ThreadNotFound(
                f"The state at row {seq} was pruned. The oldest state from which on all are left is at row "
                f"{min(s for s in states if s > last)}; see `%resumable history`."
            )
        return found

    def row(self, seq: int) -> Row | None:
        """A checkpoint, a cell's row or one with progress, without its bodies."""
        return self._rows.get(seq)

    def checkpoints(self) -> list[Row]:
        """All checkpoints, oldest first."""
        return [row for row in self._rows.values() if row.kind == "checkpoint"]

    def progress_of(self, run_seq: int) -> list[int]:
        """The rows of a run that carry progress of the state, oldest first."""
        return self._progress.get(run_seq, [])

    def progress_like(self, cell: Cell, key: str) -> int | None:
        """The newest row with progress of the runs of this step that were started with this fingerprint."""
        runs = [row.seq for row in self._started_like.get(key, []) if self._same(cell, row)]
        return max((self._progress[seq][-1] for seq in runs if seq in self._progress), default=None)

    def latest_started(self) -> list[Row]:
        """The newest started run of each cell that has not ended."""
        newest = {row.cell_id: row for row in sorted(self._started.values(), key=lambda r: r.seq)}
        return [row for cell_id, row in newest.items() if cell_id in self.unfinished]
