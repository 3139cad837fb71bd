"""Loops of durable calls, in a process that can be killed. A fork server imports this once."""

from __future__ import annotations

import io
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import tqdm.auto

import resumable_nb
from resumable_nb import durable, failpoints, track
from tests.effects import worker

ITEMS = [3, 1, 4, 2]
BARS: list[Any] = []


class Bar(tqdm.std.tqdm):  # type: ignore[type-arg]  # the real one, to look at afterwards
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, file=io.StringIO(), **options)
        BARS.append(self)


def work(n: int) -> int:
    """Writes down that it ran, and puts something into the state."""
    with Path("ran").open("a") as ran:
        ran.write(f"{n}\n")
    worker.STATE.update(findings=[n])
    return 10 * n


def look(n: int) -> int:
    """Writes down that it ran."""
    with Path("ran").open("a") as ran:
        ran.write(f"{n}\n")
    return 10 * n


def body(kind: str, state: Any) -> list[int]:
    if kind == "map":
        return worker.with_state(state, lambda _: resumable_nb.map(durable(work), ITEMS))
    found = []
    for n in track(ITEMS):
        found.append(durable(look)(n))
        state.update(findings=[n])
    return found


def run(folder: Path, kind: str, failpoint: str, connection: Connection) -> None:
    """Run the step: its result, the findings, and the bar; or die at the failpoint."""
    os.chdir(folder)
    tqdm.auto.tqdm = Bar
    if failpoint:
        os.environ["RESUMABLE_NB_FAILPOINT"] = failpoint
        failpoints._ARMED = failpoints._armed()  # read at import, which is over
    with resumable_nb.open("t", db=folder / "t.duckdb", say=lambda _: None) as thread:
        result = thread.step("s", lambda: body(kind, thread.live.state))
        connection.send((result, thread.state.findings, [(bar.initial, bar.n, bar.total) for bar in BARS]))
