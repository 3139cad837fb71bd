"""Reference model of the rules of place (DESIGN section 5): what the library should decide, in pure Python.

`Kernel` follows the rules on a `Thread` (the journal, folded). The person of `session.py` drives it in step with the
real engine and compares every decision.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any, NamedTuple

from tests.model.oracle import (
    START,
    STATE,
    Cell,
    Names,
    Prompt,
    Raised,
    Value,
    digest,
    execute,
    receipt_of,
    refused,
    storable,
)

Notebook = Callable[[], tuple[list[Cell], object]]  # the cells as far as the kernel is told, and a version


class Stop(Exception):
    """The cell did not end. `args`: reason, and the cell to run first or the one that has the name."""


class Record(NamedTuple):
    """A finished run: the names that it needed, at its start, and those it bound, altered or deleted, at its end."""

    cell: Cell
    before: Names
    kept: Names


def same(cell: Cell, other: Any) -> bool:
    """R7, R8: the same step by cell id or by name; `other` starts with both."""
    return bool(other[0] == cell.cell_id or other[1] == cell.step)


def alike(one: Record, other: Record) -> bool:
    """Whether these may be records of one run, whatever its cell is called now."""
    return (one.cell.code, one.before, one.kept) == (other.cell.code, other.before, other.kept)


class Thread:
    """The journal, folded. `lineage` has the run that counts of each cell; `Kernel.walk` finds which of them stand."""

    def __init__(self) -> None:
        self.era = 0  # answers of the outside change with it
        self.owner: Kernel | None = None
        self.runs: list[Record] = []  # finished runs of steps, not retired
        self.lineage: dict[str, Record] = {}
        self.unfinished: set[str] = set()
        self.answers: dict[tuple[Any, ...], str] = {}  # (cell id, step, prompt, occurrence), oldest first
        self.started: set[str] = set()  # keys of effects
        self.receipts: set[str] = set()
        self.anchors: dict[str, tuple[str, object]] = {}  # unsaved cell: the cell it ran after, version of the file
        self.log: list[tuple[Record, dict[str, Record], dict[Any, str]]] = []  # of each run: lineage and answers then

    def run_like(self, cell: Cell, before: Names) -> Record | None:
        """R1, R8: the newest finished run of this step with the same code, inputs and entry state."""
        runs = [r for r in self.runs if same(cell, r.cell) and (r.cell.code, r.before) == (cell.code, before)]
        return runs[-1] if runs else None

    def answer(self, cell: Cell, prompt: Prompt, nth: int) -> str | None:
        """R7: the newest answer over all runs of this step, by content and occurrence."""
        answers = [a for k, a in self.answers.items() if same(cell, k) and k[2:] == (prompt, nth)]
        return answers[-1] if answers else None

    def fresh(self, cell: Cell) -> None:
        """R7: retire answers and runs of a step."""
        self.runs = [r for r in self.runs if not same(cell, r.cell)]
        self.answers = {k: a for k, a in self.answers.items() if not same(cell, k)}


class Left(NamedTuple):
    """What the nearest cell above left in a name. With `blame` that is not known, and that cell has to run first."""

    value: Value = None
    writer: Cell = Cell("", None, ())
    blame: str = ""


def values(names: dict[str, Left]) -> Names:
    return {v: x.value for v, x in names.items()}


class Kernel:
    """A kernel: what was executed in it, its names, and the rules."""

    def __init__(self, thread: Thread, notebook: Notebook, start: Value = START) -> None:
        self.thread, self.notebook = thread, notebook
        self.names: Names = {STATE: start}
        self.boundary: Callable[[str], None] = lambda where: None  # called where a process may be killed or overtaken
        self.open(start)

    def open(self, start: Value = START) -> None:
        """Take the thread over. Names stay bound, but which cells stand is asked of the journal alone.

        Who made what cannot be stored is forgotten, too: its step is replayed.
        """
        self.names = {v: x if storable(x) or not x else (*x[:2], "") for v, x in self.names.items()}
        self.start = start
        self.thread.owner, self.anchors, self.last = self, dict(self.thread.anchors), ""
        self.seen: dict[str, Cell] = {}  # as last executed here, whatever came of it
        self.ran: dict[str, Record] = {}  # as last finished here
        self.vault: list[Value] = [None]  # values that a step had as input, and that can be put back
        self.left_out = set[str]()
        self.sources = set[Any]()  # code at hand: functions are made anew from it
        self.notes: list[str] = []  # cells above that a line is said about

    def write(self, where: str) -> None:
        """Before each write to the journal."""
        self.boundary(where)
        if self.thread.owner is not self:
            raise Stop("taken over")

    def above(self, cell: Cell) -> list[Cell]:
        """R2: the cells above in the file, unsaved ones after the cell they ran after; each as last executed."""
        cells, version = self.notebook()
        cells, known = list(cells), {i: record.cell for i, record in self.thread.lineage.items()} | self.seen
        for cell_id, (anchor, saved) in self.anchors.items():
            ids, passed = [c.cell_id for c in cells], {cell_id}
            while anchor not in {*ids, *passed} and self.anchors.get(anchor, ("", None))[1] == version:
                passed.add(anchor)
                anchor = self.anchors[anchor][0]
            if cell_id in known and cell_id not in ids and saved == version:
                cells.insert(ids.index(anchor) + 1 if anchor in ids else len(ids), known[cell_id])
        return [known.get(c.cell_id, c) for c in takewhile(lambda c: c.cell_id != cell.cell_id, cells)]

    def skipped(self, cell: Cell) -> bool:
        """Whether it is a step that has not run in this kernel."""
        return bool(cell.step) and cell.cell_id not in self.ran

    def read_elsewhere(self, cell: Cell) -> set[str]:
        """Names that other cells read, as far as they are known, or that functions of any cell touch."""
        known = [*self.notebook()[0], *self.seen.values()]
        others = [c.reads() for c in known if c.cell_id != cell.cell_id]
        return set().union(*others, *(c.touches() for c in known))

    def walk(self, above: list[Cell]) -> dict[str, Left]:
        """R2, R3: what the cells above left in each name. One stands if it started as those above it ended."""
        names = {STATE: Left(self.start)}
        for c in above:
            record = self.thread.lineage.get(c.cell_id)
            record = record if c.step else self.ran.get(c.cell_id, record)
            kept, here = record.kept if record else Names(), bool(c.step) or c.cell_id in self.ran
            blame = self.outdated(c, record, names, above)
            bound = kept.keys() if here and not blame else c.writes() | kept.keys()
            if blame and STATE in c.needs(values(names)) - bound:
                self.notes.append(c.cell_id)  # changed nothing when it last ran, but might now
            for v in bound:
                known = v in kept and not blame and (here or v == STATE)
                names[v] = Left(kept[v], c) if known else Left(None, c, blame or c.cell_id)
        return names

    def outdated(self, c: Cell, record: Record | None, names: dict[str, Left], above: list[Cell]) -> str:
        """ "" if the cell, as last executed, ended, and from these names; else the cell to run first."""
        here, before = not c.step and c.cell_id in self.ran, record.before if record else Names()
        left = {v: names.get(v, Left()) for v in before.keys() | c.needs(values(names))}
        unknown = {v for v, x in left.items() if x.blame}
        recorded = {v for v in unknown if v != STATE and not here and left[v].writer.cell_id not in self.seen}  # counts
        if record and record.cell.code == self.seen.get(c.cell_id, record.cell).code:
            step_ended = c.cell_id not in self.thread.unfinished and record in self.thread.runs
            ended = step_ended if c.step else here or c.cell_id not in self.seen
            if ended and all(v in recorded or (v not in unknown and left[v].value == x) for v, x in before.items()):
                return ""
        first = {left[v].blame for v in unknown - recorded or unknown}
        for v in left.keys() - unknown - {STATE}:  # an ordinary cell will start with other names than it should
            if not c.step and not self.skipped(left[v].writer) and left[v].value != self.names.get(v):
                first.add(left[v].writer.cell_id)
        return next((x.cell_id for x in above if x.cell_id in first), c.cell_id)

    def is_left_out(self, name: str) -> bool:
        """Whether a skipped step left it unbound, because it cannot be stored and nobody was known to read it."""
        return name in self.left_out and self.names.get(name) is None

    def has(self, value: Value, writer: Cell) -> bool:
        """Whether the store has it, or the source that defines it is at hand."""
        return storable(value) and (not value or value[0] != "function" or writer.code in self.sources)

    def enter(self, cell: Cell, above: list[Cell]) -> Names:
        """R4: bind what a cell needs as its place has it (an ordinary cell: the state, and what skipped steps kept)."""
        names, now = self.walk(above), Names()
        state = names[STATE]
        if not cell.step:
            names = {v: x for v, x in names.items() if v == STATE or self.skipped(x.writer) or self.is_left_out(v)}
            now = self.names
        needed, first = cell.needs(now | values(names)), set[str]()
        placed = {v: names.get(v, Left()) for v in needed if cell.step or v in names}
        for v, (value, writer, blame) in placed.items():
            known = value in self.vault or (v == STATE or (writer.step and self.has(value, writer)))
            if blame or (value != self.names.get(v) and not known):
                first.add(blame or writer.cell_id)
        if first:
            raise Stop("run first", next(c.cell_id for c in above if c.cell_id in first))
        self.names |= values(placed) | ({} if state.blame else {STATE: state.value})
        return {v: self.names.get(v) for v in needed}

    def run(self, cell: Cell) -> str:
        """Run a cell: "skipped", "ran" or "ordinary". Raises Stop, and Raised where its code raises."""
        cells, version = self.notebook()
        if all(c.cell_id != cell.cell_id for c in cells) and self.anchors.get(cell.cell_id, ("", None))[1] != version:
            self.anchors[cell.cell_id] = (self.last, version)
        self.last, self.notes, self.seen[cell.cell_id] = cell.cell_id, [], cell
        self.sources |= {c.code for c in (*cells, cell)}
        above = self.above(cell)
        if twins := [c.cell_id for c in above if c.step and c.step == cell.step]:
            raise Stop("name taken", twins[0])  # R8
        before, found = self.enter(cell, above), None
        if cell.step:
            self.vault += filter(storable, before.values())
            found = self.thread.run_like(cell, before)
            out = {v for v, x in (found.kept if found else {}).items() if not storable(x) and x != self.names.get(v)}
            if found and not out & self.read_elsewhere(cell):
                self.commit(found._replace(cell=cell), was=found.cell)
                self.names |= found.kept | dict.fromkeys(out)
                self.left_out |= out
                return "skipped"
            self.write("start")
            self.thread.unfinished.add(cell.cell_id)
        self.ran.pop(cell.cell_id, None)
        was, asked, made_by = dict(self.names), list[Prompt](), digest(cell.code, sorted(before.items()))
        act = self.act if cell.step else self.refuse
        execute(cell.code, self.names, lambda p: self.ask(cell, p, asked), act, made_by)
        kept = {v for v, x in self.names.items() if x != was.get(v)} | cell.writes()
        try:
            self.commit(Record(cell, before, {v: self.names.get(v) for v in kept}), was=cell)
        except Stop:
            self.names[STATE] = was[STATE]  # R6
            raise
        if cell.step and not found:
            self.thread.log.append((self.ran[cell.cell_id], dict(self.thread.lineage), dict(self.thread.answers)))
        return "ran" if cell.step else "ordinary"

    def commit(self, record: Record, was: Cell) -> None:
        """R5, R6: the lineage moves; the same again changes nothing. R8: a rename takes the answers along."""
        cell, thread = record.cell, self.thread
        durable = {cell.cell_id: record} if STATE in record.before else {}
        new = [record] if cell.step and record not in thread.runs else []
        if new or cell.cell_id in thread.unfinished or thread.lineage.get(cell.cell_id) != durable.get(cell.cell_id):
            self.write("commit")
            thread.runs += new
            if was != cell:
                thread.answers |= {(*cell[:2], *k[2:]): a for k, a in thread.answers.items() if same(was, k)}
            thread.unfinished.discard(cell.cell_id)
            thread.lineage.pop(cell.cell_id, None)
            thread.lineage |= durable
            thread.anchors |= self.anchors
        self.ran[cell.cell_id] = record

    def back(self, step: str, nth: int) -> None:
        """Run `nth` of a step counts again, with what stood above it then; cells below that left a state run again."""
        thread, cells = self.thread, self.above(Cell("", None, ()))
        at = [i for i, x in enumerate(thread.log) if x[0].cell.step == step][nth]
        target, then, _ = thread.log[at]

        def now(cell: Cell) -> Cell | None:
            found = [c for c in cells if c.cell_id == cell.cell_id] or [
                c for c in cells if c.step and c.step == cell.step
            ]
            return found[0] if found else None

        if (cell := now(target.cell)) is None:
            raise Stop("nowhere")
        above, below = cells[: cells.index(cell) + 1], cells[cells.index(cell) + 1 :]
        placed = {
            c.cell_id: x for i, x in then.items() if (c := now(x.cell)) and (c.cell_id == i or c.cell_id not in then)
        }
        for c in above:
            if (record := placed.get(c.cell_id)) is not None and not self.stands(c, record):
                was, record = record.cell, record._replace(cell=record.cell._replace(cell_id=c.cell_id))
                if was != record.cell:
                    thread.answers |= {(*record.cell[:2], *k[2:]): a for k, a in thread.answers.items() if same(was, k)}
                for k, a in (
                    next(x[2] for x in thread.log[at::-1] if alike(x[0], record)).items() if record.cell.step else ()
                ):
                    if same(was, k) or same(record.cell, k):  # the answers that it had count again
                        thread.answers.pop((*record.cell[:2], *k[2:]), None)
                        thread.answers[(*record.cell[:2], *k[2:])] = a
                thread.runs = [x for x in thread.runs if x != record] + ([record] if record.cell.step else [])
                thread.lineage[c.cell_id] = record
                thread.unfinished.discard(c.cell_id)
                self.seen.pop(c.cell_id, None)
                self.ran.pop(c.cell_id, None)
        for c in below:
            if (record := thread.lineage.get(c.cell_id)) is not None and STATE in record.kept:
                del thread.lineage[c.cell_id]
                self.ran.pop(c.cell_id, None)
        thread.anchors |= self.anchors

    def stands(self, cell: Cell, record: Record) -> bool:
        """Whether this run counts now."""
        counts = self.thread.lineage.get(cell.cell_id) == record and cell.cell_id not in self.thread.unfinished
        seen = self.seen.get(cell.cell_id, record.cell)
        return counts and (not record.cell.step or record in self.thread.runs) and seen.code == record.cell.code

    def ask(self, cell: Cell, prompt: Prompt, asked: list[Prompt]) -> str:
        """R7: a call inside a cell."""
        nth, thread = asked.count(prompt), self.thread
        asked.append(prompt)
        self.boundary("call")
        if not cell.step:
            return digest(prompt, nth)  # goes live each time
        answer = thread.answer(cell, prompt, nth)
        if answer is None:
            self.boundary("send")
            answer = digest(prompt, nth, thread.era)
            self.write("answer")
            thread.answers[cell.cell_id, cell.step, prompt, nth] = answer
        return answer

    def refuse(self, effect_key: str) -> str:
        """An effect outside of a step."""
        self.boundary("call")
        return refused(effect_key)

    def act(self, effect_key: str) -> str:
        """An effect happens once per key. Started without a receipt: look it up ("k?": cannot be), or ask a person."""
        thread = self.thread
        self.boundary("call")
        if effect_key not in thread.receipts:
            if effect_key in thread.started and effect_key.endswith("?"):
                raise Stop("in doubt")
            self.write("act")
            thread.receipts.add(effect_key)
        return receipt_of(effect_key)


__all__ = ["Kernel", "Left", "Raised", "Record", "Stop", "Thread"]
