"""Resources: probed and acquired again where they are gone; a clear stop where that fails; no secret in the journal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import resumable_nb
from resumable_nb import durable, effect, resource
from resumable_nb.errors import ResourceGone, UsageError
from tests.effects.ledger import CALLS, note

SECRET = "sk-proj-" + "a1B2" * 12


class Service:
    """Gives tokens, and can revoke them."""

    def __init__(self) -> None:
        self.given = 0
        self.valid = ""
        self.is_down = False

    def acquire(self) -> str:
        if self.is_down:
            raise ConnectionError(f"no answer to {SECRET}")
        self.given += 1
        self.valid = f"{SECRET}{self.given}"
        return self.valid

    def probe(self, token: str) -> bool:
        return token == self.valid

    def revoke(self) -> None:
        self.valid = ""


def run(db: Path, *steps: tuple[str, Callable[[], Any]]) -> list[Any]:
    """Run steps in a session of its own."""
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        return [thread.step(name, body) for name, body in steps]


def phases(db: Path) -> list[str]:
    """What the journal says of resources."""
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        return [row.phase for row in thread.session.read(kinds=("resource",))]


def test_a_token_revoked_between_steps_is_acquired_once(db: Path) -> None:
    """One re-acquire, though several calls ask for it."""
    service = Service()
    token = resource("r", acquire=service.acquire, probe=service.probe)

    def first() -> int:
        return len({token.get(), token.get()})

    def second() -> int:
        with ThreadPoolExecutor(4) as pool:
            return len(set(pool.map(lambda _: token.get(), range(8))))

    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        assert thread.step("a", first) == 1
        service.revoke()
        assert thread.step("b", second) == 1

    assert service.given == 2
    assert phases(db) == ["started", "done", "probed", "started", "done"]


def test_calls_that_find_it_stale_renew_it_together(db: Path) -> None:
    """The first acquires, the others get what it got."""
    service = Service()
    token = resource("r", acquire=service.acquire)

    def body() -> int:
        stale = token.get()
        with ThreadPoolExecutor(4) as pool:
            return len(set(pool.map(lambda _: token.renew(stale), range(8))))

    assert run(db, ("a", body)) == [1]
    assert service.given == 2


@pytest.mark.parametrize("is_valid", [True, False])
def test_on_resume_what_was_used_is_probed_before_a_live_call(db: Path, is_valid: bool) -> None:
    """Also if that call does not use it: the outside is asked before anything is done."""
    service = Service()
    token = resource("r", acquire=service.acquire, probe=service.probe)
    run(db, ("a", lambda: len(token.get())))
    if not is_valid:
        service.revoke()

    @durable
    def live() -> int:
        return note(service.given)

    run(db, ("a", lambda: len(token.get())), ("b", live), ("c", lambda: live() + 1))

    assert set(CALLS) == {1 if is_valid else 2}
    again = [] if is_valid else ["started", "done"]
    assert phases(db) == ["started", "done", "probed", *again]


@pytest.mark.parametrize("kind", ["durable", "effect"])
def test_a_failed_acquire_stops_before_the_call(db: Path, kind: str) -> None:
    """Nothing is started, nothing is marked done, and what was held is kept; mended, the next run goes on."""
    service = Service()
    token = resource("r", acquire=service.acquire, probe=service.probe)
    run(db, ("a", lambda: len(token.get())))
    service.revoke()
    service.is_down = True
    act = durable(note) if kind == "durable" else effect(key="k")(note)

    with pytest.raises(ResourceGone, match=r"'r' cannot be acquired .*The one held before is kept") as stop:
        run(db, ("b", lambda: act("b")))

    assert SECRET not in str(stop.value)
    assert CALLS == []
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        assert list(thread.session.read(kinds=("call", "effect"))) == []
    service.is_down = False
    assert run(db, ("b", lambda: act("b"))) == [1]
    assert service.given == 2


def test_the_journal_holds_facts_and_no_secret(db: Path) -> None:
    """Neither the token, nor a secret in the facts or in an error."""
    service = Service()
    good = resource("good", acquire=service.acquire, facts=lambda token: {"expires": "2030-01-01", "n": len(token)})
    leaky = resource("leaky", acquire=service.acquire, facts=lambda token: {"token": token})
    run(db, ("a", lambda: len(good.get() + leaky.get())))

    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        rows = thread.sql("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM journal")
        (fact,) = thread.sql(
            "SELECT data->'facts'->>'expires' AS e FROM journal WHERE name = 'good' AND phase = 'done'"
        ).e
    assert SECRET not in rows.to_csv()
    assert fact == "2030-01-01"
    assert SECRET not in repr(good)


def test_async_functions_are_refused() -> None:
    """When it is declared."""

    async def acquire() -> str:
        return ""

    with pytest.raises(UsageError, match="acquire= is `async def`"):
        resource("r", acquire=acquire)


@pytest.mark.parametrize("side", ["before", "after"])
def test_killed_while_acquiring_it_is_acquired_again(db: Path, side: str) -> None:
    """Nothing is taken for done by a process that died."""
    code = (
        "import resumable_nb as r\n"
        "token = r.resource('r', acquire=lambda: print('acquired') or 'token')\n"
        f"with r.open('t', db={str(db)!r}, say=str) as thread: print(thread.step('a', lambda: len(token.get())))\n"
    )
    environment = {"PYTHONPATH": str(Path(resumable_nb.__file__).parent.parent)}
    kill = environment | {"RESUMABLE_NB_FAILPOINT": f"resource.acquire.{side}"}

    killed = subprocess.run([sys.executable, "-c", code], env=kill)
    again = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert killed.returncode == -9
    assert again.stdout.split() == ["acquired", "5"]
    assert phases(db) == ["started", "lost", "started", "done"]
