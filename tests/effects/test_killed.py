"""Killed, broken off or taken over in an effect: nothing happens twice; where nobody can know, a person is asked."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from resumable_nb.errors import NotAsked
from resumable_nb.gates import decide
from resumable_nb.journal import Store
from resumable_nb.receipts import settle
from tests.effects import victim
from tests.support.ticket_server import TicketServer

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.effects.victim"])
ALL = ["41", "42", "43"]
CALLS = [f"effect.call.{side}:{nth}" for side in ("before", "after") for nth in (1, 2, 3)]
# Each ticket has two INSERTs, after the two of opening: 3, 5, 7 are `started` rows, 4, 6, 8 receipts.
STARTED = ["journal.append.before:3", "journal.append.after:3", "journal.append.after:7"]
RECEIPTS = [f"journal.append.{side}:{row}" for row in (4, 6, 8) for side in ("before", "after")]
ENDS = [f"step.commit.{side}" for side in ("before", "after")]
PARALLEL = ["effect.call.before:2", "effect.call.before:3", "effect.call.after:2", RECEIPTS[0], RECEIPTS[3]]
WAYS = {"keys": True, "lookup": False, "neither": False}
POINTS = [(way, kind, points) for way in WAYS for kind, points in (("loop", CALLS), ("parallel", PARALLEL))]
POINTS += [(way, "loop", STARTED + RECEIPTS + ENDS) for way in ("lookup", "neither")]
FATES = ["refuse", "drop", "late", "late act", "die before", "die after"]

Start = Callable[..., tuple[Any, Connection]]


@pytest.fixture
def tickets(way: str, tmp_path: Path) -> Iterator[TicketServer]:
    with TicketServer(tmp_path / "ledger", honours_keys=WAYS[way]) as server:
        yield server


@pytest.fixture(scope="module")
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without threads: to copy it takes less time than to make one."""
    path = tmp_path_factory.mktemp("store") / "new.duckdb"
    Store.open(path).close()
    return path


@pytest.fixture
def start(way: str, tickets: TicketServer, new_store: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a process that runs the step."""
    processes = []

    def begin(
        kind: str = "loop", failpoint: str = "", *, db: str = "t", take_over: bool = False, waits: bool = False
    ) -> tuple[Any, Connection]:
        ours, theirs = CONTEXT.Pipe()
        path = tmp_path / f"{db}.duckdb"
        if not path.exists():
            shutil.copy(new_store, path)
        process = CONTEXT.Process(
            target=victim.run, args=(path, tickets.url, way, kind, theirs, failpoint, take_over, waits)
        )
        process.start()
        processes.append(process)
        theirs.close()
        return process, ours

    yield begin
    for process in processes:
        process.kill()
        process.join()


def end(started: tuple[Any, Connection]) -> tuple[int | None, Any]:
    """The exit code of a process, and what it sent."""
    process, connection = started
    process.join(200)
    try:
        return process.exitcode, connection.recv()
    except (EOFError, ConnectionResetError):
        return process.exitcode, None


def say(db: Path, key: str, **word: Any) -> None:
    """A person's word; the file is free for others at once."""
    store = Store.open(db)
    try:
        settle(store, "t", key, **word)
    finally:
        store.close()


def go_on(start: Start, tickets: TicketServer, db: Path, kind: str = "loop") -> list[str]:
    """Run the step until it is done; who is asked looks into the ledger. Gives the keys that were settled."""
    asked: list[str] = []
    for _ in range(9):  # in parallel, a stop cancels the others: they are in doubt next
        before = tickets.closed
        code, (how, result, receipts) = end(start(kind, db=db.stem))
        assert code == 0
        if how == "done":
            assert sorted(receipts) == [f"close-{ticket}" for ticket in ALL]
            assert [receipt["ticket"] for receipt in result] == ALL
            break
        assert how == "paused", result
        (stopped_at,) = set(re.findall(r"resumable-nb settle close-(\S+) --thread t", result))
        assert tickets.closed.count(stopped_at) == before.count(stopped_at)  # nothing was tried
        for ticket in set(re.findall(r"`close-(\d+)`", result)):
            known = {"happened": True, "receipt": f'{{"ticket": "{ticket}"}}'}
            say(db, f"close-{ticket}", **(known if ticket in tickets.closed else {"happened": False}))
            asked.append(f"close-{ticket}")
    assert sorted(tickets.closed) == ALL
    return asked


@pytest.mark.parametrize(("way", "kind", "points"), POINTS)
def test_killed_anywhere_each_ticket_is_closed_once(
    tickets: TicketServer, start: Start, way: str, kind: str, points: list[str], tmp_path: Path
) -> None:
    """The next run ends the work; a person is asked only if nobody else can know, and before any second call."""
    for place, point in enumerate(points):
        tickets.reset()

        killed, _ = end(start(kind, point, db=str(place)))
        asked = go_on(start, tickets, tmp_path / f"{place}.duckdb", kind)

        assert killed == -signal.SIGKILL, point
        in_doubt = way == "neither" and ("effect" in point or point in STARTED[1:] + RECEIPTS[::2])
        assert len(asked) == in_doubt or (kind, way) == ("parallel", "neither"), point


@pytest.mark.parametrize("way", ["lookup"])
def test_what_was_approved_is_neither_asked_nor_done_again(
    tickets: TicketServer, start: Start, way: str, tmp_path: Path
) -> None:
    """Killed on either side of the call that a person said yes to, the next question is about the next ticket."""
    for side in ("before", "after"):
        tickets.reset()
        _, (first, question, _) = end(start("gates", db=side))
        decide(Store.open(tmp_path / f"{side}.duckdb"), "t", "close", approve=True)
        Store.open(tmp_path / f"{side}.duckdb").close()

        killed, _ = end(start("gates", f"effect.call.{side}:1", db=side))
        _, (then, another, _) = end(start("gates", db=side))

        assert (first, killed, then) == ("paused", -signal.SIGKILL, "paused"), side
        assert ("Close 41?" in question, "Close 42?" in another) == (True, True), (question, another)
        assert tickets.closed == ["41"]


@pytest.mark.parametrize("way", WAYS)
def test_whatever_the_service_does_each_ticket_is_closed_once(
    tickets: TicketServer, start: Start, way: str, tmp_path: Path
) -> None:
    """It refuses, hangs up, answers or acts too late, dies before or after acting: only in doubt is a person asked."""
    for place, fate in enumerate(FATES):
        nth = place % 3
        if (way, fate) == ("lookup", "late act"):
            continue  # what is not to be seen yet, no look-up finds
        tickets.reset()
        tickets.script(*[""] * nth, fate)

        code, (how, _, _) = end(start(db=fate))
        if fate.startswith("die"):
            tickets.stop()
            tickets.start()
        asked = go_on(start, tickets, tmp_path / f"{fate}.duckdb")

        assert (code, how) == (0, "failed"), fate
        assert asked == [f"close-{ALL[nth]}"] * (way == "neither" and fate != "refuse"), fate


@pytest.mark.parametrize("way", ["lookup", "neither"])
def test_a_process_that_lives_may_still_do_it(tickets: TicketServer, start: Start, way: str, tmp_path: Path) -> None:
    """Taken over in the middle of a call: nothing is asked or done before that has ended; then its receipt is there."""
    db = tmp_path / "t.duckdb"
    first = start(waits=True)
    first[1].recv()

    asked = [end(start(take_over=True))[1] for _ in range(2)]
    with pytest.raises(NotAsked, match=r"started by process \d+ .*still runs"):
        say(db, "close-41", happened=False)
    before = tickets.closed
    first[1].send("go on")
    _, (how, said, _) = end(first)

    assert [sent[0] for sent in asked] == ["paused", "paused"]
    assert re.search(rf"`close-41` was started by process {first[0].pid} on .*which still runs", asked[0][1])
    assert (before, how) == ([], "taken over"), said
    assert go_on(start, tickets, db) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_process_that_died_in_the_call_does_it_no_more(
    tickets: TicketServer, start: Start, way: str, tmp_path: Path
) -> None:
    """Taken over while it lived, and dead since: from then on a look-up counts."""
    first = start(waits=True)
    first[1].recv()

    _, (how, _, _) = end(start(take_over=True))
    first[0].kill()
    first[0].join()

    assert how == ("done" if way == "keys" else "paused")
    assert go_on(start, tickets, tmp_path / "t.duckdb") == ["close-41"] * (way == "neither")
