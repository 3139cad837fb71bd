"""Gates in JupyterLab: a comment typed while a cell awaits, an edited plan, a kernel killed while a gate waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from resumable_nb.demo import _notebook
from resumable_nb.journal import Store
from tests.browser.lab import Lab, lab, write

pytestmark = pytest.mark.browser

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
FORM = """%%resumable trip
from datetime import date
from typing import Literal
from pydantic import BaseModel, Field

class Leg(BaseModel):
    to: str
    km: int = Field(le=3000)
    train: bool = True

class Trip(BaseModel):
    name: str
    start: date
    travel_class: Literal["first", "second"] = "second"
    price: float | None = None
    legs: list[Leg]
    more: dict = {"<u>key</u>": "<u>value</u>"}

trip = Trip(name="Conference <u>on</u> bees", start="2025-05-01", legs=[Leg(to="Lyon", km=900), Leg(to="Rome", km=1100)])
print("booked", approve("Book it?", trip).payload)"""
FORM_CELLS = CELLS | {"open": CELLS["open"].replace("gates", "trip"), "plan": FORM}
TICKETS = "02_effects_and_approvals.ipynb"


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), {}) as running:
        yield running


def approvals(folder: Path, thread: str) -> list[tuple[Any, ...]]:
    store = Store.open(folder / "research.duckdb", create=False)
    asked = "SELECT phase, comment, approved_payload FROM approvals WHERE thread_id = ? ORDER BY seq"
    rows = store.rows(asked, [thread])[1]
    store.close()
    return rows


def press(jupyter: Lab, place: int, name: str) -> None:
    """Reach a button by keyboard alone and press it."""
    button = jupyter.cell(place).get_by_role("button", name=name, exact=True)
    button.wait_for()
    button.focus()
    jupyter.page.keyboard.press("Enter")


def edit_as_list(jupyter: Lab) -> None:
    """Of bees and ants make wasps and bees: by keyboard alone."""
    keyboard = jupyter.page.keyboard
    second = jupyter.cell(PLAN).get_by_title("Item 2", exact=True)
    second.wait_for()
    second.focus()
    keyboard.press("Control+A")
    keyboard.type("wasps")
    press(jupyter, PLAN, "Add")
    expect_focus(jupyter, "Item 3")
    keyboard.type("nobody")
    jupyter.cell(PLAN).get_by_title("Move item 2 up").focus()
    keyboard.press("Enter")
    expect_focus(jupyter, "Move item 1 down")
    jupyter.screenshot("gate-1-edit.png")
    jupyter.cell(PLAN).get_by_title("Take out item 3").focus()
    keyboard.press("Enter")
    expect_focus(jupyter, "Take out item 2")


def expect_focus(jupyter: Lab, title: str) -> None:
    jupyter.page.wait_for_function("title => document.activeElement?.title === title", arg=title)


def test_decide_edit_kill_and_comment(jupyter: Lab) -> None:
    """A stopped gate takes an edited plan; one that awaits survives a killed kernel and keeps a typed comment whole."""
    write(jupyter.work / "gates.ipynb", CELLS)
    jupyter.open("gates.ipynb")
    jupyter.run_all()
    jupyter.wait_for(PLAN, "waits for a decision")
    jupyter.screenshot("gate-0-asked.png")
    press(jupyter, PLAN, "Edit")
    edit_as_list(jupyter)
    press(jupyter, PLAN, "Approve the edited")
    jupyter.cell(PLAN).get_by_text("approved after an edit by").wait_for()
    assert jupyter.cell(PLAN).locator(".jp-OutputArea i").count() == 0  # what is asked is text

    jupyter.run_all()
    jupyter.wait_for(PLAN, "plan ['wasps', 'bees']")
    jupyter.cell(SEND).get_by_role("button", name="Approve", exact=True).wait_for()
    jupyter.kill_kernel()
    jupyter.dismiss_dialogs()
    jupyter.command("notebook:clear-all-cell-outputs")
    jupyter.run_all()
    comment = jupyter.cell(SEND).locator(".jp-OutputArea input[type=text]")
    comment.wait_for()
    comment.press_sequentially("looks good to me, 100 is fine", delay=40)
    jupyter.screenshot("gate-2-await.png")
    press(jupyter, SEND, "Approve")
    jupyter.wait_for(END, "decided 2")
    jupyter.screenshot("gate-3-done.png")

    assert "sent {'to': 'lab', 'amount': 100}" in jupyter.wait_for(SEND, "sent")
    (plan, send) = approvals(jupyter.work, "gates")
    assert (plan[0], json.loads(plan[2])) == ("approved", ["wasps", "bees"])
    assert send[:2] == ("approved", "looks good to me, 100 is fine")


def test_a_form_shows_what_is_wrong_and_a_no_stops(jupyter: Lab) -> None:
    """In the dark theme: a wrong number is marked at its field and decides nothing; a no with a comment stops the step."""
    write(jupyter.work / "trip.ipynb", FORM_CELLS)
    jupyter.open("trip.ipynb")
    jupyter.command("apputils:change-theme", theme="JupyterLab Dark")
    jupyter.run_all()
    cell = jupyter.cell(PLAN)
    press(jupyter, PLAN, "Edit")
    kilometres = cell.get_by_title("km of item 2", exact=True)
    kilometres.fill("9000")
    press(jupyter, PLAN, "Approve the edited")
    cell.get_by_role("alert").get_by_text("less than or equal to 3000").wait_for()
    cell.get_by_text("Nothing was decided: see what is marked above.").wait_for()
    jupyter.screenshot("form-1-wrong.png")
    assert kilometres.input_value() == "9000"
    assert cell.locator(".jp-OutputArea label", has_text="<u>key</u>").is_visible()
    assert cell.locator(".jp-OutputArea u").count() == 0  # names of fields are text too
    assert approvals(jupyter.work, "trip") == [("waiting", None, None)]

    comment = cell.get_by_placeholder("Comment")
    comment.fill("too far")
    comment.blur()
    press(jupyter, PLAN, "Reject")
    cell.get_by_text("rejected by").wait_for()
    jupyter.screenshot("form-2-rejected.png")
    jupyter.command("notebook:clear-all-cell-outputs")
    jupyter.run_all()
    assert "too far" in jupyter.wait_for(PLAN, "Rejected")
    jupyter.screenshot("form-3-stopped.png")
    assert approvals(jupyter.work, "trip") == [("rejected", "too far", None)]


def test_the_notebook_of_effects_runs_in_the_browser(jupyter: Lab) -> None:
    """Run All waits for the plan, and goes on; the kernel dies once; Run All again ends it, each ticket closed once."""
    source = nbformat.read(_notebook().with_name(TICKETS), as_version=4)
    place = {cell.id: number for number, cell in enumerate(source.cells)}
    nbformat.write(source, jupyter.work / TICKETS)
    jupyter.open(TICKETS)
    jupyter.run_all()
    press(jupyter, place["plan"], "Edit")
    jupyter.cell(place["plan"]).get_by_title("Item 1", exact=True).fill("41: replaced")
    jupyter.screenshot("tickets-1-plan.png")
    press(jupyter, place["plan"], "Approve the edited")
    died = jupyter.page.get_by_text("appears to have died")
    died.wait_for()
    jupyter.screenshot("tickets-2-died.png")
    jupyter.dismiss_dialogs()
    jupyter.wait_ready()
    jupyter.run_all()
    assert "close-43" in jupyter.wait_for(place["context"], "Receipts")
    jupyter.screenshot("tickets-3-done.png")

    entries = [json.loads(line) for line in (jupyter.work / "ledger.jsonl").read_text().splitlines()]
    assert [entry["key"] for entry in entries] == ["close-41", "close-42", "close-43", "report"]
    assert entries[0]["text"] == "replaced"
