"""What `%load_ext resumable_nb` and opening a thread of 500 finished calls cost a kernel, over a bare one.

    python benchmarks/start.py [TIMES]

Each figure is from a new kernel: from the first cell's request to its end, for an empty cell and for one that loads the
extension and opens the thread, in turns.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernels import in_new_kernel

sys.path.append(str(Path(__file__).parent.parent))  # the server of the tests

import resumable_nb
from resumable_nb.terminal import table
from tests.support.model_server import ModelServer

CALLS, OVER_BARE_AT_MOST_S = 500, 0.35
HEAVY = ("openai", "pandas", "numpy", "nbclient", "ipywidgets", "httpx2")

CELL = "%load_ext resumable_nb\n%resumable open t --db {db}"
LOADED = f"import sys; print(*[m for m in {HEAVY} if m in sys.modules])"


def fill(db: Path) -> None:
    """A thread of ten steps with fifty answered calls each, made by the library itself."""
    with ModelServer() as server, resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        client = resumable_nb.OpenAI(base_url=server.base_url, api_key="none")

        def ask_all(state: Any) -> None:
            for number in range(CALLS // 10):
                messages: Any = [{"role": "user", "content": f"Q{number} " + "y" * 3_000}]
                answer = client.chat.completions.create(model="m", messages=messages)
                state.update(findings=[answer.choices[0].message.content])

        for number in range(10):
            thread.step(f"step {number}", ask_all)


def measured(cell: str) -> tuple[float, set[str]]:
    """Seconds that a cell takes in a new kernel, and which heavy packages are loaded then."""
    (took, _), (_, loaded) = in_new_kernel(cell, LOADED)
    return took, set(loaded.split())


def main(times: int) -> None:
    """Measure in turns, and print the difference of the medians."""
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder, "store.duckdb")
        fill(db)
        pairs = [(measured("pass"), measured(CELL.format(db=db))) for _ in range(times)]
    bare_s, ours_s = (statistics.median(pair[side][0] for pair in pairs) for side in (0, 1))
    loaded = sorted(pairs[0][1][1] - pairs[0][0][1])
    print(table(["", "median, s"], [["an empty cell", round(bare_s, 3)], ["load and open", round(ours_s, 3)]]))
    print(f"\nover bare: {ours_s - bare_s:.3f} s (at most {OVER_BARE_AT_MOST_S})")
    print(f"heavy packages loaded by us: {', '.join(loaded) or 'none'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
