"""What a durable call costs over a bare one, live and replayed, through the OpenAI client.

    python benchmarks/calls.py [CALLS]

A bare `openai.OpenAI` and a `resumable_nb.OpenAI` inside a step take turns at a server of the tests that answers at
once, so that both see the same machine; the overhead is the median of the differences. The replay answers the same
calls from the journal. `floor` is a replay's own part without the SDK: a plain durable HTTP client that answers from
the journal.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import openai

sys.path.append(str(Path(__file__).parent.parent))  # the server of the tests

import resumable_nb
from resumable_nb.terminal import table
from tests.support.model_server import ModelServer

LIVE_OVERHEAD_AT_MOST_MS, REPLAY_AT_MOST_MS = 3.0, 2.0
PROMPT = "y" * 3_000


def messages(number: int) -> Any:
    """A prompt of 3 KB that is asked once."""
    return [{"role": "user", "content": f"Q{number} {PROMPT}"}]


def timed(work: Callable[[], object]) -> float:
    """Milliseconds that it takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def measure(server: ModelServer, db: Path, calls: int) -> dict[str, list[float]]:
    """Milliseconds of each call, by how it was made."""
    options: dict[str, Any] = {"base_url": server.base_url, "api_key": "none"}
    bare, durable = openai.OpenAI(**options), resumable_nb.OpenAI(**options)
    plain = resumable_nb.http_client()
    took: dict[str, list[float]] = {"bare": [], "live": [], "replay": [], "floor": []}

    def ask(client: openai.OpenAI, number: int) -> object:
        return client.chat.completions.create(model="m", messages=messages(number))

    def post(number: int) -> object:
        body = {"messages": messages(number), "model": "m"}
        return plain.post(f"{server.base_url}/chat/completions", content=json.dumps(body)).json()

    def live() -> None:
        for number in range(calls):
            took["bare"].append(timed(partial(ask, bare, number)))
            took["live"].append(timed(partial(ask, durable, number)))

    def replay() -> None:
        took["replay"] += [timed(partial(ask, durable, number)) for number in range(calls)]

    def floor() -> None:
        took["floor"] += [timed(partial(post, number)) for number in range(calls)]

    ask(bare, 0)  # connect
    for work in (live, replay, floor):  # other code under the same name: it runs, and its calls are answered
        with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
            thread.step("calls", work)
    if server.asked() != 1 + 2 * calls:
        raise SystemExit(f"replayed calls were sent: {server.asked()} requests, expected {1 + 2 * calls}")
    return took


def main(calls: int) -> None:
    """Measure once, and print ratios."""
    with ModelServer() as server, tempfile.TemporaryDirectory() as folder:
        took = measure(server, Path(folder, "t.duckdb"), calls)
    median = {name: statistics.median(values) for name, values in took.items()}
    rows = [[name, round(ms, 2), round(ms / median["bare"], 2)] for name, ms in median.items()]
    print(table(["call", "median, ms", "over bare"], rows))
    overhead = statistics.median(live - bare for live, bare in zip(took["live"], took["bare"], strict=True))
    print(f"\nlive over bare: +{overhead:.2f} ms (at most +{LIVE_OVERHEAD_AT_MOST_MS})")
    print(f"replay: {median['replay']:.2f} ms (at most {REPLAY_AT_MOST_MS})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
