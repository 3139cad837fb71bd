"""A stop for a person stops the step, whatever its code does with the exception; and what names an effect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

import resumable_nb
from resumable_nb import approve, durable, effect, resource
from resumable_nb.calls import standing
from resumable_nb.errors import Paused, UsageError
from resumable_nb.gates import decide
from resumable_nb.journal import Store
from tests.effects.ledger import CALLS, note


def step(db: Path, body: Callable[..., Any], name: str = "s") -> Any:
    with resumable_nb.open("t", db=db, say=lambda _: None) as opened:
        return opened.step(name, body)


def phases(db: Path) -> list[Any]:
    return Store.open(db).rows("SELECT phase FROM approvals ORDER BY seq")[1]


@effect(key="send-{n}", approve="Send {n}?")
def send(n: int) -> int:
    return note(("send", n))


@effect(key="announce")
def announce() -> int:
    return note("announce")


def _pool() -> None:
    with ThreadPoolExecutor(2) as pool:
        wait([pool.submit(send, n) for n in (1, 2)])
    announce()


def _gathered() -> None:
    async def main() -> None:
        await asyncio.gather(*(asyncio.to_thread(send, n) for n in (1, 2)), return_exceptions=True)

    asyncio.run(main())
    announce()


def _bare() -> None:
    for n in (1, 2):
        with contextlib.suppress(BaseException):
            send(n)
    announce()


def _approve() -> None:
    for n in (1, 2):
        with contextlib.suppress(BaseException):
            approve(f"Send {n}?", payload=n)


@pytest.mark.parametrize("body", [_pool, _gathered, _bare, _approve])
def test_a_swallowed_pause_stops_the_step_all_the_same(db: Path, body: Callable[[], None]) -> None:
    """Nothing after it acts, the step is not done, and both gates wait to be decided."""
    with pytest.raises(Paused, match=r"Send . *waits for a decision|Send .\?"):
        step(db, body)
    assert CALLS == []
    assert phases(db) == [("waiting",), ("waiting",)]

    for _ in range(2):
        waiting = Store.open(db).rows("SELECT seq FROM approvals WHERE phase = 'waiting' ORDER BY seq")[1]
        decide(Store.open(db), "t", approve=True, gate_seq=waiting[0][0])
    step(db, body)
    assert sorted(map(str, CALLS)) == ([] if body is _approve else ["('send', 1)", "('send', 2)", "announce"])


def test_a_step_cannot_end_with_an_effect_that_it_left_in_doubt(db: Path) -> None:
    """Code that catches the exception of an effect does not make it known that nothing happened."""
    is_down = [True]

    @effect(key="close-{n}", lookup=lambda key: {"found": key} if ("close", key) in CALLS else None)
    def close(n: int, *, idempotency_key: str) -> int:
        note(("close", idempotency_key))
        if is_down[0]:
            raise OSError("the connection was lost")
        return n

    def body() -> list[Any]:
        done = []
        for n in (1, 2):
            try:
                done.append(close(n))
            except OSError:
                done.append(None)
        return done

    with pytest.raises(Paused, match=r"went on after .*close.* with the key `close-1` had raised OSError"):
        step(db, body)
    is_down[0] = False

    assert step(db, body) == [{"found": "close-1"}, {"found": "close-2"}]
    assert CALLS == [("close", "close-1"), ("close", "close-2")]


def test_a_retry_in_the_step_settles_the_doubt(db: Path) -> None:
    """An exception that the code answers by trying again, with the same key, leaves no doubt behind."""

    @effect(key="post", idempotent=True)
    def post() -> str:
        if note("post") == 1:
            raise OSError("the connection was lost")
        return "posted"

    def body() -> str:
        try:
            return post()
        except OSError:
            return post()

    assert step(db, body) == "posted"


def test_an_edited_approval_holds_after_a_crash(db: Path) -> None:
    """The call that was approved with other arguments is found again: its receipt comes back, and nobody is asked."""

    @effect(key="pay-{n}", approve="Pay bill {n}: {amount}?")
    def pay(n: int, amount: int) -> int:
        note(("pay", amount))
        return amount

    crash = [True]

    def body(state: Any) -> Any:
        paid = pay(1, 5)
        if crash[0]:
            raise KeyboardInterrupt
        return paid, len(state.decisions)

    with pytest.raises(Paused):
        step(db, body)
    decide(Store.open(db), "t", "s", approve=True, payload='{"n": 1, "amount": 7}')
    with pytest.raises(KeyboardInterrupt):
        step(db, body)
    crash[0] = False

    assert step(db, body) == (7, 1)
    assert CALLS == [("pay", 7)]


def test_a_key_belongs_to_one_effect(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two effects whose keys are the same text: the second one is not taken for the first; a new name is."""

    @effect(key="{n}")
    def close(n: int) -> str:
        note("close")
        return "closed"

    @effect(key="{n}")
    def notify(n: int) -> str:
        note("notify")
        return "notified"

    with pytest.raises(Paused, match=r"key `41` belongs to the effect `.*close`.*`.*notify` was not run.*such as"):
        step(db, lambda: (close(41), notify(41)))
    for name in [n for n in standing._declared if n.endswith("close")]:  # as in a new process, where only `notify` is
        monkeypatch.delitem(standing._declared, name)
    assert step(db, lambda: notify(41)) == "closed"
    assert CALLS == ["close"]


def _coroutine() -> Any:
    async def late() -> None:
        note("late")

    return late()


def _generator() -> Any:
    yield note("late")


@pytest.mark.parametrize("made", [_coroutine, lambda: _generator()])
def test_what_has_not_run_is_no_receipt(db: Path, made: Callable[[], Any]) -> None:
    """A function that gives back a coroutine or a generator has done nothing: that is said, and nothing is in doubt."""
    post = effect(key="post")(lambda: made())

    with pytest.raises(UsageError, match="whose code has not run: nothing was done"):
        step(db, post)
    assert (CALLS, Store.open(db).rows("SELECT phase FROM effects")[1]) == ([], [("failed",)])


def test_a_look_up_that_fails_says_what_it_was_for(db: Path) -> None:
    """The exception of `lookup` names the effect, that it was not run again, and how a person settles it."""

    def lookup(key: str) -> None:
        raise OSError("the desk is down")

    @effect(key="post", lookup=lookup)
    def post() -> None:
        raise ConnectionError(str(note("post")))

    with pytest.raises(ConnectionError):
        step(db, post)
    with pytest.raises(OSError, match="the desk is down") as told:
        step(db, post)
    assert "not run again" in told.value.__notes__[0]
    assert "resumable-nb settle post" in told.value.__notes__[0]
    assert len(CALLS) == 1


def test_what_a_resource_holds_is_in_no_text_of_the_journal(db: Path) -> None:
    """Not in arguments, exceptions or facts: the token itself is nowhere in the file."""
    token = resource("desk", acquire=lambda: "KelpForest" + str(77), facts=lambda t: {"token": t, "ok": 1})

    @effect(key="post", not_done=OSError)
    def post(header: str, more: dict[str, str]) -> None:
        raise OSError(f"401 for {header}")

    @durable
    def parse(text: str) -> None:
        raise ValueError(f"cannot parse {text}")

    def body() -> None:
        held = token.get()
        for call in (lambda: post(f"Bearer {held}", {"a": held}), lambda: parse(held)):
            with pytest.raises((OSError, ValueError)):
                call()
        raise RuntimeError(f"failed with {held}")

    with pytest.raises(RuntimeError):
        step(db, body)
    Store.open(db).close()
    assert "KelpForest77" not in db.read_bytes().decode("latin-1")
    rows = Store.open(db).rows("SELECT kind, data FROM journal WHERE data::VARCHAR LIKE '%[redacted]%'")[1]
    assert {kind for kind, _ in rows} == {"effect", "call", "resource", "step"}
