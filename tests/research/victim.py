"""Research in a process that can be killed. A fork server imports this once."""

from __future__ import annotations

import json
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import bm25s  # noqa: F401 - here, and for the next four, so that no child imports it again
import openai  # noqa: F401
import pandas as pd  # noqa: F401
import pypdf  # noqa: F401
import trafilatura  # noqa: F401

import resumable_nb
from resumable_nb import effect, failpoints
from resumable_nb.errors import Paused
from resumable_nb.llm import clients  # noqa: F401
from resumable_nb.research import (
    Budget,
    Folder,
    SearchAPI,
    coordinator,
    planner,
    reporter,
    research,
    researcher,
)
from tests.research.conftest import ISLAND

QUESTION = "When was the lamp electrified, and when did the tide mill close, and where was the bell of the chapel cast?"


def _in_one(thread: Any, budget: Budget | None, embed: str | None = None) -> Any:
    source = Folder(str(ISLAND), embed=embed)
    return thread.step("all", lambda: research(QUESTION, sources=source, approve=False, budget=budget))


def _embedded(thread: Any, budget: Budget | None) -> Any:
    return _in_one(thread, budget, embed="embedder")


def _lamp(thread: Any, budget: Budget | None) -> Any:
    """One sub-question, so that the order of its answers is known."""
    question = "When was the lamp electrified?"
    return thread.step("all", lambda: research(question, sources=Folder(str(ISLAND)), approve=False, budget=budget))


def _in_stages(thread: Any, budget: Budget | None) -> Any:
    source = Folder(str(ISLAND))
    thread.step("brief", lambda state: coordinator(state, source, question=QUESTION, budget=budget))
    thread.step("plan", lambda state: planner(state, source, budget=budget))
    thread.step("find", lambda state: researcher(state, source, budget=budget))
    return thread.step("report", lambda state: reporter(state, source, budget=budget))


def _case(thread: Any, budget: Budget | None) -> Any:
    """A case of bad input: its folder, question and service are told in the environment."""
    case = json.loads(os.environ["CASE"])
    slow = [SearchAPI(url=case["search"], timeout_s=0.3)] if "search" in case else []

    @effect(key="close-{number}")
    def close_ticket(number: int, *, idempotency_key: str) -> None:
        raise AssertionError("no text of a model calls an effect")

    sources = [*slow, Folder(case["folder"])]
    return thread.step("all", lambda: research(case["question"], sources=sources, approve=False, budget=budget))


WAYS = {"one": _in_one, "lamp": _lamp, "stages": _in_stages, "embedded": _embedded, "case": _case}


def run(db: Path, failpoint: str, how: str, limits: dict, env: dict, connection: Connection) -> None:
    """Do the research and send what came of it; or die at the failpoint."""
    os.environ |= env
    if failpoint:
        os.environ["RESUMABLE_NB_FAILPOINT"] = failpoint
        failpoints._ARMED = failpoints._armed()  # read at import, which is over
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        try:
            budget = Budget(**limits) if limits else None
            report = WAYS[how](thread, budget)
            findings = thread.sql("SELECT finding FROM findings WHERE is_current ORDER BY seq")["finding"].tolist()
            connection.send((report.markdown, findings, thread.state.model_dump_json()))
        except Paused as pause:
            connection.send(str(pause))
