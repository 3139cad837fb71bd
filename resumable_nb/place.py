"""The rules of place: what stands above a cell, and what that left (DESIGN section 5, rules 2 to 4).

The rules follow `tests/model/reference_model.py` line by line; the tests drive both. A cell sees state and names of
its place in the notebook, whatever was run when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from resumable_nb.cells import BASE, STATE, Cell, Order, Record, first_of
from resumable_nb.errors import RunFirst
from resumable_nb.holding import together
from resumable_nb.names import DEFINED, MODULE, Names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from resumable_nb.fingerprint import Facts
    from resumable_nb.fold import Fold

_BASE_CELL = Cell(BASE, None, "")


@dataclass(frozen=True)
class Left:
    """What the nearest cell above left in a name. With `blame` that is not known, and that cell has to run first."""

    facts: Facts | None = None
    writer: Cell = _BASE_CELL
    blame: str = ""
    record: Record | None = None

    @property
    def digest(self) -> str | None:
        """Of the value; None for an unbound name."""
        return self.facts.digest if self.facts else None


NOTHING = Left()


@dataclass(frozen=True)
class Entry:
    """Where a cell starts.

    Attributes:
        placed: the names to bind, as its place has them.
        needed: all names whose value at the start can matter.
        state: the state at its place, needed or not.
        everywhere: what the cells above left in each name.
        entangled: for each name, those that hold an object of it at its place (see `holding.together`).
    """

    placed: Mapping[str, Left]
    needed: set[str]
    state: Left
    everywhere: Mapping[str, Left]
    entangled: Mapping[str, Mapping[str, str]]


def facts_of(names: Mapping[str, Left]) -> dict[str, Facts | None]:
    """Only the values."""
    return {name: left.facts for name, left in names.items()}


@dataclass
class Places:
    """What this kernel knows of the notebook: what was executed in it, what ended, and the order of the cells.

    Attributes:
        seen: cells as last executed here, whatever came of it.
        ran: runs that finished here, newest per cell.
        baseline: names that were bound before the thread was opened here, as cells above left them.
        bound_at_opening: the same, and names that cells below bound under an earlier opening in this kernel.
        opened_in: the cell that opened the thread.
    """

    fold: Fold
    names: Names
    start: Left
    seen: dict[str, Cell] = field(default_factory=dict)
    ran: dict[str, Record] = field(default_factory=dict)
    baseline: dict[str, Left] = field(default_factory=dict)
    bound_at_opening: dict[str, Left] = field(default_factory=dict)
    opened_in: str | None = None
    anchors: dict[str, tuple[str, Any]] = field(default_factory=dict)
    last: str = ""
    notes: list[Cell] = field(default_factory=list)
    sources: dict[str, Cell] = field(default_factory=dict)
    notebook: tuple[Cell, ...] = ()
    sees_all: bool = False  # where only the order of execution is known, any name may be read by a cell to come
    left_out: set[str] = field(default_factory=set)

    # ------------------------------------------------------------------ rule 2: what stands above
    def arrive(self, cell: Cell, order: Order) -> None:
        """A cell is about to run: remember it, and where it stands if the notebook does not say."""
        known = any(c.cell_id == cell.cell_id for c in order.cells)
        if not known and self.anchors.get(cell.cell_id, ("", None))[1] != order.version:
            self.anchors[cell.cell_id] = (self.last, order.version)
        self.last, self.notes, self.notebook = cell.cell_id, [], order.cells
        self.sees_all = order.origin != "execution"
        self.seen[cell.cell_id] = cell
        for known_cell in (*order.cells, cell):
            if known_cell.source:
                self.sources[known_cell.code.digest] = known_cell

    def above(self, cell: Cell, order: Order) -> list[Cell]:
        """The cells above, unsaved ones after the cell that they ran after; each as last executed."""
        cells = list(order.cells)
        recorded = {c: record.cell for c in self.fold.lineage if (record := self.fold.latest(c))}
        known = recorded | self.seen
        for cell_id, (ran_after, saved) in self.anchors.items():
            ids, anchor, passed = [c.cell_id for c in cells], ran_after, {cell_id}
            while anchor not in {*ids, *passed} and self.anchors.get(anchor, ("", None))[1] == order.version:
                passed.add(anchor)  # cells of no file, run in turn before and after a save, come after each other
                anchor = self.anchors[anchor][0]
            if cell_id in known and cell_id not in ids and saved == order.version:
                cells.insert(ids.index(anchor) + 1 if anchor in ids else len(ids), known[cell_id])
        return [known.get(c.cell_id, c) for c in takewhile(lambda c: c.cell_id != cell.cell_id, cells)]

    def skipped(self, cell: Cell) -> bool:
        """Whether it is a step that has not run in this kernel."""
        return cell.step is not None and cell.cell_id not in self.ran

    def _is_left_out(self, name: str) -> bool:
        """Whether a skipped step left it unbound, because it is not stored and nobody was known to read it."""
        return name in self.left_out and name not in self.names.namespace

    def read_elsewhere(self, *cells_apart: Cell) -> set[str]:
        """Names that other cells read, as far as they are known, or that functions of any cell touch."""
        cells = [*self.notebook, *self.seen.values()]  # one that was edited since reads what either text does
        apart = {c.cell_id for c in cells_apart}
        others = [c.code.loads.keys() for c in cells if c.cell_id not in apart]
        deferred = [names for c in cells for names in c.code.defers.values()]
        return set().union(*others, *deferred)

    # ------------------------------------------------------------------ rules 2 and 3: what it left
    def walk(self, above: list[Cell]) -> dict[str, Left]:
        """What the cells above left in each name. One stands if it started as those above it ended."""
        names = {**self.baseline, STATE: self.start}
        untracked = self._before_opening(above)
        for cell in above:
            if cell.cell_id in untracked:
                self._walk_untracked(cell, names)
                continue
            record = self._record(cell)
            kept = record.kept if record else {}
            here = cell.step is not None or cell.cell_id in self.ran
            blame = self._outdated(cell, record, names, above)
            bound = set(kept) if here and not blame else set(self.writes(cell)) | set(kept)
            if blame and STATE in self.names.needs(cell.code, facts_of(names)) - bound:
                self.notes.append(cell)  # it changed nothing when it last ran, but might now
            for name in bound:
                if name in kept and not blame and (here or name == STATE):
                    names[name] = Left(kept[name], cell, record=record)
                else:
                    names[name] = Left(None, cell, blame or cell.cell_id, record)
        return names

    def _before_opening(self, above: list[Cell]) -> set[str]:
        """Cells that ran, or may have run, before the thread was opened in this kernel."""
        ids = [c.cell_id for c in above]
        if self.opened_in not in ids:
            return set()
        return {c for c in ids[: ids.index(self.opened_in) + 1] if c not in self.seen and c not in self.fold.lineage}

    def _walk_untracked(self, cell: Cell, names: dict[str, Left]) -> None:
        for name in self.writes(cell):
            if cell.cell_id == self.opened_in:  # it had just run: whatever bound the name before counts no more
                names[name] = self.bound_at_opening.get(name, NOTHING)
            elif name not in self.baseline:
                names[name] = Left(None, cell, cell.cell_id)

    def _record(self, cell: Cell) -> Record | None:
        recorded = self.fold.latest(cell.cell_id)
        return recorded if cell.step is not None else self.ran.get(cell.cell_id, recorded)

    @staticmethod
    def writes(cell: Cell) -> frozenset[str]:
        """Names that its source binds or alters in place; a step always leaves a state."""
        return cell.code.writes | cell.code.alters | ({STATE} if cell.step is not None else set())

    def needs(self, cell: Cell, placed: Mapping[str, Facts | None], *, now: bool = False) -> set[str]:
        """Names whose value at the start can matter; a step always needs the state."""
        return self.names.needs(cell.code, placed, now=now) | ({STATE} if cell.step is not None else set())

    def _outdated(self, cell: Cell, record: Record | None, names: dict[str, Left], above: list[Cell]) -> str:
        """Empty if the cell, as last executed, ended, and from these names; else the id of the cell to run first."""
        here = cell.step is None and cell.cell_id in self.ran
        before = record.before if record else {}
        wanted = {n for n in before.keys() | self.needs(cell, facts_of(names)) if not n.startswith(MODULE)}
        left = {n: names.get(n, NOTHING) for n in wanted}
        unknown = {n for n, x in left.items() if x.blame}
        recorded = {n for n in unknown if n != STATE and not here and left[n].writer.cell_id not in self.seen}
        if record and record.cell.code.digest == self.seen.get(cell.cell_id, record.cell).code.digest:
            if cell.step is not None:
                ended = cell.cell_id not in self.fold.unfinished and self.fold.stands(record)
            else:
                ended = here or cell.cell_id not in self.seen
            if ended and all(self._as_before(n, f, left, unknown, recorded) for n, f in before.items()):
                return ""
        first = {left[n].blame for n in unknown - recorded or unknown}
        for name in left.keys() - unknown - {STATE}:  # an ordinary cell will start with other names than it should
            if cell.step is None and not self.skipped(left[name].writer) and left[name].digest != self._now(name):
                first.add(left[name].writer.cell_id)
        found = first_of(above, first)
        return found.cell_id if found else cell.cell_id

    def _as_before(
        self, name: str, facts: Facts | None, left: Mapping[str, Left], unknown: set[str], recorded: set[str]
    ) -> bool:
        digest = facts.digest if facts else None
        if name.startswith(MODULE):
            return self.names.module(name) == digest
        return name in recorded or (name not in unknown and left[name].digest == digest)

    def _now(self, name: str) -> str | None:
        facts = self.names.facts(name)
        return facts.digest if facts else None

    # ------------------------------------------------------------------ rule 4: names at their place
    def enter(self, cell: Cell, above: list[Cell]) -> Entry:
        """What a cell needs, as its place has it (an ordinary cell: the state, and what skipped steps kept).

        Raises:
            RunFirst: A value is to be had nowhere; the error names the cell that makes it.
        """
        everywhere = names = self.walk(above)
        state = names[STATE]
        if cell.step is None:
            names = {n: x for n, x in names.items() if n == STATE or self.skipped(x.writer) or self._is_left_out(n)}
        needed = self.needs(cell, facts_of(names), now=cell.step is None)
        at_hand = {n for n in needed if not n.startswith(MODULE) and (cell.step is not None or n in names)}
        entangled = together(everywhere, above)
        others = {other for n in at_hand for other in entangled.get(n, {}) if other in names}
        at_hand |= {n for n in others - at_hand if self._is_noticed(cell, n, names[n])}
        placed = {n: names.get(n, NOTHING) for n in at_hand}
        missing = {n: left for n, left in placed.items() if left.blame or not self._at_hand(n, left)}
        missing |= self._classes_of(placed, everywhere)
        if missing:
            self.stop(cell, above, missing)
        return Entry(placed, needed, state, everywhere, entangled)

    def _at_hand(self, name: str, left: Left) -> bool:
        """Whether the value is bound, or can be without running a cell."""
        if name == STATE or left.digest == self._now(name) or self.names.kept(name, left.facts):
            return True
        if left.writer.step is None or left.record is None or left.facts is None:
            return False
        return not left.facts.storable or self.definable(left)

    def _is_noticed(self, cell: Cell, name: str, left: Left) -> bool:
        """Whether it is noticed in this name when the cell alters an object that it should hold."""
        if left.digest == self._now(name) or not self.sees_all:
            return True
        return name in self.read_elsewhere(cell, left.writer)  # what the writer itself reads was there before

    def _classes_of(self, placed: Mapping[str, Left], names: Mapping[str, Left]) -> dict[str, Left]:
        """Names that are not bound and that values of a record cannot be restored without."""
        restored = {n: x for n, x in placed.items() if n != STATE and x.digest != self._now(n)}
        reads = {r for x in restored.values() if x.facts and x.facts.kind == "value" for r in x.facts.reads}
        return {r: names[r] for r in reads - placed.keys() if r in names and self._now(r) is None}

    def definable(self, left: Left) -> bool:
        """Whether an import, def or class statement of the cell, whose source is at hand, makes the value."""
        if left.facts is None or left.facts.kind not in DEFINED:
            return False
        source = self.sources.get(left.writer.code.digest)
        name = next((n for n, f in (left.record.kept if left.record else {}).items() if f is left.facts), None)
        return bool(source and name and source.code.definitions({name}))

    def stop(self, cell: Cell, above: Iterable[Cell], missing: Mapping[str, Left]) -> None:
        """Name the cell to run first: the topmost that makes one of these. Raises RunFirst."""
        target = first_of(above, {left.blame or left.writer.cell_id for left in missing.values()})
        what = "the state" if STATE in missing else ", ".join(f"`{n}`" for n in sorted(missing))
        if target is None:
            raise RunFirst(
                f"{cell.label} needs {what} as it was when the thread was opened here, and that was changed since. "
                "Restart the kernel and run all cells: finished steps are skipped.",
                cell_id=BASE,
                step=None,
            )
        free = " (questions already answered are free)" if target.step is not None else ""
        raise RunFirst(
            f"{cell.label} needs {what} as the cells above leave it. Run {target.label} first{free}.",
            cell_id=target.cell_id,
            step=target.step,
        )
