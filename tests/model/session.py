"""A person at a notebook who does random things to the real engine, and checks it.

Checked, after every operation or at the end:
  - final: after *save; restart; Run All* state and names are as in `linear`; only calls that no journaled answer fits were
    sent;
  - kernel: a step that ran, was skipped or raised is as in `linear` of the cells above and itself, if each of those last
    ended as it is on screen now, in any order (ordinary ones that bind names: in this kernel), and no line was said;
  - entry: a cell that did not end leaves the state as it was, or as it is at its place;
  - order: cells run from top to bottom do not stop, nor does a step that is run again; then it is skipped;
  - jump: after Run All and a restart any step is skipped, or names an ordinary cell, or a step that made a client;
  - advice: running what a stop names, again and again, ends with the cell having run;
  - twice: no call is sent again whose answer the same step name has in the journal;
  - same: a restart sees the state of the newest checkpoint, which is what the store's own SQL folds; rows are dense;
  - model: every decision is that of the reference model, with the same state and names.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from resumable_nb import cells
from resumable_nb.errors import ThreadNotFound, ThreadTakenOver
from tests.model import by_python
from tests.model import reference_model as model
from tests.model.notebook import ENDED, Outcome, Process, engine_cell, in_words, is_dense, opening_cell, stored_state
from tests.model.oracle import STATE, Cell, Names, Operation, Prompt, Raised, digest, linear, visible
from tests.model.outside import Killed, World

Choose = Callable[[Sequence[Any]], Any]
REPLAYED = ("client", "copy", "lambda", "closure", "default")  # what these make may be had by running their step only

STEP = "ask X|ask X|about X V|about X V|about X c|into V X|act K|call F|call F|raise".split("|")
ANY = "let V X|let V X|push V X|push V X|len V|copy V V|maybe V X|client c X|add X|add X|addvar V|set X|init|del V".split("|")
ANY += "def F about X V|def F addvar V|def F add X|update X|assign X|extend X|pop|head X".split("|")
RICH = "alias V V|alias V V|nest V V|plus V X|star V V X|swap|inner V X|lambda F X|default F V|closure F V|defglobal F V X"
RICH_ANY = (RICH + "|defpush F V X|class X|new X|hold V|touch X|touch X|tell|tell|loop V").split("|")
SETUP = "let v X|let w X|client c X|def f about X V|def g addvar V".split("|")
WORDS = {"X": "xyz", "V": "vvw", "F": "fg", "K": "jklm"}
ORDERS = ("file", "screen", "ids")
OPERATIONS = (
    "run run run run again all all save save save restart hop jump edit edit+run edit+run setup insert insert+run delete "
    "swap rename twin anew kind revert kill kill kill steal steal outage interrupt fresh second first takeover query "
    "advice advice"
).split()


class Failure(AssertionError):
    """A counterexample: the sequence that leads to it."""

    trace: list[str]


def require(holds: bool, kind: str, *what: object) -> None:
    """One of the checks above."""
    if not holds:
        raise Failure(f"{kind}: " + " ".join(map(str, what)))


class Person:
    """One notebook, its thread and its kernels.

    Args:
        choose: picks one of a sequence: at random, or as hypothesis draws.
        store: the file.
        order: who tells the order of the cells: the "file" (unsaved cells are not known), the "screen" (a front end that
            sends order and sources along), or "ids" (one that sends the order only).
        rich: write cells that only Python itself knows the meaning of: then `by_python` is the oracle.
    """

    def __init__(
        self,
        choose: Choose,
        store: Path,
        thread_id: str,
        *,
        order: str = "file",
        rich: bool = False,
        tally: Counter[str] | None = None,
    ) -> None:
        self.choose, self.store, self.thread_id, self.told, self.rich = choose, store, thread_id, order, rich
        self.tally = Counter[str]() if tally is None else tally
        self.ids, self.turns, self.trace, self.world = count(1), count(), list[str](), World()
        setup = SETUP + ["class X", "new X"] * rich
        self.screen = [Cell(self.next_id(), None, tuple(map(self.operation, setup)))]
        self.screen += [self.new_cell() for _ in range(choose(range(2, 6)))]
        self.version, self.query = 0, ""
        self.executed: dict[str, tuple[Cell, object]] = {}  # as it last ended, in which opening of a kernel
        self.others: list[Process] = []  # older kernels that still live
        self.model_thread, self.in_step = model.Thread(), not rich
        self.save()
        self.process = self.new_process()

    # ---------------------------------------------------------------- cells
    def next_id(self) -> str:
        return f"c{next(self.ids)}"

    def operation(self, text: str) -> Operation:
        return tuple(self.choose(WORDS[word]) if word in WORDS else word for word in text.split())

    def code(self, step: bool) -> tuple[Operation, ...]:
        other = RICH_ANY + ANY[:12] if self.rich else ANY
        kinds = [STEP if step and self.choose(range(5)) < 3 else other for _ in range(self.choose(range(1, 4)))]
        code = tuple(self.operation(self.choose(kind)) for kind in kinds)
        if self.choose(range(10)) > 6:
            return code
        return tuple(op for op in code if op[0] not in ("raise", "del")) or (("add", "x"),)

    def new_cell(self) -> Cell:
        cell_id, step = self.next_id(), self.choose(range(5)) < 3
        return Cell(cell_id, f"s{cell_id[1:]}" if step else None, self.code(step))

    def above(self, cell: Cell) -> list[Cell]:
        return self.screen[: [c.cell_id for c in self.screen].index(cell.cell_id)]

    def duplicates(self) -> list[Cell]:
        return [c for c in self.screen if c.step and c.step in {x.step for x in self.above(c)}]

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
        known = tuple(map(engine_cell, self.known_cells()))
        origin = "file" if self.told == "file" else "front end"
        return cells.Order((opening_cell(), *known), self.version, origin, "research.ipynb", exact=self.told != "file")

    # ---------------------------------------------------------------- what a person does
    def log(self, *what: object) -> None:
        self.trace.append(" ".join(map(str, what)))

    def save(self) -> None:
        self.file, self.version = list(self.screen), self.version + 1
        self.log("save")

    def new_process(self) -> Process:
        process = Process(self.world, self.store, self.thread_id, query=self.query)
        notebook = lambda: (self.known_cells(), self.version)  # noqa: E731
        process.model = model.Kernel(self.model_thread, notebook, process.start)
        process.model.names[STATE] = process.state  # what a person sees is the newest checkpoint
        self.owner = process
        self.check_opening(process)
        return process

    def restart(self) -> None:
        self.process.close()
        self.process = self.new_process()
        self.log("restart")

    def open_again(self) -> None:
        """Run the opening cell once more: this kernel takes the thread over."""
        self.process.open_again(self.query)
        self.process.model.open(self.process.start)
        self.process.model.names[STATE] = self.process.state
        self.owner = self.process
        self.log("open again")

    def reply(self, cell: Cell, prompt: Prompt, nth: int) -> str:
        """The model's answer in a clean run: what the journal has, else what it would say now."""
        journaled = self.world.answer(cell, prompt, nth)
        return journaled or digest(prompt, nth, *([self.world.era] if cell.step else []))

    def linear(self, cells_: Sequence[Cell], reply: Callable[[Cell, Prompt, int], str] | None = None) -> tuple[Names, Cell | None]:
        if self.rich:
            return by_python.clean_run(cells_, reply or self.reply, start=self.process.start)
        names, raised = linear(cells_, reply or self.reply, start=self.process.start)
        return in_words(visible(names)), raised

    # ---------------------------------------------------------------- one cell
    def run(self, cell: Cell) -> Outcome:
        """Run a cell of the screen, and check."""
        process, order = self.process, self.order()
        journaled, sent = {q[1:] for q in self.world.answers}, Counter(self.world.sent)
        entry = [process.state, *self.place_of(cell, order)]
        expected = self.run_model(cell)
        outcome = process.run(cell, order)
        self.log("run", *cell, "->", *outcome[:2], "|", process.visible(), *(c.cell_id for c in self.notes()))
        self.tally[outcome.kind] += 1
        if outcome.kind not in ENDED and cell.cell_id in {c.cell_id for c in self.known_cells()}:
            require(process.state in entry, "entry", process.state, "not", *entry)
        self.executed.pop(cell.cell_id, None)
        if outcome.kind in ENDED:
            self.executed[cell.cell_id] = (cell, process.opening)
        again = (Counter(self.world.sent) - sent).keys() & journaled
        require(not again, "twice", "a journaled call was sent again:", again)
        self.compare_model(expected, outcome)
        if outcome.kind in ENDED and process is self.owner and next(self.turns) % 4 == 0:
            self.check_stored(process)
        if cell.step and outcome.kind in ("skipped", "ran", "raised") and not self.notes():
            self.compare(cell, outcome)
        return outcome

    def notes(self) -> list[cells.Cell]:
        """Cells above that a line is said about."""
        return self.process.kernel.places.notes

    def place_of(self, cell: Cell, order: cells.Order) -> list[Any]:
        """The state at its place, as the engine has it; nothing if that is not known."""
        places, fold = self.process.kernel.places, self.process.kernel.thread.fold
        left = places.walk(places.above(engine_cell(cell), order))[STATE]
        if left.blame:
            return []
        if left.record is None:
            return [self.process.start]
        image = fold.image(left.record.checkpoint)
        return [(json.loads(image.json("query")), tuple(json.loads(image.json("findings"))))]

    def compare(self, cell: Cell, outcome: Outcome) -> None:
        """The state and the cell's names are those of a clean run of what is on screen."""
        above = self.above(cell)
        if not self.process.knows_order(cell, self.order(), above):
            return  # the kernel cannot know the order on screen
        for c in above:
            ended, opening = self.executed.get(c.cell_id, (None, None))
            if ended != c or (c.writes() and not c.step and opening is not self.process.opening):
                return
        names, raised = self.linear([*above, cell])
        if raised in (None, cell):
            self.tally["compared in the kernel"] += 1
            require((raised == cell) == (outcome.kind == "raised"), "kernel", outcome, "but a clean run raised:", raised)
            kept = {STATE} if raised else cell.writes()
            got, want = ({v: x for v, x in n.items() if v in kept} for n in (self.process.visible(), self.here(names)))
            require(got == want, "kernel", got, "but a clean run:", want)

    def here(self, names: Names) -> Names:
        """Without what a skipped step left out: it cannot be stored, and no cell was known to read it."""
        got, out = self.process.visible(), self.process.kernel.places.left_out
        return {v: x for v, x in names.items() if v in got or v not in out}

    # ---------------------------------------------------------------- the reference model, in step
    def run_model(self, cell: Cell) -> tuple[str, str] | None:
        """What the reference model decides; None where it is not in step."""
        kernel = self.process.model
        if not self.in_step or self.model_thread.owner is not kernel:
            self.in_step = False
            return None
        try:
            return kernel.run(cell), ""
        except Raised:
            return "raised", ""
        except model.Stop as stop:
            return (*stop.args, "")[:2]

    def compare_model(self, expected: tuple[str, str] | None, outcome: Outcome) -> None:
        if expected is None:
            return
        self.tally["compared with the model"] += 1
        require(expected == outcome[:2], "model", "says", expected, "but the engine:", *outcome)
        got, want = self.process.visible(), in_words(visible(self.process.model.names))
        require(got == want, "model", "has", want, "but the engine:", got)

    # ---------------------------------------------------------------- promise 1
    def check_opening(self, process: Process) -> None:
        """A kernel that has just opened the thread sees the newest checkpoint."""
        state = process.kernel.thread.state
        require(process.state == (state.query, tuple(state.findings)), "same", process.state, "but the journal:", state)
        self.check_stored(process)

    def check_stored(self, process: Process, *, for_people: bool = False) -> None:
        """`thread.state` is what the store's own macro folds, field by field."""
        require(is_dense(process), "same", "the journal has gaps, or the kernel has not seen all of it")
        stored, state = stored_state(process, for_people=for_people), process.kernel.thread.state
        fields = set(type(state).model_fields)
        require(stored.keys() == fields, "same", "fields", sorted(stored), "but the class:", sorted(fields))
        for name, value in stored.items():
            require(value == getattr(state, name), "same", name, value, "but the kernel:", getattr(state, name))

    # ---------------------------------------------------------------- several cells
    def run_all(self) -> str:
        if self.process.last_texts:  # else it has just been opened
            self.process.run_opening(self.order())
        for cell in self.screen:
            outcome = self.run(cell)
            if outcome.kind not in ENDED:
                fine = self.process.knows(cell, self.order(), self.above(cell)) and not self.linear(self.screen)[1]
                require(outcome.kind != "run first" or not fine, "order", cell.cell_id, "stopped: run", outcome.cell_id)
                return outcome.kind
        return "done"

    def again(self, cell: Cell) -> None:
        """Run a step twice."""
        first = self.run(cell).kind
        if cell.step and first in ("ran", "skipped", "raised"):
            want = ["raised"] if first == "raised" else ["skipped"] + ["ran"] * cell.makes(*REPLAYED)
            second = self.run(cell).kind
            require(second in want, "order", first, "and again:", second)

    def jump(self) -> None:
        """Run all, restart, run any cell."""
        done, cell = self.run_all() == "done", self.choose(self.screen)
        if not done or self.process is not self.owner or not self.process.knows(cell, self.order(), self.above(cell)):
            return
        self.restart()
        kept, above = self.process.kernel.thread.fold.lineage, self.process.above(cell, self.order())
        lost = [c[0] for c in above if c[0] in kept] != [c.cell_id for c in self.above(cell) if c.cell_id in kept]
        require(cell.cell_id not in kept or not lost, "jump", "the order of what is in the journal is lost")
        if self.process.knows(cell, self.order(), self.above(cell)):  # neither saved nor in the journal: not known
            outcome = self.run(cell)
            named = next((c for c in self.screen if c.cell_id == outcome.cell_id), cell)
            untold = named.makes("def") and named not in self.known_cells()  # its source is not at hand
            fine = outcome.kind in ("skipped", "ordinary") or not named.step or named.makes(*REPLAYED) or untold
            require(fine, "jump", *outcome)

    def advice(self, cell: Cell) -> None:
        """Save, and do what stops say until the cell runs."""
        self.save()
        raised = self.linear([*self.above(cell), cell])[1]
        if self.duplicates() or raised or self.process is not self.owner:
            return
        unknown = not self.process.knows(cell, self.order(), self.above(cell))  # one was edited, but not executed
        stack = [cell]
        for turn in range(100):
            outcome = self.run(stack[-1])
            if outcome.kind in ("run first", "name taken"):  # the latter: renamed on screen, but not executed
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
            cell = cell._replace(code=self.code(bool(cell.step)))
            self.screen = [cell if c.cell_id == cell.cell_id else c for c in self.screen]
        self.in_step = False

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
            retired = self.world.rows[-1]
            self.model_thread.fresh(Cell(retired.cell_id or "", retired.step, ()))
        self.world.era += 1
        self.model_thread.era += 1

    # ---------------------------------------------------------------- anything
    def do(self, operation: str) -> None:
        """One of `OPERATIONS`."""
        screen, body = self.screen, range(1, len(self.screen))
        i, j = self.choose(body), self.choose(body)
        cell = screen[i]
        self.log("---", operation, i)
        # fmt: off
        match operation:
            case "run": self.run(self.choose(screen))
            case "all": self.run_all()
            case "save": self.save()
            case "restart": self.restart()
            case "hop": self.restart(); self.run(cell)
            case "jump": self.jump()
            case "again": self.again(cell)
            case "edit" | "edit+run": screen[i] = cell._replace(code=self.code(bool(cell.step)))
            case "setup": screen[0] = screen[0]._replace(code=(("let", "v", self.choose("xyz")), *screen[0].code[1:]))
            case "insert" | "insert+run": screen.insert(i, self.new_cell())
            case "delete" if len(screen) > 2: del screen[i]
            case "swap": screen[i], screen[j] = screen[j], cell
            case "rename": screen[i] = cell._replace(step=cell.step and cell.step + "'")
            case "twin": screen[i] = cell._replace(step=cell.step and screen[j].step)
            case "anew": screen[i] = cell._replace(cell_id=self.next_id())
            case "kind": screen[i] = cell._replace(step=None if cell.step else f"s{cell.cell_id[1:]}")
            case "revert" if cell.cell_id in self.executed: screen[i] = self.executed[cell.cell_id][0]
            case "kill" | "steal" | "outage" | "interrupt": self.interrupted(cell, operation)
            case "fresh" if cell.step: self.fresh(cell)
            case "second": self.others.append(self.process); self.process = self.new_process()
            case "first" if self.others: self.switch()
            case "takeover": self.open_again()
            case "query": self.query = self.choose("pq"); self.restart() if self.choose(range(2)) else self.open_again()
            case "advice": self.advice(cell)
        # fmt: on
        if operation.endswith("+run"):
            self.run(screen[i])

    def finish(self) -> None:
        """Save; restart; Run All. Then state, names and calls are those of a clean run."""
        self.save()
        self.restart()
        twins = self.duplicates()
        cells_ = [*self.above(twins[0])] if twins else self.screen
        journaled, sent = World.copy_of(self.world), Counter(self.world.sent)
        outcome = self.run_all()
        needed = Counter[object]()

        def reply(cell: Cell, prompt: Prompt, nth: int) -> str:
            needed[cell.step, prompt, nth] += journaled.answer(cell, prompt, nth) is None
            return self.reply(cell, prompt, nth)

        names, raised = self.linear(cells_, reply)
        want = "raised" if raised else "name taken" if twins else "done"
        require(outcome == want, "final", outcome, "but should be", want)
        got = self.process.visible()
        names = self.here(names)
        require(got == names, "final", got, "but a clean run:", names)
        extra = Counter(self.world.sent) - sent - needed
        require(not extra, "final", "sent without need:", extra)
        self.tally["final " + want] += 1
        if self.choose(range(20)) == 0:
            self.check_stored(self.process, for_people=True)
        self.close()

    def close(self) -> None:
        """No kernel is left."""
        for process in [*self.others, self.process]:
            process.close()
