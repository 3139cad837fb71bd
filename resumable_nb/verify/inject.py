"""Runs: one that nobody interrupts, and trials that are killed and resumed until they end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resumable_nb.errors import ResumableError
from resumable_nb.verify.plan import DECIDING, WAITING
from resumable_nb.verify.subject import Ended, Memory, Point, Subject, Trial
from resumable_nb.verify.world import Log, World

_MOST_DECISIONS = 100
_NEW_CALL = ("http.send.before", "effect.call.before")


class NotDone(ResumableError):
    """The notebook does not come to its end even where nobody interrupts it."""


@dataclass(kw_only=True)
class Baseline:
    """The uninterrupted run.

    Attributes:
        legs: how its processes ended; each but the last waited for a person.
        memory: what its store holds at the end.
        log: what it did outside.
        snapshots: for each leg, its folder and its name in the world as they were before it.
        asked: the same as they were when the leg waited.
        seconds: that it took.
    """

    legs: list[Ended] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    log: Log = field(default_factory=lambda: Log(acts=(), sent=(), tokens=0, refused=0))
    snapshots: list[tuple[Path, str]] = field(default_factory=list)
    asked: list[tuple[Path, str]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def uses_credentials(self) -> bool:
        """Whether something outside can go stale."""
        return bool(self.memory.renewed) or self.log.tokens > 0


def uninterrupted(subject: Subject, trial: Trial, *, keep: Path | None = None) -> Baseline:
    """Run it to its end; a person says yes to all that it asks.

    Args:
        subject: what is run.
        trial: its folder is made here.
        keep: where the folders before each process, and of each wait, are kept.

    Raises:
        NotDone: it fails.
    """
    found, began = Baseline(), time.monotonic()
    subject.prepare(trial.folder)
    while True:
        if keep is not None:
            found.snapshots.append(_snapshot(trial, keep / f"leg-{len(found.legs)}"))
        ended = subject.run(trial)
        found.legs.append(ended)
        if ended.outcome == "done":
            break
        if ended.outcome != "waiting" or len(found.legs) > _MOST_DECISIONS:
            raise NotDone(f"{subject.name} does not come to its end without any kill, so there is nothing to verify. "
                          f"{ended.message}")  # fmt: skip
        if keep is not None:
            found.asked.append(_snapshot(trial, keep / f"asked-{len(found.legs) - 1}"))
        subject.decide(trial)
        trial.world.resume(trial.name, subject.remember(trial).answered)
    found.memory, found.log = subject.remember(trial), trial.world.log(trial.name)
    found.seconds = time.monotonic() - began
    return found


def _snapshot(trial: Trial, target: Path) -> tuple[Path, str]:
    shutil.copytree(trial.folder, target, symlinks=True)
    trial.world.copy(trial.name, f"{trial.name}-{target.name}")
    return target, f"{trial.name}-{target.name}"


@dataclass(kw_only=True)
class Injection:
    """A trial that was killed once, and what came of it.

    Attributes:
        point: where it was killed.
        killed: how the process that was killed ended.
        at_kill: what its store held then.
        log_at_kill: what it had done outside by then.
        resumed: the processes after it, in order.
        memory: what its store holds at the end.
        log: what it did outside in all.
        at_wait: for a trial that was killed while it waited: its store and the world when it waited again.
        recovery_s: from the kill to the first new call, or to the end where there was none.
    """

    point: Point
    killed: Ended
    at_kill: Memory
    log_at_kill: Log
    resumed: list[Ended]
    memory: Memory
    log: Log
    at_wait: tuple[Memory, Log] | None
    recovery_s: float

    @property
    def was_reached(self) -> bool:
        """Whether the process passed the point at all."""
        return self.killed.outcome in ("killed", "waiting")


def inject(
    subject: Subject, baseline: Baseline, point: Point, *, folder: Path, world: World, is_live: bool
) -> Injection:
    """Run a fresh copy up to the point, kill it there, and resume it until it ends."""
    trial = Trial(name=folder.name, folder=folder, world=world, is_live=is_live)
    while_waiting = point.name == WAITING or point.name in DECIDING
    source, known_as = (baseline.asked if while_waiting else baseline.snapshots)[point.leg]
    shutil.copytree(source, folder, symlinks=True)
    trial.lives = _MOST_DECISIONS + point.leg  # its passages are not mixed up with those of the copy
    world.copy(known_as, trial.name)
    if while_waiting:
        killed = baseline.legs[point.leg]
        if point.name != WAITING:
            subject.decide(trial, kill_at=point)
        killed_at = time.time()
    else:
        killed = (subject.before or subject).run(trial, kill_at=point)
        killed_at = killed.ended_at
    at_kill, log_at_kill = subject.remember(trial), world.log(trial.name)
    world.resume(trial.name, at_kill.answered)
    if baseline.uses_credentials:
        world.revoke(trial.name)
    resumed, at_wait = _to_its_end(subject, trial)
    return Injection(
        point=point,
        killed=killed,
        at_kill=at_kill,
        log_at_kill=log_at_kill,
        resumed=resumed,
        memory=subject.remember(trial),
        log=world.log(trial.name),
        at_wait=at_wait,
        recovery_s=_went_on_at(resumed) - killed_at,
    )


def _to_its_end(subject: Subject, trial: Trial) -> tuple[list[Ended], tuple[Memory, Log] | None]:
    resumed: list[Ended] = []
    at_wait = None
    while len(resumed) <= _MOST_DECISIONS:
        resumed.append(subject.run(trial))
        if resumed[-1].outcome != "waiting":
            break
        if len(resumed) == 1:
            at_wait = subject.remember(trial), trial.world.log(trial.name)
        try:
            subject.decide(trial)
        except ResumableError as error:
            resumed.append(Ended(outcome="failed", message=str(error)))
            break
        trial.world.resume(trial.name, subject.remember(trial).answered)
    return resumed, at_wait


def _went_on_at(resumed: Sequence[Ended]) -> float:
    """When the first new call was made; without one, when the first process had passed its last point."""
    passed = resumed[0].passages if resumed else ()
    return next((p.at for p in passed if p.name in _NEW_CALL), passed[-1].at if passed else time.time())
