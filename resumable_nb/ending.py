"""The end of a cell: the checkpoint of a step, what an ordinary cell changed, or how it failed."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from resumable_nb import failpoints
from resumable_nb.cells import STATE
from resumable_nb.commit import failed_again, report, take_notices
from resumable_nb.errors import Rejected, ResumableError
from resumable_nb.journal import Row
from resumable_nb.scope import Run
from resumable_nb.why import not_stored

if TYPE_CHECKING:
    from resumable_nb.cells import Record
    from resumable_nb.opened import Opened
    from resumable_nb.running import Kept, Running
    from resumable_nb.state import Image


@dataclass
class Ending:
    """One cell that ends, once: by `commit` or by `fail`; a committed step then by `outputs`.

    Attributes:
        committed: the record of a step whose checkpoint was written.
    """

    opened: Opened
    running: Running
    committed: Record | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._thread, self._names, self._places = self.opened.thread, self.opened.names, self.opened.places
        self._cell = self.running.cell

    def commit(self) -> list[str]:
        """The body has ended well: write the checkpoint. It is in the store when this returns.

        Returns:
            Lines to say.

        Raises:
            ResumableError: Nothing was committed; state and lineage are as at the cell's entry.
        """
        try:
            if isinstance(self.running.scope, Run):
                return self._commit_step(self.running.scope)
            return self._commit_plain()
        except BaseException:
            self._back_to_entry()
            raise

    def _back_to_entry(self) -> None:
        self.opened.set_state(self.running.image)

    # ------------------------------------------------------------------ ordinary cells
    def _commit_plain(self) -> list[str]:
        """R5: an ordinary cell that changes the state makes an `edit` checkpoint at its place."""
        self.opened.adopt_state()
        image = self._thread.live.image()
        record = self.running.record(
            self._names, self.running.kept(self._names, image), uses_state=self.opened.outside.uses_state
        )
        lines = take_notices(self.opened.outside)
        self._places.ran[self._cell.cell_id] = self._write_plain(record, image)
        self.opened.end(self.running)
        self.opened.follow_state_class()
        return lines

    def _write_plain(self, record: Record, image: Image) -> Record:
        """What is not in the journal yet of a cell that used the state; of another one, that it uses it no more."""
        current = self._thread.fold.latest(self._cell.cell_id)
        if STATE not in record.before:
            if current is not None:
                self._thread.append(Row(kind="cell", phase="dropped", cell_id=self._cell.cell_id))
            return record
        if current is not None and self._is_written(record, current):
            return replace(record, seq=current.seq, checkpoint=current.checkpoint)
        rows = self._rows_of(record, image)
        seq = self._thread.append(*rows)[-1]
        checkpoint = seq if STATE in record.kept else self.running.entry
        return replace(record, seq=seq, source_seq=seq, checkpoint=checkpoint)

    def _is_written(self, record: Record, current: Record) -> bool:
        """Whether the lineage has this run, and the state that it left."""
        return record.equals(current) and (STATE not in record.kept or current.seq in self._thread.fold.chain_set)

    def _rows_of(self, record: Record, image: Image) -> list[Row]:
        data, entry = record.to_json(), self.running.entry
        if STATE in record.kept:
            return self._rows(image, origin="edit", data=data, key=record.key)
        row = Row(kind="cell", phase="done", cell_id=self._cell.cell_id, key=record.key, parent_seq=entry, data=data)
        return [*self.opened.lineage.anchor_rows(), row]

    def _rows(self, image: Image, **columns: Any) -> list[Row]:
        running = self.running
        return self.opened.lineage.rows(self._cell, running.above, entry=running.image, image=image, **columns)

    # ------------------------------------------------------------------ steps
    def _commit_step(self, run: Run) -> list[str]:
        run.settle()
        self.opened.adopt_state()
        image = self._thread.live.end_step()
        kept = self.running.kept(self._names, image)
        lines = report(run)
        if self.running.found is not None:
            lines += self._stand_by_record(self.running.found, image, kept)
        else:
            record = self._write_step(run, image, kept)
            lines += not_stored(record.lost, kept)
        self.opened.end(self.running)
        return lines

    def _write_step(self, run: Run, image: Image, kept: Kept) -> Record:
        """The checkpoint, with the values of the names that the step left."""
        random = run.random_at_end()
        record, encoded = self.running.record_with_values(
            self._names, kept, spent=run.spent(), moved_random=random is not None
        )
        failpoints.passing("step.commit.before")
        rows = self._rows(
            image,
            origin="step",
            key=run.key,
            ref_seq=run.started_seq,
            run_seq=run.started_seq,
            duration_ms=round((time.monotonic() - run.began) * 1e3, 3),
            response=encoded.text if encoded is not None else None,
            body=random,
            data=record.to_json(),
        )
        rows[:0] = self._thread.value_rows(encoded.blobs if encoded is not None else {})
        resumed = self._thread.resume.ended(run.step, run.cell.cell_id, run.again, is_done=True)
        seq = self._thread.append(*rows, *resumed)[len(rows) - 1]
        failpoints.passing("step.commit.after")
        record = replace(record, seq=seq, source_seq=seq, checkpoint=seq, started_seq=run.started_seq)
        self.committed = self._places.ran[self._cell.cell_id] = self._thread.fold.remember(record, image)
        return record

    def _stand_by_record(self, found: Record, image: Image, kept: Kept) -> list[str]:
        """A replay rebuilds names; the recorded exit state stands, and a difference is said."""
        lines = []
        recorded = self._thread.fold.image(found.checkpoint)
        if recorded.digest != image.digest:
            fields = recorded.differing(image)
            lines.append(f"the replay ended with another state ({', '.join(fields)}); the recorded one stands")
        lines += self._restore_values(found, kept)
        record = self.opened.lineage.take_up(self._cell, self.running.above, found)
        self._thread.note_skip(self._cell, record, how="replayed")
        self.opened.set_state(recorded)
        self._places.ran[self._cell.cell_id] = record
        return lines

    def _restore_values(self, found: Record, kept: Kept) -> list[str]:
        """Stored values stand, too."""
        digests = {n: f and f.digest for n, f in kept.items()}
        stored = {n: f for n, f in found.kept.items() if n != STATE and f and not f.storable and n not in found.lost}
        other = {n for n, f in stored.items() if f.digest != digests.get(n)}
        if not other:
            return []
        self.opened.binder.restore(found, other)
        return [f"the replay gave other values for {', '.join(sorted(other))}; the recorded ones stand"]

    # ------------------------------------------------------------------ failures
    def fail(self, error: BaseException) -> list[str]:
        """The body raised: state and lineage are as at its entry. Returns lines to say."""
        lines: list[str] = []
        self._back_to_entry()
        if isinstance(run := self.running.scope, Run):
            again = isinstance(error, Exception) and not isinstance(error, Rejected)
            lines = report(run) + (failed_again(run) if again else [])
            lines += self._write_failed(run, error)
            self._thread.resume.ended(self._cell.step, self._cell.cell_id, run.again, is_done=False)
        self.opened.end(self.running)
        self.opened.follow_state_class()
        return lines

    def _write_failed(self, run: Run, error: BaseException) -> list[str]:
        """Say in the journal that the step failed; where that cannot be written, say that here."""
        self._thread.fold.unfinished.add(self._cell.cell_id)
        try:
            self._thread.append(run.failed_row(error))
        except ResumableError as problem:
            return [] if isinstance(error, type(problem)) else [str(problem)]
        return []

    # ------------------------------------------------------------------ outputs
    def outputs(self, shown: list[dict[str, Any]], signature: str = "") -> None:
        """Store what the step that was just committed showed, to be shown again when it is skipped."""
        record = self.committed
        if record is None or not shown:
            return
        text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
        self._thread.append(
            Row(kind="outputs", ref_seq=record.source_seq, step=record.cell.step, key=signature, response=text)
        )
