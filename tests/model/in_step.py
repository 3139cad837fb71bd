"""The reference model of a thread and its kernels, kept in step with the real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model import reference_model as model
from tests.model.notebook import Outcome, Process, in_words
from tests.model.oracle import STATE, Cell, Names, Raised, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.model.outside import World


class Companion:
    """The reference model of one thread.

    Args:
        world: what the real kernels have outside.
        on: False where the model does not know what the cells mean.
    """

    def __init__(self, world: World, *, on: bool) -> None:
        self.world, self.thread, self.in_step = world, model.Thread(), on

    def open(self, process: Process, notebook: model.Notebook) -> None:
        """A real kernel has opened the thread."""
        process.model = model.Kernel(self.thread, notebook, process.start)
        process.model.names[STATE] = process.state  # what a person sees is the newest checkpoint

    def open_again(self, process: Process) -> None:
        """A real kernel has opened the thread once more."""
        process.model.open(process.start)
        process.model.names[STATE] = process.state

    def run(self, process: Process, cell: Cell) -> tuple[str, str] | None:
        """What the model decides; None where it is not in step."""
        kernel = process.model
        if not self.in_step or self.thread.owner is not kernel:
            self.in_step = False
            return None
        try:
            return kernel.run(cell), ""
        except Raised:
            return "raised", ""
        except model.Stop as stop:
            return (*stop.args, "")[:2]

    def run_in_part(self, process: Process, cell: Cell, rows_before: int, *, killed: bool) -> None:
        """Follow a real run that was cut off, up to where that got."""
        rows = self.world.rows[rows_before:]
        committed = any(row.cell_id == cell.cell_id and row.kind in ("checkpoint", "cell") for row in rows)
        if committed and not killed:
            self.in_step = False  # in the journal, but unknown to the kernel
        if not self.in_step or process.kernel.places.last != cell.cell_id:
            return
        kernel = process.model
        kernel.boundary = _until(process.phase, self.world.calls) if not committed else kernel.boundary
        self.run(process, cell)
        kernel.boundary = lambda where: None

    def follow_journal(self, process: Process) -> None:
        """Take over what the journal, or the memory of the real kernel, says of a run that was cut off."""
        self.thread.unfinished = set(process.kernel.thread.fold.unfinished)
        self.thread.started, self.thread.receipts = set(self.world.started), set(self.world.receipts)
        newest_last = sorted(self.world.answers.items(), key=lambda item: item[1])
        self.thread.answers = {question: answer for question, (_, answer) in newest_last}

    def settled(self) -> None:
        """A person has said of effects in doubt whether they happened."""
        self.thread.started, self.thread.receipts = set(self.world.started), set(self.world.receipts)

    def names(self, process: Process) -> Names:
        """What the model would show."""
        return in_words(visible(process.model.names))

    def back(self, process: Process, step: str, nth: int) -> None:
        """A run of a step counts again."""
        if not self.in_step or self.thread.owner is not process.model:
            self.in_step = False
        else:
            process.model.back(step, nth)
            process.model.names[STATE] = process.state  # as at the place of the cell that went back

    def fresh(self, cell_id: str, step: str | None) -> None:
        """The answers of a step were retired."""
        self.thread.fresh(Cell(cell_id, step, ()))


def _until(phase: str, calls: int) -> Callable[[str], None]:
    """A boundary that cuts the model off in the same phase as the real run, at the same call."""
    seen = 0

    def boundary(where: str) -> None:
        nonlocal seen
        seen += where == "call"
        first_write = phase == "begin" and where in ("start", "commit")
        if first_write or (phase == "commit" and where == "commit") or (phase == "code" and seen == calls):
            raise model.Stop("cut off")

    return boundary


__all__ = ["Companion", "Outcome"]
