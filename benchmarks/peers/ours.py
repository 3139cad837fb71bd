"""Figures that only this library has something to say to: kernels, a store of a million rows, several writers."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

from kernels import in_new_kernel

WRITERS = 4
_FILL = """
INSERT INTO journal (thread_id, seq, kind, phase, ts, session_id, step, name, key, occurrence, duration_ms,
    gen_ai_request_model, gen_ai_usage_input_tokens, gen_ai_usage_output_tokens, request, response, ref_seq, writer)
SELECT 'thread ' || (i // 20_000), 10 + i % 20_000, 'llm', CASE i % 2 WHEN 0 THEN 'started' ELSE 'done' END,
    TIMESTAMPTZ '2026-01-01 00:00:00+00' + INTERVAL (i * 13) SECOND, 'session', 'step ' || (i % 50),
    'POST /v1/chat/completions', md5(CAST(i // 2 AS VARCHAR)), 0, CASE i % 2 WHEN 1 THEN 800.0 END,
    'model ' || (i // 2 % 4), CASE i % 2 WHEN 1 THEN i % 900 END, CASE i % 2 WHEN 1 THEN i % 300 END,
    CASE i % 2 WHEN 0 THEN '{"prompt": "' || repeat(md5(CAST(i AS VARCHAR)), 8) || '"}' END,
    CASE i % 2 WHEN 1 THEN '{"answer": "' || repeat(md5(CAST(i AS VARCHAR)), 8) || '"}' END,
    CASE i % 2 WHEN 1 THEN 9 + i % 20_000 END, 'benchmark'
FROM range(?) rows(i)
"""
_PER_MODEL_AND_DAY = """
SELECT gen_ai_request_model, CAST(ts AS DATE) AS day, sum(gen_ai_usage_input_tokens) AS tokens_in,
       sum(gen_ai_usage_output_tokens) AS tokens_out
FROM llm_calls GROUP BY ALL
"""


def in_kernels(runs: list[list[str]]) -> list[dict[str, float]]:
    """Each list of cells in a new kernel: seconds that they took, and the kernel's megabytes after them."""
    memory = "print(next(l.split()[1] for l in open('/proc/self/status') if l.startswith('VmRSS')))"
    found = []
    for cells in runs:
        *took, (_, kilobytes) = in_new_kernel(*cells, memory)
        found.append({"s": sum(seconds for seconds, _ in took), "mb": int(kilobytes) / 1024})
    return found


def fill_calls(db: Path, calls: int) -> None:
    """A thread with this many finished calls, a hundred in a step, each with an answer of 1 KB."""
    import resumable_nb
    from peers.contestants import text_of

    def answer(number: int) -> str:
        return text_of(number)

    durable = resumable_nb.durable(answer)
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        for first in range(0, calls, 100):
            numbers = range(first, min(first + 100, calls))

            def work(numbers: range = numbers) -> None:
                for number in numbers:
                    durable(number)

            thread.step(f"step {first}", work)
    thread.store.close()


def in_a_kernel(few: Path, many: Path, times: int) -> dict[str, float]:
    """`%load_ext`, the way to the first new step, and the memory with a thread open, over a bare kernel.

    Args:
        few: a store with a thread of some calls.
        many: one with a thread of many.
        times: how often; medians are given.
    """
    load = "%load_ext resumable_nb"
    new = "%%resumable {}\nstate.update(findings=['new'])"
    opened = [f"{load}\n%resumable open t --db {db} --continue" for db in (few, many)]
    found = []
    for turn in range(times):  # a step of its own each time: the same one would be skipped
        runs = [
            ["pass"],
            [load],
            [opened[0], new.format(f"new{turn}")],
            [opened[1], new.format(f"new{turn}")],
            [opened[1]],
            [opened[1], "import time; time.sleep(2)"],  # by then nobody needs the file, and it is let go
        ]
        found.append(in_kernels(runs))
    bare, loaded, first_few, first_many, at_once, at_rest = (
        {part: statistics.median(one[place][part] for one in found) for part in ("s", "mb")} for place in range(6)
    )
    return {
        "load_ext_s": loaded["s"] - bare["s"],
        "few_s": first_few["s"] - bare["s"],
        "many_s": first_many["s"] - bare["s"],
        "open_mb": at_rest["mb"] - bare["mb"],
        "opening_mb": at_once["mb"] - bare["mb"],
    }


def ask_many_rows(folder: Path, rows: int, times: int) -> dict[str, float]:
    """One question over a store of this many rows: seconds, through `thread.sql`, and how large the store is."""
    import duckdb
    import pandas  # noqa: F401, ICN001 - a first answer is a frame: its import is not the question's

    import resumable_nb

    db = folder / "rows.duckdb"
    resumable_nb.open("other", db=db, say=lambda _: None).close()
    from resumable_nb.journal import Store

    Store.open(db).close()
    with duckdb.connect(str(db)) as connection:
        connection.execute(_FILL, [rows])
    with resumable_nb.open("other", db=db, say=lambda _: None) as thread:
        took, answer = [], None
        for _ in range(times):
            began = time.perf_counter()
            answer = thread.sql(_PER_MODEL_AND_DAY)
            took.append(time.perf_counter() - began)
    assert answer is not None
    if int(answer.tokens_in.sum()) != sum(i % 900 for i in range(1, rows, 2)):
        raise SystemExit("the answer over many rows is wrong")
    return {"s": statistics.median(took), "gb": db.stat().st_size / 1e9}


def writers(folder: Path, steps: int) -> dict[str, float]:
    """Several processes write to one store, a second between steps: milliseconds of a step, and steps lost."""
    db = folder / "shared.duckdb"
    command = [sys.executable, __file__, str(db), str(steps)]
    running = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(WRITERS)]
    took: list[float] = []
    for process in running:
        said, _ = process.communicate(timeout=steps * 10 + 120)
        if process.returncode:
            raise SystemExit(f"a writer ended with {process.returncode}")
        took += json.loads(said)
    from resumable_nb.journal import Store

    store = Store.open(db)
    (kept,) = store.rows("SELECT count(*) FROM findings WHERE is_current")[1][0]
    store.close()
    ms, ms_95 = statistics.median(took) * 1e3, statistics.quantiles(took, n=20)[-1] * 1e3
    return {"ms": ms, "ms_95": ms_95, "lost": len(took) - int(str(kept)), "steps": len(took)}


def write(db: Path, steps: int, number: int) -> None:
    """One of the writers: a thread of its own in the shared store."""
    import resumable_nb
    from peers.contestants import text_of

    took = []
    with resumable_nb.open(f"t{number}", db=db, say=lambda _: None) as thread:
        time.sleep(number / WRITERS)
        for place in range(steps):
            time.sleep(1)  # after the last one: who is late does not catch up with cheap steps in a burst
            value = text_of(place)

            def work(state: Any, value: str = value) -> None:
                state.update(findings=[value])

            began = time.perf_counter()
            thread.step(f"step {place}", work)
            took.append(time.perf_counter() - began)
    sys.stdout.write(json.dumps(took))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
