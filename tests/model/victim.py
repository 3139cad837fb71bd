"""A process that runs a whole notebook, to be killed at a failpoint: `python -m tests.model.victim STORE LOG`.

LOG gets one line for each question that the model was asked, and one for each step whose commit returned.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from resumable_nb import cells
from tests.model.notebook import ENDED, Process, engine_cell, opening_cell
from tests.model.oracle import Cell, Prompt
from tests.model.outside import World

NOTEBOOK = [
    Cell("c1", None, (("let", "v", "x"), ("def", "f", "about", "x", "v"))),
    Cell("c2", "first", (("ask", "x"), ("into", "w", "y"), ("push", "v", "z"))),
    Cell("c3", None, (("addvar", "v"),)),
    Cell("c4", "second", (("call", "f"), ("ask", "x"), ("ask", "x"))),
    Cell("c5", "third", (("addvar", "w"), ("set", "z"), ("len", "w"), ("ask", "z"))),
]


class LoggedWorld(World):
    """A world whose memory is a file: it outlives this process."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def reply(self, step: str | None, prompt: Prompt, nth: int) -> str:
        self.note(f"sent {step} {prompt} {nth}")
        return super().reply(step, prompt, nth)

    def note(self, line: str) -> None:
        """A line that is in the file when this returns, whatever becomes of the process."""
        file = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{line}\n".encode())
        os.close(file)


def run_all(store: Path, log: Path) -> Process:
    """Open the thread, and run the notebook from top to bottom."""
    world = LoggedWorld(log)
    process = Process(world, store, "thread")
    order = cells.Order((opening_cell(), *map(engine_cell, NOTEBOOK)), 1, "file", "research.ipynb")
    for cell in NOTEBOOK:
        outcome = process.run(cell, engine_cell(cell), order)
        assert outcome.kind in ENDED, outcome
        world.note(f"{outcome.kind} {cell.cell_id}")
    return process


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), Path(sys.argv[2])).close()
