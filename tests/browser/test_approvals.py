"""Gates in JupyterLab: a comment typed while a cell awaits, an edited plan, a kernel killed while a gate waits."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from resumable_nb.journal import Store
from tests.browser.lab import CHROMIUM, Lab, lab

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

CELLS = {
    "open": "%load_ext resumable_nb\n%resumable open gates",
    "imports": "from resumable_nb import approval, approve",
    "plan": (
        "%%resumable plan\nplan = approve('Is <i>this</i> the plan?', ['bees', 'ants']).payload\nprint('plan', plan)"
    ),
    "send": (
        "%%resumable send\n"
        "asked = await approval('Send it?', {'to': 'lab', 'amount': 100})\n"
        "print('sent', asked.payload)"
    ),
    "end": "print('decided', len(state.decisions))",
}
PLAN, SEND, END = 2, 3, 4


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if not Path(CHROMIUM).exists() or importlib.util.find_spec("jupyterlab") is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium or no JupyterLab: .ci/run installs both")
        pytest.skip("needs JupyterLab and Debian's package chromium")
    with lab(tmp_path_factory.mktemp("lab"), {}) as running:
        yield running


def write(folder: Path) -> None:
    cells = [nbformat.v4.new_code_cell(source, id=cell_id) for cell_id, source in CELLS.items()]
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=spec), folder / "gates.ipynb")


def approvals(folder: Path) -> list[tuple[Any, ...]]:
    store = Store.open(folder / "research.duckdb", create=False)
    rows = store.rows("SELECT phase, comment, approved_payload FROM approvals ORDER BY seq")[1]
    store.close()
    return rows


def press(jupyter: Lab, place: int, name: str) -> None:
    """Reach a button by keyboard alone and press it."""
    button = jupyter.cell(place).get_by_role("button", name=name, exact=True)
    button.wait_for(timeout=60_000)
    button.focus()
    jupyter.page.keyboard.press("Enter")


def test_decide_edit_kill_and_comment(jupyter: Lab) -> None:
    """A stopped gate takes an edited plan; one that awaits survives a killed kernel and keeps a typed comment whole."""
    write(jupyter.work)
    jupyter.open("gates.ipynb")
    jupyter.run_all()
    jupyter.wait_for(PLAN, "waits for a decision")
    press(jupyter, PLAN, "Edit")
    editor = jupyter.cell(PLAN).locator(".jp-OutputArea textarea")
    editor.fill("bees\nwasps\n")
    editor.blur()
    jupyter.screenshot("gate-1-edit.png")
    press(jupyter, PLAN, "Approve the edited")
    jupyter.cell(PLAN).get_by_text("approved after an edit by").wait_for(timeout=60_000)
    assert jupyter.cell(PLAN).locator(".jp-OutputArea i").count() == 0  # what is asked is text

    jupyter.run_all()
    jupyter.wait_for(PLAN, "plan ['bees', 'wasps']")
    jupyter.cell(SEND).get_by_role("button", name="Approve", exact=True).wait_for(timeout=60_000)
    jupyter.kill_kernel()
    jupyter.dismiss_dialogs()
    jupyter.command("notebook:clear-all-cell-outputs")
    jupyter.run_all()
    comment = jupyter.cell(SEND).locator(".jp-OutputArea input[type=text]")
    comment.wait_for(timeout=60_000)
    comment.press_sequentially("looks good to me, 100 is fine", delay=40)
    jupyter.screenshot("gate-2-await.png")
    press(jupyter, SEND, "Approve")
    jupyter.wait_for(END, "decided 2")
    jupyter.screenshot("gate-3-done.png")

    assert "sent {'to': 'lab', 'amount': 100}" in jupyter.wait_for(SEND, "sent")
    (plan, send) = approvals(jupyter.work)
    assert (plan[0], json.loads(plan[2])) == ("approved", ["bees", "wasps"])
    assert send[:2] == ("approved", "looks good to me, 100 is fine")
