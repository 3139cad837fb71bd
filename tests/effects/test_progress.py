"""Loops: a bar that starts at what is done, and parallel calls that merge in the order of their items."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import resumable_nb
from resumable_nb import durable, effect, track
from resumable_nb.errors import UsageError
from tests.effects import worker
from tests.effects.ledger import CALLS, note


class Broken(Exception):
    """What breaks a step off."""


def step(db: Path, body: Callable[[], Any]) -> tuple[Any, list[Any]]:
    """Run a body as the step `s`; its result, and the findings after it."""
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        return thread.step("s", lambda: body_of(body, thread)), thread.state.findings


def body_of(body: Callable[..., Any], thread: Any) -> Any:
    return body(thread.live.state) if body.__code__.co_argcount else body()


@durable
def square(n: int) -> int:
    note(n)
    return n * n


def slow_first(n: int) -> int:
    time.sleep(0.2 if n == 0 else 0)
    return n * n


def test_results_and_updates_come_in_the_order_of_the_items(db: Path) -> None:
    """Though the first item takes longest; no branch sees what another one put in."""

    def body(state: Any) -> list[int]:
        def one(n: int) -> int:
            found = slow_first(n)
            state.update(findings=[found])
            return len(state.findings)

        return resumable_nb.map(one, range(6))

    assert step(db, body) == ([0] * 6, [0, 1, 4, 9, 16, 25])


def test_after_a_crash_only_what_is_missing_runs(db: Path) -> None:
    """Equal items have a result each."""

    def body() -> list[int]:
        found = resumable_nb.map(square, [1, 2, 2])
        if len(CALLS) == 3:
            raise Broken
        return found + resumable_nb.map(square, [3])

    with pytest.raises(Broken):
        step(db, body)
    CALLS.clear()

    assert step(db, body)[0] == [1, 4, 4, 9]
    assert CALLS == [3]


def test_one_error_is_raised_and_the_others_are_kept(db: Path) -> None:
    """What was answered is recorded; the state is not changed."""

    @durable
    def one(n: int) -> int:
        if n == 1 and CALLS.count(1) == 0:
            note(1)
            raise Broken
        return note(n)

    def body() -> list[int]:
        with ThreadPoolExecutor(1) as pool:
            return resumable_nb.map(one, [0, 1, 2], executor=pool)

    with pytest.raises(Broken):
        step(db, body)
    seen = list(CALLS)
    step(db, body)

    assert seen[:2] == [0, 1]
    assert CALLS.count(0) == 1


def test_an_executor_of_processes_gives_results_that_are_recorded(db: Path) -> None:
    """The function runs elsewhere; the journal is written here."""

    def body() -> list[int]:
        with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
            found = resumable_nb.map(slow_first, [1, 2], executor=pool)
        if note("ran") == 1:
            raise Broken
        return found

    with pytest.raises(Broken):
        step(db, body)

    assert step(db, body)[0] == [1, 4]
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        rows = thread.session.read(kinds=("call",))
    assert [row.phase for row in rows] == ["started", "started", "done", "done"]


class Backwards(Executor):
    """Runs what it was given in this thread, the last first, when the first result is asked for."""

    def __init__(self) -> None:
        self._todo: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._todo.append((future, lambda: fn(*args, **kwargs)))
        if len(self._todo) == 3:
            for one, work in reversed(self._todo):
                try:
                    one.set_result(work())
                except Exception as error:
                    one.set_exception(error)
        return future


@pytest.mark.parametrize("where", ["threads", "processes", "elsewhere"])
def test_what_calls_put_into_the_state_is_merged_wherever_they_run(db: Path, where: str) -> None:
    """In the order of the items, on any executor, and again when their results come from the journal."""

    def body(state: Any) -> list[int]:
        with {
            "threads": ThreadPoolExecutor,
            "processes": lambda: ProcessPoolExecutor(2, mp_context=get_context("forkserver")),
            "elsewhere": Backwards,
        }[where]() as pool:
            found = resumable_nb.map(durable(worker.find), [2, 0, 1], executor=pool)
        if note("ran") == 1:
            raise Broken
        return found

    worker.STATE = None
    with pytest.raises(Broken):
        step(db, lambda state: worker.with_state(state, body))

    assert step(db, lambda state: worker.with_state(state, body)) == ([20, 0, 10], ["found 2", "found 0", "found 1"])
    assert CALLS.count("ran") == 2


def test_a_worker_that_is_killed_costs_its_items_only(db: Path, tmp_path: Path) -> None:
    """An executor whose process dies breaks the step off; the next run has what was recorded, and ends the rest."""

    def body() -> list[int]:
        with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
            return resumable_nb.map(partial(worker.die_once, str(tmp_path / "died"), 2), range(4), executor=pool)

    with pytest.raises(BrokenExecutor):
        step(db, body)
    assert step(db, body)[0] == [0, 1, 2, 3]
    ran = (tmp_path / "died").read_text().split()
    assert ran[:3] == ["0", "1", "2"]
    assert ran[3:] in (["2", "3"], ["1", "2", "3"])  # the result of item 1 may not have come back


def test_async_functions_are_refused_by_map() -> None:
    """With what to use."""

    async def one(n: int) -> int:
        return n

    with pytest.raises(UsageError, match=r"asyncio\.gather"):
        resumable_nb.map(one, [1])


@pytest.mark.parametrize("kind", ["durable", "effect"])
def test_the_bar_starts_at_what_is_done(db: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a step broke off in its third item, two are done before, and not in the speed of the bar."""
    import tqdm.auto

    bars: list[Any] = []
    seen: list[str] = []

    class Bar(tqdm.std.tqdm):  # type: ignore[type-arg]  # to look at the real one
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, file=io.StringIO(), **options)
            bars.append(self)

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    act = durable(note) if kind == "durable" else effect(key="k{what}")(note)

    def body() -> None:
        for n in track([1, 2, 3, 4]):
            if n == 3 and len(bars) == 1:
                raise Broken
            seen.append(bars[-1].fp.getvalue().rpartition("|")[2].split()[0])
            act(n)

    with pytest.raises(Broken):
        step(db, body)
    step(db, body)

    assert [(bar.initial, bar.n, bar.total) for bar in bars] == [(0, 2, 4), (2, 4, 4)]
    assert seen[2:5] == ["0/4", "1/4", "2/4"]  # before each item of the second run, up to the first new one
    assert CALLS == [1, 2, 3, 4]


def test_outside_a_step_it_is_a_plain_bar() -> None:
    """All items, in their order."""
    assert list(track(iter("abc"), total=3)) == ["a", "b", "c"]
