"""Reports on the graded questions of `data/`: what they cite and cost, uninterrupted and killed five times.

    python benchmarks/research.py [QUESTIONS] [SEED]

The model is that of the environment, else the embedded one. Each question is a thread of one store, researched in a
process of its own; the second time that process is killed five times at random points and started again. `recall` is
the share of required sources that the reports cite, `verbatim` that of quotations which stand in their source word for
word (checked here, by other code than the library's). Exits with 1 if not all do, or if the two runs differ.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
KILLS = 5
POINTS = ("http.receive.after", "http.receive.before", "http.send.before", "journal.append.after")


def questions(count: int | None) -> list[dict[str, Any]]:
    """The first of them, and always the last one, which has no answer."""
    graded: list[dict[str, Any]] = json.loads((ROOT / "data" / "island-questions.json").read_text())
    return graded if count is None or count >= len(graded) else [*graded[: count - 1], graded[-1]]


def research_all(folder: Path, count: int | None) -> None:
    """In a process of its own: a report on each question, into `reports.json`."""
    import resumable_nb
    from resumable_nb.research import Folder, Report, research

    source, reports = Folder(str(ROOT / "data" / "island")), {}
    for number, graded in enumerate(questions(count)):
        question = graded["question"]

        def report(question: str = question) -> Report:
            return research(question, sources=source, approve=False)

        with resumable_nb.open(f"question {number}", db=folder / "research.duckdb", say=lambda _: None) as thread:
            reports[question] = thread.step("report", report).model_dump()
    (folder / "reports.json").write_text(json.dumps(reports))


def run(folder: Path, count: int | None, kills: list[str]) -> int:
    """Do the research; for each kill, a process that dies there goes before. How many did."""
    command = [sys.executable, __file__, "--in", str(folder), *([str(count)] if count else [])]
    env, died = {**os.environ, "TQDM_DISABLE": "1"}, 0
    for point in [*kills, None]:
        armed = {**env, "RESUMABLE_NB_FAILPOINT": point} if point else env
        ended = subprocess.run(command, env=armed, capture_output=True, text=True)
        if ended.returncode not in (0, -signal.SIGKILL):
            sys.exit(ended.stderr)
        died += ended.returncode == -signal.SIGKILL
    return died


def graded(folder: Path, count: int | None) -> dict[str, Any]:
    """The figures of one run."""
    from resumable_nb.journal import Store
    from resumable_nb.research import Folder

    source, reports = Folder(str(ROOT / "data" / "island")), json.loads((folder / "reports.json").read_text())
    required = hit = quoted = verbatim = unanswered = 0
    for one in questions(count):
        findings = reports[one["question"]]["findings"]
        required += len(one["must_cite"])
        hit += len(set(one["must_cite"]) & {finding["source"] for finding in findings})
        unanswered += not one["must_cite"] and not findings
        quoted += len(findings)
        verbatim += sum(
            " ".join(f["quote"].split()) in " ".join(source.fetch(f["source"]).text.split()) for f in findings
        )
    tokens_of = "sum(gen_ai_usage_input_tokens + gen_ai_usage_output_tokens)"
    sums = f"SELECT count(*), {tokens_of} FROM llm_calls WHERE phase = 'done'"
    calls, tokens = Store.open(folder / "research.duckdb").rows(sums)[1][0]
    return {
        "recall": f"{hit} of {required}",
        "verbatim": f"{verbatim} of {quoted}",
        "is_verbatim": verbatim == quoted,
        "calls": calls,
        "tokens": int(tokens or 0),
        "reports": reports,
    }


def main(count: int | None, seed: int) -> int:
    """Print the table; the exit code."""
    from resumable_nb.terminal import table

    chance = random.Random(seed)
    kills = [f"{chance.choice(POINTS)}:{chance.randint(2, 9)}" for _ in range(KILLS)]
    found, rows = [], []
    with tempfile.TemporaryDirectory() as made:
        for name, points in (("uninterrupted", []), ("killed", kills)):
            folder = Path(made) / name
            folder.mkdir()
            began = time.monotonic()
            died = run(folder, count, points)
            figures = graded(folder, count)
            found.append(figures)
            took_s = round(time.monotonic() - began)
            columns = [figures[column] for column in ("recall", "verbatim", "calls", "tokens")]
            rows.append([name, died, *columns, took_s])
    print(f"{len(questions(count))} questions; killed at {', '.join(kills)}\n")
    print(table(["run", "kills", "recall", "verbatim", "calls", "tokens", "seconds"], rows))
    equal = found[0]["reports"] == found[1]["reports"]
    print(f"\nreports and findings: {'equal' if equal else 'DIFFERENT'}")
    return 0 if equal and all(figures["is_verbatim"] for figures in found) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in"]:
        research_all(Path(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else None)
    else:
        numbers = [int(argument) for argument in sys.argv[1:]]
        sys.exit(main(numbers[0] if numbers else None, numbers[1] if numbers[1:] else 0))
