"""Gates and decisions over processes that race and are killed."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resumable_nb.journal import Store
from tests.approvals import victim

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.approvals.victim"])


class Process:
    """One process with a pipe to it."""

    def __init__(self, target: Callable[..., None], *args: Any) -> None:
        self.pipe, other = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=target, args=(*args, other))
        self.process.start()
        other.close()

    def hear(self) -> Any:
        assert self.pipe.poll(200)
        return self.pipe.recv()

    def end(self) -> int | None:
        self.process.join(200)
        self.process.kill()
        return self.process.exitcode


def run(folder: Path) -> Any:
    process = Process(victim.run, folder, False)
    heard = process.hear()
    assert process.end() == 0
    return heard


def sent(folder: Path) -> int:
    path = folder / "sent"
    return len(path.read_text()) if path.exists() else 0


def approvals(folder: Path) -> list[dict[str, Any]]:
    store = Store.open(folder / "t.duckdb", create=False)
    names, rows = store.rows("SELECT * FROM approvals ORDER BY seq")
    store.close()
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_a_gate_still_waits_after_a_kill(tmp_path: Path) -> None:
    """A process killed while its step waits leaves the gate waiting; nothing was done, and one question was asked."""
    first = Process(victim.run, tmp_path, True)
    assert first.hear() == "paused"
    first.process.kill()
    assert first.end() == -signal.SIGKILL

    assert run(tmp_path) == "paused"
    assert [row["phase"] for row in approvals(tmp_path)] == ["waiting"]
    assert sent(tmp_path) == 0


@pytest.mark.parametrize(("side", "decided"), [("before", False), ("after", True)])
def test_a_kill_at_a_decision_leaves_it_whole_or_not_there(tmp_path: Path, side: str, decided: bool) -> None:
    """Killed before the decision is stored, the gate waits and can be decided; killed after, the decision holds."""
    assert run(tmp_path) == "paused"
    killed = Process(victim.decide_once, tmp_path, True, "ada", f"approval.decide.{side}")
    killed.hear()
    killed.pipe.send("go")
    assert killed.end() == -signal.SIGKILL

    assert (run(tmp_path), sent(tmp_path)) == ((100, 1) if decided else ("paused", 0))
    again = Process(victim.decide_once, tmp_path, True, "bob", "")
    again.hear()
    again.pipe.send("go")
    heard = again.hear()
    again.end()
    assert ("approved by ada" in heard) if decided else heard == "first"
    assert run(tmp_path) == 100
    assert sent(tmp_path) == 1


@pytest.mark.parametrize("round_number", range(3))
def test_of_two_who_decide_at_once_one_is_first(tmp_path: Path, round_number: int) -> None:
    """However two processes race with a yes and a no, exactly one decides, and the other is told who that was."""
    assert run(tmp_path) == "paused"
    racers = [Process(victim.decide_once, tmp_path, yes, who, "") for yes, who in ((True, "ada"), (False, "bob"))]
    for racer in racers:
        racer.hear()
    for racer in racers:
        racer.pipe.send("go")
    heard = [racer.hear() for racer in racers]
    for racer in racers:
        racer.end()

    (row,) = approvals(tmp_path)
    won = heard.index("first")
    assert heard.count("first") == 1
    assert row["who"] == ["ada", "bob"][won]
    assert row["phase"] == ["approved", "rejected"][won]
    assert f"by {row['who']} at" in heard[1 - won]
