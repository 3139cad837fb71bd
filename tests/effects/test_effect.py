"""What an effect does in a living process: receipts, doubt, keys, and what people are told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import resumable_nb
from resumable_nb import effect
from resumable_nb.cli import cli
from resumable_nb.errors import AlreadyDecided, Blocked, NotAsked, Paused, ThreadTakenOver, UsageError
from resumable_nb.journal import Store
from resumable_nb.receipts import settle
from tests.effects.ledger import CALLS, note


class Broken(Exception):
    """What breaks a call or a step off."""


class Refused(Exception):
    """The service said no: nothing happened."""


Open = Callable[..., Any]


def step(db: Path, body: Callable[[], Any], *, thread: str = "t", said: list[str] | None = None) -> Any:
    """Run a body as the step `s` in a session of its own."""
    lines: list[str] = [] if said is None else said
    with resumable_nb.open(thread, db=db, say=lines.append) as opened:
        return opened.step("s", body)


def closing(**rules: Any) -> Callable[..., Any]:
    """An effect that notes what it closes."""

    @effect(key="close-{ticket}", **rules)
    def close(ticket: int, comment: str = "", *, idempotency_key: str) -> dict[str, Any]:
        number = note((ticket, idempotency_key))
        if comment == "break":
            raise Broken("the connection was lost")
        if comment == "refuse":
            raise Refused("no such ticket")
        return {"n": number, "comment": comment}

    return close


def broken_off(db: Path, body: Callable[[], Any], **options: Any) -> None:
    """Run a body in a step that breaks off after it."""

    def then_break() -> None:
        body()
        raise Broken

    with pytest.raises(Broken):
        step(db, then_break, **options)


def test_a_receipt_is_given_back_instead_of_a_second_call(db: Path) -> None:
    """After the step broke off, and within one run; in the journal, the view and the state."""
    close = closing()
    broken_off(db, lambda: close(1))

    def body() -> list[Any]:
        first = close(1)
        first["changed"] = True
        return [close(1), close(ticket=1)]

    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        assert thread.step("s", body) == [{"n": 1, "comment": ""}] * 2
        rows = thread.sql("SELECT phase, idempotency_key, receipt FROM effects")
        assert thread.state.receipts == [{"effect": "close", "key": "close-1", "receipt": {"n": 1, "comment": ""}}]

    assert CALLS == [(1, "close-1")]
    assert rows[["phase", "idempotency_key"]].values.tolist() == [["done", "close-1"]]
    assert json.loads(rows.receipt[0]) == {"n": 1, "comment": ""}


def test_the_receipt_is_in_the_stored_state_before_the_step_ends(db: Path) -> None:
    """Its row carries what the state gains, so that others see what was done by a step that broke off."""
    broken_off(db, lambda: closing()(1))

    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        (seq,) = thread.sql("SELECT receipt_seq FROM effects").receipt_seq
        receipts = thread.state_at(int(seq)).receipts

    assert [receipt["key"] for receipt in receipts] == ["close-1"]


@pytest.mark.parametrize("error", [Broken("lost"), KeyboardInterrupt(), TimeoutError()])
def test_after_an_exception_it_is_in_doubt(db: Path, error: BaseException) -> None:
    """Any exception may come after the service has acted: no second call, neither in this run nor in the next."""

    @effect(key="k")
    def act() -> None:
        note("act")
        raise error

    def body() -> None:
        with pytest.raises(type(error)) as raised:
            act()
        assert "is in doubt" in raised.value.__notes__[0]
        act()

    for _ in range(2):
        with pytest.raises(Paused, match=r"nobody knows whether it happened.*settle k --thread t .*--did-not-happen"):
            step(db, body if CALLS == [] else act)
    assert CALLS == ["act"]


def test_a_declared_exception_says_that_nothing_happened(db: Path) -> None:
    """It may be tried again at once, with other arguments too."""
    close = closing(not_done=Refused)

    def body() -> Any:
        with pytest.raises(Refused):
            close(1, "refuse")
        return close(1, "now")

    assert step(db, body)["comment"] == "now"


def test_a_look_up_settles_a_doubt(db: Path) -> None:
    """What is found outside is the receipt; what is not found is run, with the same key."""
    outside = {"close-1": {"found": 1}}
    close = closing(lookup=outside.get)

    for ticket in (1, 2):
        with pytest.raises(Broken):
            step(db, lambda ticket=ticket: close(ticket, "break"))
    outside_calls = list(CALLS)
    with pytest.raises(Broken):
        step(db, lambda: [close(1, "break"), close(2, "break")])

    assert [*outside_calls, (2, "close-2")] == CALLS
    with resumable_nb.open("t", db=db) as thread:
        phases = thread.sql("SELECT idempotency_key AS k, phase FROM effects ORDER BY seq").values.tolist()
    assert phases == [["close-1", "done"], ["close-2", "not done"], ["close-2", "in doubt"]]


def test_an_idempotent_effect_is_repeated_with_its_key(db: Path) -> None:
    """The service sees one key, however often."""

    @effect(key="k", idempotent=True)
    def act(*, idempotency_key: str) -> int:
        if note(idempotency_key) == 1:
            raise Broken
        return 7

    with pytest.raises(Broken):
        step(db, act)

    assert step(db, act) == 7
    assert CALLS == ["k", "k"]


def test_one_key_with_other_arguments_stops(db: Path) -> None:
    """Nothing runs, done or in doubt."""
    close = closing()
    broken_off(db, lambda: close(1, "yes"))

    with pytest.raises(Blocked, match=r"`close-1` of `close` was used before with other arguments .*it happened"):
        step(db, lambda: close(1, "no"))
    assert len(CALLS) == 1


def test_a_person_settles_a_doubt_once(db: Path) -> None:
    """The first word stands, with who said it; what is not in doubt cannot be settled."""
    close = closing()
    with pytest.raises(NotAsked, match="no effect with the key 'close-1'"):
        broken_off(db, lambda: None)
        settle(Store.open(db), "t", "close-1", happened=True)
    for _ in range(2):
        with pytest.raises((Broken, Paused)):
            step(db, lambda: close(1, "break"))

    settle(Store.open(db), "t", "close-1", happened=True, receipt="event 7")

    with pytest.raises(AlreadyDecided, match="it happened, as "):
        settle(Store.open(db), "t", "close-1", happened=False)
    assert step(db, lambda: close(1, "break")) == "event 7"
    assert len(CALLS) == 1


def test_the_command_line_settles(db: Path) -> None:
    """`resumable-nb settle KEY`, as the message of the stop says; both answers, and neither, are refused."""
    close = closing()
    for _ in range(2):
        with pytest.raises((Broken, Paused)) as stop:
            step(db, lambda: close(1, "break"))
    command = re.findall("`(resumable-nb settle .*?)`", str(stop.value))

    for options in ([], ["--happened", "1", "--did-not-happen"]):
        wrong = CliRunner().invoke(cli, [*shlex.split(command[0])[1:6], *options])
        assert wrong.exit_code == 2
    done = CliRunner().invoke(cli, shlex.split(command[0].replace("RECEIPT", "'{\"n\": 5}'"))[1:])

    assert done.exit_code == 0, done.output
    assert "`close-1` happened. Run its step again" in done.output
    assert step(db, lambda: close(1, "break")) == {"n": 5}


def test_forks_share_what_was_done(db: Path) -> None:
    """Before the fork and after it, in either direction."""
    close = closing()
    broken_off(db, lambda: close(1))
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        thread.fork(thread.session.head, "f")
    broken_off(db, lambda: close(2), thread="f")

    assert step(db, lambda: [close(1), close(2)])[1] == {"n": 2, "comment": ""}
    assert step(db, lambda: close(1), thread="f")["n"] == 1
    assert step(db, lambda: close(2), thread="another")["n"] == 3
    assert [ticket for ticket, _ in CALLS] == [1, 2, 2]


def test_a_doubt_of_a_fork_is_a_doubt_here(db: Path) -> None:
    """It is settled there."""
    close = closing()
    broken_off(db, lambda: None)
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        thread.fork(thread.session.head, "f")
    with pytest.raises(Broken):
        step(db, lambda: close(1, "break"), thread="f")

    with pytest.raises(Paused, match=r"in thread 'f'.*settle close-1 --thread f"):
        step(db, lambda: close(1, "break"))
    with pytest.raises(NotAsked, match=r"started in thread 'f'.*is in doubt there.*settle close-1 --thread f"):
        settle(Store.open(db), "t", "close-1", happened=False)
    assert len(CALLS) == 1


def test_a_fork_that_begins_it_at_the_same_time_is_seen(db: Path) -> None:
    """After the look at the forks, before the `started` row: it is not run here, and its receipt is there next time."""
    from resumable_nb import resource

    broken_off(db, lambda: None)
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        thread.fork(thread.session.head, "f")
    there = (
        "import resumable_nb as r\n"
        "act = r.effect(key='close-{ticket}')(lambda ticket, comment='': 'done in the fork')\n"
        f"with r.open('f', db={str(db)!r}) as thread: thread.step('s', lambda: act(1))\n"
    )

    def probe(_: Any) -> bool:
        environment = {"PYTHONPATH": str(Path(resumable_nb.__file__).parent.parent)}
        subprocess.run([sys.executable, "-c", there], env=environment, check=True)
        return True

    held = resource("r", acquire=lambda: "token", probe=probe)
    broken_off(db, held.get)
    with pytest.raises(Blocked, match=r"in thread 'f'.* was done there meanwhile"):
        step(db, lambda: closing()(1))

    assert step(db, lambda: closing()(1)) == "done in the fork"
    assert CALLS == []


def test_what_was_cancelled_before_the_call_is_in_no_doubt(db: Path) -> None:
    """Only its row was written: it runs the next time, and nobody is asked."""
    from resumable_nb import resource

    probing, go_on = threading.Event(), threading.Event()

    def probe(_: Any) -> bool:
        probing.set()
        return go_on.wait(60)

    held = resource("r", acquire=lambda: "token", probe=probe)
    broken_off(db, held.get)

    @effect(key="k")
    async def act() -> int:
        return note("act")

    async def cancelled() -> None:
        task = asyncio.ensure_future(act())
        await asyncio.to_thread(probing.wait, 60)
        task.cancel()
        go_on.set()
        await task

    with pytest.raises(asyncio.CancelledError):
        step(db, lambda: asyncio.run(cancelled()))

    assert CALLS == []
    assert step(db, lambda: asyncio.run(act())) == 1


@pytest.mark.parametrize("word", [None, "found outside"])
@pytest.mark.parametrize("ends_well", [True, False])
def test_what_became_of_a_call_is_known_though_the_thread_was_taken_over(
    db: Path, word: str | None, ends_well: bool
) -> None:
    """Its receipt, or its doubt, is there for the new owner; a word that came before stands."""

    @effect(key="k")
    def act() -> str:
        note("act")
        resumable_nb.open("t", db=db, say=lambda _: None, take_over=True).close()
        if word:
            settle(Store.open(db), "t", "k", happened=True, receipt=word)
        if not ends_well:
            raise Broken
        return "receipt"

    with pytest.raises(ThreadTakenOver):
        step(db, act)

    if word or ends_well:
        assert step(db, act) == (word or "receipt")
    else:
        with pytest.raises(Paused, match="nobody knows whether it happened"):
            step(db, act)
    assert CALLS == ["act"]


def test_threads_and_tasks_that_want_the_same_do_it_once(db: Path) -> None:
    """They wait for the first, and get its receipt."""
    running = threading.Event()

    @effect(key="k")
    def act() -> int:
        running.wait(0.2)
        return note("act")

    @effect(key="a")
    async def act_async() -> int:
        await asyncio.sleep(0.1)
        return note("async")

    def body() -> list[int]:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: act(), range(4)))

        async def together() -> list[int]:
            return await asyncio.gather(*(act_async() for _ in range(4)))

        return found + asyncio.run(together())

    assert step(db, body) == [1] * 4 + [2] * 4


def test_a_receipt_without_a_stored_form_keeps_its_text(db: Path) -> None:
    """It happened, and that must not be lost: its text is given back, now and later, and that is said."""

    @effect(key="k")
    def act() -> Any:
        note("act")
        return threading.Lock()

    said: list[str] = []
    results: list[Any] = []
    broken_off(db, lambda: results.append(act()), said=said)

    assert step(db, act) == results[0]
    assert results[0].startswith("<unlocked _thread.lock")
    assert any("Its text is kept" in line for line in said)
    assert CALLS == ["act"]


class Unkept:
    """What has no stored form, and no text either."""

    def __repr__(self) -> str:
        raise Broken


@pytest.mark.parametrize("receipt", [Unkept(), b"x" * (11 << 20)], ids=["no text", "too large"])
def test_a_receipt_that_cannot_be_kept_does_not_undo_that_it_happened(db: Path, receipt: Any) -> None:
    """Without even a text of its own, or too large for a row: it is done, and not in doubt."""

    @effect(key="k")
    def act() -> Any:
        note("act")
        return receipt

    broken_off(db, act)

    assert type(step(db, act)) is str
    assert CALLS == ["act"]


@pytest.mark.parametrize("kind", [Unkept, type(threading.Lock()), Unkept | BaseException])
def test_a_receipt_that_can_surely_not_be_stored_is_refused_before_the_call(db: Path, kind: Any) -> None:
    """Where the annotation says so; nothing was started."""

    def act() -> Any:
        note("act")

    act.__annotations__["return"] = kind
    with pytest.raises(UsageError, match=r"of which no receipt could be stored\. It was not run"):
        step(db, effect(key="k")(act))

    assert CALLS == []
    assert [row.kind for row in Store.open(db).visitor("t").read() if row.kind == "effect"] == []


@pytest.mark.parametrize(
    "kind", [None, dict[str, Any], "Missing", int | None, Unkept | None, Path, Any, Sequence, object, list, date]
)
def test_other_annotations_are_no_reason_to_refuse(db: Path, kind: Any) -> None:
    """What is storable, or what may be."""

    def act() -> Any:
        note("act")

    act.__annotations__["return"] = kind
    step(db, effect(key="k")(act))

    assert CALLS == ["act"]


@pytest.mark.parametrize("approve", [None, "Close {ticket}?"])
def test_earlier_receipts_of_an_edited_step_are_told_before_a_live_effect(db: Path, approve: str | None) -> None:
    """What an earlier version did and this one has not asked for is said before the call, or the question; and once."""
    close = closing(approve=approve)
    heard: list[list[str]] = []
    said: list[str] = []
    broken_off(db, lambda: closing()(1))

    @effect(key="other-{n}")
    def other(n: int) -> None:
        heard.append([line for line in said if not line.startswith("resume:")])

    def edited() -> None:
        if approve is None:
            other(1)
            other(2)
        else:
            close(2)

    with contextlib.suppress(Paused):
        step(db, edited, said=said)

    (told,) = [line for line in said if "an earlier version of this step did `close-1`" in line]
    assert heard == ([[told], [told]] if approve is None else [])


@pytest.mark.parametrize("stands", [True, False])
def test_an_effect_that_does_not_stand_any_more_is_told(db: Path, stands: bool) -> None:
    """`verify=` is asked once in a later session; without a yes a person is asked, and nothing is run."""
    close = closing(verify=lambda receipt: (CALLS.append(receipt["n"]), stands)[1])
    broken_off(db, lambda: close(1))
    CALLS.clear()

    if stands:
        step(db, lambda: [close(1), close(1)])
    else:
        with pytest.raises(Paused, match="does not stand any more"):
            step(db, lambda: close(1))
        settle(Store.open(db), "t", "close-1", happened=False)
        assert step(db, lambda: close(1))["n"] == 2
    assert ([1] if stands else [1, (1, "close-1")]) == CALLS


def test_approve_asks_about_exactly_these_arguments(db: Path) -> None:
    """Nothing runs before the yes; with other arguments it is another question."""
    from resumable_nb.gates import decide

    close = closing(approve="Close {ticket}?")
    for ticket in (1, 1, 2):
        with pytest.raises(Paused):
            step(db, lambda ticket=ticket: close(ticket))
    decide(Store.open(db), "t", "s", approve=True)

    assert step(db, lambda: close(2))["n"] == 1
    with pytest.raises(Paused):
        step(db, lambda: [close(2), close(1)])
    assert len(CALLS) == 1


def test_outside_a_step_it_is_refused(db: Path) -> None:
    """With what to do; it was not run."""
    close = closing()
    with pytest.raises(UsageError, match=r"no thread is open.*Call it in a step"):
        close(1)
    with resumable_nb.open("t", db=db), pytest.raises(UsageError, match=r"no step is running"):
        close(1)
    assert CALLS == []


@pytest.mark.parametrize("key", ["", lambda ticket: None, lambda ticket: 3])
def test_a_key_has_to_be_a_text(db: Path, key: Any) -> None:
    """Anything else is refused before the call."""

    @effect(key=key)
    def act(ticket: int) -> None:
        note(ticket)

    with pytest.raises(UsageError, match="The key of"):
        step(db, lambda: act(1))
    assert CALLS == []


def test_a_credential_in_a_receipt_is_not_written(db: Path) -> None:
    """Its text is kept without it."""
    secret = "sk-proj-" + "a1B2" * 12

    @effect(key="k")
    def act(api_key: str) -> dict[str, str]:
        return {"token": api_key}

    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        thread.step("s", lambda: bool(act(secret)))
        rows = thread.sql("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM journal")
    assert secret not in rows.to_csv()
