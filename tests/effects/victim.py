"""A step that closes three tickets, in a process that can be killed. A fork server imports this once."""

from __future__ import annotations

import asyncio
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import resumable_nb
from resumable_nb import effect, failpoints
from resumable_nb.errors import Paused
from tests.support import ticket_server

TICKETS = ("41", "42", "43")
URL = ""


def find(key: str) -> Any:
    return ticket_server.look_up(os.environ["TICKETS"], key)


def _close(ticket: str, *, idempotency_key: str) -> Any:
    return ticket_server.close(os.environ["TICKETS"], ticket, idempotency_key)


async def _close_async(ticket: str, *, idempotency_key: str) -> Any:
    return await asyncio.to_thread(_close, ticket, idempotency_key=idempotency_key)


WAYS: dict[str, dict[str, Any]] = {"keys": {"idempotent": True}, "lookup": {"lookup": find}, "neither": {}}


def work(way: str, kind: str) -> Any:
    """Closes the tickets one after the other, or (`parallel`) at once."""
    if kind == "loop":
        close = effect(key="close-{ticket}", **WAYS[way])(_close)
        return [close(ticket) for ticket in TICKETS]
    close_async = effect(key="close-{ticket}", **WAYS[way])(_close_async)

    async def together() -> Any:
        return await asyncio.gather(*(close_async(ticket) for ticket in TICKETS))

    return asyncio.run(together())


def run(db: Path, url: str, failpoint: str, way: str, kind: str, connection: Connection) -> None:
    """Run the step and send how it ended; or die at the failpoint."""
    os.environ["TICKETS"] = url
    if failpoint:
        os.environ["RESUMABLE_NB_FAILPOINT"] = failpoint
        failpoints._ARMED = failpoints._armed()  # read at import, which is over
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        try:
            result = thread.step("close", lambda: work(way, kind))
            receipts = [receipt["key"] for receipt in thread.state.receipts]
            connection.send(("done", result, receipts))
        except Paused as pause:
            connection.send(("paused", str(pause), []))
