"""The notebook of the research assistant, in real kernels, with a scripted model: a gate, a kill, the same report."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest

from resumable_nb import demo, gates
from resumable_nb.journal import Store
from resumable_nb.runner import Run, run_notebook
from tests.support.research_model import ResearchModel

NAME = "03_research.ipynb"


def run(
    folder: Path, model: ResearchModel, failpoint: str = "", *, approve: bool = False, thread: str | None = None
) -> Run:
    """One kernel, to its end, to a gate, or to the failpoint."""
    env = {
        **os.environ,
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "none",
        "RESUMABLE_NB_FAILPOINT": failpoint,
    }
    book: dict[str, Any] = {
        "parameters": {"APPROVE": approve},
        "thread": thread,
        "max_restarts": 0,
        "say": lambda _: None,
    }
    return run_notebook(folder / NAME, env=env, output=folder / "out.ipynb", **book)


def shown(folder: Path, cell_id: str, form: str) -> list[str]:
    cells = nbformat.read(folder / "out.ipynb", as_version=4).cells
    cell = next(cell for cell in cells if cell.id == cell_id)
    return [output.data[form] for output in cell.outputs if form in output.get("data", {})]


def report(folder: Path) -> str:
    return shown(folder, "reporter", "text/markdown")[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(demo._notebook().with_name(NAME), tmp_path)
    return tmp_path


def test_its_findings_are_shown_under_any_name_of_the_thread(model: ResearchModel, folder: Path):
    """Run as another thread than the notebook names, the cell that asks for the findings shows those of that one."""
    ended = run(folder, model, thread="mine")

    assert ended.outcome == "done", ended.message
    (found,) = Store.open(folder / "research.duckdb").rows("SELECT count(*) FROM findings WHERE is_current")[1]
    (table,) = shown(folder, "findings", "text/plain")
    assert found[0] > 0
    assert "claim" in table and "Empty DataFrame" not in table


@pytest.mark.parametrize("name", sorted(path.name for path in demo._notebook().parent.glob("*.ipynb")))
def test_notebooks_ask_for_the_open_thread(name: str):
    """No cell that asks the store names a thread: it is the one that the notebook runs as."""
    cells = nbformat.read(demo._notebook().with_name(name), as_version=4).cells
    asked = [cell.source for cell in cells if cell.source.startswith("%%resumable_sql")]

    assert all("thread_id = $thread" in source and "thread_id = '" not in source for source in asked)


def test_it_waits_for_the_plan_and_survives_a_kill(model: ResearchModel, folder: Path, tmp_path_factory: Any):
    """It stops at the gate before research, dies in the middle of it, and ends with the report of an unharmed run."""
    whole = tmp_path_factory.mktemp("whole")
    shutil.copy(folder / NAME, whole)
    assert run(whole, model).outcome == "done"
    asked = model.asked()
    model.reset()

    waits = run(folder, model, approve=True)
    assert (waits.outcome, model.asked("Extracted")) == ("waiting", 0), waits.message
    gates.decide(Store.open(folder / "research.duckdb"), "assistant", "gate", approve=True)
    dies = run(folder, model, "http.receive.after:1", approve=True)
    ends = run(folder, model, approve=True)

    assert len(dies.deaths) == 1
    assert ends.outcome == "done", ends.message
    assert report(folder) == report(whole)
    assert "Python reference: " in report(folder) and "## Sources" in report(folder)
    assert asked <= model.asked() <= asked + 3
    (picture,) = [text for text in shown(folder, "researcher", "text/plain") if text.startswith("researcher: ")]
    assert picture.startswith("researcher: 2 of 2 sub-questions, ") and "searched" not in picture
