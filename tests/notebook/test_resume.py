"""A notebook that goes on after a kill: the order of the resume in its panel, the outside asked, effects verified."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resumable_nb.journal import Store
from tests.notebook.screen import OPEN, Screen, Shown, screen

SERVICE = """
import os, pathlib
from resumable_nb import durable, effect, resource
here = pathlib.Path('.')
def lines(name): return (here / name).read_text().splitlines() if (here / name).exists() else []
def add(name, text='x'): (here / name).open('a').write(text + '\\n')
def acquire():
    add('tries')
    if (here / 'down').exists(): raise ConnectionError('no answer')
    token = 'SECRET-' + 'q7' * 16 + str(len(lines('tokens'))); add('tokens', token); return token
token = resource('desk', acquire=acquire, probe=lambda t: t == lines('tokens')[-1])
@durable
def ask(n): add('asked', token.get()); return n
"""
EFFECT = """
@effect(key='close-{n}', verify=lambda receipt: (add('verified'), not (here / 'reopened').exists())[1])
def close(n): add('closed'); return {'n': n}
"""


@pytest.fixture
def nb(tmp_path: Path) -> Iterator[Screen]:
    """A notebook with a kernel of its own."""
    with screen(tmp_path, open=OPEN) as found:
        yield found


def start(nb: Screen, **cells: str) -> None:
    nb.cells = {"open": OPEN} | cells
    nb.save()


def lines(nb: Screen, name: str) -> list[str]:
    path = nb.folder / name
    return path.read_text().splitlines() if path.exists() else []


def rows(nb: Screen, query: str) -> list[tuple[Any, ...]]:
    store = Store.open(nb.folder / "t.duckdb", create=False)
    found = store.rows(query)[1]
    store.close()
    return found


def panel(shown: dict[str, Shown]) -> str:
    """The resume panel as it stands at the end, through all that has updated it."""
    texts = [o["data"]["text/plain"] for o in shown["open"].outputs if "text/plain" in o.get("data", {})]
    for one in shown.values():
        texts += [data["text/plain"] for place, data in one.updated.items() if place.startswith("resumable-nb-")]
    return " ".join(texts[-1].split())


def killed_in(nb: Screen, cell_id: str) -> None:
    """Run up to a cell that ends its kernel by SIGKILL, and start another."""
    for earlier in nb.cells:
        if earlier == cell_id:
            break
        assert nb.run(earlier).status == "ok"
    nb.send(nb.cells[cell_id], cell_id)
    nb.manager.provisioner.process.wait(60)
    nb.restart()


def test_the_panel_shows_each_part_of_a_resume_in_its_order(nb: Screen) -> None:
    """After a kill: loaded, migrated, rebuilt; probed and gone on when the first new call is made. It is recorded."""
    step = (
        "%%resumable s\na = ask(1)\nif not (here / 'once').exists(): add('once'); os.kill(os.getpid(), 9)\nb = ask(2)"
    )
    start(nb, service=SERVICE, s=step)
    killed_in(nb, "s")
    shown = nb.run_all()

    first = " ".join(shown["open"].said.split())
    parts = ["checkpoint", "migration", "context", "outside", "effects", "going on"]
    places = [first.index(f" {part} ", first.index("on resume")) for part in parts]
    assert places == sorted(places)
    assert "… outside `desk` will be probed before the next new call" in first
    assert "… going on with the first new call" in first
    assert "✓ outside `desk` was acquired again (not held by this process)" in panel(shown)
    assert "s after opening; 1 call had been answered" in panel(shown)
    assert len(lines(nb, "asked")) == 2
    ((done, again, share, ms, data),) = rows(
        nb, "SELECT calls_done, calls_again, share, duration_ms, data FROM recoveries"
    )
    assert (done, again, share) == (1, 0, 0.0)
    assert ms > 0
    found = json.loads(data)
    assert found["probed"] == [{"name": "desk", "stands": False, "why": "not held by this process"}]
    assert found["settled"] == []
    assert "SECRET" not in str(rows(nb, "SELECT * FROM journal"))


def test_calls_that_a_crash_lost_are_counted_as_done_again(nb: Screen) -> None:
    """One call was under way: it is done again, and `recoveries` says so, with its share and its step."""
    kill = "@durable\ndef risky(): add('risked'); (len(lines('risked')) > 1) or os.kill(os.getpid(), 9); return 1"
    start(
        nb,
        service=SERVICE,
        risky=kill,
        s="%%resumable s\na = [ask(n) for n in range(4)]\nb = risky()",
        t="%%resumable t\nc = 1",
    )
    killed_in(nb, "s")
    nb.run_all()
    ((again, share, data),) = rows(nb, "SELECT calls_again, share, data FROM recoveries")

    assert (again, share) == (1, 0.25)
    assert json.loads(data)["again"] == {"s": 1}


def test_a_token_that_was_revoked_is_acquired_once(nb: Screen) -> None:
    """Between steps, and for calls in parallel: one probe that fails, one acquire, and everybody has the new one."""
    pool = "from concurrent.futures import ThreadPoolExecutor\nimport asyncio\nfrom resumable_nb import map as pmap"
    parallel = (
        "%%resumable two\nwith ThreadPoolExecutor(4) as pool: got = list(pool.map(ask, range(8)))\n"
        "def give(n): return token.get()\n"
        "n_tokens = len(set([*pmap(lambda n: len({token.get()}), [1, 2]), 1]))\n"
        "async def one(n): return await asyncio.to_thread(token.get)\n"
        "seen = len(set(await asyncio.gather(*map(one, range(4)))))"
    )
    revoke = "add('tokens', 'another')\nheld = len(lines('tries'))"
    start(nb, service=SERVICE, pool=pool, one="%%resumable one\nx = ask(0)", revoke=revoke, two=parallel)
    shown = nb.run_all()

    assert shown["two"].status == "ok", shown["two"].text()
    assert len(lines(nb, "tries")) == 2
    assert len(set(lines(nb, "asked")[1:])) == 1
    assert nb.value("(n_tokens, seen)") == (1, 1)


def test_one_failed_acquire_stops_all_that_wait_for_it(nb: Screen) -> None:
    """After a kill nothing is marked done, nobody tries again, and the old reference stays; mended, it goes on."""
    pool = "from concurrent.futures import ThreadPoolExecutor"
    parallel = "%%resumable two\nwith ThreadPoolExecutor(4) as pool: got = list(pool.map(ask, range(4)))"
    start(nb, service=SERVICE, pool=pool, one="%%resumable one\nx = ask(0)", two=parallel)
    nb.run("open", "service", "pool", "one")
    nb.restart()
    (nb.folder / "down").touch()
    stopped = nb.run_all()
    tries = len(lines(nb, "tries"))
    (nb.folder / "down").unlink()
    mended = nb.run_all()

    assert "ResourceGone: The resource 'desk' cannot be acquired" in stopped["two"].error
    assert "nothing is marked done" in stopped["two"].error
    assert tries == 2  # the first use, and one that failed
    assert mended["two"].status == "ok"
    assert len(lines(nb, "asked")) == 5
    assert rows(nb, "SELECT phase FROM journal WHERE kind = 'resource' ORDER BY seq")[2:4] == [
        ("started",),
        ("failed",),
    ]


@pytest.mark.parametrize("side", ["before", "after"])
def test_killed_while_it_is_acquired_again(nb: Screen, side: str) -> None:
    """Whichever side: the next kernel probes or acquires, and makes the call once."""
    start(nb, service=SERVICE, one="%%resumable one\nx = ask(0)", two="%%resumable two\ny = ask(1)")
    nb.run("open", "service", "one")
    nb.env["RESUMABLE_NB_FAILPOINT"] = f"resource.acquire.{side}"
    nb.restart()
    nb.run("open", "service", "one")
    nb.send(nb.cells["two"], "two")
    assert nb.manager.provisioner.process.wait(60) == -signal.SIGKILL
    del nb.env["RESUMABLE_NB_FAILPOINT"]
    nb.restart()
    shown = nb.run_all()

    assert shown["two"].status == "ok"
    assert len(lines(nb, "asked")) == 2
    assert rows(nb, "SELECT count(*) FROM journal WHERE kind = 'resource' AND phase = 'lost'") == [(1,)]


# ------------------------------------------------------------------------------------------ effects that are done
@pytest.mark.parametrize("stands", [True, False])
def test_effects_of_a_skipped_step_are_verified(nb: Screen, stands: bool) -> None:
    """Once in each opening. One that does not stand any more is said, is in doubt, and is never just repeated."""
    start(nb, service=SERVICE, effects=EFFECT, s="%%resumable s\nr = close(1)", t="%%resumable t\nx = 1")
    nb.run_all()
    nb.restart()
    if not stands:
        (nb.folder / "reopened").touch()
    shown = nb.run_all()
    nb.run_all()

    assert [one.status for one in shown.values()] == ["ok"] * 5
    assert "restored from checkpoint" in shown["s"].said
    assert lines(nb, "closed") == lines(nb, "verified") == ["x"]
    assert ("does not stand any more" in shown["s"].said) is not stands
    assert ("`close-1` of `s` does not stand any more" in panel(shown)) is not stands
    assert rows(nb, "SELECT phase FROM effects") == [("done" if stands else "in doubt",)]
    if not stands:
        assert nb.execute('%resumable settle "close-1" --did-not-happen').status == "ok"
        assert nb.execute("%resumable fresh s").status == "ok"
        (nb.folder / "reopened").unlink()
        assert nb.run("s").status == "ok"
        assert len(lines(nb, "closed")) == 2


def test_what_cannot_be_verified_is_said_and_asked_by_its_step(nb: Screen) -> None:
    """A service that is down stops no skip and no call; the effect counts as not verified."""
    broken = EFFECT.replace("(add('verified'),", "(add('verified'), 1 / len(lines('up')),")
    start(nb, service=SERVICE, effects=broken, s="%%resumable s\nr = close(1)", t="%%resumable t\nx = ask(1)")
    nb.run_all()
    nb.restart()
    shown = nb.run_all()

    assert [one.status for one in shown.values()] == ["ok"] * 5
    assert "`close-1` could not be verified (ZeroDivisionError" in shown["s"].said
    assert rows(nb, "SELECT phase FROM effects") == [("done",)]
    assert lines(nb, "verified") == ["x"]


@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_in_doubt_is_looked_up_before_the_first_new_call(nb: Screen, is_async: bool) -> None:
    """Also if its own step is not run again: found, its receipt is recorded, and it counts as done."""
    how = "async def" if is_async else "def"
    effects = (
        f"{how} find(key): return {{'n': 7}} if len(lines('closed')) else None\n"
        "@effect(key='close-{n}', lookup=find)\n"
        f"{how} close(n): add('closed'); os.kill(os.getpid(), 9)\n"
    )
    call = "await close(1)" if is_async else "close(1)"
    start(nb, service=SERVICE, effects=effects, s=f"%%resumable s\nr = {call}")
    killed_in(nb, "s")
    start(nb, service=SERVICE, effects=effects, other="%%resumable other\nx = ask(1)")
    shown = nb.run_all()

    assert "… effects `close-1` of `s` is in doubt" in " ".join(shown["open"].said.split())
    assert "✓ effects `close-1` happened (looked up)" in panel(shown)
    assert "close-1` was in doubt: it happened, as lookup= says" in shown["other"].said
    start(nb, service=SERVICE, effects=effects, s=f"%%resumable s\nr = {call}")
    assert nb.run_all()["s"].status == "ok"
    assert nb.value("(r, [x['receipt'] for x in state.receipts])") == ({"n": 7}, [{"n": 7}])
    assert lines(nb, "closed") == ["x"]


def test_what_a_look_up_or_a_probe_asks_is_never_answered_from_the_journal(nb: Screen) -> None:
    """They may use durable functions and clients of the library: how things stand now is asked."""
    effects = (
        "@durable\ndef there(): add('looked'); return (here / 'closed').exists()\n"
        "def find(key): return {'n': 1} if there() else None\n"
        "@effect(key='close-{n}', lookup=find)\n"
        "def close(n):\n    if lines('closed'): raise AssertionError('twice')\n"
        "    if len(lines('tried')) > 0: add('closed')\n"
        "    add('tried'); os.kill(os.getpid(), 9)\n"
    )
    start(nb, service=SERVICE, effects=effects, s="%%resumable s\nr = close(1)")
    killed_in(nb, "s")
    killed_in(nb, "s")
    shown = nb.run_all()

    assert shown["s"].status == "ok", shown["s"].text()
    assert lines(nb, "closed") == ["x"]


def test_a_migration_is_part_of_the_resume(nb: Screen) -> None:
    """The line says from which version to which; without the class yet, it says what it waits for."""
    cls = "from resumable_nb import ResearchState\nclass S(ResearchState):\n    schema_version = {v}\n    n: int = 1\n"
    up = "@S.migration(from_version=1)\ndef up(raw): return raw | {'n': 5}\n"
    start(nb, s="%%resumable s\nstate.n = 2", cls=cls.format(v=1))
    nb.cells = {"cls": cls.format(v=1), "open": OPEN + " --state S", "s": "%%resumable s\nstate.n = 2"}
    nb.save()
    nb.run_all()
    nb.restart()
    nb.cells = {"open": OPEN + " --state S", "cls": cls.format(v=2) + up, "s": "%%resumable s\nstate.n = 2"}
    nb.save()
    shown = nb.run_all()

    assert "is loaded when the cell that defines `S` has run" in " ".join(shown["open"].said.split())
    assert "✓ migration lifted from version 1 to 2" in panel(shown)
