"""A person at a notebook who does random things to the real engine, and checks it.

Checked, after every operation or at the end:
  - final: after *save; restart; Run All* state and names are as in a clean run; only calls that no journaled answer fits
    were sent;
  - kernel: a step that ran, was skipped or raised is as in a clean run of the cells above and itself, if each of those
    last ended as it is on screen now, in any order (ordinary ones that bind names: in this kernel), and no line was said;
  - entry: a cell that did not end leaves the state as it was, or as it is at its place;
  - order: cells run from top to bottom do not stop, nor does a step that is run again; then it is skipped. If it bound a
    name anew that held one object with another, the cell that made them do so may have to run first;
  - jump: after Run All and a restart any step is skipped, or names an ordinary cell, or a step that made what no store keeps;
  - advice: running what a stop names, again and again, ends with the cell having run;
  - twice: no call is sent again whose answer the same step name has in the journal;
  - shown: a skipped step shows what the run that it stands for had shown;
  - same: a restart sees the state of the newest checkpoint, which is what the store's own SQL folds; rows are dense, and
    a kernel knows of the journal what one that reads it anew does;
  - model: every decision is that of the reference model, with the same state and names.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal

from resumable_nb import cells, receipts
from resumable_nb.cells import Origin
from resumable_nb.errors import AlreadyDecided, NotAsked, ThreadNotFound, ThreadTakenOver, UsageError
from resumable_nb.journal import Store
from tests.model import by_python
from tests.model.checks import check_memory, check_opening, check_stored, require
from tests.model.in_step import Companion
from tests.model.notebook import ENDED, Outcome, Process, engine_cell, in_words, opening_cell
from tests.model.oracle import START, STATE, Cell, Names, Prompt, digest, linear, receipt_of, visible
from tests.model.outside import Killed, World
from tests.model.writing import Choose, Writer

REPLAYED = ("client", "copy", "lambda", "closure", "default")  # what these make may be had by running their step only
SHARING = ("alias", "nest", "swap", "hold", "default", "closure", "loop")  # after these, names may hold one object
ORDERS = ("file", "screen", "ids", "execution")
_OFTEN = (
    "run 4 all 2 again 1 save 3 restart 1 hop 1 jump 1 advice 2 edit 1 edit+run 2 setup 1 insert 1 insert+run 1 delete 1 swap 1 "
    "rename 1 twin 1 anew 1 kind 1 revert 1 stray 2 kill 5 settle 1 steal 2 outage 1 interrupt 1 fresh 1 back 2 second 1 first 1 takeover 1 query 1"
)
OPERATIONS = [name for name, often in re.findall(r"(\S+) (\d)", _OFTEN) for _ in range(int(often))]


class Person:
    """One notebook, its thread and its kernels.

    Args:
        choose: picks one of a sequence: at random, or as hypothesis draws.
        store: the file.
        order: who tells the order of the cells: the "file" (unsaved cells are not known), the "screen" (a front end that
            sends order and sources along), "ids" (one that sends the order only), or the order of "execution".
        kind: of the cells (see `writing.KINDS`). Of others than plain ones only Python itself knows the meaning.
        beside: work on the thread of this person with a notebook of one's own, from the newest checkpoint on.
    """

    def __init__(
        self,
        choose: Choose,
        store: Path,
        thread_id: str,
        *,
        order: str = "file",
        kind: str = "plain",
        beside: Person | None = None,
        tally: Counter[str] | None = None,
    ) -> None:
        self.choose, self.store, self.thread_id, self.told, self.rich = choose, store, thread_id, order, kind != "plain"
        self.tally = Counter[str]() if tally is None else tally
        self.turns = count()
        self.world: World = World() if beside is None else beside.world
        self.trace: list[str] = [] if beside is None else beside.trace
        self.path = "research.ipynb" if beside is None else "other.ipynb"
        self.writer = Writer(choose, prefix="c" if beside is None else "d", kind=kind)
        self.screen = self.writer.notebook()
        self.version, self.query = 0, ""
        self.executed: dict[str, tuple[Cell, object]] = {}  # as it last ended, in which opening of a kernel
        self.others: list[Process] = []  # older kernels that still live
        self.deleted: list[Cell] = []
        self.companion = Companion(self.world, on=not self.rich and order != "execution" and beside is None)
        self.beside, self.base = beside is not None, START
        self.save()
        self.process = self.new_process()

    def draw(self, choose: Choose) -> None:
        """Let something else pick from now on."""
        self.choose = self.writer.choose = choose

    # ---------------------------------------------------------------- cells
    def above(self, cell: Cell) -> list[Cell]:
        """The cells above on screen."""
        return self.screen[: [c.cell_id for c in self.screen].index(cell.cell_id)]

    def duplicates(self) -> list[Cell]:
        """Steps whose name a cell above has."""
        return [c for c in self.screen if c.step and c.step in {x.step for x in self.above(c)}]

    def edit(self, cell: Cell, **changes: Any) -> Cell:
        """Change a cell on screen."""
        edited = cell._replace(**changes)
        self.screen = [edited if c.cell_id == cell.cell_id else c for c in self.screen]
        return edited

    # ---------------------------------------------------------------- what the kernel is told
    def known_cells(self) -> list[Cell]:
        """The cells as far as the kernel is told of them."""
        if self.told == "file":
            return self.file
        if self.told == "screen":
            return self.screen
        texts = {c.cell_id: c for c in self.file} | self.process.last_texts
        return [texts.get(c.cell_id, Cell(c.cell_id, None, ())) for c in self.screen]

    def order(self) -> cells.Order:
        """Where the cells stand, as the notebook layer would say."""
        if self.told == "execution":
            return cells.Order(tuple(self.process.executed), "", "execution")
        known = tuple(map(engine_cell, self.known_cells()))
        origin: Origin = "file" if self.told == "file" else "front end"
        return cells.Order((opening_cell(), *known), self.version, origin, self.path, exact=self.told != "file")

    def place(self, cell: Cell) -> tuple[cells.Cell, cells.Order]:
        """A cell that is about to run, and where it stands."""
        return self.process.by_execution(cell) if self.told == "execution" else (engine_cell(cell), self.order())

    def knows_order(self, cell: Cell) -> bool:
        """Whether the kernel knows which cells are above on screen."""
        return self.told != "execution" and self.process.knows_order(cell, self.order(), self.above(cell))

    def knows(self, cell: Cell) -> bool:
        """Whether the kernel knows the cells above as they are on screen."""
        return self.told != "execution" and self.process.knows(cell, self.order(), self.above(cell))

    # ---------------------------------------------------------------- what a person does
    def log(self, *what: object) -> None:
        """A line for the trace of a counterexample."""
        self.trace.append(" ".join(map(str, what)))

    def save(self) -> None:
        """The file gets what is on screen."""
        self.file, self.version = list(self.screen), self.version + 1
        self.log("save")

    def new_process(self) -> Process:
        """Start a kernel and open the thread in it."""
        start: Literal["first", "newest"] = "newest" if self.beside else "first"
        process = Process(self.world, self.store, self.thread_id, query=self.query, start=start)
        self.companion.open(process, lambda: (self.known_cells(), self.version))
        self.world.owner = process
        check_opening(process)
        self.starts_from(process)
        return process

    def starts_from(self, process: Process) -> None:
        """R10: another notebook starts from what was the newest checkpoint when it ran its first cell."""
        if self.beside:
            known = any(row.name == "notebook" and self.path in (row.data or "") for row in self.world.rows)
            self.base = self.base if known else process.state
            process.start = self.base

    def restart(self) -> None:
        """Restart the kernel in good order."""
        if self.process is self.world.owner:
            check_memory(self.process)
        self.process.close()
        self.process = self.new_process()
        self.log("restart")

    def open_again(self) -> None:
        """Run the opening cell once more: this kernel takes the thread over."""
        self.process.open_again(self.query)
        self.companion.open_again(self.process)
        self.starts_from(self.process)
        self.world.owner = self.process
        self.log("open again")

    def reply(self, cell: Cell, prompt: Prompt, nth: int) -> str:
        """The model's answer in a clean run: what the journal has, else what it would say now."""
        journaled = self.world.answer(cell, prompt, nth)
        return journaled or digest(prompt, nth, *([self.world.era] if cell.step else []))

    def clean_run(
        self, of: Sequence[Cell], reply: Callable[[Cell, Prompt, int], str] | None = None
    ) -> tuple[Names, Cell | None]:
        """What is visible at the end of a clean run, and the cell that raised."""
        if self.rich:
            return by_python.clean_run(of, reply or self.reply, start=self.process.start)
        names, raised = linear(of, reply or self.reply, start=self.process.start)
        return in_words(visible(names)), raised

    # ---------------------------------------------------------------- one cell
    def run(self, cell: Cell) -> Outcome:
        """Run a cell of the screen, and check."""
        process, rows = self.process, len(self.world.rows)
        placed, order = self.place(cell)
        journaled, sent = {q[1:] for q in self.world.answers}, Counter(self.world.sent)
        entry = [process.state, *self.place_of(placed, order)]
        try:
            outcome = process.run(cell, placed, order)
        except Killed:
            self.companion.run_in_part(process, cell, rows, killed=True)
            raise
        self.log("run", *cell, "->", *outcome[:2], "|", process.visible(), *(c.cell_id for c in self.notes()))
        self.tally[outcome.kind] += 1
        self.executed.pop(cell.cell_id, None)
        if outcome.kind in ENDED:
            self.executed[cell.cell_id] = (cell, process.opening)
        elif self.told != "execution" and cell.cell_id in {c.cell_id for c in self.known_cells()}:
            entry += self.place_of(placed, order)  # a notebook that runs its first cell knows its place only now
            require(process.state in entry, "entry", process.state, "not", *entry)
        again = (Counter(self.world.sent) - sent).keys() & journaled
        require(not again, "twice", "a journaled call was sent again:", again)
        require(max(self.world.acted.values(), default=0) <= 1, "twice", "an effect happened twice:", self.world.acted)
        require(outcome.shown in ("", repr(process.state)), "shown", outcome.shown, "but has", process.state)
        self.compare_with_model(cell, outcome, rows)
        if outcome.kind in ENDED and process is self.world.owner and next(self.turns) % 4 == 0:
            check_stored(process)
        if cell.step and outcome.kind in ("skipped", "ran", "raised") and not self.notes():
            self.compare(cell, outcome)
        return outcome

    def notes(self) -> list[cells.Cell]:
        """Cells above that a line is said about."""
        return self.process.kernel.places.notes

    def place_of(self, placed: cells.Cell, order: cells.Order) -> list[Any]:
        """The state at its place, as the engine has it; nothing if that is not known."""
        places, fold = self.process.kernel.places, self.process.kernel.thread.fold
        left = places.walk(places.above(placed, order))[STATE]
        if left.blame:
            return []
        if left.record is None:
            return [self.process.start]
        image = fold.image(left.record.checkpoint)
        query, findings, receipts = (json.loads(image.json(f)) for f in ("query", "findings", "receipts"))
        return [(query, tuple(findings), tuple(receipt["key"] for receipt in receipts))]

    def compare(self, cell: Cell, outcome: Outcome) -> None:
        """The state and the cell's names are those of a clean run of what is on screen."""
        if cell not in self.screen or not self.knows_order(cell):
            return  # the kernel cannot know the order on screen
        above = self.above(cell)
        for c in above:
            ended, opening = self.executed.get(c.cell_id, (None, None))
            if ended != c or (c.writes() and not c.step and opening is not self.process.opening):
                return
        names, raised = self.clean_run([*above, cell])
        if raised in (None, cell) and not self.world.is_ambiguous:
            self.tally["compared in the kernel"] += 1
            require(
                (raised == cell) == (outcome.kind == "raised"), "kernel", outcome, "but a clean run raised:", raised
            )
            kept = {STATE} if raised else cell.writes()
            got, want = ({v: x for v, x in n.items() if v in kept} for n in (self.process.visible(), self.here(names)))
            require(got == want, "kernel", got, "but a clean run:", want)

    def here(self, names: Names) -> Names:
        """Without what a skipped step left out: it cannot be stored, and no cell was known to read it."""
        got, out = self.process.visible(), self.process.kernel.places.left_out
        return {v: x for v, x in names.items() if v in got or v not in out}

    def compare_with_model(self, cell: Cell, outcome: Outcome, rows_before: int) -> None:
        """The reference model decides the same, and has the same state and names."""
        process = self.process
        if outcome.kind == "cut off":
            self.companion.run_in_part(process, cell, rows_before, killed=False)
            self.companion.follow_journal(process)
            return
        expected = self.companion.run(process, cell)
        if expected is None:
            return
        self.tally["compared with the model"] += 1
        require(expected == outcome[:2], "model", "says", expected, "but the engine:", *outcome)
        got, want = process.visible(), self.companion.names(process)
        require(got == want, "model", "has", want, "but the engine:", got)

    # ---------------------------------------------------------------- several cells
    def run_all(self) -> str:
        """Run All: "done", or what came of the cell that stopped it."""
        if self.process.last_texts and self.told != "execution":  # else it has just been opened
            self.process.run_opening(self.order())
        for cell in self.screen:
            told = cell in self.known_cells()  # else no step above knew that it reads what no store keeps
            outcome = self.run(cell)
            if outcome.kind not in ENDED:
                fine = self.knows(cell) and not self.clean_run(self.screen)[1]
                fine = fine and (told or not self.process.kernel.places.left_out)
                require(outcome.kind != "run first" or not fine, "order", cell.cell_id, "stopped: run", outcome.cell_id)
                return outcome.kind
        return "done"

    def again(self, cell: Cell) -> None:
        """Run a step twice."""
        first = self.run(cell).kind
        if cell.step and first in ("ran", "skipped", "raised"):
            want = ["raised"] if first == "raised" else ["skipped"] + ["ran"] * cell.makes(*REPLAYED)
            second = self.run(cell)
            named = next((c for c in self.screen if c.cell_id == second.cell_id), cell)
            parted = self.rich and second.kind == "run first" and (not named.step or named.makes(*SHARING))
            require(second.kind in want or parted, "order", first, "and again:", *second)

    def jump(self) -> None:
        """Run all, restart, run any cell."""
        done, cell = self.run_all() == "done", self.choose(self.screen)
        if not done or self.process is not self.world.owner or not self.knows(cell):
            return
        self.restart()
        kept, above = self.process.kernel.thread.fold.lineage, self.process.above(cell, self.order())
        lost = [c[0] for c in above if c[0] in kept] != [c.cell_id for c in self.above(cell) if c.cell_id in kept]
        require(cell.cell_id not in kept or not lost, "jump", "the order of what is in the journal is lost")
        if self.knows(cell):  # one that is neither saved nor in the journal is not known
            outcome = self.run(cell)
            named = next((c for c in self.screen if c.cell_id == outcome.cell_id), cell)
            untold = named.makes("def") and named not in self.known_cells()  # its source is not at hand
            fine = outcome.kind in ("skipped", "ordinary") or not named.step or named.makes(*REPLAYED) or untold
            require(fine, "jump", *outcome)

    def advice(self, cell: Cell) -> None:
        """Save, and do what stops say until the cell runs."""
        self.save()
        raised = self.clean_run([*self.above(cell), cell])[1]
        if self.duplicates() or raised or self.process is not self.world.owner or self.told == "execution":
            return
        unknown = not self.knows(cell)  # one was edited, but not executed
        stack = [cell]
        for turn in range(100):
            outcome = self.run(stack[-1])
            if outcome.kind == "in doubt":
                self.settle()
            elif outcome.kind in ("run first", "name taken"):  # the latter: renamed on screen, but not executed
                stack.append(next(c for c in self.screen if c.cell_id == outcome.cell_id))
            elif outcome.kind not in ENDED:
                require(bool(unknown or self.notes() or not stack[-1].step), "advice", *outcome)
                return
            else:
                stack.pop()
                if not stack:
                    self.tally["advice followed"] += turn > 0
                    return
        require(False, "advice", "does not end")

    # ---------------------------------------------------------------- kills, take-overs, outages
    def interrupted(self, cell: Cell, what: str) -> None:
        """Run a cell; at some boundary it is killed, overtaken by a kernel that runs all, or cut off from the model."""
        left, mine = self.choose(range(1, 8)), self.process
        if self.choose(range(2)):  # else it may be skipped, and has few boundaries
            cell = self.edit(cell, code=self.writer.code(step=bool(cell.step)))

        def boundary(where: str) -> None:
            nonlocal left
            left -= what != "outage" or where in ("send", "receive")
            if left == 0:
                left = -1
                self.log(what, "at", where)
                self.tally[what] += 1
                self.strike(what, mine)

        self.world.boundary = boundary
        try:
            self.run(cell)
        except Killed:
            self.executed.pop(cell.cell_id, None)
            self.process = self.new_process()
            self.companion.follow_journal(self.process)
        finally:
            self.world.boundary = lambda where: None

    def strike(self, what: str, mine: Process) -> None:
        """What happens at the boundary."""
        if what == "kill":
            mine.dead = True
            raise Killed
        if what == "outage":
            raise ConnectionError("the network is down")
        if what == "interrupt":
            raise KeyboardInterrupt
        self.companion.in_step = False
        self.process = self.new_process()
        self.run_all()
        self.others.append(self.process)
        self.process = mine

    def switch(self) -> None:
        """Go back to the oldest kernel that still lives; another one may have the thread."""
        self.others.append(self.process)
        self.process = self.others.pop(0)
        self.process.opening = object()
        self.log("back to kernel", self.process.number)

    def fresh(self, cell: Cell) -> None:
        """Ask the questions of a step anew; the model says something else now."""
        with self.process.running(), contextlib.suppress(ThreadNotFound, ThreadTakenOver):
            self.process.kernel.thread.fresh(cell.step or "")
            retired = next(row for row in reversed(self.world.rows) if row.phase == "retired")
            self.companion.fresh(retired.cell_id or "", retired.step)
        self.world.era += 1
        self.companion.thread.era += 1

    def back(self, step: str) -> None:
        """Let one of the runs of a step count again, with what stood above it then."""
        fold, process = self.process.kernel.thread.fold, self.process
        runs = [row for row in fold.checkpoints() if row.step == step and row.phase == "step"]
        if not runs or process is not self.world.owner:
            return
        nth = self.choose(range(len(runs)))
        with contextlib.suppress(UsageError):  # its cell was deleted
            process.back(self.order(), step, nth + 1)
            self.log("back to run", nth + 1, "of", step, "at", runs[nth].seq)
            self.tally["gone back"] += 1
            there = fold.image(runs[nth].seq) == fold.image(fold.newest())
            require(there, "same", "went back to", runs[nth].seq, "but the newest state is another")
            check_memory(process)
            check_stored(process)
            for cell in self.screen:
                if cell.cell_id not in fold.lineage:
                    self.executed.pop(cell.cell_id, None)
            self.companion.back(process, step, nth)

    def settle(self) -> None:
        """Say of every effect in doubt whether it happened."""
        for key in self.world.started - self.world.receipts:
            happened = self.world.acted[key] > 0
            with contextlib.suppress(NotAsked, AlreadyDecided):
                receipt = receipt_of(key) if happened else None
                receipts.settle(Store.open(self.store), self.thread_id, key, happened=happened, receipt=receipt)
                self.world.settled(key, happened=happened)
        self.companion.settled()
        self.log("settle")

    # ---------------------------------------------------------------- anything
    def do(self, operation: str) -> None:
        """One of `OPERATIONS`."""
        body = range(1, len(self.screen))
        i, j = self.choose(body), self.choose(body)
        cell = self.screen[i]
        self.log("---", operation, i)
        match operation.removesuffix("+run"):
            case "run":
                self.run(self.choose(self.screen))
            case "all":
                self.run_all()
            case "save":
                self.save()
            case "restart":
                self.restart()
            case "hop":
                self.restart()
                self.run(cell)
            case "jump":
                self.jump()
            case "again":
                self.again(cell)
            case "advice":
                self.advice(cell)
            case "settle":
                self.settle()
            case "kill" | "steal" | "outage" | "interrupt":
                self.interrupted(cell, operation)
            case "stray" if self.deleted:  # as from another notebook on the same kernel
                self.run(self.choose(self.deleted))
            case "fresh" if cell.step:
                self.fresh(cell)
            case "back" if cell.step and self.told != "execution":
                self.back(cell.step)
            case "second":
                self.others.append(self.process)
                self.process = self.new_process()
            case "first" if self.others:
                self.switch()
            case "takeover":
                self.open_again()
            case "query" if not self.beside:
                self.query = self.choose("pq")
                self.restart() if self.choose(range(2)) else self.open_again()
            case change:
                self.change(change, i, j)
        if operation.endswith("+run"):
            self.run(self.screen[i])

    def change(self, what: str, i: int, j: int) -> None:
        """Change what is on screen."""
        cell, first = self.screen[i], self.screen[0]
        match what:
            case "edit":
                self.edit(cell, code=self.writer.code(step=bool(cell.step)))
            case "setup":
                self.edit(first, code=(("let", "v", self.choose("xyz")), *first.code[1:]))
            case "insert":
                self.screen.insert(i, self.writer.cell())
            case "delete" if len(self.screen) > 2:
                self.deleted.append(self.screen.pop(i))
            case "swap":
                self.screen[i], self.screen[j] = self.screen[j], cell
            case "rename":
                self.edit(cell, step=cell.step and cell.step + "'")
            case "twin":
                self.edit(cell, step=cell.step and self.screen[j].step)
            case "anew":
                self.edit(cell, cell_id=self.writer.next_id())
            case "kind":
                self.edit(cell, step=None if cell.step else self.writer.step_name(cell.cell_id))
            case "revert" if cell.cell_id in self.executed:
                self.screen[i] = self.executed[cell.cell_id][0]

    def finish(self) -> None:
        """Save; restart; Run All. Then state, names and calls are those of a clean run."""
        self.save()
        self.restart()
        self.settle()
        twins = self.duplicates()
        of = [*self.above(twins[0])] if twins else self.screen
        journaled, sent = World.copy_of(self.world), Counter(self.world.sent)
        outcome = self.run_all()
        needed = Counter[object]()

        def reply(cell: Cell, prompt: Prompt, nth: int) -> str:
            needed[cell.step, prompt, nth] += journaled.answer(cell, prompt, nth) is None
            return self.reply(cell, prompt, nth)

        if twins and self.told == "execution":
            return  # there, a step of the same name is the same cell
        if self.world.is_ambiguous:
            self.tally["final of two answers"] += 1
            return
        names, raised = self.clean_run(of, reply)
        want = "raised" if raised else "name taken" if twins else "done"
        require(outcome == want, "final", outcome, "but should be", want)
        got, names = self.process.visible(), self.here(names)
        require(got == names, "final", got, "but a clean run:", names)
        extra = Counter(self.world.sent) - sent - needed
        require(not extra, "final", "sent without need:", extra)
        ran = of[: of.index(raised)] if raised else of
        asked = {op[1] for cell in ran for op in cell.code if op[0] == "act"}
        require(all(self.world.acted[key] == 1 for key in asked), "final", "effects:", self.world.acted)
        self.tally["final " + want] += 1
        if self.choose(range(20)) == 0:
            check_stored(self.process, for_people=True)

    def close(self) -> None:
        """No kernel is left."""
        for process in [*self.others, self.process]:
            process.close()
