"""Durable functions: recorded once in a step, given back afresh, said where that is not possible."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import resumable_nb
from resumable_nb import durable
from resumable_nb.errors import UsageError
from tests.effects.ledger import CALLS, note

FACTOR = 2


@durable
def load(n: int, *, scale: float = 1.0) -> dict[str, Any]:
    note(n)
    return {"k": [n * scale]}


@durable
def scaled(n: int) -> int:
    note(n)
    return n * FACTOR


@durable
async def fetch(n: int) -> int:
    await asyncio.sleep(0)
    return note(n)


@durable
def pages(n: int) -> Iterator[int]:
    note("pages")
    yield from range(n)


@durable
def broken(n: int) -> int:
    if note(n) == 1:
        raise OSError("the first time it fails")
    return n


@durable
def lock() -> Any:
    note("lock")
    return threading.Lock()


@durable
def array(n: int) -> Any:
    note(n)
    return np.arange(n)


class Broken(Exception):
    """What breaks a step off after its calls."""


@pytest.fixture
def twice(tmp_path: Path) -> Callable[..., list[Any]]:
    """Runs a body in a step that breaks off after it, then in a new session; gives both results."""

    def run(body: Callable[[], Any], said: list[str] | None = None) -> list[Any]:
        results = []

        def step() -> Any:
            results.append(body())
            raise Broken

        for _ in range(2):
            lines = [] if said is None else said
            with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lines.append) as thread, pytest.raises(Broken):
                thread.step("s", step)
        return results

    return run


def test_a_recorded_result_is_not_computed_again(twice: Callable[..., list[Any]]) -> None:
    """After a step broke off, its calls give what they gave, by any way to write the arguments."""
    first, second = twice(lambda: [load(1), load(n=2, scale=3.0), load(2, scale=3.0)])

    assert first == second == [{"k": [1.0]}, {"k": [6.0]}, {"k": [6.0]}]
    assert CALLS == [1, 2, 2]


def test_a_caller_that_changes_a_result_does_not_change_the_record(twice: Callable[..., list[Any]]) -> None:
    """J6: each call gives an object of its own."""

    def body() -> dict[str, Any]:
        x = load(1)
        x["k"].append(2)
        return x

    assert twice(body) == [{"k": [1.0, 2]}] * 2


def test_async_functions_are_recorded_too(twice: Callable[..., list[Any]]) -> None:
    """Also in parallel: the same question gets as many answers as it was asked."""

    async def several() -> list[int]:
        return await asyncio.gather(fetch(1), fetch(1), fetch(2))

    first, second = twice(lambda: asyncio.run(several()))

    assert first == second
    assert sorted(first) == [1, 2, 3]
    assert sorted(CALLS) == [1, 1, 2]


def test_a_generator_gives_its_items_each_time(twice: Callable[..., list[Any]]) -> None:
    """J6: never an empty list."""
    assert twice(lambda: [list(pages(2)), list(pages(2))]) == [[[0, 1], [0, 1]]] * 2
    assert CALLS == ["pages", "pages"]


def test_a_time_can_be_frozen(twice: Callable[..., list[Any]]) -> None:
    """`durable(datetime.now)()` is the time of the first run."""
    first, second = twice(durable(datetime.now))

    assert isinstance(first, datetime)
    assert first == second


def test_large_binary_results_come_back(twice: Callable[..., list[Any]]) -> None:
    """An array's bytes are stored with the result that refers to them."""
    first, second = twice(lambda: array(10_000))

    assert np.array_equal(first, second)
    assert CALLS == [10_000]


def test_what_a_function_reads_belongs_to_the_question(
    twice: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another value of a global that it reads is another call."""
    monkeypatch.setitem(globals(), "__name__", "__main__")  # as a notebook's functions are

    def body() -> list[int]:
        globals()["FACTOR"] = 2
        before = scaled(1)
        globals()["FACTOR"] = 3
        return [before, scaled(1)]

    assert twice(body) == [[2, 3]] * 2
    assert CALLS == [1, 1]


def test_an_error_is_no_result(twice: Callable[..., list[Any]]) -> None:
    """A call that raised is made again."""

    def body() -> int:
        try:
            return broken(7)
        except OSError:
            return 0

    assert twice(body) == [0, 7]


def test_what_cannot_be_stored_is_said_once_and_runs_again(twice: Callable[..., list[Any]]) -> None:
    """The result is handed on as it is."""
    said: list[str] = []

    results = twice(lambda: [lock(), lock()], said)

    assert all(hasattr(one, "acquire") for pair in results for one in pair)
    assert CALLS == ["lock"] * 4
    assert sum("`lock` is not recorded" in line for line in said) == 2  # once in each run


def test_outside_a_step_a_function_just_runs(tmp_path: Path) -> None:
    """With and without an open thread; the signature stays."""
    assert load(1) == {"k": [1.0]}
    with resumable_nb.open("t", db=tmp_path / "t.duckdb"):
        assert load(1) == {"k": [1.0]}
    assert CALLS == [1, 1]
    assert load.__name__ == "load"


def test_async_generators_are_refused() -> None:
    """At once, with what to write instead."""

    async def items() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(UsageError, match=r"`items` is an async generator.*Return a list"):
        durable(items)


def test_a_credential_is_not_written(tmp_path: Path) -> None:
    """Neither as an argument nor in a result."""
    secret = "sk-proj-" + "a1B2" * 12

    @durable
    def call(api_key: str) -> str:
        return api_key

    with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as thread:
        assert thread.step("s", lambda: len(call(secret))) == len(secret)
        rows = thread.sql("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM journal WHERE kind = 'call'")
    assert len(rows) == 2
    assert secret not in rows.to_csv()
