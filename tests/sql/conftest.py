"""A store made by real research: killed, approved, settled, edited and forked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest

from resumable_nb import gates, receipts
from resumable_nb.journal import Store
from tests.sql import victim
from tests.support.forked import outcome, preload
from tests.support.research_model import ResearchModel

preload("tests.sql.victim")
KILLED = -9


@dataclass
class Story:
    """The store, and what the world outside counted."""

    store: Store
    requests: int
    at_plan: int


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Four threads in one store, by a dozen processes."""
    folder = tmp_path_factory.mktemp("story")
    db = folder / "research.duckdb"
    with ResearchModel() as model:
        env = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-test-SECRET", "POST": str(folder / "post")}
        env["TQDM_DISABLE"] = "1"

        def run(name: str, what: str, failpoint: str = "", *, edited: bool = False) -> tuple[int | None, Any]:
            return outcome(victim.run, db, name, what, failpoint, edited, env)

        assert run("island", "island")[1].startswith("Paused")
        store = Store.open(db)
        gates.decide(store, "island", "approve", approve=True, comment="go on")
        assert run("island", "island", "http.receive.after:2")[0] == KILLED
        assert run("island", "island", "http.send.after:1")[0] == KILLED
        model.script({"marker": "Written", "status": 400})
        assert run("island", "island")[1].startswith("BadRequestError")
        assert run("island", "island", "effect.call.after:1")[0] == KILLED
        assert run("island", "island")[1].startswith("Paused")
        receipts.settle(store, "island", "letter-1", happened=True, receipt='{"sent": 1}')
        assert run("island", "island") == (0, "done")
        assert run("island", "island", edited=True) == (0, "done")
        at_plan = store.rows("SELECT last_checkpoint FROM steps WHERE thread_id = 'island' AND step = 'plan'")[1][0][0]
        store.fork("island", at_plan, "harbour")
        assert run("harbour", "more") == (0, "done")
        assert run("post", "post")[1].startswith("OSError")
        assert run("post", "post")[1].startswith("Paused")
        assert run("bells", "ring", "effect.call.before:1")[0] == KILLED
        assert run("bells", "ring")[1].startswith("Paused")
        requests = model.asked()
    assert os.path.getsize(db)
    return Story(store, requests, at_plan)
