"""A step that asks and then does something outside, and a decision, in processes that can be killed."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import resumable_nb
from resumable_nb import failpoints
from resumable_nb.errors import AlreadyDecided, Paused
from resumable_nb.gates import decide
from resumable_nb.journal import Store


def work() -> int:
    """Asks, and then does what was approved."""
    asked = resumable_nb.approve("Send?", {"to": "lab", "amount": 100})
    with Path("sent").open("a") as sent:
        sent.write("x")
    return asked.payload["amount"]


def arm(failpoint: str) -> None:
    """Die at this point."""
    if failpoint:
        os.environ["RESUMABLE_NB_FAILPOINT"] = failpoint
        failpoints._ARMED = failpoints._armed()  # read at import, which is over


def run(folder: Path, linger: bool, connection: Connection) -> None:
    """Run the step: what it returns, or "paused"; then end, or stay with the thread open until killed."""
    os.chdir(folder)
    thread = resumable_nb.open("t", db="t.duckdb", query="q")
    try:
        connection.send(thread.step("send", work))
    except Paused as paused:
        connection.send("paused" if "resumable-nb approve send" in str(paused) else str(paused))
    if linger:
        time.sleep(250)
    thread.close()


def decide_once(folder: Path, approve: bool, who: str, failpoint: str, connection: Connection) -> None:
    """Decide: "first", or who was first."""
    os.environ["JUPYTERHUB_USER"] = who
    arm(failpoint)
    connection.send("ready")
    connection.poll(200)
    try:
        decide(Store.open(folder / "t.duckdb"), "t", "send", approve=approve)
        connection.send("first")
    except AlreadyDecided as told:
        connection.send(str(told))
