"""A cell between its beginning and its end: what it started with, and the record of what it left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from resumable_nb import holding, values
from resumable_nb.asking import Question
from resumable_nb.cells import STATE, Record, fingerprint_of
from resumable_nb.commit import state_facts
from resumable_nb.names import MODULE, made_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resumable_nb.cells import Cell
    from resumable_nb.fingerprint import Facts
    from resumable_nb.names import Names
    from resumable_nb.place import Left
    from resumable_nb.scope import Run, Scope
    from resumable_nb.state import Image

Kept = dict[str, "Facts | None"]


@dataclass
class Start:
    """Where a cell starts: what stands above it, what it needs, the checkpoint with its state, and that state."""

    cell: Cell
    above: list[Cell]
    before: dict[str, Facts | None]
    everywhere: Mapping[str, Left]
    entry: int
    image: Image

    def question(self, run: Run) -> Question | None:
        """What `--approve` asks: for this code, these inputs and this state; None for a cell without it."""
        if self.cell.approve is None:
            return None
        inputs = {n: f and {"value": f.summary, "digest": f.digest} for n, f in self.before.items() if n != STATE}
        about = {"code": self.cell.code.digest, "inputs": inputs, "state": self.image.digest}
        return Question.about(run, self.cell.approve, None, default=about)


@dataclass
class Running(Start):
    """A cell that runs.

    Attributes:
        objects: the objects that names held at its start, by identity.
        facts: what the names held that it might change.
        start: who held which objects.
        scope: where its calls go.
        found: the recorded run of which it only rebuilds the names.
    """

    objects: dict[str, Any]
    facts: dict[str, Facts | None]
    start: holding.Start
    scope: Scope
    found: Record | None = None

    @classmethod
    def of(cls, start: Start, names: Names, scope: Scope) -> Self:
        """The cell runs now: remember what names hold that it might change."""
        watched = {n for n in start.before if n != STATE and not n.startswith(MODULE)} | start.cell.code.writes
        watched |= names.aliases(watched)
        facts = {n: names.facts(n) for n in watched}
        objects, held = names.identities(), holding.Start.of(names, start.everywhere)
        return cls(**vars(start), objects=objects, facts=facts, start=held, scope=scope)

    def kept(self, names: Names, image: Image) -> Kept:
        """Names that the cell bound, altered or deleted, and the state if it changed or the cell is a step."""
        names.forget()
        maker = made_by(fingerprint_of(self.cell.code.digest, self.before))
        now = names.identities()
        rebound = {n for n, value in now.items() if n not in self.objects or self.objects[n] is not value}
        for name in rebound:
            names.made_by[name] = maker
        gone = {n for n in self.objects if n not in now}
        place = self.start.placed | self.before.keys()
        altered = {n for n, f in self.facts.items() if n in place and (f and f.digest) != names.digest(n)}
        kept = {n: names.facts(n) for n in rebound | gone | altered | self.cell.code.writes if n != STATE}
        binds_state = STATE in self.cell.code.writes
        if self.cell.step is not None or binds_state or image.digest != self.image.digest:
            kept[STATE] = state_facts(image)
        return kept

    def record(self, names: Names, kept: Kept, *, uses_state: bool) -> Record:
        """Of an ordinary cell that has ended. What it used of the state belongs to what it needed."""
        before = dict(self.before)
        if STATE in kept or uses_state:
            before.setdefault(STATE, state_facts(self.image))
        shared, passed = holding.recorded(names, self.start, self.facts, _bound(kept))
        return Record(self.cell, before, kept, checkpoint=self.entry, shared=shared, passed=passed)

    def record_with_values(self, names: Names, kept: Kept, **spent: Any) -> tuple[Record, values.EncodedNames | None]:
        """Of a step that has ended, and the values of the names that it left; None if it left none.

        Args:
            names: as they are now.
            kept: what the step left.
            spent: what else the record says of the run.
        """
        bound = _bound(kept)
        shared, passed = holding.recorded(names, self.start, self.facts, bound)
        together = bound | (set().union(*shared.values()) & self.before.keys())
        storable = {n: names.namespace[n] for n in together if (f := names.facts(n)) is not None and not f.storable}
        encoded = values.encode_names(storable)
        lost = {n: (f.storable or encoded.failed.get(n, "")) for n in bound if (f := kept[n])}
        lost = {n: why for n, why in lost.items() if why}
        record = Record(self.cell, self.before, kept, lost=lost, shared=shared, passed=passed, **spent)
        return record, encoded if bound else None


def _bound(kept: Kept) -> set[str]:
    """The names that a cell left bound."""
    return {n for n, f in kept.items() if f is not None and n != STATE}
