"""Which moment of a thread is meant, and forks that start there, as a script sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import resumable_nb
from resumable_nb import ResearchState, approve, durable, effect
from resumable_nb.errors import MigrationFailed, Paused, ThreadNotFound, UsageError
from resumable_nb.thread import Thread

ASKED: list[str] = []
SENT: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> Iterator[None]:
    ASKED.clear()
    SENT.clear()
    yield


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "t.duckdb"


@durable
def look(word: str) -> str:
    ASKED.append(word)
    return word.upper()


@effect(key="send-{word}")
def send(word: str) -> str:
    SENT.append(word)
    if word == "break":
        raise ConnectionError("nobody knows")
    return f"sent {word}"


def plan(state: Any) -> None:
    state.update(plan=["a"])


def research(state: Any) -> Any:
    for word in ("one", "two", "three"):
        state.update(findings=[look(word)])
    return np.arange(200_000)  # a large value: a row of its own


def tell(state: Any) -> str:
    return send(f"{len(state.findings)}")


def opened(db: Path, thread_id: str = "t") -> Thread:
    return resumable_nb.open(thread_id, db=db, say=lambda _: None)


def run(db: Path, thread_id: str, *steps: Callable[..., Any]) -> list[Any]:
    with opened(db, thread_id) as thread:
        return [thread.step(fn.__name__, fn) for fn in steps]


def findings(thread: Thread, moment: int | str) -> list[str]:
    state: Any = thread.state_at(moment)
    return list(state.findings)


def test_a_moment_is_a_row_a_step_or_a_count_back(db: Path) -> None:
    """Also as the texts that a command line has; progress inside a step has a row, too."""
    run(db, "t", plan, research)
    with opened(db) as thread:
        first, last = (h["seq"] for h in thread.history() if h["step"])
        inside = thread.sql("SELECT max(seq) AS s FROM state_changes WHERE is_progress AND seq < ?", [last - 3]).s[0]

        for moment in (last, str(last), "research", "newest", -1, "-1"):
            assert findings(thread, moment) == ["ONE", "TWO", "THREE"]
        for moment in (first, "plan", -2, "start", -3):
            assert findings(thread, moment) == []
        assert findings(thread, int(inside))[-1] in ("ONE", "TWO")
        assert [row["field"] for row in thread.diff("plan", "newest")] == ["findings"]
        assert [c.path for c in thread.diff(first, -1).changes] == ["findings[0]", "findings[1]", "findings[2]"]
        assert thread.raw_state_at("plan")["plan"] == ["a"]


@pytest.mark.parametrize(
    ("moment", "says"),
    [(0, "has no row 0"), (999, "has no row 999"), (-9, "there is no -9"), ("rsearch", "Its steps: `plan`")],
)
def test_a_moment_that_never_was_is_told_what_there_is(db: Path, moment: int | str, says: str) -> None:
    """Rows, steps and counts that the thread does not have."""
    run(db, "t", plan)
    with opened(db) as thread, pytest.raises(ThreadNotFound, match=says):
        thread.state_at(moment)


def test_what_is_no_moment_is_refused(db: Path) -> None:
    """Half a row, or nothing, is no row; a number out of a DataFrame is one, whatever its type there."""
    run(db, "t", plan)
    with opened(db) as thread:
        for moment in (None, 1.5, float("nan"), [3]):
            with pytest.raises(UsageError, match="is no moment of a thread"):
                thread.state_at(moment)  # type: ignore[arg-type]
        newest = thread.fold.newest()
        for row in (np.int64(newest), float(newest), np.float64(newest)):
            assert thread.state_at(row) == thread.state  # type: ignore[arg-type]


def test_forks_of_forks_are_whole(db: Path) -> None:
    """Large values, answers and receipts come along; nothing is asked or sent again, whoever goes on first."""
    value = run(db, "t", plan, research)[1]
    with opened(db) as thread:
        assert thread.fork("research", "u") == "u"
    with opened(db, "u") as thread:
        thread.fork("newest", "v")
    told = [run(db, name, plan, research, tell) for name in ("v", "t", "u")]

    assert all(np.array_equal(found[1], value) for found in told)
    assert [found[2] for found in told] == ["sent 3"] * 3
    assert (ASKED, SENT) == (["one", "two", "three"], ["3"])


def test_a_fork_of_a_row_inside_a_step_goes_on_from_there(db: Path) -> None:
    """What was answered until then is free, the rest is asked; the first thread is as it was."""
    run(db, "t", plan, research)
    with opened(db) as thread:
        rows = thread.sql("SELECT seq FROM state_changes WHERE is_progress ORDER BY seq").seq
        thread.fork(int(rows[0]), "inside")
        head = thread.session.head
    ASKED.clear()
    run(db, "inside", plan, research)

    assert ASKED == ["three"]
    with opened(db, "inside") as thread:
        assert findings(thread, "newest") == ["ONE", "TWO", "THREE"]
    with opened(db) as thread:
        assert findings(thread, "newest") == ["ONE", "TWO", "THREE"]
        assert thread.state_at(head) == thread.state


def test_what_waits_or_is_in_doubt_is_not_done_twice_by_a_fork(db: Path) -> None:
    """An undecided gate is asked anew in the fork; an effect in doubt is in doubt there, too, and is not repeated."""

    def ask(state: Any) -> None:
        approve("Go on?", state.plan)

    def broken(state: Any) -> None:
        send("break")

    for fn in (ask, broken):
        with opened(db) as thread, pytest.raises((Paused, ConnectionError)):
            thread.step(fn.__name__, fn)
    with opened(db) as thread:
        thread.fork(thread.session.head, "u")
    with opened(db, "u") as thread:
        waiting = thread.sql("SELECT phase FROM approvals WHERE thread_id = 'u'").phase.tolist()
        with pytest.raises(Paused):
            thread.step("ask", ask)
        with pytest.raises(Paused, match="settle send-break"):
            thread.step("broken", broken)

    assert waiting == ["dropped"]
    assert SENT == ["break"]


def test_what_does_not_fit_the_class_is_named_by_its_own_row(db: Path) -> None:
    """Where the state at the start cannot be lifted, it is the row of the start that is offered, not the newest one."""

    class Second(ResearchState):
        schema_version: ClassVar[int] = 2

    Second.migration(from_version=1)(lambda raw: raw)
    with resumable_nb.open("t", db=db, query="q") as thread:
        start = thread.fold.newest()
    with resumable_nb.open("t", db=db, state=Second) as thread:
        thread.step("plan", plan)

    class Third(ResearchState):
        schema_version: ClassVar[int] = 3

    Third.migration(from_version=2)(lambda raw: raw)
    with pytest.raises(MigrationFailed, match=rf"lifts version 1 to 2(.|\n)*raw_state_at\({start}\)"):
        resumable_nb.open("t", db=db, state=Third)
