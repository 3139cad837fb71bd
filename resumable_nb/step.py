"""Skip, replay or run one cell. Knows no IPython: the notebook layer and `Thread.step` drive it.

The order of events for every cell: `begin` (before any of its code runs), then `commit` or `fail`, then `outputs`.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from resumable_nb import back, failpoints, holding, scope
from resumable_nb.back import Back
from resumable_nb.binding import Binder
from resumable_nb.cells import STATE, Cell, Order, Record, fingerprint_of
from resumable_nb.commit import failed_again, report, state_facts, take_notices
from resumable_nb.errors import (
    NameTaken,
    Paused,
    Rejected,
    ResumableError,
    StateError,
    StateMismatch,
    StoreError,
    ThreadError,
    UsageError,
    ValueNotLoadable,
    ValueNotStorable,
)
from resumable_nb.fingerprint import Facts
from resumable_nb.journal import Row
from resumable_nb.lineage import Lineage
from resumable_nb.named_state import NamedState
from resumable_nb.names import MODULE, Names
from resumable_nb.place import Entry, Left, Places
from resumable_nb.resuming import before_skip
from resumable_nb.running import Running, Start
from resumable_nb.scope import Run, Scope
from resumable_nb.why import left_out, not_stored, notes, why_it_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from resumable_nb.state import Image
    from resumable_nb.thread import Thread

Action = Literal["skip", "run", "plain"]
ORDER_GUESSED = (
    "no notebook file and no JupyterLab tells the order of the cells here: each stands where it was first run. After a "
    "restart, run them from top to bottom"
)


@dataclass(frozen=True)
class Decision:
    """What happens to a cell.

    Attributes:
        action: `skip` (do not run it), `run` (a step), `plain` (an ordinary cell).
        line: what to say to the person; "" for nothing.
        outputs: on `skip`, what the step showed (nbformat v4 output dicts).
        signature: of the outputs, as the notebook layer made it.
    """

    action: Action
    line: str = ""
    outputs: tuple[dict[str, Any], ...] = ()
    signature: str = ""


@dataclass
class Kernel:
    """The rules for one thread in one process.

    Args:
        thread: the open thread.
        namespace: where cells run.
        state_name: the notebook's name of the state class, looked up again after every cell; None for a fixed class.
    """

    thread: Thread
    namespace: MutableMapping[str, Any]
    hidden: Mapping[str, Any] | None = None
    state_name: str | None = None
    query: str | None = None
    newest: bool = False
    opened_in: str | None = None
    tracked: frozenset[str] = frozenset()
    names: Names = field(init=False)
    places: Places = field(init=False)
    running: Running | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.names = Names(self.namespace, self.hidden)
        self.places = Places(self.thread.fold, self.names, Left(), anchors=dict(self.thread.fold.anchors))
        self._class = NamedState(self.state_name, self.namespace, self.thread.live)
        self._outside = Scope(self.thread)
        self._lineage = Lineage(self.thread, self.places)
        self._binder = Binder(self.thread, self.names, self.places)
        self._problem: StateError | None = None
        self._committed: Record | None = None
        self._left: str | None = None
        self._said: list[str] = []
        self._said_guess = False
        self._order: Order | None = None
        scope.enter(self._outside)
        if self.state_name is None or self._class.find() is not None:
            self._begin_thread()
        else:
            self.thread.resume.loaded(None, waits_for=f"the cell that defines `{self.state_name}` has run")

    # ------------------------------------------------------------------ opening
    def _begin_thread(self) -> None:
        with self.thread.telling(self.thread.fold.newest()):
            self._load_thread()

    def _load_thread(self) -> None:
        cls = self._class.find()
        if cls is not None and cls is not self.thread.live.cls:
            self.thread.live.redefine(cls)
        self.thread.begin(self.query)
        for line in self.thread.notices:
            self._outside.notice(line)
        self.thread.notices.clear()
        root = self.thread.fold.newest() if self.newest else self.thread.fold.root
        self.places.start = Left(state_facts(self.thread.fold.image(root)))
        self._lineage.start = root
        self.namespace["thread"] = self.thread
        try:
            self._set_state(self.thread.fold.image(self.thread.fold.newest()))
        except ValueNotLoadable:  # its class is defined by a cell to come: a place's state is loaded when it is needed
            self._set_state(self.thread.fold.image(self.thread.fold.root))
            self.thread.resume.loaded(None, waits_for="the cells that define the classes of its values have run")
        else:
            self.thread.resume.loaded(self.thread.live.state)

    def baseline(self, opened_in: str | None) -> None:
        """The thread was opened by this cell: what is bound now was left by it and the cells above."""
        self.places.opened_in = opened_in
        self.names.forget()
        self.places.bound_at_opening = {n: Left(self.names.facts(n)) for n in self.names}
        self.places.baseline = {n: x for n, x in self.places.bound_at_opening.items() if n not in self.tracked}

    def made_here(self) -> frozenset[str]:
        """Names that do not hold what they held when the thread was opened here."""
        self.names.forget()
        before = self.places.baseline
        return frozenset(n for n in self.names if n not in before or before[n].digest != self.names.digest(n))

    def _follow_state_class(self) -> None:
        """The class of the state may have been defined anew. What does not fit stops the cells that need it."""
        if self.state_name is None:
            return
        cls = self._class.find()
        if cls is None or (self.thread.fold.root and cls is self.thread.live.cls):
            return
        try:
            self._begin_thread()
            self._problem = None
        except StateError as error:
            self._problem = error

    # ------------------------------------------------------------------ the beginning of a cell
    def begin(self, cell: Cell, order: Order) -> Decision:
        """Decide what happens to a cell, and put state and names to its place.

        Raises:
            RunFirst: A cell above has to run before it.
            NameTaken: A cell above has this step name.
        """
        if self.running is not None:  # its end was never told, such as by a kernel that was interrupted in between
            self._end(self.running)
        self._committed = None
        self._look_between()
        self.names.forget()
        problem = self._refresh()
        if problem is not None:
            if cell.step is not None or STATE in {*cell.code.loads, *cell.code.writes}:
                raise problem
            return Decision("plain", f"{problem}. This cell, which uses no state, runs all the same")
        self._lineage.know_notebook(order, is_newest=self.newest)
        self._order = order
        self._follow_state_class()
        self.places.arrive(cell, order)
        above = self.places.above(cell, order)
        self._refuse_twins(cell, above)
        at = self.places.enter(cell, above)
        self._binder.bind(cell, above, at)
        entry, image = self._put_state(above, at)
        before = {n: self._facts_at_start(n, at.placed, image) for n in at.needed}
        start = Start(cell, above, before, at.everywhere, entry, image)
        return self._begin_plain(start) if cell.step is None else self._begin_step(start)

    def _refresh(self) -> ResumableError | None:
        """See what others wrote. What is wrong with the store or the thread stops steps, not ordinary cells."""
        try:
            self.thread.session.refresh()
        except (StoreError, ThreadError) as error:
            return error
        self.thread.resume.show()
        return self.thread.session.lost

    def _look_between(self) -> None:
        """The state may have been changed since the last cell ended; that belongs to no cell, and is not kept."""
        with contextlib.suppress(StateError, ValueNotStorable):
            if self._left is not None and self.thread.live.image().digest != self._left:
                self._outside.notice(
                    "the state was changed between cells, by a widget or a task: that is not kept. Change it in a cell"
                )

    def _take_lines(self) -> list[str]:
        """What to say before a cell: of the state, and of cells above that are not up to date, once."""
        said, self._said = self._said, notes(self.places.notes)
        if not self.places.sees_all and not self._said_guess:
            self._said_guess = True
            self._outside.notice(ORDER_GUESSED)
        return take_notices(self._outside) + [line for line in self._said if line not in said]

    def _refuse_twins(self, cell: Cell, above: list[Cell]) -> None:
        twin = next((c for c in above if cell.step is not None and c.step == cell.step), None)
        if twin is not None:
            raise NameTaken(
                f"Two cells have the step name `{cell.step}`: {twin.cell_id} above and {cell.cell_id}, this one. "
                "Rename one of them.",
                cell_id=twin.cell_id,
            )

    def _facts_at_start(self, name: str, placed: Mapping[str, Left], image: Image) -> Facts | None:
        if name == STATE:
            return state_facts(image) if STATE not in placed else placed[STATE].facts
        if name.startswith(MODULE):
            digest = self.names.module(name)
            return None if digest is None else Facts(digest=digest, kind="module", summary=name)
        return placed[name].facts if name in placed else self.names.facts(name)

    def _put_state(self, above: list[Cell], at: Entry) -> tuple[int, Image]:
        """R2: the state is that of the place; it stays where that is not known and the cell does not need it."""
        left, needed = at.state, STATE in at.placed
        try:
            if self._problem is not None:
                raise self._problem
            if self._class.find() is None:
                raise self._class.missing()
            if left.blame or left.facts is None:
                raise self._class.missing()
            seq = left.record.checkpoint if left.record else self._lineage.start
            image = self.thread.fold.image(seq)
            self._set_state(image)
        except (StateError, ValueNotLoadable):
            if needed:
                raise
            return self._lineage.parent(above), self.thread.live.image()
        return seq, image

    def _set_state(self, image: Image) -> None:
        with self.thread.telling(self.thread.fold.newest()):
            self.thread.live.set(image)
        self._left = image.digest
        self.namespace[STATE] = self.thread.live.state

    # ------------------------------------------------------------------ ordinary cells
    def _begin_plain(self, start: Start) -> Decision:
        self.places.ran.pop(start.cell.cell_id, None)
        self._outside.begin(start.cell.cell_id)
        self.running = Running.of(start, self.names, self._outside)
        return Decision("plain", "\n".join(self._take_lines()))

    # ------------------------------------------------------------------ steps
    def _begin_step(self, start: Start) -> Decision:
        cell, above, before = start.cell, start.above, start.before
        for name, facts in before.items():
            if name != STATE and not name.startswith(MODULE):
                self.names.keep(name, facts)
        fold = self.thread.fold
        key = fingerprint_of(cell.code.digest, before)
        found = fold.run_like(cell, key)
        otherwise = [] if found is None else holding.starts_otherwise(self.names, found, start.everywhere)
        found = None if otherwise else found
        rebuilt: list[str] = []
        if found is not None:
            rebuilt = self._binder.not_at_hand(cell, found, start.everywhere) or self._binder.bring(
                cell, found, start.everywhere
            )
            if not rebuilt:
                return self._skip(start, found)
        why = self._take_lines() + why_it_runs(fold, cell, before, rebuilt=rebuilt, otherwise=otherwise)
        earlier = fold.latest(cell.cell_id)
        run = Run(
            self.thread,
            cell,
            key=key,
            entry=self._lineage.parent(above),
            image=start.image,
            eager=earlier is not None and found is None,
        )
        self._restore_random(run, cell, key, found)
        if found is None:
            fold.unfinished.add(cell.cell_id)
        self._gate(start, run, found)
        self.places.ran.pop(cell.cell_id, None)
        self.running = Running.of(start, self.names, run)
        self.running.found = found
        scope.enter(run)
        return Decision("run", "\n".join(why))

    def _gate(self, start: Start, run: Run, found: Record | None) -> None:
        """`--approve`: the body runs only after a person's yes, given for this code, these inputs and this state.

        Raises:
            Paused: nobody has decided yet.
            Rejected: they said no.
        """
        question = start.question(run)
        if question is None:
            return
        if found is not None and question.gate() is None:
            return  # it was done before anybody wanted to be asked; now it only rebuilds its names
        try:
            question.pass_or_pause()
        except BaseException as stop:
            self._set_state(start.image)
            if isinstance(stop, (Paused, Rejected)):
                self.thread.append(run.failed_row(stop))
            raise

    def _restore_random(self, run: Run, cell: Cell, key: str, found: Record | None) -> None:
        fold = self.thread.fold
        if found is not None and found.started_seq:
            run.restore_random(fold.started_row(found.started_seq))
        elif found is None:
            run.restore_random(fold.started(cell, key))

    def _skip(self, start: Start, found: Record) -> Decision:
        """The step is done: exit state and names come from the record."""
        cell, above = start.cell, start.above
        before_skip(self._outside, cell.step, cell.cell_id)
        record = self._lineage.take_up(cell, above, found)
        self.names.forget()
        self._set_state(self.thread.fold.image(record.checkpoint))
        self.thread.restore_random(record)
        self.places.ran[cell.cell_id] = record
        outputs, signature = self._recorded_outputs(record)
        self.thread.saved += record.spent
        self.thread.note_skip(cell, record)
        line = f"restored from checkpoint {record.checkpoint}: {record.spent} not spent again"
        line += left_out(self._binder.left_out(cell, record, start.everywhere))
        return Decision("skip", "\n".join([line, *self._take_lines()]), outputs, signature)

    def _recorded_outputs(self, record: Record) -> tuple[tuple[dict[str, Any], ...], str]:
        seq = self.thread.fold.outputs.get(record.source_seq)
        if seq is None:
            return (), ""
        row = self.thread.read(seq)
        return tuple(json.loads(row.response or "[]")), row.key or ""

    # ------------------------------------------------------------------ the end of a cell
    def commit(self) -> list[str]:
        """The body has ended well: write the checkpoint. It is in the store when this returns.

        Returns:
            Lines to say.

        Raises:
            ResumableError: Nothing was committed; state and lineage are as at the cell's entry.
        """
        running = self.running
        if running is None:
            return []
        try:
            if isinstance(running.scope, Run):
                return self._commit_step(running, running.scope)
            return self._commit_plain(running)
        except BaseException:
            self._back_to_entry(running)
            raise

    def _back_to_entry(self, running: Running) -> None:
        self._set_state(running.image)

    def _adopt_state(self) -> None:
        """A cell may have bound `state` to a new object."""
        bound = self.namespace.get(STATE, self.thread.live.state)  # `%reset` takes it away
        if bound is not self.thread.live.state:
            if not isinstance(bound, type(self.thread.live.state)):
                raise StateMismatch(
                    f"The cell bound `state` to {type(bound).__name__}. Change its fields instead, such as "
                    "`state.update(findings=[…])`; nothing was stored."
                )
            for name in type(bound).model_fields:
                setattr(self.thread.live.state, name, getattr(bound, name))
            self.namespace[STATE] = self.thread.live.state

    def _commit_plain(self, running: Running) -> list[str]:
        """R5: an ordinary cell that changes the state makes an `edit` checkpoint at its place."""
        self._adopt_state()
        image = self.thread.live.image()
        kept = running.kept(self.names, image)
        record = running.record(self.names, kept, uses_state=self._outside.uses_state)
        current = self.thread.fold.latest(running.cell.cell_id)
        durable = STATE in record.before
        lines = take_notices(self._outside)
        if (
            durable
            and record.equals(current)
            and (STATE not in kept or current is None or current.seq in self.thread.fold.chain_set)
        ):
            assert current is not None
            record = replace(record, seq=current.seq, checkpoint=current.checkpoint)
        elif durable:
            record = self._write_plain(running, record, image)
        elif current is not None:
            self.thread.append(Row(kind="cell", phase="dropped", cell_id=running.cell.cell_id))
        self.places.ran[running.cell.cell_id] = record
        self._end(running)
        self._follow_state_class()
        return lines

    def _write_plain(self, running: Running, record: Record, image: Image) -> Record:
        cell_id = running.cell.cell_id
        if STATE in record.kept:
            rows = self._rows(running, image, origin="edit", data=record.to_json(), key=record.key)
        else:
            parent = running.entry
            row = Row(
                kind="cell", phase="done", cell_id=cell_id, key=record.key, parent_seq=parent, data=record.to_json()
            )
            rows = [*self._lineage.anchor_rows(), row]
        seq = self.thread.append(*rows)[-1]
        return replace(record, seq=seq, source_seq=seq, checkpoint=seq if STATE in record.kept else running.entry)

    def _rows(self, running: Running, image: Image, **columns: Any) -> list[Row]:
        return self._lineage.rows(running.cell, running.above, entry=running.image, image=image, **columns)

    def _commit_step(self, running: Running, run: Run) -> list[str]:
        run.settle()
        self._adopt_state()
        image = self.thread.live.end_step()
        kept = running.kept(self.names, image)
        lines = report(run)
        if running.found is not None:
            lines += self._stand_by_record(running, running.found, image, kept)
            self._end(running)
            return lines
        random = run.random_at_end()
        record, encoded = running.record_with_values(
            self.names, kept, spent=run.spent(), moved_random=random is not None
        )
        failpoints.passing("step.commit.before")
        rows = self._rows(
            running,
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
        rows[:0] = self.thread.value_rows(encoded.blobs if encoded is not None else {})
        resumed = self.thread.resume.ended(run.step, run.cell.cell_id, run.again, is_done=True)
        seq = self.thread.append(*rows, *resumed)[len(rows) - 1]
        failpoints.passing("step.commit.after")
        record = replace(record, seq=seq, source_seq=seq, checkpoint=seq, started_seq=run.started_seq)
        self._committed = self.places.ran[running.cell.cell_id] = self.thread.fold.remember(record, image)
        self._end(running)
        return lines + not_stored(record.lost, kept)

    def _stand_by_record(
        self, running: Running, found: Record, image: Image, kept: Mapping[str, Facts | None]
    ) -> list[str]:
        """A replay rebuilds names; the recorded exit state stands, and a difference is said."""
        lines = []
        recorded = self.thread.fold.image(found.checkpoint)
        if recorded.digest != image.digest:
            fields = recorded.differing(image)
            lines.append(f"the replay ended with another state ({', '.join(fields)}); the recorded one stands")
        digests = {n: f and f.digest for n, f in kept.items()}
        stored = {n for n, f in found.kept.items() if n != STATE and f and not f.storable and n not in found.lost}
        other = {n for n in stored if found.kept[n] and found.kept[n].digest != digests.get(n)}  # type: ignore[union-attr]
        if other:
            self._binder.restore(found, other)
            lines.append(f"the replay gave other values for {', '.join(sorted(other))}; the recorded ones stand")
        record = self._lineage.take_up(running.cell, running.above, found)
        self.thread.note_skip(running.cell, record, how="replayed")
        self._set_state(recorded)
        self.places.ran[running.cell.cell_id] = record
        return lines

    def fail(self, error: BaseException) -> list[str]:
        """The body raised: state and lineage are as at its entry. Returns lines to say."""
        running = self.running
        if running is None:
            return []
        lines: list[str] = []
        self._back_to_entry(running)
        if isinstance(running.scope, Run):
            again = isinstance(error, Exception) and not isinstance(error, Rejected)
            lines = report(running.scope) + (failed_again(running.scope) if again else [])
            lines += self._write_failed(running, running.scope, error)
            self.thread.resume.ended(running.cell.step, running.cell.cell_id, running.scope.again, is_done=False)
        self._end(running)
        self._follow_state_class()
        return lines

    def _write_failed(self, running: Running, run: Run, error: BaseException) -> list[str]:
        """Say in the journal that the step failed; where that cannot be written, say that here."""
        self.thread.fold.unfinished.add(running.cell.cell_id)
        try:
            self.thread.append(run.failed_row(error))
        except ResumableError as problem:
            return [] if isinstance(error, type(problem)) else [str(problem)]
        return []

    def _end(self, running: Running) -> None:
        self.names.forget()
        with contextlib.suppress(StateError, ValueNotStorable):
            self._left = self.thread.live.image().digest
        if isinstance(running.scope, Run):
            scope.leave(running.scope)
        if self.running is running:
            self.running = None

    def outputs(self, shown: list[dict[str, Any]], signature: str = "") -> None:
        """Store what the step that was just committed showed, to be shown again when it is skipped."""
        record = self._committed
        if record is None or not shown:
            return
        text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
        self.thread.append(
            Row(kind="outputs", ref_seq=record.source_seq, step=record.cell.step, key=signature, response=text)
        )

    # ------------------------------------------------------------------ the notebook
    def back(self, what: str, run: int | None = None) -> list[str]:
        """Let an earlier run of a cell count again, with what stood above it then; see `back`. Returns lines to say.

        Args:
            what: a step, a checkpoint's number, `newest` or `start`.
            run: which finished run of the step; None: the last.

        Raises:
            UsageError: A step runs, no cell has run yet, or the cell is not in this notebook.
            ThreadNotFound: There is no such step, run or checkpoint.
        """
        if self.running is not None and isinstance(self.running.scope, Run):
            raise UsageError(f"`{self.running.cell.step}` is running. Go back in a cell of its own, which is no step.")
        if self._order is None:
            raise UsageError("Go back in a cell below the one that opens the thread.")
        return Back(self.thread, self.places, self._lineage, self._order, back.find(self.thread, what, run)).go()

    def close(self) -> None:
        """Leave the thread: calls go live and unrecorded from here on."""
        scope.leave(self._outside)
