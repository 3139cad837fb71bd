"""What is judged: anything that can be started, killed at a point and resumed, and says what it remembers.

A notebook is one subject (`notebook.py`); a script on another library can be one too. The verifier gives each trial a
folder and a name in the outside world (`world.py`), and judges by what that world saw and what the subject remembers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from resumable_nb.verify.world import World

Outcome = Literal["done", "failed", "waiting", "killed"]
State = Mapping[str, Any]
"""Field → value, as JSON has it."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Where a trial is killed.

    Attributes:
        name: of the point, such as `http.receive.after`; `gate.waiting` for a process that waits for a person; `time`.
        nth: the passage at which it is killed, from 1 on, counted in one process; of `time`, milliseconds.
        leg: the process of the uninterrupted run that passes it: 0, or how often a person had decided before.
        about: what happens there, for people.
        is_marked: a side of an effect, gate or step: never left out of a sample.
        passed: of `time`: after how many passages of any point the clock is started; it then runs for `delay_s`. So
            the moment is the same in a trial that is slower than the uninterrupted run.
    """

    name: str
    nth: int = 1
    leg: int = 0
    about: str = ""
    is_marked: bool = False
    passed: int = 0
    delay_s: float = 0.0

    def __str__(self) -> str:
        leg = f" after decision {self.leg}" if self.leg else ""
        return f"{self.name}:{self.nth}{leg}" + (f" ({self.about})" if self.about else "")


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A point that a process passed, and when (seconds since 1970)."""

    name: str
    nth: int
    at: float
    about: str = ""
    is_marked: bool = False


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How one process of a trial ended.

    Attributes:
        outcome: `done`, `failed`, `waiting` (for a person's decision) or `killed`.
        message: what it said of that.
        passages: the points that it passed, in order.
        acknowledged: rows of its store that it was told are kept; 0 if it does not say.
        loaded: the state that it had when it had resumed; None if it did not come so far.
        names: what it held at its end, by name; None if it did not come so far.
        contexts: see `probe.contexts`; None where nobody looked.
        began_at: when it could first be killed, in seconds since 1970.
        ended_at: when it had ended, or was killed.
    """

    outcome: Outcome
    message: str = ""
    passages: Sequence[Passage] = ()
    acknowledged: int = 0
    loaded: State | None = None
    names: Mapping[str, str] | None = None
    contexts: Mapping[str, Any] | None = None
    began_at: float = 0.0
    ended_at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A question put to a person. `at` and `decided_at` order it among the checkpoints; None: it waits."""

    step: str
    key: str
    at: int
    decided_at: int | None
    decision: str


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint, by the step that made it ("" for what is no step)."""

    step: str
    at: int


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What a subject's own store holds of a trial, read while no process has it.

    Attributes:
        rows: how many rows; compared with `Ended.acknowledged`.
        checkpoints: oldest first.
        state: at the newest checkpoint; None before the first.
        answered: by key, digests of the answers that steps kept.
        free: keys of questions that are asked outside steps, as often as their cell runs.
        repeated: keys of questions of steps that were answered twice in the same place.
        receipts: idempotency keys of effects that have a receipt.
        gates: oldest first.
        renewed: for each resource that was used, the places (as of checkpoints) where it was acquired or stood a probe.
        live: places of first live calls, one for each process.
        trouble: why the store cannot be read; "" if it can.
    """

    rows: int = 0
    checkpoints: Sequence[Checkpoint] = ()
    state: State | None = None
    answered: Mapping[str, list[str]] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
    repeated: Sequence[str] = ()
    receipts: Sequence[str] = ()
    gates: Sequence[Gate] = ()
    renewed: Mapping[str, Sequence[int]] = field(default_factory=dict)
    live: Sequence[int] = ()
    trouble: str = ""


@dataclass
class Trial:
    """One copy of the work.

    Attributes:
        name: in the outside world.
        folder: all that it has on disk.
        world: what is outside.
        is_live: its model is asked anew, not the recording.
        lives: processes that it had.
    """

    name: str
    folder: Path
    world: World
    is_live: bool = False
    lives: int = 0


class Subject(Protocol):
    """What is judged. Several trials may be under way at once, in threads."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def before(self) -> Subject | None:
        """What runs in its place until the kill, where it was edited while it was dead."""

    def versions(self) -> dict[str, str]:
        """What the result holds for: versions of everything that matters."""

    def prepare(self, folder: Path) -> None:
        """Put what a first process needs into a new folder."""

    def run(self, trial: Trial, kill_at: Point | None = None) -> Ended:
        """Start it, or resume it: the same act. It goes on until it ends, waits for a person, or dies at the point."""

    def decide(self, trial: Trial, kill_at: Point | None = None) -> None:
        """Be the person: say yes to all that waits, and of effects in doubt what the ledger knows."""

    def remember(self, trial: Trial) -> Memory:
        """What its store holds now. No process of the trial is alive."""
