"""A step that closes three tickets, in a process that can be killed. A fork server imports this once."""

from __future__ import annotations

import asyncio
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import resumable_nb
from resumable_nb import effect, failpoints
from resumable_nb.errors import Paused, ThreadTakenOver
from tests.support import ticket_server

TICKETS = ("41", "42", "43")


def find(key: str) -> Any:
    return ticket_server.look_up(os.environ["TICKETS"], key)


class Gate:
    """Where the call waits before it asks the service, for the test to say go on."""

    connection: Connection | None = None

    @classmethod
    def wait(cls) -> None:
        if cls.connection is not None:
            cls.connection.send("in the call")
            cls.connection.recv()
            cls.connection = None


def _close(ticket: str, *, idempotency_key: str) -> Any:
    Gate.wait()
    return ticket_server.close(os.environ["TICKETS"], ticket, idempotency_key)


async def _close_async(ticket: str, *, idempotency_key: str) -> Any:
    return await asyncio.to_thread(_close, ticket, idempotency_key=idempotency_key)


WAYS: dict[str, dict[str, Any]] = {"keys": {"idempotent": True}, "lookup": {"lookup": find}, "neither": {}}


def work(way: str, kind: str) -> Any:
    """Closes the tickets one after the other (`gates`: after a yes to each), or (`parallel`) at once."""
    rules: dict[str, Any] = {"key": "close-{ticket}", "not_done": ticket_server.Refused, **WAYS[way]}
    if kind == "gates":
        rules["approve"] = "Close {ticket}?"
    if kind != "parallel":
        close = effect(**rules)(_close)
        return [close(ticket) for ticket in TICKETS]
    close_async = effect(**rules)(_close_async)

    async def together() -> Any:
        return await asyncio.gather(*(close_async(ticket) for ticket in TICKETS))

    return asyncio.run(together())


def run(
    db: Path, url: str, way: str, kind: str, connection: Connection, failpoint: str, take_over: bool, waits: bool
) -> None:
    """Run the step and send how it ended; or die at the failpoint."""
    os.environ["TICKETS"] = url
    Gate.connection = connection if waits else None
    if failpoint:
        os.environ["RESUMABLE_NB_FAILPOINT"] = failpoint
        failpoints._ARMED = failpoints._armed()  # read at import, which is over
    with resumable_nb.open("t", db=db, say=lambda _: None, take_over=take_over) as thread:
        try:
            result = thread.step("close", lambda: work(way, kind))
            receipts = [receipt["key"] for receipt in thread.state.receipts]
            connection.send(("done", result, receipts))
        except Paused as pause:
            connection.send(("paused", str(pause), []))
        except ThreadTakenOver as over:
            connection.send(("taken over", str(over), []))
        except Exception as error:
            connection.send(("failed", repr(error), []))
