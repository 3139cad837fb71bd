"""What a durable step costs, beside what people would use instead, and the floors under all of them.

    python benchmarks/peers/steps.py [--steps 2000] [--readme]

Every contestant runs in a process of its own (`contestants.py`), and they take turns of ten steps, so that all meet the
same moods of the machine. At a quarter and at half of the steps all of them are killed by SIGKILL and resumed. Prints
the tables; `--readme` also writes them into README.md and draws docs/peers.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

from bare import SIZE_BYTES

from peers import ours
from peers.contestants import CONTESTANTS
from peers.report import ROOT, circumstances, digits, into_readme, markdown

TURN, WINDOW, ROUNDS, FARTHER = 10, 100, 5, 5
OURS, FLOOR = ("resumable_nb, text", "resumable_nb, dict"), "bare DuckDB commit"
NO_HISTORY = {"LangGraph, functional", FLOOR, "bare fdatasync"}
KEEPS = {
    "LangGraph, functional": "written in the background, by a thread",
    "chowki": "outlives a kill, not a power loss (SQLite with `synchronous=NORMAL`)",
}


class Child:
    """A contestant in its process."""

    def __init__(self, name: str, folder: Path, done: int) -> None:
        command = [sys.executable, str(Path(__file__).with_name("contestants.py")), name, str(folder), str(done)]
        env = os.environ | {"LANGSMITH_TRACING": "false", "PYTHONHASHSEED": "0"}
        self.process = subprocess.Popen(
            command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.name = name
        self.import_s, self.bare_mb = self._answer()

    def ask(self, what: str) -> Any:
        """Say a line, and wait for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        while line and line[:1] not in '[0123456789n"':  # a library that prints
            line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} has ended:\n{self.process.communicate()[1]}")
        return json.loads(line)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate()

    def close(self) -> None:
        """Let it close its files and end."""
        self.ask("close")
        self.process.communicate()


@dataclass
class Race:
    """What was measured: seconds of every step, bytes at the end, and where copies of the folders are."""

    took: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    bytes: dict[str, int] = field(default_factory=dict)
    copies: dict[int, Path] = field(default_factory=dict)

    def ms(self, name: str, mark: int) -> float | None:
        """The median around a step, in milliseconds."""
        found = self.took[name][max(0, mark - min(WINDOW, mark // 4)) : mark]
        return statistics.median(found) * 1e3 if len(self.took[name]) >= mark else None


def size(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def run(root: Path, steps: int, say: Any) -> Race:
    """All contestants to the end, with two kills; then ours and the floor on, alone."""
    race, done = Race(), 0
    names = list(CONTESTANTS)
    for mark in (steps // 4, steps // 2, steps, steps * FARTHER):
        say(f"to step {mark:,}")
        if mark > steps:
            names = [*OURS, FLOOR]
        _take_turns(race, {name: Child(name, _folder(root, name), done) for name in names}, mark, kill=mark < steps)
        done = mark
        if mark < steps:
            race.copies[mark] = Path(shutil.copytree(root / "now", root / str(mark)))
        elif mark == steps:
            race.bytes = {name: size(_folder(root, name)) for name in names}
    return race


def _folder(root: Path, name: str) -> Path:
    folder = root / "now" / name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _take_turns(race: Race, children: dict[str, Child], mark: int, *, kill: bool) -> None:
    try:
        for child in children.values():
            child.ask("open")
        while len(race.took[next(iter(children))]) < mark:
            for name, child in children.items():
                race.took[name] += child.ask(f"steps {min(TURN, mark - len(race.took[name]))}")
        for child in children.values():
            child.kill() if kill else child.close()
    finally:
        for child in children.values():
            child.process.kill()


def resumed(copies: Path, done: int, names: Iterable[str], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of the import, and after it until the first new step is done; megabytes over a bare process then."""
    seen: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for _ in range(rounds):
        for name in names:
            with tempfile.TemporaryDirectory(dir=copies.parent) as folder:
                work = Path(shutil.copytree(copies / name.replace(" ", "_"), Path(folder, "work")))
                child = Child(name, work, done)
                try:
                    took = child.ask("open") + child.ask("steps 1")[0]
                    seen[name].append((child.import_s, took, child.ask("memory") - child.bare_mb))
                finally:
                    child.kill()
    medians = {name: map(statistics.median, zip(*found, strict=True)) for name, found in seen.items()}
    return {name: dict(zip(("import_s", "resume_s", "mb"), found, strict=True)) for name, found in medians.items()}


def appeared(copies: Path, done: int) -> dict[str, tuple[float, float]]:
    """Seconds and megabytes of asking when a finding appeared; the median of three, after one that may import."""
    found = {}
    for name in [name for name in CONTESTANTS if name not in NO_HISTORY]:
        child = Child(name, copies / name.replace(" ", "_"), done)
        try:
            child.ask("open")
            numbers = [done * n // 10 for n in (7, 3, 5, 6)]
            answers = [child.ask(f"appeared {number}") for number in numbers]
        finally:
            child.kill()
        if [step for step, _, _ in answers] != numbers:
            raise SystemExit(f"{name} says of findings {numbers} that they appeared at {answers}")
        found[name] = (
            statistics.median(seconds for _, seconds, _ in answers[1:]),
            max(mb for _, _, mb in answers[1:]),
        )
    return found


# ---------------------------------------------------------------- tables and plot
def peers_table(race: Race, steps: int, again: dict[str, Any], asked: dict[str, Any]) -> str:
    """All contestants."""
    half, quarter = steps // 2, steps // 4
    columns = ["", f"ms a step at {half:,}", f"at {steps:,}", f"file ÷ payload at {steps:,}"]
    columns += [f"s to the first new step, {quarter:,} done, after import", "s to import"]
    columns += [f"“when did this finding appear”, {half:,} steps: s", "MB for that"]
    columns += [f"MB over bare Python, {quarter:,} steps open"]
    rows = []
    for name in CONTESTANTS:
        resume, ask = again.get(name, {}), asked.get(name, (None, None))
        bulk = race.bytes[name] / (steps * SIZE_BYTES)
        numbers = [race.ms(name, half), race.ms(name, steps), bulk, resume.get("resume_s"), resume.get("import_s")]
        rows.append([name, *map(digits, [*numbers, *ask, resume.get("mb")])])
    notes = "; ".join(f"{name}: {note}" for name, note in KEEPS.items())
    return markdown(columns, rows) + f"\n\nAll are on disk when a step ends, but: {notes}."


def ours_table(race: Race, steps: int, found: dict[str, Any]) -> str:
    """What was to be reached, and what is."""
    name, far = OURS[0], steps * FARTHER
    ours_ms, floor_ms = (statistics.median(race.took[n][:steps]) for n in (name, FLOOR))
    late = race.ms(name, far) or 0.0
    early = race.ms(name, steps // 2) or 1.0
    floors = [race.ms(FLOOR, mark) or 1.0 for mark in (far, steps // 2)]
    share = {peer: (race.ms(name, steps) or 0) / (race.ms(peer, steps) or 1) for peer in ("DBOS", "LangGraph")}
    kernel, many, several = found["kernel"], found["many"], found["writers"]
    rows = [
        ["a step ÷ a bare DuckDB commit", "≤ 1.5", digits(ours_ms / floor_ms)],
        [
            f"a step at {far:,} ÷ at {steps // 2:,} (the bare commit: {digits(floors[0] / floors[1])})",
            "flat",
            digits(late / early),
        ],
        [f"a step ÷ DBOS at {steps:,}", "≤ 0.5", digits(share["DBOS"])],
        [f"a step ÷ LangGraph at {steps:,}", "≤ 0.15", digits(share["LangGraph"])],
        [f"file ÷ payload at {steps:,}", "≤ 1.5", digits(race.bytes[name] / (steps * SIZE_BYTES))],
        [f"s from kernel ready to the first new step, {steps // 4:,} calls done", "≤ 0.3", digits(kernel["few_s"])],
        [f"the same, {found['calls']:,} calls done", "≤ 0.6", digits(kernel["many_s"])],
        [f"a script's, {steps // 4:,} steps done (after import)", "≤ 0.3", digits(found["again"][name]["resume_s"])],
        [f"the same, {far:,} steps done", "", digits(found["far"][name]["resume_s"])],
        ["s for `%load_ext` in a kernel", "≤ 0.15", digits(kernel["load_ext_s"])],
        [f"s for “when did this finding appear”, {steps // 2:,} steps", "≤ 0.05", digits(found["asked"][name][0])],
        [f"s for tokens per model and day, {found['rows']:,} rows, {many['gb']:.1f} GB", "≤ 0.5", digits(many["s"])],
        [f"ms a step, {ours.WRITERS} processes with a step a second each", "≤ 40", digits(several["ms"])],
        ["95 % of these are below", "", digits(several["ms_95"])],
        [f"steps lost there, of {several['steps']:,}", "0", several["lost"]],
        [f"MB over a bare kernel, a thread of {found['calls']:,} calls open", "≤ 80", digits(kernel["open_mb"])],
        ["the same, before the file is let go", "", digits(kernel["opening_mb"])],
    ]
    return markdown(["figure", "to reach", "measured"], rows)


def draw(race: Race, target: Path) -> None:
    """Milliseconds a step as the thread grows."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "peers", "svg.fonttype": "none"}
    from matplotlib import pyplot as plt
    from matplotlib.ticker import StrMethodFormatter

    figure, axes = plt.subplots(figsize=(8, 4.5))
    for name, took in race.took.items():
        width = max(1, min(50, len(took) // 20))
        places = range(width, len(took) + 1, width)
        ms = [statistics.median(took[place - width : place]) * 1e3 for place in places]
        is_ours, is_floor = name in OURS, name.startswith("bare")
        axes.plot(
            places, ms, label=name, lw=2.5 if is_ours else 1.2, ls=":" if is_floor else "-", zorder=3 if is_ours else 2
        )
    axes.set(xscale="log", yscale="log", xlabel="steps done", ylabel="ms a step (median)")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}"))
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, bbox_inches="tight", metadata={"Date": None})


def main(arguments: list[str]) -> None:
    """Measure everything once."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--readme", action="store_true", help="write tables and plot into README.md and docs/")
    asked = parser.parse_args(arguments)
    steps, far = asked.steps, asked.steps * FARTHER
    rounds, where = (ROUNDS if steps >= 1000 else 1), circumstances()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        root = Path(folder)
        race = run(root, steps, say)
        say("resuming, asking, kernels, many rows, several writers")
        names = [name for name in CONTESTANTS if not name.startswith("bare")]
        found: dict[str, Any] = {"rows": steps * 500, "calls": far}
        found["again"] = resumed(race.copies[steps // 4], steps // 4, names, rounds)
        found["far"] = resumed(root / "now", far, OURS[:1], rounds)
        found["asked"] = appeared(race.copies[steps // 2], steps // 2)
        few, many = root / "few.duckdb", root / "many.duckdb"
        ours.fill_calls(few, steps // 4)
        ours.fill_calls(many, far)
        found["kernel"] = ours.in_a_kernel(few, many, rounds)
        found["many"] = ours.ask_many_rows(root, found["rows"], rounds)
        found["writers"] = ours.writers(root, 30 if steps >= 1000 else 3)
    first = peers_table(race, steps, found["again"], found["asked"])
    if steps < 2000:
        where = (
            f"A short run (`--steps {steps}`): the file of an empty store still weighs in, and what grows with the "
            f"steps is not seen.\n\n{where}"
        )
    text = f"{first}\n\n{ours_table(race, steps, found)}\n\n{where}"
    print(text)
    if asked.readme:
        draw(race, ROOT / "docs" / "peers.svg")
        into_readme("peers: steps", f"![Milliseconds a step as the thread grows](docs/peers.svg)\n\n{text}")


if __name__ == "__main__":
    main(sys.argv[1:])
