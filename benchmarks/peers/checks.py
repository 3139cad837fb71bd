"""What becomes of the same story when its process dies: the verifier's checks, for others and for ours.

    python benchmarks/peers/checks.py [--sample 16] [--random 6] [--only NAME …] [--readme]

Plan, let a person approve, four research calls, close a ticket, report: as a loop with a JSON-lines file, with
LangGraph, with DBOS, in a session that keeps nothing, and as a notebook of ours. Each is killed by SIGKILL at points of
its uninterrupted run, and at moments drawn over it, resumed until it ends, and judged by `resumable_nb.verify` from
outside. All subjects take turns. Prints one table; `--readme` also writes it into README.md.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

from peers.report import circumstances, digits, into_readme, markdown
from peers.subjects import Told, answers, expected_states
from resumable_nb.terminal import one_line
from resumable_nb.verify import plan, stored
from resumable_nb.verify.inject import Baseline, inject, uninterrupted
from resumable_nb.verify.judge import CHECKS, Expected, Judged, judge
from resumable_nb.verify.notebook import STORE, NotebookSubject
from resumable_nb.verify.subject import Point, Trial
from resumable_nb.verify.world import World

NOTEBOOK = Path(__file__).parent / "notebook" / "story.ipynb"
SAVERS = ("langgraph", "langgraph-checkpoint-sqlite")
OURS = "resumable_nb"
JOBS = 2


@dataclass
class Case:
    """A subject and what came of it."""

    name: str
    subject: Any
    expected: Expected | None = None
    points: list[Point] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)


def cases() -> list[Case]:
    """All of them."""
    told = [
        Told("session", "a session only"),
        Told("plain", "JSON lines"),
        Told("langgraph-sync", "LangGraph, sync", packages=SAVERS),
        Told("langgraph-async", "LangGraph, async", packages=SAVERS),
        Told("dbos", "DBOS", packages=("dbos",)),
        Told("plain", "JSON lines, look-up by hand", look_up=True),
        Told("langgraph-sync", "LangGraph, sync, look-up by hand", look_up=True, packages=SAVERS),
        Told("dbos", "DBOS, look-up by hand", look_up=True, packages=("dbos",)),
    ]
    return [*(Case(one.name, one) for one in told), Case(OURS, NotebookSubject(NOTEBOOK))]


def prepare(case: Case, folder: Path, world: World, *, sample: int, random: int) -> None:
    """Run it once without a kill, and choose where trials are killed."""
    name = case.name.replace(" ", "-").replace(",", "")
    trial = Trial(name=name, folder=folder / name, world=world)
    baseline: Baseline = uninterrupted(case.subject, trial, keep=folder / f"{name}-legs")
    if isinstance(case.subject, NotebookSubject):
        states = stored.states(trial.folder / STORE, None)
    else:
        states = expected_states(dict(baseline.memory.state or {}))
    case.expected = Expected(baseline=baseline, before=baseline, states=states)
    found = plan.points(baseline.legs)  # of ours many are marked, and always in a sample; `sample` counts the others
    case.points = plan.sample(found, sample + sum(point.is_marked for point in found)) if sample else []
    case.points += plan.at_random(baseline.legs, random, seed=0)


def trial_of(case: Case, point: Point, folder: Path, world: World) -> None:
    """Kill and judge one copy."""
    assert case.expected is not None
    case.judged.append(
        judge(
            case.expected,
            inject(case.subject, case.expected.before, point, folder=folder, world=world, is_live=False),
        )
    )
    shutil.rmtree(folder)


def run(wanted: Sequence[Case], *, sample: int, random: int, say: Any) -> None:
    """All trials of all cases, in turns."""
    with tempfile.TemporaryDirectory(prefix="peers-checks-") as made, World() as world:
        folder = Path(made).resolve()
        world.record(answers())
        for case in wanted:
            say(f"{case.name}: without a kill")
            prepare(case, folder, world, sample=sample, random=random)
        turns = max(len(case.points) for case in wanted)
        todo = [(case, case.points[n]) for n in range(turns) for case in wanted if n < len(case.points)]
        say(f"{len(todo)} trials")
        with ThreadPoolExecutor(JOBS) as pool:
            tasks = [
                pool.submit(trial_of, case, point, folder / f"trial-{n}", world) for n, (case, point) in enumerate(todo)
            ]
            for n, task in enumerate(tasks, 1):
                task.result()
                if n % 20 == 0:
                    say(f"{n} of {len(todo)}")


# ---------------------------------------------------------------- the table
def table(wanted: Sequence[Case]) -> str:
    """Check by check, and what it cost to go on."""
    checks = [check for check in CHECKS if any(_passed(case, check) for case in wanted)]
    columns = ["", *checks, "answers lost, at most", "calls done again, at most", "s from kill to next call, median"]
    rows = [
        [
            case.name,
            *(_passed(case, check) for check in checks),
            max(one.lost for one in case.judged),
            max(one.calls_again for one in case.judged),
            digits(_recovery(case)),
        ]
        for case in wanted
    ]
    return markdown(columns, rows)


def _passed(case: Case, check: str) -> str | None:
    results = [one.results[check][0] for one in case.judged]
    judged = sum(result != "n/a" for result in results)
    return f"{results.count('pass')} of {judged}" if judged else None


def _recovery(case: Case) -> float:
    return statistics.median(one.injection.recovery_s for one in case.judged)


def failures(wanted: Sequence[Case]) -> list[str]:
    """For each case and check that failed, where it did first, and why."""
    found: dict[tuple[str, str], str] = {}
    for case in wanted:
        for one in case.judged:
            for check, (result, why) in one.results.items():
                if result == "fail":
                    text = f"{case.name}, {check}: killed at {one.injection.point}: {one_line(why, 200)}"
                    found.setdefault((case.name, check), text)
    return list(found.values())


def main(arguments: list[str]) -> int:
    """Verify all, and print the table. Exit code 1 if ours failed."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--sample", type=int, default=16)
    parser.add_argument("--random", type=int, default=6)
    parser.add_argument("--only", nargs="*", help="some of them, by name")
    parser.add_argument("--readme", action="store_true", help="write the table into README.md")
    asked = parser.parse_args(arguments)
    wanted, where = [case for case in cases() if not asked.only or case.name in asked.only], circumstances()
    run(wanted, sample=asked.sample, random=asked.random, say=lambda text: print(text, file=sys.stderr, flush=True))
    text = "\n".join([table(wanted), "", *(f"- {line}" for line in failures(wanted)), "", where])
    print(text)
    if asked.readme:
        into_readme("peers: checks", text)
    return int(any(not one.passed for case in wanted if case.name == OURS for one in case.judged))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
