"""One verification: a run that is recorded, one that nobody interrupts, then all trials, judged as they end."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resumable_nb.errors import UsageError
from resumable_nb.verify import plan, stored
from resumable_nb.verify.inject import Baseline, inject, uninterrupted
from resumable_nb.verify.judge import CHECKS, Expected, Judged, Meaning, judge
from resumable_nb.verify.notebook import STORE, NotebookSubject, undeclared_effects
from resumable_nb.verify.subject import Point, Trial
from resumable_nb.verify.world import World

SAMPLE = 40
_TRIALS = "resumable_nb trial"
Heard = Callable[[Judged, int, int], None]
"""Told of each trial as it is judged: its number, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a notebook is verified.

    Attributes:
        sample: how many points; None: all of them. With `random` alone, 0.
        at: names of points, in place of a sample: `NAME` or `NAME:N`.
        random: how many moments besides, drawn over the whole run; `seed` draws the same again.
        jobs: trials at the same time.
        is_live: trials ask the real model, not the recording.
        means_the_same: judges the final state in place of equality.
        folder: where all trials are kept; None: they are removed.
    """

    sample: int | None = SAMPLE
    at: Sequence[str] = ()
    random: int = 0
    seed: int = 0
    jobs: int = 2
    is_live: bool = False
    means_the_same: Meaning | None = None
    folder: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of all trials: median, the value that 95 % do not pass, and the worst."""

    median: float
    p95: float
    worst: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Cost:
        """Of some values; zeros where there are none."""
        found = sorted(values) or [0.0]
        return cls(median=statistics.median(found), p95=found[math.ceil(0.95 * len(found)) - 1], worst=found[-1])


@dataclass(kw_only=True)
class Verification:
    """What came of it.

    Attributes:
        subject: the notebook.
        versions: what it holds for.
        points: boundaries that an uninterrupted run passes.
        window: calls that a crash may lose.
        unreadable: fields of the state that hold what SQL does not show in plain words.
        fields: fields of the state.
        judged: the trials, in the order of their points.
        started_at: seconds since 1970.
        seconds: that it took.
        baseline_s: that the uninterrupted run took.
        is_live: the model answered anew in each trial.
    """

    subject: str
    versions: dict[str, str]
    points: int = 0
    window: int = 1
    unreadable: list[str] = field(default_factory=list)
    fields: int = 0
    judged: list[Judged] = field(default_factory=list)
    started_at: float = field(default_factory=time.time)
    seconds: float = 0.0
    baseline_s: float = 0.0
    is_live: bool = False

    @property
    def passed(self) -> bool:
        """Whether there was a trial, and none failed."""
        return bool(self.judged) and all(one.passed for one in self.judged)

    def counts(self, check: str) -> dict[str, int]:
        """How often a check passed, failed, and had nothing to look at."""
        found = [one.results[check][0] for one in self.judged]
        return {result: found.count(result) for result in ("pass", "fail", "n/a")}  # type: ignore[arg-type, unused-ignore]

    @property
    def recovery_s(self) -> Cost:
        """From the kill to the first new call."""
        return Cost.of([one.injection.recovery_s for one in self.judged])

    @property
    def calls_again(self) -> Cost:
        """Calls done again after a kill."""
        return Cost.of([one.calls_again for one in self.judged])

    @property
    def share(self) -> Cost:
        """Their share of those that were done."""
        return Cost.of([one.share for one in self.judged])

    @property
    def largest_loss(self) -> int:
        """Answers, given or under way, that one kill lost at most."""
        return max((one.lost for one in self.judged), default=0)

    @property
    def contexts(self) -> tuple[int, int]:
        """Questions whose context was made again from the store, to the letter, and how many were tried."""
        found = [c for one in self.judged for c in [one.injection.resumed[-1].contexts] if c]
        return sum(c["equal"] for c in found), sum(c["checked"] for c in found)

    @property
    def readability(self) -> float:
        """Share of the fields of the state that a person can read in SQL."""
        return 1 - len(self.unreadable) / self.fields if self.fields else 1.0


def verify(
    subject: NotebookSubject, settings: Settings, *, say: Callable[[str], None], heard: Heard = lambda *_: None
) -> Verification:
    """Prove where a notebook is and is not resumable. Nothing of it reaches the real world but questions to its model.

    Args:
        subject: the notebook.
        settings: how.
        say: told what is being done.
        heard: told of each trial.

    Raises:
        UsageError: it has effects that do not say what stands in for them; they are named, and nothing was run.
        NotDone: it does not come to its end without any kill.
    """
    began = time.monotonic()
    _refuse_undeclared(subject)
    if subject.before is not None:
        subject.before.kernels = subject.kernels
    with _folder(settings.folder) as folder, World() as world, _ending(subject.kernels):
        expected = _expected(subject, settings, folder, world, say)
        found = plan.points(expected.before.legs)
        chosen = _chosen(found, settings)
        chosen += plan.at_random(expected.before.legs, settings.random, seed=settings.seed)
        done = Verification(
            subject=subject.name,
            versions=subject.versions(),
            points=len(found),
            window=expected.window,
            baseline_s=expected.baseline.seconds,
            is_live=settings.is_live,
        )
        done.fields, done.unreadable = stored.readability(folder / "baseline" / STORE, subject.thread)
        say(f"{len(found)} boundaries in {expected.baseline.seconds:.0f} s without a kill; {len(chosen)} trials")
        done.judged = _trials(subject, expected, chosen, settings=settings, folder=folder, world=world, heard=heard)
    done.seconds = time.monotonic() - began
    return done


def _chosen(found: Sequence[Point], settings: Settings) -> list[Point]:
    if settings.at:
        chosen = plan.named(found, settings.at)
        if not chosen:
            raise UsageError(f"--at {', '.join(settings.at)}: no such point is passed. There are: "
                             f"{', '.join(dict.fromkeys(f'{p.name}:{p.nth}' for p in found))}.")  # fmt: skip
        return chosen
    return [] if settings.sample == 0 else plan.sample(found, settings.sample)


def _refuse_undeclared(subject: NotebookSubject) -> None:
    files = [subject.notebook, *([subject.before.text] if subject.before and subject.before.text else [])]
    named = [effect for file in files for effect in undeclared_effects(file)]
    if named:
        raise UsageError(
            f"{subject.name} has effects that would reach the real world: {', '.join(named)}. Nothing was run. Declare "
            "what stands in for each: `@effect(…, rehearsal=True)` lets the verifier's ledger act in its place, and "
            "`rehearsal=` with a function also says what receipt it gives."
        )


def _expected(
    subject: NotebookSubject, settings: Settings, folder: Path, world: World, say: Callable[[str], None]
) -> Expected:
    """Record the answers, and run without a kill."""
    before = None
    if not settings.is_live:
        for name, version in (("recording", subject), ("recording-before", subject.before)):
            if version is not None:
                say(f"recording the answers of one run of {version.name}")
                uninterrupted(version, Trial(name=name, folder=folder / name, world=world, is_live=True))
                world.record(stored.answers(folder / name / STORE, subject.thread))
    say("running it without a kill")
    baseline = _baseline(subject, "baseline", settings, folder, world)
    if subject.before is not None:
        before = _baseline(subject.before, "before", settings, folder, world)
    states = stored.states(folder / ("before" if before else "baseline") / STORE, subject.thread)
    return Expected(
        baseline=baseline,
        before=before or baseline,
        states=states,
        is_live=settings.is_live,
        means_the_same=settings.means_the_same,
    )


def _baseline(subject: NotebookSubject, name: str, settings: Settings, folder: Path, world: World) -> Baseline:
    trial = Trial(name=name, folder=folder / name, world=world, is_live=settings.is_live)
    return uninterrupted(subject, trial, keep=folder / f"{name}-legs")


def _trials(
    subject: NotebookSubject,
    expected: Expected,
    points: Sequence[Point],
    *,
    settings: Settings,
    folder: Path,
    world: World,
    heard: Heard,
) -> list[Judged]:
    def one(place: int) -> Judged:
        where = folder / f"trial-{place + 1}"
        trial = inject(subject, expected.before, points[place], folder=where, world=world, is_live=settings.is_live)
        judged = judge(expected, trial)
        if settings.folder is None:
            shutil.rmtree(where)
        return judged

    judged: dict[int, Judged] = {}
    with ThreadPoolExecutor(settings.jobs, thread_name_prefix=_TRIALS) as pool:
        tasks = {pool.submit(one, place): place for place in range(len(points))}
        try:
            for task in as_completed(tasks):
                judged[tasks[task]] = task.result()
                heard(judged[tasks[task]], len(judged), len(points))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [judged[place] for place in sorted(judged)]


@contextlib.contextmanager
def _folder(wanted: Path | None) -> Iterator[Path]:
    if wanted is None:
        with tempfile.TemporaryDirectory(prefix="resumable-nb-verify-", ignore_cleanup_errors=True) as made:
            yield Path(made).resolve()
        return
    if wanted.exists() and any(wanted.iterdir()):
        raise UsageError(f"{wanted} holds something already: name a new folder for the trials.")
    wanted.mkdir(parents=True, exist_ok=True)
    yield wanted.resolve()


@contextlib.contextmanager
def _ending(kernels: set[int]) -> Iterator[None]:
    """After Ctrl-C the kernels that run end at once, and with them the trials' threads."""
    try:
        yield
    except BaseException:
        while alive := [t for t in threading.enumerate() if t.name.startswith(_TRIALS)]:
            for pid in list(kernels):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            alive[0].join(0.2)
        raise


def meaning(name: str) -> Meaning:
    """The function that `--judge MODULE:FUNCTION` names.

    Raises:
        UsageError: there is none.
    """
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--judge {name}: expected MODULE:FUNCTION that can be imported ({error}).") from error
    if not callable(found):
        raise UsageError(f"--judge {name}: this is no function.")
    judging: Meaning = found
    return judging


__all__ = ["CHECKS", "Cost", "Settings", "Verification", "meaning", "verify"]
