"""A killed kernel in JupyterLab: the resume panel follows, old panels say that they are old, and a person settles."""

from __future__ import annotations

from collections.abc import Iterator

import nbformat
import pytest

from resumable_nb.journal import Store
from tests.browser.lab import Lab, lab, write

pytestmark = pytest.mark.browser

CELLS = {
    "open": '%load_ext resumable_nb\n%resumable open desk --query "Which tickets can be closed?"',
    "desk": (
        "import os, pathlib\nfrom resumable_nb import durable, effect, resource\n"
        "login = resource('desk', acquire=lambda: 'token', probe=bool)\n"
        "@effect(key='close-{ticket}')\n"
        "def close_ticket(ticket, comment):\n"
        "    with open('closed', 'a') as desk: desk.write(f'{ticket}\\n')\n"
        "    os.kill(os.getpid(), 9)\n"
        "@durable\ndef read(ticket): return login.get() and ticket"
    ),
    "plan": "%%resumable plan\ntickets = [read(n) for n in (41, 42)]",
    "close": "%%resumable close\nreceipt = close_ticket(42, comment='<b>Fixed</b> in 2.1; see the release notes')",
    "report": "%%resumable report\nprint('reported', read(43), receipt)",
}
OPEN, CLOSE, REPORT = 0, 3, 4
OLD = "This panel is old"


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), {}) as running:
        yield running


def wait_until_old(jupyter: Lab, place: int) -> None:
    """The panel says so, and no button of it is left."""
    jupyter.wait_for(place, OLD)
    jupyter.cell(place).locator(".jp-OutputArea button").first.wait_for(state="detached")


def wait_for_panel(jupyter: Lab) -> None:
    button = jupyter.cell(CLOSE).get_by_role("button", name="It happened", exact=True)
    button.wait_for()
    jupyter.wait_idle()


def saved(jupyter: Lab) -> str:
    """What the saved notebook shows below its first cell."""
    jupyter.save()
    cell = nbformat.read(jupyter.work / "desk.ipynb", 4).cells[OPEN]
    return " ".join(" ".join(o["data"]["text/plain"] for o in cell.outputs if "data" in o).split())


def test_killed_resumed_and_settled(jupyter: Lab) -> None:
    """The kernel dies in an effect: nothing old can be clicked, the panel of the new one settles it, and it goes on."""
    write(jupyter.work / "desk.ipynb", CELLS)
    jupyter.open("desk.ipynb")
    first = jupyter.kernel_pid()
    jupyter.run_all()
    jupyter.wait_until_new_kernel(first)
    jupyter.dismiss_dialogs()
    jupyter.wait_for(OPEN, OLD)

    jupyter.run_all()
    wait_for_panel(jupyter)
    assert "close-42 of close is in doubt" in " ".join(jupyter.cell(OPEN).inner_text().replace("`", "").split())
    assert jupyter.cell(CLOSE).locator(".jp-OutputArea pre b").count() == 0  # what code says is text
    jupyter.screenshot("resume-1-in-doubt.png")
    jupyter.cell(CLOSE).get_by_text("After a restart of the kernel").scroll_into_view_if_needed()
    jupyter.command("apputils:change-theme", theme="JupyterLab Dark")
    jupyter.page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
    jupyter.page.wait_for_selector("#jupyterlab-splash", state="detached")
    jupyter.screenshot("resume-2-dark.png")
    saved(jupyter)
    jupyter.open("desk.ipynb")  # another page, the same kernel: the panel still works
    wait_for_panel(jupyter)
    jupyter.kill_kernel_unseen()
    jupyter.open("desk.ipynb")  # now it is a dead kernel's
    wait_until_old(jupyter, CLOSE)

    jupyter.run_all()
    wait_for_panel(jupyter)
    jupyter.kill_kernel()
    jupyter.dismiss_dialogs()
    wait_until_old(jupyter, CLOSE)
    wait_until_old(jupyter, OPEN)
    jupyter.screenshot("resume-3-old.png")

    jupyter.run_all()
    wait_for_panel(jupyter)
    receipt = jupyter.cell(CLOSE).locator(".jp-OutputArea textarea")
    receipt.focus()
    jupyter.page.keyboard.type('{"closed": 42}')
    jupyter.page.keyboard.press("Tab")
    jupyter.page.keyboard.type("seen on the desk")
    jupyter.page.keyboard.press("Tab")
    jupyter.page.keyboard.press("Enter")  # the first button
    jupyter.cell(CLOSE).get_by_text("It happened, as").wait_for()
    jupyter.wait_for(OPEN, "happened (as ")
    jupyter.screenshot("resume-4-settled.png")
    jupyter.run_all()
    assert "reported 43 {'closed': 42}" in jupyter.wait_for(REPORT, "reported")
    jupyter.wait_for(OPEN, "s after opening")
    jupyter.cell(OPEN).get_by_text("s after opening").scroll_into_view_if_needed()
    jupyter.screenshot("resume-5-done.png")

    assert "✓ outside `desk` was acquired again" in saved(jupyter)
    assert (jupyter.work / "closed").read_text() == "42\n"
    store = Store.open(jupyter.work / "research.duckdb", create=False)
    rows = store.rows("SELECT phase, receipt->>'closed' FROM effects")[1]
    store.close()
    assert rows == [("done", "42")]
