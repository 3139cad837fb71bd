"""The quickstart on real texts, with a scripted model in another process, killed at every durable boundary."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from resumable_nb import demo
from resumable_nb.journal import Store
from resumable_nb.runner import run_notebook
from tests.support.model_server import ModelServer

CALLS, STEPS = 7, 3


@dataclass
class Ended:
    """What one thread came to, and what the server was asked for it."""

    state: dict[str, Any]
    report: str
    findings: list[Any]
    asked: int
    started_twice: int


@pytest.fixture(scope="module")
def server():
    with ModelServer() as server:
        yield server


def run(server: ModelServer, folder: Path, *failpoints: str) -> Ended:
    """The quickstart from its beginning to its end; for each failpoint, a kernel that is killed there goes before."""
    server.reset()
    shutil.copy(demo._notebook(), folder / demo.NOTEBOOK)
    env = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-test-SECRET"}
    book = {"db": folder / demo.STORE, "say": lambda _: None}
    for failpoint in failpoints:
        env["RESUMABLE_NB_FAILPOINT"] = failpoint
        killed = run_notebook(folder / demo.NOTEBOOK, env=env, max_restarts=0, **book)
        assert len(killed.deaths) == 1, f"{failpoint}: {killed.message}"
    env.pop("RESUMABLE_NB_FAILPOINT", None)
    ran = run_notebook(folder / demo.NOTEBOOK, env=env, max_restarts=0, **book)
    assert ran.outcome == "done", ran.message
    return ended(server, folder)


def ended(server: ModelServer, folder: Path) -> Ended:
    store = Store.open(folder / demo.STORE, create=False)
    state = store.rows("SELECT field, value FROM state_at('quickstart', (SELECT max(seq) FROM checkpoints))")[1]
    findings = store.rows("SELECT finding FROM findings WHERE is_current")[1]
    started_twice = store.rows(demo._SENT_TWICE, {"thread": "quickstart"})[1][0][0]
    store.close()
    return Ended(dict(state), (folder / demo.REPORT).read_text(), findings, server.asked(), started_twice)


@pytest.fixture(scope="module")
def uninterrupted(server, tmp_path_factory):
    return run(server, tmp_path_factory.mktemp("uninterrupted"))


def test_the_quickstart_asks_and_finds(uninterrupted):
    """One question for the plan and one for each of its six; at least one finding each, all of them in the report."""
    assert (uninterrupted.asked, uninterrupted.started_twice) == (CALLS, 0)
    assert len(uninterrupted.findings) >= 6
    assert all(json.loads(finding)["quote"] in uninterrupted.report for (finding,) in uninterrupted.findings)


# Before each point at its first and its last passage, after it at a middle one and the last. A kernel passes the points
# only of calls that are not yet answered: the passages count from the last death.
KILLS = {
    "http.send.before": (1, 7),
    "http.send.after": (4, 4),
    "http.receive.before": (1, 7),
    "http.receive.after": (4, 3),
    "step.commit.before": (1, 3),
    "step.commit.after": (2, 1),
    "open.before": (1,),
    "open.after": (1, 1),
    "journal.append.before": (1, 8),
    "journal.append.after": (8, 12),
}
IN_FLIGHT = {"http.send.after": 2, "http.receive.before": 2, "journal.append.before": 1}


@pytest.mark.parametrize("point", KILLS)
def test_killed_again_and_again_it_comes_to_the_same(server, uninterrupted, tmp_path, point):
    """State, findings and report equal those of an uninterrupted run; no answered question is asked again.

    At most the one call that was in flight at each death is sent once more.
    """
    killed = run(server, tmp_path, *[f"{point}:{passage}" for passage in KILLS[point]])

    assert killed.asked - CALLS <= min(IN_FLIGHT.get(point, 0), killed.started_twice)
    assert killed.started_twice <= len(KILLS[point])
    assert (killed.state, killed.findings, killed.report) == (
        uninterrupted.state,
        uninterrupted.findings,
        uninterrupted.report,
    )
