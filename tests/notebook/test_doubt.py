"""The panel for an effect in doubt, in a real kernel: what it shows, what a click records, and what comes after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resumable_nb.journal import Store
from resumable_nb.receipts import settle
from tests.notebook.screen import OPEN, Screen, Shown, screen

WIDGET = "application/vnd.jupyter.widget-view+json"
EFFECT = """
import os, pathlib
from resumable_nb import effect
def lines(): return pathlib.Path('done').read_text().split() if pathlib.Path('done').exists() else []
@effect(key='close-{n}')
def close(n, why):
    open('done', 'a').write(f'{n}\\n')
    if len(lines()) <= 2: os.kill(os.getpid(), 9)
    return {'n': n}
"""
PANEL = (
    "import gc as _gc\nfrom resumable_nb.notebook.doubt import DoubtPanel as _DoubtPanel\n"
    "def _panels(): return [o for o in _gc.get_objects() if isinstance(o, _DoubtPanel)]\n"
)


@pytest.fixture
def nb(tmp_path: Path) -> Iterator[Screen]:
    """A notebook with a kernel of its own."""
    with screen(tmp_path, open=OPEN) as found:
        yield found


def killed(nb: Screen, **cells: str) -> Shown:
    """Run up to the end of the kernel, and then all again: what the cell that stops shows."""
    nb.cells = {"open": OPEN, "effect": EFFECT} | cells
    nb.save()
    nb.run("open", "effect")
    nb.send(nb.cells["s"], "s")
    nb.manager.provisioner.process.wait(60)
    nb.restart()
    return nb.run_all()["s"]


def panels(shown: Shown) -> list[dict[str, Any]]:
    return [o["data"] for o in shown.outputs if WIDGET in o.get("data", {})]


def click(nb: Screen, code: str) -> Shown:
    """Act in the panel, as its buttons do; what is printed last is what the panel says then."""
    shown = nb.execute(PANEL + "(p,) = _panels()\n" + code + "\nprint(p.said.value)", store_history=False)
    assert shown.status == "ok", shown.text()
    return shown


def effects(nb: Screen) -> list[tuple[Any, ...]]:
    store = Store.open(nb.folder / "t.duckdb", create=False)
    rows = store.rows("SELECT phase, receipt FROM effects ORDER BY seq")[1]
    store.close()
    return rows


def test_it_happened(nb: Screen) -> None:
    """The panel shows the call as text; the receipt that is pasted counts, and nothing is run a second time."""
    stopped = killed(nb, s="%%resumable s\nr = close(42, why='<b>fixed</b>')", end="print('got', r)")
    (data,) = panels(stopped)
    said = click(nb, "p.receipt.value = '{\"n\": 42}'; p.comment.value = 'seen outside'; p.happened.click()")
    done = nb.run_all()

    assert stopped.error.startswith("Paused")
    assert 'close(n=42, why="<b>fixed</b>")' in data["text/plain"]
    assert "Did this happen?" in data["text/plain"]
    assert "<b>fixed</b>" not in data["text/html"]
    assert said.text().startswith("It happened, as ")
    assert [d["text/plain"].startswith("close-42: It happened") for d in said.updated.values()] == [True, False]
    assert "`close-42` happened (as " in list(said.updated.values())[1]["text/plain"]  # the resume panel
    assert done["end"].text() == "got {'n': 42}\n"
    assert effects(nb) == [("done", '{"n":42}')]
    assert (nb.folder / "done").read_text() == "42\n"


def test_it_did_not_happen(nb: Screen) -> None:
    """It is run, once, with the same key; a receipt for it is refused with a reason, and nothing is lost of it."""
    killed(nb, s="%%resumable s\nr = close(1, why='')", end="print('got', r)")
    (nb.folder / "done").write_text("1\n1\n")
    refused = click(nb, "p.receipt.value = 'R1'; p.did_not.click()").text()
    click(nb, "assert p.receipt.value == 'R1'; p.receipt.value = ''; p.did_not.click(); assert p.happened.disabled")

    assert "A receipt is for what happened" in refused
    assert nb.run_all()["end"].text() == "got {'n': 1}\n"
    assert [phase for phase, _ in effects(nb)] == ["not done", "done"]


def test_the_second_word_is_told_of_the_first(nb: Screen) -> None:
    """Who comes second, here or elsewhere, changes nothing and reads what was said before."""
    killed(nb, s="%%resumable s\nr = close(1, why='')")
    store = Store.open(nb.folder / "t.duckdb", create=False)
    settle(store, "t", "close-1", happened=True, receipt="elsewhere")
    store.close()
    said = click(nb, "p.did_not.click(); assert p.did_not.disabled; p.settle(happened=False)").text()

    assert "It is known of the effect 'close-1': it happened, as " in said.replace("&#x27;", "'")
    assert effects(nb) == [("done", '"elsewhere"')]


def test_each_effect_of_a_step_that_is_in_doubt_is_asked_about(nb: Screen) -> None:
    """Two that ran in parallel when the kernel died: two panels at once; those of other steps wait for theirs."""
    both = (
        "%%resumable s\nimport threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "barrier = threading.Barrier(2)\n"
        "@effect(key='both-{n}')\n"
        "def both(n): barrier.wait(30); os.kill(os.getpid(), 9)\n"
        "with ThreadPoolExecutor(2) as pool: list(pool.map(both, range(2)))"
    )
    stopped = killed(nb, s=both)

    assert sorted(d["text/plain"].split("key ")[1].split()[0] for d in panels(stopped)) == ["both-0", "both-1"]


def test_one_that_does_not_stand_any_more_is_asked_about_where_its_step_is_skipped(nb: Screen) -> None:
    """The step stays done; the panel says how to have it done again."""
    effect = "from resumable_nb import effect\n@effect(key='k', verify=lambda receipt: False)\ndef act(): return 7"
    nb.cells = {"open": OPEN, "effect": effect, "s": "%%resumable s\nr = act()", "end": "print('got', r)"}
    nb.save()
    nb.run_all()
    nb.restart()
    shown = nb.run_all()
    said = click(nb, "print(p.did_not.description); p.did_not.click()").text()

    assert "restored from checkpoint" in shown["s"].said
    assert "Shall this be done again?" in panels(shown["s"])[0]["text/plain"]
    assert shown["end"].text() == "got 7\n"
    assert "It does not: do it again" in said
    assert "`%resumable fresh s`, then run that step again." in said
