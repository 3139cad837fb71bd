"""Where a thread stands, in numbers: which steps are done, what they cost, and how far an unfinished one came."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from resumable_nb.cells import Cell, Spent
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from resumable_nb.gates import Decision
    from resumable_nb.state import Image
    from resumable_nb.thread import Thread


@dataclass(frozen=True, slots=True)
class StepSummary:
    """One step of a thread.

    Attributes:
        stands: `done` (in the lineage), `unfinished` (started, not ended), `not done` (never run, retired, or done in
            another lineage).
        checkpoint: the row of its checkpoint, if it is done.
        at: when it ended (UTC), if it is done.
        answered: calls whose answers are recorded.
        gained: what the state has from an unfinished run, such as `17 findings`.
        waits_for: the questions that a person has to answer before it goes on.
        doubts: keys of its effects of which a person has to say what became of them.
        decided: what was decided, by whom, and what comes of it; "" where nothing was, or a run has gone on from there.
    """

    name: str
    stands: Literal["done", "unfinished", "not done"]
    checkpoint: int | None = None
    at: datetime | None = None
    spent: Spent = field(default_factory=Spent)
    answered: int = 0
    gained: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    decided: str = ""

    @property
    def stands_at(self) -> str:
        """How it stands, in a word, for a table."""
        return "waits" if self.waits_for or self.doubts else "decided" if self.decided else self.stands

    def __str__(self) -> str:
        if self.stands != "unfinished":
            return f"`{self.name}`, {self.stands}"
        if self.waits_for:
            return f"`{self.name}` waits for a decision: {' '.join('; '.join(self.waits_for).split())}"
        if self.doubts:
            keys = ", ".join(f"`{key}`" for key in self.doubts)
            return f"`{self.name}` waits for your word: nobody knows whether {keys} happened"
        if self.decided:
            return f"`{self.name}` was {self.decided}"
        so_far = [f"{counted(self.answered, 'call')} answered", *self.gained]
        told = f"{', '.join(so_far)} so far" if self.answered or self.gained else "no call was answered yet"
        return f"`{self.name}`, unfinished: {told}"


@dataclass(frozen=True, slots=True)
class Summary:
    """A thread at one moment.

    Attributes:
        checkpoint: the newest one; 0 if the thread holds nothing yet.
        at: when it was written (UTC).
        fields: what the state holds, such as `17 findings`.
        steps: those that ever ran, and those of the notebook, in the notebook's order where it is known.
    """

    thread_id: str
    store: str
    checkpoint: int
    at: datetime | None
    query: str
    fields: tuple[str, ...]
    steps: tuple[StepSummary, ...]

    def named(self, stands: str) -> list[StepSummary]:
        """The steps that stand so."""
        return [step for step in self.steps if step.stands == stands]

    @property
    def spent(self) -> Spent:
        """What the steps that are done have cost."""
        return sum((step.spent for step in self.named("done")), Spent())


def summary(thread: Thread, notebook_steps: Sequence[str] = ()) -> Summary:
    """Where the thread stands now.

    Args:
        thread: an open thread.
        notebook_steps: names of the steps in the notebook, from top to bottom; empty if not known.
    """
    fold = thread.fold
    newest = fold.newest()
    row, image = fold.row(newest), fold.image(newest)
    steps = [_step(thread, name) for name in dict.fromkeys([*notebook_steps, *fold.step_names()])]
    if notebook_steps:  # a step that was renamed or deleted is nothing to do
        steps = [step for step in steps if step.name in notebook_steps or step.stands != "not done"]
    return Summary(
        thread.thread_id,
        str(thread.store.path),
        newest,
        row.ts if row else None,
        _text(image, "query"),
        tuple(_lists(image)),
        tuple(steps),
    )


def _step(thread: Thread, name: str) -> StepSummary:
    fold = thread.fold
    cell_id = fold.holder(name)
    if cell_id is None:
        return StepSummary(name, "not done")
    answered = sum(kind != "approval" for kind, *_ in fold.answers(Cell(cell_id, name, "")))
    started = next((row for row in fold.latest_started() if row.cell_id == cell_id and row.step == name), None)
    if started is not None:
        progress = fold.progress_of(started.seq)
        entry = fold.image(started.parent_seq or 0)
        gained = _lists(fold.image(progress[-1]), entry) if progress else []
        waits_for = tuple(gate.message for gate in fold.gates.waiting_of(step=name, cell_id=cell_id))
        effects, decided = fold.effects.by_key.items(), fold.gates.decided_of(step=name, cell_id=cell_id)
        return StepSummary(
            name,
            "unfinished",
            answered=answered,
            gained=tuple(gained),
            waits_for=waits_for,
            doubts=tuple(key for key, e in effects if e.standing == "in doubt" and e.started.step == name),
            decided=_told(decided.decision) if decided and decided.decision else "",
        )
    record = fold.latest(cell_id)
    if record is None or record.cell.step != name or record.seq not in fold.chain_set or not fold.stands(record):
        return StepSummary(name, "not done", answered=answered)
    row = fold.row(record.seq)
    return StepSummary(name, "done", record.seq, row.ts if row else None, record.spent, answered)


def _told(decision: Decision) -> str:
    then = "Run its cell again, or Run All, to go on." if decision.approved else "When it is run, it stops and says so."
    return f"{decision}. {then}"


def _text(image: Image, name: str) -> str:
    found = json.loads(image.json(name)) if name in image.fields else None
    return found if isinstance(found, str) else ""


def _lists(image: Image, since: Image | None = None) -> list[str]:
    """`17 findings` for each list or mapping in the state that holds something, or more than it did before."""
    found = []
    for name in image.fields:
        value = json.loads(image.json(name))
        if not isinstance(value, list | dict) or (isinstance(value, dict) and "$type" in value):
            continue
        before = json.loads(since.json(name)) if since is not None and name in since.fields else []
        count = len(value) - (len(before) if isinstance(before, list | dict) else 0)
        if count > 0:
            found.append(f"{count:,} {name.removesuffix('s') if count == 1 else name}")
    return found
