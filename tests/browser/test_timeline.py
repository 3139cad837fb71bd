"""The timeline in JupyterLab: live from another process, forks and comparisons by click, the list, an old notebook."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resumable_nb.journal import Store
from tests.browser.lab import Lab, lab, write

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror='window.hit=1'>"
WORK = f"""
import sys, time
from pathlib import Path
import resumable_nb
from resumable_nb import durable
folder, until = Path(sys.argv[1]), sys.argv[2]
@durable
def look(what):
    return what + " {EVIL}"
def one(state):
    state.update(findings=[{{"claim": look("bees"), "source": "a"}}])
def two(state):
    look("ants")
    while not (folder / "go on").exists():
        time.sleep(0.05)
    state.update(findings=[{{"claim": look("wasps"), "source": "b"}}])
with resumable_nb.open("live", db=folder / "research.duckdb", query="q {EVIL}") as thread:
    thread.step("one {EVIL}", one)
    if until == "two":
        thread.step("two", two)
"""
FEW = """
import importlib, resumable_nb
importlib.import_module("resumable_nb.timeline.picture").ROWS_AT_MOST = 1
resumable_nb.threads("research.duckdb", "live")
"""


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), {}) as running:
        yield running


def work(folder: Path, until: str) -> subprocess.Popen[bytes]:
    """Another process at work on the thread."""
    return subprocess.Popen([sys.executable, "-c", WORK, str(folder), until])


@pytest.fixture
def folder(jupyter: Lab, request: pytest.FixtureRequest) -> Path:
    """A folder with a store of its own, in which step `one` is done, and a notebook open in JupyterLab."""
    folder = jupyter.work / request.node.name
    folder.mkdir()
    assert work(folder, "one").wait(200) == 0
    cells = {"timeline": "import resumable_nb\nresumable_nb.threads('research.duckdb', 'live')"}
    cells["list"] = "resumable_nb.threads('research.duckdb')"
    write(folder / "nb.ipynb", {**cells, "few": FEW})
    jupyter.open(f"{folder.name}/nb.ipynb")
    return folder


def run(jupyter: Lab, place: int, inside: str) -> Any:
    jupyter.run_cell(place)
    cell = jupyter.cell(place)
    cell.locator(inside).first.wait_for()
    return cell


def test_it_follows_another_process_and_keeps_what_is_chosen(jupyter: Lab, folder: Path) -> None:
    """A step that runs elsewhere appears, is seen running, and is done; the chosen checkpoint stays open meanwhile."""
    cell = run(jupyter, 0, ".rnb-step")
    cell.locator(".rnb-step", has_text="one").click()
    detail = cell.locator(".rnb-detail")
    detail.get_by_role("tab", name="State").click()
    detail.get_by_role("button", name="Fork").click()
    detail.get_by_label("Name of the new thread").fill("half typed")
    other = work(folder, "two")
    try:
        two = cell.locator(".rnb-step", has_text="two")
        two.locator(".rnb-how-running").wait_for()
        cell.locator(".rnb-live").wait_for()
        (folder / "go on").touch()
        two.locator(".rnb-how-ran").wait_for()
        assert other.wait(200) == 0
    finally:
        other.kill()
        other.wait()

    assert "one" in detail.locator("h4").inner_text()
    assert detail.get_by_role("tab", name="State").get_attribute("aria-selected") == "true"
    assert detail.get_by_label("Name of the new thread").input_value() == "half typed"


def test_a_process_that_dies_is_seen_to_die(jupyter: Lab, folder: Path) -> None:
    """SIGKILL writes nothing; the picture notices all the same that nobody runs the step any more."""
    cell = run(jupyter, 0, ".rnb-step")
    other = work(folder, "two")
    try:
        cell.locator(".rnb-step", has_text="two").locator(".rnb-how-running").wait_for()
    finally:
        other.kill()
        other.wait()

    cell.locator(".rnb-step", has_text="two").locator(".rnb-how-lost").wait_for()


def test_a_fork_is_made_by_a_click(jupyter: Lab, folder: Path) -> None:
    """The store holds the new thread, and the line says how to open it; a name that is taken is refused in words."""
    cell = run(jupyter, 0, ".rnb-step")
    cell.locator(".rnb-step", has_text="one").click()
    detail = cell.locator(".rnb-detail")
    detail.get_by_role("button", name="Fork").click()
    detail.get_by_label("Name of the new thread").fill("my copy")
    jupyter.page.keyboard.press("Enter")
    said = detail.locator(".rnb-said")
    said.filter(has_text="%resumable open 'my copy'").wait_for()
    store = Store.open(folder / "research.duckdb")
    threads = store.threads()
    store.close()
    detail.get_by_role("button", name="Fork", exact=True).click()
    said.filter(has_text="already").wait_for()

    assert threads == ["live", "my copy"]


def test_the_list_opens_a_thread_and_two_checkpoints_are_compared(jupyter: Lab, folder: Path) -> None:
    """From the list of threads to one of them, to two of its checkpoints, and back."""
    cell = run(jupyter, 0, ".rnb-step") and run(jupyter, 1, ".rnb-table")
    cell.get_by_role("button", name="live").click()
    cell.locator(".rnb-step", has_text="start").click()
    cell.get_by_role("button", name="Compare").click()
    cell.locator(".rnb-step", has_text="one").click()
    cell.locator(".rnb-panel", has_text="findings +1").wait_for()
    cell.get_by_role("button", name="threads").click()
    cell.locator(".rnb-table").wait_for()

    assert jupyter.page.evaluate("window.hit") is None
    assert cell.locator(".rnb img").count() == 0


def test_older_steps_are_one_click_away(jupyter: Lab, folder: Path) -> None:
    """Where only the newest steps are drawn, the head says how many are not; a click draws them above, and they stay.

    What a step changed is shown before that too, though it rests on steps that are not drawn.
    """
    cell = run(jupyter, 2, ".rnb-step")
    names = cell.locator(".rnb-step .rnb-name")
    cell.locator(".rnb-head", has_text="not drawn: 1 earlier step").wait_for(timeout=60_000)
    before = names.all_inner_texts()
    cell.locator(".rnb-step", has_text="one").click()
    cell.locator(".rnb-panel", has_text="findings +1").wait_for(timeout=60_000)
    cell.get_by_role("button", name="draw them too").click()
    cell.locator(".rnb-step", has_text="start").wait_for(timeout=60_000)
    assert work(folder, "one").wait(60) == 0
    cell.locator(".rnb-head", has_text="2 sessions").wait_for(timeout=60_000)

    assert [name.strip() for name in before] == [f"one {EVIL}"]
    assert [name.strip() for name in names.all_inner_texts()] == ["start", f"one {EVIL}"]
    assert "not drawn" not in cell.locator(".rnb-head").inner_text()


def test_a_saved_notebook_shows_a_table_without_its_kernel(jupyter: Lab, folder: Path) -> None:
    """Opened again after the kernel was killed, the picture is a table of text that says that it is old."""
    run(jupyter, 0, ".rnb-step")
    jupyter.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    jupyter.kill_kernel_unseen()
    jupyter.open(f"{folder.name}/nb.ipynb")
    shown = jupyter.wait_for(0, "This picture is old")

    assert "Timeline of thread live" in shown
    assert EVIL in shown
    assert jupyter.page.evaluate("window.hit") is None
