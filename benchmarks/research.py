"""Reports on the graded questions of `data/`: what they cite and cost, uninterrupted and killed five times.

    python benchmarks/research.py [QUESTIONS] [SEED] [--embed MODEL]

With `--embed` sentences are ranked by the vectors of that model as well (`smollm2-135m-instruct`: the embedded one).
The model is that of the environment, else the embedded one. Each question is a thread of one store, researched in a
process of its own; the second time that process is killed five times at random points and started again. `recall` is
the share of required sources that the reports cite, `verbatim` that of quotations which stand in their source word for
word (checked here, by other code than the library's). Exits with 1 if not all do, or if the two runs differ.
"""

from __future__ import annotations

import argparse
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


def research_all(folder: Path, count: int | None, embed: str | None) -> None:
    """In a process of its own: a report on each question, into `reports.json`."""
    import resumable_nb
    from resumable_nb.research import Folder, Report, research

    source, reports = Folder(str(ROOT / "data" / "island"), embed=embed), {}
    for number, graded in enumerate(questions(count)):
        question = graded["question"]

        def report(question: str = question) -> Report:
            return research(question, sources=source, approve=False)

        with resumable_nb.open(f"question {number}", db=folder / "research.duckdb", say=lambda _: None) as thread:
            reports[question] = thread.step("report", report).model_dump()
    (folder / "reports.json").write_text(json.dumps(reports))


def run(folder: Path, count: int | None, kills: list[str], embed: str | None) -> int:
    """Do the research; for each kill, a process that dies there goes before. How many did."""
    command = [sys.executable, __file__, "--in", str(folder), *([str(count)] if count else [])]
    command += ["--embed", embed] if embed else []
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
    is_vector = "gen_ai_operation_name = 'embeddings'"
    tokens_of = "sum(gen_ai_usage_input_tokens + coalesce(gen_ai_usage_output_tokens, 0))"
    sums = f"""SELECT count(*) FILTER (NOT {is_vector}), count(*) FILTER ({is_vector}), {tokens_of}
        FROM llm_calls WHERE phase = 'done'"""
    calls, vectors, tokens = Store.open(folder / "research.duckdb").rows(sums)[1][0]
    return {
        "recall": f"{hit} of {required}",
        "verbatim": f"{verbatim} of {quoted}",
        "is_verbatim": verbatim == quoted,
        "calls": calls,
        "embeddings": vectors,
        "tokens": int(tokens or 0),
        "reports": reports,
    }


def main(count: int | None, seed: int, embed: str | None) -> int:
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
            died = run(folder, count, points, embed)
            figures = graded(folder, count)
            found.append(figures)
            took_s = round(time.monotonic() - began)
            columns = [figures[column] for column in ("recall", "verbatim", "calls", "embeddings", "tokens")]
            rows.append([name, died, *columns, took_s])
    print(f"{len(questions(count))} questions; killed at {', '.join(kills)}\n")
    print(table(["run", "kills", "recall", "verbatim", "calls", "embeddings", "tokens", "seconds"], rows))
    equal = found[0]["reports"] == found[1]["reports"]
    print(f"\nreports and findings: {'equal' if equal else 'DIFFERENT'}")
    return 0 if equal and all(figures["is_verbatim"] for figures in found) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("questions", type=int, nargs="?")
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--embed")
    parser.add_argument("--in", type=Path, dest="folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder:
        research_all(given.folder, given.questions, given.embed)
    else:
        sys.exit(main(given.questions, given.seed, given.embed))
