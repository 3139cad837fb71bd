"""What a durable step costs: against a bare commit of DuckDB, as the thread grows, and in bytes.

    python benchmarks/steps.py [STEPS]

Each step appends one finding of 1 KB. The bare commit is one INSERT of one row of the same size into a table of the
same columns, in a file of the same format, on a connection that stays open; the two take turns, so that both see the
same disk.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from bare import SIZE_BYTES, bare_table, commit, finding

import resumable_nb
from resumable_nb.terminal import table

RATIO_AT_MOST, GROWTH_AT_MOST, SIZE_AT_MOST = 1.5, 1.2, 2.0


def measured(folder: Path, count: int) -> tuple[list[float], list[float], dict[int, int]]:
    """Seconds of each step, seconds of each bare commit, bytes of the closed store after some of the steps."""
    random, bare = Random(0), bare_table(folder)
    steps_s, bare_s, sizes = [], [], {}
    store = folder / "store.duckdb"
    thread = resumable_nb.open("t", db=store, say=lambda _: None)
    for number in range(1, count + 1):
        value = finding(random)

        def work(state: Any, value: dict[str, str] = value) -> None:
            state.update(findings=[value])

        began = time.perf_counter()
        thread.step(f"step {number}", work)
        between = time.perf_counter()
        commit(bare, number, json.dumps({"append": {"findings": [value]}}), "{}")
        bare_s.append(time.perf_counter() - between)
        steps_s.append(between - began)
        if number in (2_000, count):
            thread.store.close()
            sizes[number] = sum(path.stat().st_size for path in folder.glob("store.duckdb*"))
    thread.close()
    bare.close()
    return steps_s, bare_s, sizes


def main(count: int) -> None:
    """Measure once, and print ratios."""
    with tempfile.TemporaryDirectory() as folder:
        steps_s, bare_s, sizes = measured(Path(folder), count)
    rows = []
    marks = [mark for mark in (100, 300, 1_000, 3_000, 10_000) if mark <= count]
    for mark in marks:
        window = slice(max(0, mark - 100), mark)
        step_ms, bare_ms = (statistics.median(times[window]) * 1e3 for times in (steps_s, bare_s))
        rows.append([mark, round(step_ms, 2), round(bare_ms, 2), round(step_ms / bare_ms, 2)])
    print(table(["around step", "step, ms", "bare commit, ms", "ratio"], rows))
    tenth = max(1, (count - 100) // 10)
    growth = statistics.median(steps_s[-tenth:]) / statistics.median(steps_s[100 : 100 + tenth])
    ratio = statistics.median(steps_s) / statistics.median(bare_s)
    print(f"\nmedian step / median bare commit: {ratio:.2f} (at most {RATIO_AT_MOST})")
    print(f"last tenth / first tenth of the steps: {growth:.2f} (at most {GROWTH_AT_MOST})")
    for number, size in sizes.items():
        print(f"store after {number:,} steps / payload: {size / (number * SIZE_BYTES):.2f} (at most {SIZE_AT_MOST})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
