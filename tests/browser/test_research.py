"""Research as a person watches it in JupyterLab: words and findings as they come, a kill in a stream, Ctrl-C."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import nbformat
import pytest

from tests.browser.lab import Lab, lab, write
from tests.research.conftest import ISLAND
from tests.support.research_model import ResearchModel

pytestmark = pytest.mark.browser

CELLS = {
    "open": (
        "%load_ext resumable_nb\n"
        '%resumable open island --query "When was the lamp electrified, and when did the tide mill close?"'
    ),
    "sources": 'from resumable_nb.research import Folder, planner, researcher\nisland = Folder("island")',
    "plan": "%%resumable plan\n_ = planner(state, island)",
    "find": "%%resumable find\nfound = researcher(state, island)\nprint(len(found), 'found')",
}
FIND = 3
SLOW = {"marker": "Extracted", "chunk_delay_s": 1}


@pytest.fixture(scope="module")
def model() -> Iterator[ResearchModel]:
    with ResearchModel() as server:
        yield server


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory, model: ResearchModel) -> Iterator[Lab]:
    env = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "none"}
    with lab(tmp_path_factory.mktemp("lab"), env) as running:
        shutil.copytree(ISLAND, running.work / "island")
        write(running.work / "island.ipynb", CELLS)
        yield running


def interrupt(jupyter: Lab) -> None:
    jupyter.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.interrupt()"
    )


def test_it_is_seen_killed_and_interrupted_and_goes_on(jupyter: Lab, model: ResearchModel) -> None:
    """One sub-question is answered and shown while the other one's stream goes on; only that one is asked again.

    What stays in the notebook is short.
    """
    model.script({"marker": "Extracted", "chunk_delay_s": 0.01}, SLOW)
    jupyter.open("island.ipynb")
    jupyter.run_all()
    jupyter.wait_for(FIND, "1 of 2 sub-questions")
    jupyter.wait_for(FIND, " writes ")  # the other one, word by word
    assert "finding" in jupyter.cell(FIND).locator("table").inner_text()
    jupyter.screenshot("research-running.png")
    assert model.asked("Extracted") == 2

    model.script(SLOW)
    jupyter.kill_kernel()
    jupyter.dismiss_dialogs()
    jupyter.command("notebook:clear-all-cell-outputs")
    jupyter.run_all()
    jupyter.wait_for(FIND, "1 of 2 sub-questions")
    jupyter.wait_for(FIND, " writes ")
    assert model.asked("Extracted") == 3

    interrupt(jupyter)
    jupyter.wait_for(FIND, "stopping. 1 answer on the way")
    interrupt(jupyter)
    jupyter.wait_for(FIND, "KeyboardInterrupt")
    jupyter.wait_for(FIND, "1 of 2 sub-questions")
    jupyter.screenshot("research-interrupted.png")

    jupyter.wait_idle()
    jupyter.run_cell(FIND)
    jupyter.wait_for(FIND, "2 of 2 sub-questions")
    jupyter.wait_for(FIND, " found")
    assert model.asked("Extracted") == 4
    pictures = [text for text in saved(jupyter) if "2 of 2 sub-questions" in text]
    assert len(pictures) == 1 and "searched" not in pictures[0]


def saved(jupyter: Lab) -> list[str]:
    """What the saved notebook shows below the cell, as text."""
    jupyter.save()
    outputs = nbformat.read(jupyter.work / "island.ipynb", 4).cells[FIND].outputs
    assert len(str(outputs)) < 20_000
    return [output.get("data", {}).get("text/plain", "") for output in outputs]
