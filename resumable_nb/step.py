"""Skip, replay or run one cell. Knows no IPython: the notebook layer and `Thread.step` drive it.

The order of events for every cell: `begin` (before any of its code runs), then `commit` or `fail`, then `outputs`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from resumable_nb import back, holding, scope
from resumable_nb.back import Back
from resumable_nb.cells import STATE, Cell, Order, Record, fingerprint_of
from resumable_nb.commit import state_facts, take_notices
from resumable_nb.ending import Ending
from resumable_nb.errors import (
    NameTaken,
    Paused,
    Rejected,
    UsageError,
)
from resumable_nb.fingerprint import Facts
from resumable_nb.names import MODULE, Names
from resumable_nb.opened import Opened
from resumable_nb.place import Left, Places
from resumable_nb.resuming import before_skip
from resumable_nb.running import Running, Start
from resumable_nb.scope import Run
from resumable_nb.why import left_out, notes, why_it_runs

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
    tracked: frozenset[str] = frozenset()
    names: Names = field(init=False)
    places: Places = field(init=False)
    opened: Opened = field(init=False)

    def __post_init__(self) -> None:
        self.names = Names(self.namespace, self.hidden)
        self.opened = Opened(self.thread, self.namespace, self.names, self.state_name, self.query, self.newest)
        self.places = self.opened.places
        self._lineage, self._binder, self._outside = self.opened.lineage, self.opened.binder, self.opened.outside
        self._ending: Ending | None = None
        self._said: list[str] = []
        self._said_guess = False
        self._order: Order | None = None
        scope.enter(self._outside)
        self.opened.begin()

    @property
    def running(self) -> Running | None:
        """The cell that has begun and not ended."""
        return self.opened.running

    # ------------------------------------------------------------------ opening
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

    # ------------------------------------------------------------------ the beginning of a cell
    def begin(self, cell: Cell, order: Order) -> Decision:
        """Decide what happens to a cell, and put state and names to its place.

        Raises:
            RunFirst: A cell above has to run before it.
            NameTaken: A cell above has this step name.
        """
        if self.running is not None:  # its end was never told, such as by a kernel that was interrupted in between
            self.opened.end(self.running)
        self._ending = None
        self.opened.look_between()
        self.names.forget()
        problem = self.opened.refresh()
        if problem is not None:
            if cell.step is not None or STATE in {*cell.code.loads, *cell.code.writes}:
                raise problem
            return Decision("plain", f"{problem}. This cell, which uses no state, runs all the same")
        self._lineage.know_notebook(order, is_newest=self.newest)
        self._order = order
        self.opened.follow_state_class()
        self.places.arrive(cell, order)
        above = self.places.above(cell, order)
        self._refuse_twins(cell, above)
        at = self.places.enter(cell, above)
        self._binder.bind(cell, above, at)
        entry, image = self.opened.put_state(above, at)
        before = {n: self._facts_at_start(n, at.placed, image) for n in at.needed}
        start = Start(cell, above, before, at.everywhere, entry, image)
        return self._begin_plain(start) if cell.step is None else self._begin_step(start)

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

    # ------------------------------------------------------------------ ordinary cells
    def _begin_plain(self, start: Start) -> Decision:
        self.places.ran.pop(start.cell.cell_id, None)
        self._outside.begin(start.cell.cell_id)
        self.opened.running = Running.of(start, self.names, self._outside)
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
        self.opened.running = running = Running.of(start, self.names, run)
        running.found = found
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
            self.opened.set_state(start.image)
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
        self.opened.set_state(self.thread.fold.image(record.checkpoint))
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
        """The body has ended well: write the checkpoint. See `Ending.commit`. Nothing where no cell runs."""
        if self.running is None:
            return []
        self._ending = Ending(self.opened, self.running)
        return self._ending.commit()

    def fail(self, error: BaseException) -> list[str]:
        """The body raised: state and lineage are as at its entry. Returns lines to say."""
        return [] if self.running is None else Ending(self.opened, self.running).fail(error)

    def outputs(self, shown: list[dict[str, Any]], signature: str = "") -> None:
        """Store what the step that was just committed showed, to be shown again when it is skipped."""
        if self._ending is not None:
            self._ending.outputs(shown, signature)

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
