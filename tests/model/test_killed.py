"""Real processes, killed by SIGKILL at every durable boundary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.model.checks import check_opening, check_stored
from tests.model.notebook import Process, in_words
from tests.model.oracle import digest, linear, visible
from tests.model.outside import World
from tests.model.victim import NOTEBOOK, run_all

ROOT = Path(__file__).parent.parent.parent
POINTS = ["open.after", *(f"step.commit.{side}:2" for side in ("before", "after"))]
POINTS += [f"journal.append.{side}:{n}" for side in ("before", "after") for n in (1, 3, 6, 10)]


def kill_at(point: str, store: Path, log: Path) -> None:
    """Run the notebook in a process of its own until it passes the point."""
    command = [sys.executable, "-m", "tests.model.victim", str(store), str(log)]
    environment = os.environ | {"RESUMABLE_NB_FAILPOINT": point}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, (point, ended.stderr)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_is_resumed_where_it_was(point: str, tmp_path: Path) -> None:
    """After SIGKILL the next kernel sees the newest checkpoint, ends as a clean run does, and asks only what was in flight."""
    store, log = tmp_path / "research.duckdb", tmp_path / "log"
    kill_at(point, store, log)
    opened = Process(World(), store, "thread")
    check_opening(opened)
    check_stored(opened, for_people=True)
    opened.close()

    process = run_all(store, log)

    names, raised = linear(NOTEBOOK, lambda cell, prompt, nth: digest(prompt, nth, 0))
    assert raised is None
    assert process.visible() == in_words(visible(names))
    sent = Counter(line for line in log.read_text().splitlines() if line.startswith("sent"))
    assert sent.total() <= len(sent) + 1, sent
    assert max(sent.values()) <= 2
    process.close()
