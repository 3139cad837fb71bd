"""A kernel process with the real engine in it: cells come in as source, and go through `begin`, `exec` and `commit`."""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import linecache
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from resumable_nb import cells, scope
from resumable_nb.errors import NameTaken, Paused, RunFirst, ThreadTakenOver
from resumable_nb.journal import Row
from resumable_nb.opening import open_notebook
from tests.model import outside, reference_model
from tests.model.oracle import STATE, Cell, Names, Value, line
from tests.model.outside import Client, Killed, World, deep

OPENING = "open"  # the id of the cell that opens the thread
ENDED = ("skipped", "ran", "ordinary")
_numbers = itertools.count(1)


class Outcome(NamedTuple):
    """What came of a cell: one of `ENDED`, or `raised`, `run first`, `name taken`, `taken over`, `cut off`, `in doubt`."""

    kind: str
    cell_id: str = ""  # of the cell that a stop names
    lines: str = ""  # what was said
    shown: str = ""  # what a skipped step shows again


def opening_cell() -> cells.Cell:
    """The first cell of every notebook: it imports, and opens the thread."""
    return cells.Cell(
        OPENING, None, "from dataclasses import dataclass\nfrom tests.model.outside import Client, act, ask"
    )


def engine_cell(cell: Cell) -> cells.Cell:
    """The cell as the notebook layer hands it to the engine."""
    return cells.Cell(cell.cell_id, cell.step, cell.source)


class Process:
    """One kernel process that has a thread open.

    Attributes:
        start: the state that the thread starts with, as this kernel opened it.
        model: the reference model of the same kernel.

    Args:
        world: what is outside of it.
        store: the file.
        query: as the opening cell says it.
    """

    model: reference_model.Kernel

    def __init__(
        self, world: World, store: Path, thread_id: str, *, query: str = "", start: Literal["first", "newest"] = "first"
    ) -> None:
        self.world, self.store, self.thread_id, self.dead = world, store, thread_id, False
        self._from: Literal["first", "newest"] = start
        self.last_texts: dict[str, Cell] = {}
        self.phase = ""  # of the cell that runs: begin, code, commit
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self._grounds: list[scope.Scope] = []
        self._open(query, frozenset())

    def _open(self, query: str, tracked: frozenset[str]) -> None:
        self.start: Value = (query, (), ())
        self.number, self.opening = next(_numbers), object()
        self.executed: list[cells.Cell] = []  # where only the order of execution is known
        with self.running():
            execute(opening_cell().source, self.namespace)
            self.kernel = open_notebook(
                self.thread_id,
                namespace=self.namespace,
                db=self.store,
                query=query or None,
                start=self._from,
                take_over=True,
                tracked=tracked,
            )
            self.kernel.names.project = self.store.parent  # the modules of these tests are none of the notebook's
            self.kernel.baseline(OPENING)
        self._tap()

    def open_again(self, query: str) -> None:
        """The opening cell runs again: the thread is taken over, and the names stay bound."""
        with self.running():
            tracked = self.kernel.made_here()
            self.kernel.close()
        self._open(query, tracked)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Code of this process runs: what the library keeps per process is this one's."""
        fallback = scope._fallback
        outer, fallback[:] = list(fallback), self._grounds
        outside.enter(self.world)
        try:
            yield
        finally:
            self._grounds, fallback[:] = list(fallback), outer

    def _tap(self) -> None:
        """Both sides of every append are boundaries, and the world sees what is in the store."""
        session = self.kernel.thread.session
        append = session.append

        def tapped(*rows: Row) -> list[int]:
            self.passing("append")
            seqs = append(*rows)
            self.world.journaled(rows)
            self.passing("appended")
            return seqs

        session.append = tapped  # type: ignore[method-assign]

    def passing(self, where: str) -> None:
        """A boundary of this process. A dead one writes nothing more."""
        if self.dead:
            raise Killed
        self.world.boundary(where)

    def close(self) -> None:
        """The kernel is shut down in good order."""
        with self.running():
            self.kernel.close()
            with contextlib.suppress(ThreadTakenOver):
                self.kernel.thread.session.close()

    # ------------------------------------------------------------------ one cell
    def by_execution(self, cell: Cell) -> tuple[cells.Cell, cells.Order]:
        """In a console: the cell, and the order in which cells ran; a step that runs again keeps its place."""
        ids = [c.cell_id for c in self.executed]
        cell_id = f"#{cell.step}" if cell.step else f"#{len(ids)}"
        placed = cells.Cell(cell_id, cell.step, cell.source)
        if cell_id in ids:
            self.executed[ids.index(cell_id)] = placed
        else:
            self.executed.append(placed)
        return placed, cells.Order(tuple(self.executed), "", "execution")

    def run_opening(self, order: cells.Order) -> None:
        """The opening cell runs again, as in Run All: the thread is open, so it is an ordinary cell."""
        with self.running(), contextlib.suppress(ThreadTakenOver):
            self.kernel.begin(opening_cell(), order)
            execute(opening_cell().source, self.namespace)
            self.kernel.commit()

    def back(self, order: cells.Order, step: str, number: int) -> None:
        """`%resumable back STEP --run NUMBER` in the opening cell."""
        last = self.kernel.places.last
        with self.running():
            self.kernel.begin(opening_cell(), order)
            try:
                self.kernel.back(step, number)
            finally:
                self.kernel.commit()
                self.kernel.places.last = last  # an unsaved cell that runs next stands where it would have stood

    def run(self, cell: Cell, placed: cells.Cell, order: cells.Order) -> Outcome:
        """What the notebook layer does with one cell. Raises Killed at a boundary that kills."""
        with self.running():
            self.last_texts[cell.cell_id] = cell
            outer, self.world.asked, self.world.calls = self.world.asked, [], 0
            try:
                return self._run(cell, placed, order)
            except RunFirst as stop:
                return Outcome("run first", stop.cell_id, str(stop))
            except NameTaken as stop:
                return Outcome("name taken", stop.cell_id, str(stop))
            except ThreadTakenOver as stop:
                return Outcome("taken over", lines=str(stop))
            except (KeyboardInterrupt, ConnectionError) as error:
                return Outcome("cut off", lines=repr(error))
            finally:
                self.world.asked = outer

    def _run(self, cell: Cell, placed: cells.Cell, order: cells.Order) -> Outcome:
        self.phase = "begin"
        decision = self.kernel.begin(placed, order)
        if decision.action == "skip":
            shown = "".join(output["text"] for output in decision.outputs)
            return Outcome("skipped", lines=decision.line, shown=shown)
        assert decision.action == ("run" if cell.step else "plain")
        self.phase = "code"
        try:
            execute(cell.source, self.namespace)
        except AssertionError:
            raise  # a check of ours, while another kernel ran inside this cell
        except (Exception, KeyboardInterrupt, Paused) as error:
            self.kernel.fail(error)
            if isinstance(error, Paused):
                return Outcome("in doubt", lines=str(error))
            if isinstance(error, ThreadTakenOver | KeyboardInterrupt | ConnectionError):
                raise
            return Outcome("raised", lines=f"{decision.line} {error!r}")
        self.phase = "commit"
        said = self.kernel.commit()
        self.phase = "outputs"  # the cell has ended, whatever becomes of them
        with contextlib.suppress(ThreadTakenOver, KeyboardInterrupt, ConnectionError):
            self.kernel.outputs([{"output_type": "stream", "name": "stdout", "text": repr(self.state)}])
        return Outcome("ran" if cell.step else "ordinary", lines=" ".join([decision.line, *said]))

    # ------------------------------------------------------------------ what is to be seen
    @property
    def state(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """The state that code would see."""
        return visible_state(self.namespace[STATE])

    def visible(self) -> Names:
        """The names that cells bound, and the state, in the oracle's terms."""
        return visible_names(self.namespace)

    def above(self, cell: Cell, order: cells.Order) -> list[tuple[str, str | None, str]]:
        """The cells that the engine takes to be above, as they were last executed."""
        return [keys(c) for c in self.kernel.places.above(engine_cell(cell), order) if c.cell_id != OPENING]

    def knows_order(self, cell: Cell, order: cells.Order, above: list[Cell]) -> bool:
        """Whether the engine takes these cells to be above, in this order."""
        return [c[0] for c in self.above(cell, order)] == [c.cell_id for c in above]

    def knows(self, cell: Cell, order: cells.Order, above: list[Cell]) -> bool:
        """Whether the engine takes these cells to be above, in this order, as they stand here."""
        return self.above(cell, order) == [keys(engine_cell(c)) for c in above]


def execute(source: str, namespace: dict[str, Any]) -> None:
    """Run a cell as IPython does: every text has a file name of its own, so that functions know their source."""
    name = f"<cell {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec", dont_inherit=True), namespace)


def visible_state(state: Any) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Query, findings, and the keys of the receipts."""
    receipts = (receipt["key"] if isinstance(receipt, dict) else receipt for receipt in state.receipts)
    return state.query, tuple(state.findings), tuple(receipts)


def visible_names(namespace: dict[str, Any]) -> Names:
    """What a namespace holds that cells bound, and the state, in the oracle's terms."""
    found: Names = {STATE: visible_state(namespace[STATE])}
    for name, value in namespace.items():
        if isinstance(value, list | Client):
            found[name] = deep(list(value))
        elif type(value).__name__ == "P":
            found[name] = ("P", deep(value.x), value.kind)
        elif isinstance(value, type) and value.__module__ == "__main__":
            found[name] = ("class", vars(value)["kind"])
        elif isinstance(value, types.FunctionType) and value.__module__ == "__main__" and name != "ask":
            found[name] = ("function", _normal(inspect.getsource(value)))
    return found


def keys(cell: cells.Cell) -> tuple[str, str | None, str]:
    """What makes a cell what it is."""
    return cell.cell_id, cell.step, cell.code.digest


def in_words(names: Names) -> Names:
    """Names of the oracle as `Process.visible` gives them: functions by their source."""
    return {name: _in_words(name, value) for name, value in names.items()}


def _in_words(name: str, value: Value) -> Value:
    return ("function", _normal(line("def", name, *value[1:]))) if value and value[0] == "function" else value


def _normal(source: str) -> str:
    """Source without its layout."""
    return ast.unparse(ast.parse(source))
