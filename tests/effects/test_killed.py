"""A process killed at any point of an effect: nothing happens twice, and where nobody can know, a person is asked."""

from __future__ import annotations

import multiprocessing
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resumable_nb.journal import Store
from resumable_nb.receipts import settle
from tests.effects import victim
from tests.support.ticket_server import TicketServer

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.effects.victim"])
CALLS = [f"effect.call.{side}:{nth}" for side in ("before", "after") for nth in (1, 2, 3)]
# Each ticket has two INSERTs, after the two of opening: 3, 5, 7 are `started` rows, 4, 6, 8 receipts.
ROWS = ["journal.append.before:4", "journal.append.after:4", "journal.append.after:3", "journal.append.before:8"]


@pytest.fixture
def tickets(request: pytest.FixtureRequest) -> Iterator[TicketServer]:
    with TicketServer(honours_keys=request.param) as server:
        yield server


def run(db: Path, server: TicketServer, way: str, failpoint: str = "", kind: str = "loop") -> tuple[int | None, Any]:
    """The exit code of one process, and what it sent."""
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=victim.run, args=(db, server.url, failpoint, way, kind, sender))
    process.start()
    sender.close()
    process.join(60)
    process.kill()
    try:
        return process.exitcode, receiver.recv()
    except EOFError:
        return process.exitcode, None


@pytest.mark.parametrize(("way", "tickets"), [("keys", True), ("lookup", False)], indirect=["tickets"])
@pytest.mark.parametrize(
    ("kind", "points"),
    [("loop", CALLS), ("loop", ROWS), ("parallel", ["effect.call.before:2", "effect.call.after:2", ROWS[0]])],
    ids=["call", "rows", "parallel"],
)
def test_each_ticket_is_closed_once(
    way: str, tickets: TicketServer, kind: str, points: list[str], tmp_path: Path
) -> None:
    """Wherever it was killed, with a service that honours keys or can be asked, the next run ends the work."""
    for place, point in enumerate(points):
        tickets.reset()
        db = tmp_path / f"{place}.duckdb"

        killed, _ = run(db, tickets, way, point, kind)
        ended, (how, result, receipts) = run(db, tickets, way, kind=kind)

        assert (killed, ended, how) == (-signal.SIGKILL, 0, "done"), point
        assert sorted(receipts) == ["close-41", "close-42", "close-43"], point
        assert [receipt["ticket"] for receipt in result] == ["41", "42", "43"], point
        assert sorted(tickets.closed) == ["41", "42", "43"], point


@pytest.mark.parametrize("tickets", [False], indirect=True)
@pytest.mark.parametrize(("side", "nth"), [("before", 1), ("before", 3), ("after", 1), ("after", 2), ("after", 3)])
def test_where_nobody_can_know_a_person_is_asked(tickets: TicketServer, side: str, nth: int, tmp_path: Path) -> None:
    """With neither keys nor a look-up, no second call is made until somebody says what happened."""
    db = tmp_path / "t.duckdb"
    happened = side == "after"

    run(db, tickets, "neither", f"effect.call.{side}:{nth}")
    closed = tickets.closed
    asked = [run(db, tickets, "neither") for _ in range(2)]

    assert [(code, sent[0]) for code, sent in asked] == [(0, "paused")] * 2
    (key,) = set(re.findall(r"resumable-nb settle (\S+) --thread t", asked[0][1][1]))
    assert key == f"close-{40 + nth}"
    assert tickets.closed == closed

    settle(Store.open(db), "t", key, happened=happened, receipt='{"ticket": "by hand"}' if happened else None)
    _, (how, result, receipts) = run(db, tickets, "neither")

    assert how == "done"
    assert receipts == ["close-41", "close-42", "close-43"]
    assert result[nth - 1]["ticket"] == ("by hand" if happened else str(40 + nth))
    assert tickets.closed == ["41", "42", "43"]
