"""What the journal costs, beside what DuckDB costs on the same disk: ratios, which mean something on any machine.

    python benchmarks/journal_append.py [ROWS]

Targets: an append on a warm lease takes at most 1.25 times a bare one-row INSERT of the same payload, also with 10,000
rows in the thread; 10,000 rows are read without bodies in 0.1 s; one row by its number in 1 ms.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import duckdb

from resumable_nb.journal import Row, Store, schema
from resumable_nb.journal.rows import COLUMNS

BLOCK = 500  # appends and INSERTs take turns, so that both meet the same moods of the machine; a median of each block
ANSWER = json.dumps({"choices": [{"message": {"content": "x" * 1200}}]})
START = """
import time; began = time.perf_counter()
from resumable_nb.journal import Store
imported = time.perf_counter()
session = Store.open({path!r}).open_session("t", about={{}})
opened = time.perf_counter()
rows = session.read(bodies=False)
print(imported - began, opened - imported, time.perf_counter() - opened)
"""


def answer(i: int) -> Row:
    """A row like that of an LLM's answer."""
    return Row(
        kind="llm",
        phase="done",
        ref_seq=-1,
        step="research",
        name="POST /v1/chat/completions",
        key=f"{i:064}",
        occurrence=0,
        duration_ms=812.5,
        gen_ai_request_model="m",
        gen_ai_usage_input_tokens=100,
        gen_ai_usage_output_tokens=10,
        response=ANSWER,
        data='{"status": 200}',
    )


def times(work: Callable[[int], object], numbers: range) -> list[float]:
    """Seconds that each call took."""
    taken = []
    for i in numbers:
        began = time.perf_counter()
        work(i)
        taken.append(time.perf_counter() - began)
    return taken


def measure_appends(folder: Path, count: int) -> None:
    """Appends beside bare INSERTs, one of each in turn, with the same number of rows in both tables."""
    store = Store.open(folder / "ours.duckdb", idle_s=10)
    session = store.open_session("t", about={})
    bare_path = folder / "bare.duckdb"
    schema.create(bare_path, None)
    bare = duckdb.connect(str(bare_path))
    insert = f"INSERT INTO journal ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
    template = answer(0)

    def append(i: int) -> None:
        session.append(answer(i))

    def insert_bare(i: int) -> None:
        template.thread_id, template.seq, template.session_id = "t", i + 1, session.session_id
        bare.execute(insert, [getattr(template, column) for column in COLUMNS])

    print(f"{'rows':>7}  {'append':>9}  {'INSERT':>9}  ratio (medians of {BLOCK})")
    ratios = []
    for first in range(0, count, BLOCK):
        pairs = [
            (*times(append, range(i, i + 1)), *times(insert_bare, range(i, i + 1))) for i in range(first, first + BLOCK)
        ]
        ours, theirs = map(median, zip(*pairs, strict=True))
        ratios.append(ours / theirs)
        print(f"{first + BLOCK:>7}  {ours * 1e3:6.3f} ms  {theirs * 1e3:6.3f} ms  {ratios[-1]:5.2f}")
    print(f"append / INSERT: median {median(ratios):.2f}, highest {max(ratios):.2f} (target 1.25)")
    print(f"last block / first block: {ratios[-1] / ratios[0]:.2f} times that of bare INSERTs")
    bare.close()
    measure_reads(store, count)


def measure_reads(store: Store, count: int) -> None:
    """Reading the thread that was just written."""
    session = store.visitor("t")
    light = median(times(lambda _: session.read(bodies=False), range(5)))
    one = median(times(lambda i: session.read(seqs=[i + 3]), range(100)))
    sql = median(times(lambda _: store.rows("SELECT count(*) FROM llm_calls"), range(5)))
    print(f"read {count} rows without bodies: {light * 1e3:.0f} ms (target 100)")
    print(f"read one row by its number: {one * 1e3:.2f} ms (target 1)")
    print(f"one question by SQL, file closed and opened: {sql * 1e3:.0f} ms")
    store.close()


def measure_start(folder: Path) -> None:
    """A new process opens a thread with 500 calls."""
    path = str(folder / "start.duckdb")
    session = Store.open(path).open_session("t", about={})
    for i in range(500):
        session.append(Row(kind="llm", phase="started", request=ANSWER), answer(i))
    session.close()
    Store.open(path).close()
    runs = [
        subprocess.run([sys.executable, "-c", START.format(path=path)], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    imported, opened, read = (
        median(x) for x in zip(*([float(s) for s in r.stdout.split()] for r in runs), strict=True)
    )
    print("a new process, a thread with 500 calls:")
    print(f"  import {imported * 1e3:.0f} ms, open {opened * 1e3:.0f} ms, read 1000 rows {read * 1e3:.0f} ms")


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        measure_appends(Path(folder), count)
        measure_start(Path(folder))


if __name__ == "__main__":
    main()
