"""Research that is killed and goes on ends as if nothing had happened, and asks at most what was in flight again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from resumable_nb import gates
from resumable_nb.journal import Store
from tests.research import victim
from tests.support.forked import outcome, preload
from tests.support.research_model import ResearchModel

preload("tests.research.victim")
ONE = [
    "http.send.before:1",
    "http.receive.after:3",
    "http.stream.after:60",
    "journal.append.after:8",
    "journal.append.before:12",
]
STAGES = [
    "step.commit.before:1",
    "http.receive.after:4",
    "journal.append.after:15",
    "step.commit.before:4",
]
ROOT = Path(__file__).parents[2]
IN_FLIGHT = 3  # sub-questions that are looked into at once


def run(db: Path, model: ResearchModel, how: str, failpoint: str = "", **limits: Any) -> tuple[int | None, Any]:
    """The exit code of one process, and what it sent."""
    env = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-test-SECRET", "TQDM_DISABLE": "1"}
    return outcome(victim.run, db, failpoint, how, limits, env)


@pytest.mark.parametrize(("how", "points"), [("one", ONE), ("stages", STAGES)], ids=["one step", "four steps"])
def test_the_result_is_the_same_wherever_it_was_killed(
    how: str, points: list[str], model: ResearchModel, tmp_path: Path
):
    """Report, findings and state are equal to those of a run that nobody killed."""
    _, expected = run(tmp_path / "whole.duckdb", model, how)
    asked = model.asked()
    assert "lamp-history.md" in expected[0] and len(expected[1]) >= 4

    for place, point in enumerate(points):
        model.reset()
        db = tmp_path / f"{place}.duckdb"
        killed, _ = run(db, model, how, point)
        ended, result = run(db, model, how)

        assert (killed, ended) == (-signal.SIGKILL, 0), point
        assert result == expected, point
        assert asked <= model.asked() <= asked + IN_FLIGHT, point


def test_over_budget_is_a_gate_that_survives_a_kill(model: ResearchModel, tmp_path: Path):
    """The same question after a kill as before; after a yes it goes on where it stopped, and nothing is asked twice."""
    limits = {"calls": 3}
    _, expected = run(tmp_path / "whole.duckdb", model, "one")
    asked = model.asked()
    model.reset()
    db = tmp_path / "t.duckdb"

    run(db, model, "one", "http.receive.after:3", **limits)
    _, paused = run(db, model, "one", **limits)
    assert "The budget is used up" in paused and model.asked() == 3

    gates.decide(Store.open(db), "t", "all", approve=True)
    killed, _ = run(db, model, "one", "http.receive.before:1", **limits)
    _, result = run(db, model, "one", **limits)

    assert killed == -signal.SIGKILL
    assert result[1:2] == expected[1:2]
    assert model.asked() <= asked + IN_FLIGHT


def test_ctrl_c_in_the_middle_loses_nothing(model: ResearchModel, tmp_path: Path):
    """Answers that are on their way are kept, and no branch asks on; the next run ends as one that nobody stopped."""
    _, expected = run(tmp_path / "whole.duckdb", model, "one")
    asked = model.asked()
    model.reset()
    model.script({"marker": "Extracted", "delay_s": 4, "times": 3})
    code = "from pathlib import Path; from tests.research.victim import run; run(Path('t.duckdb'), '', 'one', {}, {}, None)"
    env = {**os.environ, "OPENAI_BASE_URL": model.base_url, "TQDM_DISABLE": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while model.asked("Extracted") == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=200)
    in_flight = model.asked("Extracted")
    _, result = run(tmp_path / "t.duckdb", model, "one")

    assert "KeyboardInterrupt" in told
    assert in_flight <= IN_FLIGHT
    assert result == expected
    assert model.asked() == asked
