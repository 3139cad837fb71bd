"""Steps of scripts: `thread.step(name, fn)`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import resumable_nb
from resumable_nb.errors import StateError, StepError, UsageError

Say = list[str]


def session(store: Path, body: Callable[[Any], Any]) -> tuple[Any, Say]:
    """What a script gives, and the lines that it was told."""
    said: Say = []
    with resumable_nb.open("t", db=store, query="q", say=said.append) as thread:
        return body(thread), said


def add(text: str) -> Callable[[Any], str]:
    def step(state: Any) -> str:
        state.update(findings=[text])
        return text.upper()

    return step


def test_a_second_run_skips_what_is_done(tmp_path: Path) -> None:
    """Results and state come from the journal, and no function is called again."""

    def body(thread: Any) -> Any:
        return [thread.step("one", add("a")), thread.step("two", add("b")), thread.state.findings]

    first, _ = session(tmp_path / "s.duckdb", body)
    again, said = session(tmp_path / "s.duckdb", body)

    assert first == again == ["A", "B", ["a", "b"]]
    assert [line.split()[0] for line in said] == ["resume:", "resume:", "`one`:", "`two`:"]
    assert all("restored" in line for line in said[2:])


def test_a_step_that_gives_nothing_gives_nothing_again(tmp_path: Path) -> None:
    """A skipped step whose result was None gives None; one that gave something gives that."""

    def nothing(state: Any) -> None:
        state.update(findings=["a"])

    def body(thread: Any) -> Any:
        return [thread.step("one", nothing), thread.step("two", add("b")), thread.state.findings]

    first, _ = session(tmp_path / "s.duckdb", body)
    again, _ = session(tmp_path / "s.duckdb", body)

    assert first == again == [None, "B", ["a", "b"]]


def test_the_state_between_steps_is_that_of_the_place(tmp_path: Path) -> None:
    """What a script decides between two steps, it decides the same in a second run."""

    def body(thread: Any) -> Any:
        thread.step("one", add("a"))
        if len(thread.state.findings) < 2:
            thread.step("more", add("b"))
        return thread.step("last", lambda state: len(state.findings))

    assert session(tmp_path / "s.duckdb", body)[0] == 2
    assert session(tmp_path / "s.duckdb", body)[0] == 2


PAPERS: list[str] = []


def test_a_change_in_place_of_a_global_is_said(tmp_path: Path) -> None:
    """A step of a script keeps its result and the state; what else it changes is named."""
    PAPERS.clear()

    def collect() -> None:
        PAPERS.append("p")

    _, said = session(tmp_path / "s.duckdb", lambda thread: thread.step("collect", collect))

    assert any("`PAPERS`" in line and "not kept" in line for line in said)


def test_steps_at_once_are_refused(tmp_path: Path) -> None:
    """Two steps under `gather` would both start from one state; the second is refused, and nothing of it is stored."""

    async def slow(state: Any) -> int:
        await asyncio.sleep(0.05)
        return len(state.findings)

    async def both(thread: Any) -> Any:
        return await asyncio.gather(thread.step("p1", slow), thread.step("p2", slow), return_exceptions=True)

    (first, second), _ = session(tmp_path / "s.duckdb", lambda thread: asyncio.run(both(thread)))

    assert first == 0
    assert isinstance(second, StepError)


def test_the_same_name_twice_is_refused_unless_nothing_differs(tmp_path: Path) -> None:
    """A loop that forgets to number its steps is told so; calling a step again as it was gives its result."""

    def body(thread: Any) -> Any:
        one = add("a")
        assert thread.step("x", one) == thread.step("x", one) == "A"
        with pytest.raises(StepError, match="its own name"):
            thread.step("x", add("b"))
        for name in ("", " ", None, 5, "a\nb"):
            with pytest.raises(UsageError):
                thread.step(name, one)
        return thread.state.findings

    assert session(tmp_path / "s.duckdb", body)[0] == ["a"]


def test_a_step_that_raises_leaves_the_state(tmp_path: Path) -> None:
    """The state is as at the step's entry, and the next run of it ends."""
    fails = [True]

    def body(thread: Any) -> Any:
        def step(state: Any) -> None:
            state.update(findings=["half"])
            if thread.thread_id == "t" and (tmp_path / "bad").exists():
                raise ValueError("bad")

        return thread.step("one", step)

    (tmp_path / "bad").touch()
    with pytest.raises(ValueError, match="bad"):
        session(tmp_path / "s.duckdb", body)
    (tmp_path / "bad").unlink()
    session(tmp_path / "s.duckdb", body)
    findings, _ = session(tmp_path / "s.duckdb", lambda thread: thread.state.findings)

    assert findings == ["half"]
    assert fails == [True]


def test_a_skipped_step_moves_the_random_numbers(tmp_path: Path) -> None:
    """What is drawn after a skipped step is what is drawn after it ran."""

    def body(thread: Any) -> Any:
        random.seed(1)
        return thread.step("draw", random.random), random.random()

    assert session(tmp_path / "s.duckdb", body)[0] == session(tmp_path / "s.duckdb", body)[0]


def test_a_state_that_nobody_stores_any_more_says_so(tmp_path: Path) -> None:
    """After the thread was closed, changing its state is refused; reading it is not."""
    with resumable_nb.open("t", db=tmp_path / "s.duckdb", query="q", say=lambda _: None) as thread:
        state = thread.live.state
    for change in (lambda: state.update(findings=["x"]), lambda: setattr(state, "query", "x")):
        with pytest.raises(StateError, match=r"Thread 't' was closed.*open the thread again.*Nothing was changed"):
            change()
    assert (state.query, state.findings) == ("q", [])
