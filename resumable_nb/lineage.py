"""How the lineage moves: from which checkpoint a new one starts, and how an earlier run is taken up again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resumable_nb.commit import checkpoint_row, rows_to, state_facts
from resumable_nb.journal import Row
from resumable_nb.place import Left

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from resumable_nb.cells import Cell, Order, Record
    from resumable_nb.place import Places
    from resumable_nb.state import Image
    from resumable_nb.thread import Thread


@dataclass
class Lineage:
    """The lineage of a thread, as the cells of one notebook move it.

    Attributes:
        start: the checkpoint that this notebook starts from.
    """

    thread: Thread
    places: Places
    start: int = 0
    _notebook: str | None = field(init=False, default=None)

    def parent(self, above: list[Cell]) -> int:
        """The newest checkpoint of the lineage that belongs to a cell above: the new one starts from it."""
        fold = self.thread.fold
        seqs = [seq for c in above if (seq := fold.lineage.get(c.cell_id, 0)) in fold.chain_set]
        if seqs:
            return seqs[-1]
        return self.start if self.start in fold.chain_set else fold.root

    def take_up(self, cell: Cell, above: list[Cell], found: Record) -> Record:
        """The lineage holds this run already, or moves to it by a new checkpoint."""
        fold = self.thread.fold
        current = fold.latest(cell.cell_id)
        same_cell = found.cell.cell_id == cell.cell_id and found.cell.step == cell.step
        in_place = same_cell and current is not None and current.equals(found) and current.seq in fold.chain_set
        if current is not None and in_place and cell.cell_id not in fold.unfinished:
            return current
        extra: dict[str, Any] = {"as": found.source_seq}
        if not same_cell:
            extra["was"] = [found.cell.cell_id, found.cell.step]
        parent = self.parent(above)
        changes = fold.image(found.checkpoint).changes_from(fold.image(parent))
        row = checkpoint_row(cell, "taken up", parent, changes, key=found.key, data=json.dumps(extra))
        self.thread.append(*self.anchor_rows(), row)
        return fold.record(row.seq)

    def anchor_rows(self) -> list[Row]:
        """After which cells unsaved ones stand, if the journal does not say so yet."""
        anchors = self.places.anchors
        if anchors == self.thread.fold.anchors:
            return []
        return [Row(kind="notice", name="anchors", data=json.dumps(anchors))]

    def rows(
        self, cell: Cell, above: list[Cell], *, entry: Image, image: Image, origin: str, **columns: Any
    ) -> list[Row]:
        """The rows that move the lineage from a cell's entry state to its exit; the last one is its checkpoint."""
        moves = rows_to(
            self.thread, cell, parent=self.parent(above), entry=entry, image=image, origin=origin, **columns
        )
        return [*self.anchor_rows(), *self.thread.value_rows(image.blobs), *moves]

    def know_notebook(self, order: Order, *, is_newest: bool) -> None:
        """R10: a thread remembers the notebook that made it; another one starts from the newest checkpoint."""
        fold = self.thread.fold
        if order.path is None or order.path == self._notebook or not fold.root:
            return
        self._notebook = order.path
        ids = [c.cell_id for c in order.cells]
        known = next((n for n in fold.notebooks if _same_notebook(n, order.path, ids)), None)
        if known is None:
            first = not fold.notebooks and not is_newest
            known = {"path": order.path, "ids": ids, "base": 0 if first else fold.newest()}
            self.thread.append(Row(kind="notice", name="notebook", data=json.dumps(known)))
        self.start = known["base"] or fold.root
        self.places.start = Left(state_facts(fold.image(self.start)))


def _same_notebook(known: Mapping[str, Any], path: str, ids: Iterable[str]) -> bool:
    shared = set(known["ids"]) & set(ids)
    return bool(known["path"] == path or (shared and 2 * len(shared) >= len(known["ids"])))
