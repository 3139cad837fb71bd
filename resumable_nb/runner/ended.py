"""How a run of a notebook ended, and what a verifier wants of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from resumable_nb.terminal import counted

Outcome = Literal["done", "failed", "waiting", "stopped"]
EXIT_CODES: dict[Outcome, int] = {"done": 0, "failed": 1, "waiting": 3, "stopped": 130}
AT_ITS_START = "at its start"


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a run of a notebook ended.

    Attributes:
        outcome: `done`; `failed` (a cell raised, timed out, or killed every kernel); `waiting` (a step waits for a
            person's decision); `stopped` (Ctrl-C or SIGTERM).
        message: what happened and what to do next, without control characters; "" when done.
        output: the executed notebook, valid at any time, whatever the outcome.
        restarts: kernels started after the first one.
        deaths: for each kernel that died, in which cell and by what.
        calls: answers that models gave since this run began, as the stores of its threads have them: of all kernels.
        tokens: billed since then.
    """

    outcome: Outcome
    message: str
    output: Path
    restarts: int
    deaths: tuple[str, ...]
    calls: int = 0
    tokens: int = 0

    @property
    def exit_code(self) -> int:
        """The exit code of `resumable-nb run`."""
        return EXIT_CODES[self.outcome]

    def __str__(self) -> str:
        counts = {"call": self.calls, "token": self.tokens, "restart": self.restarts}
        numbers = ", ".join(counted(number, what) for what, number in counts.items())
        return f"{self.message}\n{numbers}" if self.message else f"done: {self.output} ({numbers})"


@dataclass(frozen=True)
class Look:
    """What a verifier wants of a run. Its kernels end by SIGKILL, as in a crash, not by closing their thread.

    Attributes:
        each: Python that is evaluated in the kernel after each cell that ended well; it changes nothing.
        last: the same, in place of it, after the last cell.
        told: gets what the expression gave, as text.
        began: gets the process number of each kernel.
    """

    each: str
    last: str
    told: Callable[[str], None]
    began: Callable[[int], None]
