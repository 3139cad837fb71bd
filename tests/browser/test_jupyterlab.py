"""JupyterLab in a real Chromium: run, kill the kernel, run all again; a cell inserted in the middle, unsaved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from resumable_nb.journal import Store
from tests.browser.lab import Lab, lab, write
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.browser

CELLS = {
    "open": '%load_ext resumable_nb\n%resumable open bees --query "Why do bees dance?"',
    "imports": "from resumable_nb import ask",
    "plan": "%%resumable plan\nstate.plan = ['where', 'when']\nprint('planned', ask('Q1 plan'))",
    "research": "%%resumable research\nfor n, part in enumerate(state.plan, 2):\n    state.update(findings=[ask(f'Q{n} {part}')])\nstate.findings",
    "report": "%%resumable report\nreport = ask('Q9 ' + '; '.join(state.findings))\nprint(report)",
    "end": "print('found', state.findings, report)",
}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory, server: ModelServer) -> Iterator[Lab]:
    env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-test-SECRET", "RESUMABLE_NB_MODEL": "stub"}
    with lab(tmp_path_factory.mktemp("lab"), env) as running:
        yield running


@pytest.fixture(scope="module")
def ran(jupyter: Lab, server: ModelServer) -> str:
    """The notebook is open and has run to its end; gives what its last cell shows."""
    write(jupyter.work / "bees.ipynb", CELLS)
    jupyter.open("bees.ipynb")
    jupyter.run_all()
    shown = jupyter.wait_for(5, "found")
    jupyter.wait_idle()
    assert server.asked() == 4
    jupyter.screenshot("1-run.png")
    return shown


def test_run_kill_and_run_all(jupyter: Lab, server: ModelServer, ran: str) -> None:
    """After a killed kernel Run All skips what is done, asks nothing again, and shows the outputs and the state as before."""
    jupyter.kill_kernel()
    jupyter.dismiss_dialogs()
    jupyter.command("notebook:clear-all-cell-outputs")
    jupyter.run_all()
    after = jupyter.wait_for(5, "found")
    jupyter.screenshot("2-resumed.png")

    assert server.asked() == 4
    assert after == ran
    assert "not spent again" in jupyter.wait_for(3, "restored")
    assert "planned AQ1-1" in jupyter.wait_for(2, "planned")


@pytest.mark.usefixtures("ran")
def test_an_unsaved_cell_in_the_middle_stands_where_it_is_seen(jupyter: Lab, server: ModelServer) -> None:
    """A new, unsaved step between two others starts from the state at its place, and what is below it runs again after it."""
    asked = server.asked()
    jupyter.insert_below(
        3, "%%resumable more\nprint('here', len(state.findings))\nstate.update(findings=[ask('Q5 more')])"
    )
    jupyter.run_cell(4)
    jupyter.wait_for(4, "here 2")
    jupyter.run_cell(6)
    jupyter.wait_for(6, "Run `report` first")
    jupyter.run_all()
    jupyter.wait_idle()
    shown = jupyter.wait_for(6, "AQ5-1")
    jupyter.screenshot("3-inserted.png")

    assert "AQ2-1" in shown
    assert server.asked() == asked + 2
    store = Store.open(jupyter.work / "research.duckdb", create=False)
    names, rows = store.rows("SELECT step FROM checkpoints WHERE in_lineage AND step IS NOT NULL ORDER BY seq")
    store.close()
    assert [row[names.index("step")] for row in rows] == ["plan", "research", "more", "report"]
