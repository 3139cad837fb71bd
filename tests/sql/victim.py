"""Research with a plan to approve, a letter to send and a question that is asked twice. A fork server imports this once."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import bm25s  # noqa: F401 - here, and for the next three, so that no child imports it again
import openai
import pandas as pd  # noqa: F401

import resumable_nb
from resumable_nb import approve, ask, durable, effect, failpoints
from resumable_nb.errors import Paused
from resumable_nb.llm import clients  # noqa: F401
from resumable_nb.research import Folder, approve_plan, coordinator, planner, reporter, researcher

ISLAND = Path(__file__).parents[2] / "data" / "island"
QUESTION = "When was the lamp electrified, and when did the tide mill close?"
LETTER = {"to": "harbour@island.example", "pages": 2}


@effect(key="letter-{number}")
def send(number: int, *, idempotency_key: str) -> dict[str, Any]:
    """Send the letter: here, to a file that stands for the post office."""
    with open(os.environ["POST"], "a") as post:
        post.write(f"{idempotency_key}\n")
    return {"sent": number}


@durable
def weigh(pages: int) -> int:
    """A function that fails, once."""
    if not os.path.exists(os.environ["POST"] + ".scales"):
        Path(os.environ["POST"] + ".scales").touch()
        raise OSError("no scales")
    return 5 * pages


def island(thread: Any, edited: bool) -> None:
    """Brief, plan with its gate, findings, report, letter."""
    source = Folder(str(ISLAND))
    thread.step("brief", lambda state: coordinator(state, source, question=QUESTION, model="small"))
    thread.step("plan", lambda state: planner(state, source, model="small"))
    thread.step("approve", lambda state: approve_plan(state))
    thread.step("find", lambda state: researcher(state, source, model="large"))
    thread.step("title", lambda: [ask("Give it a title.", model="small", context=False) for _ in range(2)][-1])
    if edited:
        thread.step("report", lambda: ask("Report in one sentence.", model="large"))
    else:
        thread.step("report", lambda state: reporter(state, source, model="large"))
    thread.step("letter", lambda: send(1))


def more(thread: Any, edited: bool) -> None:
    """What a fork goes on with."""
    thread.step("more", lambda: ask("What else is there?", model="large"))


def post(thread: Any, edited: bool) -> None:
    """A letter that nobody has approved yet."""
    thread.step("weigh", lambda: weigh(2))
    thread.step("send", lambda: approve("Send the letter?", LETTER))


def ring(thread: Any, edited: bool) -> None:
    """A letter of which nobody knows."""
    thread.step("ring", lambda: send(2))


WORK = {work.__name__: work for work in (island, more, post, ring)}


def run(db: Path, name: str, what: str, failpoint: str, edited: bool, env: dict, connection: Connection) -> None:
    """Do the work and send how it ended; or die at the failpoint."""
    os.environ |= env
    if failpoint:
        os.environ["RESUMABLE_NB_FAILPOINT"] = failpoint
        failpoints._ARMED = failpoints._armed()  # read at import, which is over
    with resumable_nb.open(name, db=db, query=QUESTION, say=lambda _: None) as thread:
        try:
            WORK[what](thread, edited)
            connection.send("done")
        except (Paused, OSError, openai.APIError) as error:
            connection.send(f"{type(error).__name__}: {error}"[:300])
