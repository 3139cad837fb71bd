"""Gates in a real kernel: the quiet stop, the panel, the wait of a cell, and decisions from elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resumable_nb.gates import decide
from resumable_nb.journal import Store
from tests.notebook.screen import OPEN, Screen, Shown, screen

WIDGET = "application/vnd.jupyter.widget-view+json"
HIT = "_ = open('hits', 'a').write('x')\n"
GATED = f'%%resumable send --approve "Send <b>it</b>?"\n{HIT}x = n'
CLICK = (
    "import asyncio as _asyncio, gc as _gc\n"
    "from resumable_nb.notebook.gate import GatePanel as _GatePanel\n"
    "def _panels():\n    return [o for o in _gc.get_objects() if isinstance(o, _GatePanel)]\n"
    "def _panel():\n    return _panels()[-1]\n"
    "async def _when_there_are(count, act):\n"
    "    while len(_panels()) < count:\n        await _asyncio.sleep(0.05)\n"
    "    await _asyncio.sleep(0.05)\n"
    "    act()\n"
)


@pytest.fixture
def nb(tmp_path: Path) -> Iterator[Screen]:
    """A notebook with a kernel of its own."""
    with screen(tmp_path, open=OPEN) as found:
        yield found


def hits(found: Screen) -> int:
    path = found.folder / "hits"
    return len(path.read_text()) if path.exists() else 0


def start(nb: Screen, **cells: str) -> None:
    nb.cells = {"open": OPEN} | cells
    nb.save()


def panels(shown: Shown) -> list[dict[str, Any]]:
    return [o["data"] for o in shown.outputs if WIDGET in o.get("data", {})]


def approvals(nb: Screen) -> list[tuple[Any, ...]]:
    store = Store.open(nb.folder / "t.duckdb", create=False)
    rows = store.rows("SELECT phase, name, comment FROM approvals ORDER BY seq")[1]
    store.close()
    return rows


def status_of(nb: Screen, step: str) -> str:
    """The line of a step in the table of `%resumable status`."""
    shown = nb.execute("%resumable status").said
    return f"{next(line for line in shown.splitlines() if line.startswith(step))} "


def wait_for_panel(nb: Screen, msg_id: str, count: int = 1) -> None:
    """Until a request that was sent shows its panels: from then on the cell awaits."""
    while count:
        message = nb.client.get_iopub_msg(timeout=120)
        count -= message["parent_header"].get("msg_id") == msg_id and WIDGET in message["content"].get("data", {})


def test_a_gated_step_waits_over_a_kill_and_runs_once_approved(nb: Screen) -> None:
    """`--approve`: Run All stops quietly with a panel; so it does after SIGKILL; after a yes the body runs once."""
    start(nb, n="n = 1", send=GATED, after="print('after', x)")
    first = nb.run_all()
    nb.restart()
    second = nb.run_all()
    assert "`send` waits for a decision: Send <b>it</b>?" in second["open"].said
    for shown in (first, second):
        assert list(shown)[-1] == "send"
        assert shown["send"].error.startswith("Paused: `send`")
        assert len(panels(shown["send"])) == 1
        assert "Send <b>it</b>?" in panels(shown["send"])[0]["text/plain"]
        assert "<b>it</b>" not in panels(shown["send"])[0]["text/html"]
        assert "Traceback" not in shown["send"].text()
    assert hits(nb) == 0
    assert " waits " in status_of(nb, "send")
    assert nb.execute("%resumable approve send --comment fine").status == "ok"
    assert " decided" in status_of(nb, "send")
    nb.restart()
    assert "`send` was approved by " in nb.run("open").said
    done = nb.run_all()
    again = nb.run_all()
    assert done["after"].text() == again["after"].text() == "after 1\n"
    assert hits(nb) == 1
    assert approvals(nb) == [("approved", "Send <b>it</b>?", "fine")]
    assert nb.value("state.decisions[0]['comment']") == "fine"


def test_a_gated_step_asks_again_for_other_code_or_inputs(nb: Screen) -> None:
    """A yes to `--approve` is for the code, the inputs and the state that it was given for."""
    start(nb, n="n = 1", send=GATED)
    nb.run_all()
    nb.execute("%resumable approve send")
    nb.cells["n"] = "n = 2"
    nb.save()
    assert nb.run_all()["send"].error.startswith("Paused")
    nb.execute("%resumable reject send --comment 'not this'")
    rejected = nb.run_all()["send"]
    assert rejected.error.startswith("Rejected")
    assert "`send` was rejected by " in nb.execute("%resumable status").said
    assert "not this" in rejected.error
    assert hits(nb) == 0
    nb.cells["n"] = "n = 1"
    nb.save()

    assert nb.run_all()["send"].status == "ok"
    assert hits(nb) == 1


def test_a_click_decides_for_the_next_run(nb: Screen) -> None:
    """A click in the panel of a stopped cell records the decision, comment and edit; more clicks change nothing."""
    start(
        nb,
        i="from resumable_nb import approve",
        s="%%resumable s\np = approve('Plan?', {'n': [1, 2]}).payload\nprint(p)",
    )
    nb.run_all()
    click = CLICK + (
        "p = _panel(); p.comment.value = 'shorter'; p.edit.click(); rows = p.editor._parts['n'].rows\n"
        "rows[0]._fields[None].widget.value = 'x'; p.approve.click(); said = p.said.value\n"
        "rows[0]._fields[None].widget.value = '3'; rows[1].out.click(); p.approve.click(); p.decide(approve=False)\n"
        "print(said); print(p.said.value, p.approve.disabled)"
    )
    said = nb.execute(click, store_history=False).text()

    assert "Nothing was decided" in said
    assert "approved after an edit by" in said
    assert said.strip().endswith("True")
    assert nb.run_all()["s"].text().endswith("{'n': [3]}\n")
    assert approvals(nb) == [("approved", "Plan?", "shorter")]


def test_a_gate_without_a_payload_shows_what_it_is_about(nb: Screen) -> None:
    """Not hashes: the inputs of the cell, and the state as it is where the question stands."""
    inner = "%%resumable s\nstate.update(findings=['bees <b>dance</b>'])\nfrom resumable_nb import approve\napprove('Go on?')"
    start(nb, n="n = 1", s='%%resumable s --approve "Send it?"\nx = n')
    before = panels(nb.run_all()["s"])[0]
    nb.cells["s"] = inner
    nb.save()
    within = panels(nb.run_all()["s"])[0]

    assert "its inputs and the state as it is now.\n  n = 1\n" in before["text/plain"]
    assert "bees <b>dance</b>" in within["text/plain"]
    assert "<b>dance" not in within["text/html"]


@pytest.mark.parametrize("head", ["", "%%resumable s\n"], ids=["ordinary cell", "step"])
def test_a_cell_that_awaits_goes_on_by_a_click(nb: Screen, head: str) -> None:
    """`await approval(…)` waits, takes the click that comes, and goes on by itself; a restart asks no more."""
    cell = head + "print(bool(await approval('Go?', {'n': 1})))"
    start(nb, i="from resumable_nb import approval", a=cell)
    nb.run("open", "i")
    later = "_task = _asyncio.create_task(_when_there_are(1, lambda: _panel().approve.click()))"
    nb.execute(CLICK + later, store_history=False)
    shown = nb.run("a")
    nb.restart()
    again = nb.run_all()["a"]

    assert shown.status == "ok", shown.text()
    assert "True" in shown.text()
    assert "True" in again.text()
    assert not panels(again)
    assert [phase for phase, *_ in approvals(nb)] == ["approved"]


def test_a_cell_that_awaits_notices_a_decision_from_elsewhere(nb: Screen) -> None:
    """Another process decides while the cell awaits; the cell goes on with what was approved there."""
    start(
        nb, i="from resumable_nb import approval", a="%%resumable a\nprint((await approval('Go?', {'n': 1})).payload)"
    )
    nb.run("open", "i")
    sent = nb.send(nb.cells["a"], "a")
    wait_for_panel(nb, sent)
    decide(Store.open(nb.folder / "t.duckdb"), "t", "a", approve=True, payload='{"n": 2}', comment="elsewhere")
    shown = nb.result(sent)

    assert shown.status == "ok", shown.text()
    assert "{'n': 2}" in shown.text()


def test_a_cell_that_awaits_bears_that_somebody_holds_the_store(nb: Screen) -> None:
    """A store that another program keeps open for longer than a write would wait does not end the wait for a person."""
    start(nb, i="from resumable_nb import approval", a="print(bool(await approval('Go?', {'n': 1})))")
    nb.run("open", "i")
    nb.execute("thread.store._lease.wait_s = 0.1", store_history=False)
    sent = nb.send(nb.cells["a"], "a")
    wait_for_panel(nb, sent)
    store = Store.open(nb.folder / "t.duckdb")
    with store._lease.closed():
        time.sleep(3)  # it looks every second
    decide(store, "t", approve=True, gate_seq=store.rows("SELECT seq FROM approvals")[1][0][0])

    assert nb.result(sent).text().endswith("True\n")


def test_a_wait_that_is_interrupted_or_killed_still_waits(nb: Screen) -> None:
    """Ctrl-C, and SIGKILL, during `await approval(…)` leave the same gate waiting."""
    start(nb, i="from resumable_nb import approval", a="%%resumable a\nprint(bool(await approval('Go?', 1)))")
    nb.run("open", "i")
    sent = nb.send(nb.cells["a"], "a")
    wait_for_panel(nb, sent)
    nb.manager.interrupt_kernel()
    assert nb.result(sent).error.startswith(("KeyboardInterrupt", "CancelledError"))
    nb.execute(CLICK, store_history=False)
    assert nb.value("_panel().goes_on") is False  # a click would be for the next run
    wait_for_panel(nb, nb.send(nb.cells["a"], "a"))
    nb.restart()
    nb.run("open", "i")
    sent = nb.send(nb.cells["a"], "a")
    decide(Store.open(nb.folder / "t.duckdb"), "t", "a", approve=True)

    assert nb.result(sent).text().endswith("True\n")
    assert [phase for phase, *_ in approvals(nb)] == ["approved"]


SEVERAL = (
    "%%resumable a\nimport asyncio\n"
    "got = await asyncio.gather(*(approval('Go?', n) for n in range(3)))\nprint([a.payload for a in got if a])"
)


def test_several_gates_await_at_once(nb: Screen) -> None:
    """Gates that wait side by side are each decided by their own click, and the kernel is as before afterwards."""
    later = CLICK + (
        "def _click():\n    for p in _panels()[::-1]:\n        p.approve.click()\n"
        "_asyncio.handlers_before = dict(get_ipython().kernel.shell_handlers)\n"
        "_task = _asyncio.create_task(_when_there_are(3, _click))"
    )
    start(nb, i="from resumable_nb import approval", a=SEVERAL)
    nb.run("open", "i")
    nb.execute(later, store_history=False)
    shown = nb.run("a")

    assert "\n[0, 1, 2]\n" in shown.text(), shown.text()
    assert nb.value("_asyncio.handlers_before == get_ipython().kernel.shell_handlers")
    assert [phase for phase, *_ in approvals(nb)] == ["approved"] * 3


def test_gates_that_were_killed_are_the_same_afterwards(nb: Screen) -> None:
    """Gates that wait side by side, one of them decided, survive SIGKILL as they are: none is asked about anew."""
    start(nb, i="from resumable_nb import approval", a=SEVERAL)
    nb.run("open", "i")
    wait_for_panel(nb, nb.send(nb.cells["a"], "a"), count=3)
    store = Store.open(nb.folder / "t.duckdb")
    asked = [seq for (seq,) in store.rows("SELECT seq FROM approvals ORDER BY seq")[1]]
    decide(store, "t", approve=True, gate_seq=asked[1])
    nb.restart()
    nb.run("open", "i")
    sent = nb.send(nb.cells["a"], "a")
    wait_for_panel(nb, sent, count=2)

    for seq in (asked[2], asked[0]):
        decide(store, "t", approve=True, gate_seq=seq)
    assert nb.result(sent).text().endswith("[0, 1, 2]\n")
    assert [phase for phase, *_ in approvals(nb)] == ["approved"] * 3


def test_two_clicks_open_one_of_two_equal_gates(nb: Screen) -> None:
    """Equal gates in a loop that awaits: the second click on the first one's button leaves the second one waiting."""
    cell = "%%resumable a\nfor n in range(2):\n    answer = await approval('Go?', ['same'])\nprint('passed both')"
    twice = "[panel.approve.click() for panel in [_panel()] * 2]"
    later = CLICK + f"_task = _asyncio.create_task(_when_there_are(1, lambda: {twice}))"
    start(nb, i="from resumable_nb import approval", a=cell)
    nb.run("open", "i")
    nb.execute(later, store_history=False)
    sent = nb.send(nb.cells["a"], "a")
    wait_for_panel(nb, sent, count=2)
    assert [phase for phase, *_ in approvals(nb)] == ["approved", "waiting"]

    decide(Store.open(nb.folder / "t.duckdb"), "t", "a", approve=True)
    assert nb.result(sent).text().endswith("passed both\n")


def test_what_was_approved_is_used_though_the_code_changed_it_meanwhile(nb: Screen) -> None:
    """A payload that is changed while its cell awaits goes on as it was when a person said yes to it."""
    start(nb, i="from resumable_nb import approval\nplan = ['a']", a="print((await approval('Go?', plan)).payload)")
    nb.run("open", "i")
    later = "_task = _asyncio.create_task(_when_there_are(1, lambda: (plan.append('b'), _panel().approve.click())))"
    nb.execute(CLICK + later, store_history=False)

    assert nb.run("a").text().endswith("['a']\n")
