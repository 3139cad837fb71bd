"""The timeline as one file, in a real Chromium: what it shows, that it asks no network, and that text stays text."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resumable_nb.journal import Store
from resumable_nb.timeline import page
from tests.timeline.conftest import REPORT
from tests.timeline.research import EVIL
from tests.timeline.test_picture import long_thread

Open = Callable[..., Any]
browser = pytest.mark.browser


FILLED = "document.querySelector('.rnb-panel').textContent !== '…'"


def choose(shown: Any, step: str) -> Any:
    shown.locator(".rnb-step", has_text=step).click()
    shown.wait_for_function(FILLED)
    return shown.locator(".rnb-detail")


def look_at(shown: Any, tab: str) -> None:
    shown.locator(".rnb-detail").get_by_role("tab", name=tab).click()
    shown.wait_for_function(FILLED)


@browser
def test_the_file_opens_without_a_network(db: Path, opened: Open) -> None:
    """It asks for nothing but itself, and breaks none of the rules that its policy sets."""
    shown = opened(page(Store.open(db), "bees"))

    assert [name.strip() for name in shown.locator(".rnb-step .rnb-name").all_inner_texts()][:4] == [
        "start",
        "plan",
        "sources",
        "rank",
    ]
    assert [url for url in shown.asked if not url.startswith("file:")] == []
    assert shown.said == []


@browser
def test_times_name_their_zone(db: Path, opened: Open) -> None:
    """What a mark says of its time is in the reader's zone, and says which that is."""
    shown = opened(page(Store.open(db), "bees"))
    told = shown.locator(".rnb-session").first.get_attribute("data-tip")

    assert re.search(r"\d\d:\d\d:\d\d (UTC|[+-]\d\d:\d\d) to \d\d:", told), told


@browser
def test_text_from_anywhere_is_only_text(db: Path, opened: Open) -> None:
    """Names, answers, states, errors, gates and comments with tags are read in full, and do nothing."""
    shown = opened(page(Store.open(db), "bees"))
    texts = []
    for step in ("start", "plan", "sources", "rank", "report"):
        detail = choose(shown, step)
        for tab in detail.get_by_role("tab").all():
            tab.click()
            shown.wait_for_function(FILLED)
            for exchange in detail.locator("details").all():
                exchange.evaluate("node => { node.open = true }")
            texts.append(detail.inner_text())
    for place in shown.locator("[data-tip]").all():
        place.dispatch_event("pointerover")
    whole = "\n".join(texts)

    assert all(part in whole for part in (EVIL, f"the ranking broke {EVIL}", "go <b>on</b>", REPORT))
    assert shown.locator(".rnb :is(img, script, b, a)").count() == 0
    assert shown.evaluate("window.hit") is None
    assert shown.said == []


@browser
def test_a_checkpoint_shows_its_state_its_changes_and_the_context(db: Path, opened: Open) -> None:
    """A click gives the difference to the one before, the whole state, and what the model was told."""
    shown = opened(page(Store.open(db), "bees"))
    detail = choose(shown, "sources")

    assert "findings +5" in detail.inner_text().replace("\n", " ")
    look_at(shown, "State")
    assert "What do bees like?" in detail.inner_text()
    assert "5 items" in detail.inner_text()
    look_at(shown, "What the model saw")
    assert "Answer in brief." in detail.inner_text()
    assert "AQ6-1" in detail.inner_text()


@browser
def test_two_checkpoints_are_compared(db: Path, opened: Open) -> None:
    """Compare asks for a second one, and shows what came and went from the one to the other."""
    shown = opened(page(Store.open(db), "bees"))
    choose(shown, "start").get_by_role("button", name="Compare").click()
    detail = choose(shown, "sources")
    text = detail.inner_text()

    assert re.search(r"from checkpoint \d+ to \d+", text)
    assert "plan +3" in text.replace("\n", " ")
    assert "findings +5" in text.replace("\n", " ")


@browser
def test_the_file_tells_how_to_fork(db: Path, opened: Open) -> None:
    """A file cannot write to the store: it gives the command, and that works."""
    shown = opened(page(Store.open(db), "bees"))
    detail = choose(shown, "plan")
    detail.get_by_role("button", name="Fork").click()
    detail.get_by_label("Name of the new thread").fill("it's mine")
    shown.keyboard.press("Enter")
    said = detail.locator(".rnb-said").inner_text()

    assert re.search(r"resumable-nb fork \d+ 'it'\\''s mine' --thread bees --db ", said)


@browser
def test_the_keyboard_is_enough(db: Path, opened: Open) -> None:
    """Arrows move through the steps and their runs, Enter opens, Escape closes."""
    shown = opened(page(Store.open(db), "bees"))
    shown.locator(".rnb-scroll").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        shown.keyboard.press(key)
    assert shown.locator(".rnb-detail h4").inner_text() == "sources"
    assert "· ran ·" in shown.locator(".rnb-detail .rnb-title").inner_text()
    shown.keyboard.press("ArrowLeft")
    assert "lost: its process died" in shown.locator(".rnb-detail .rnb-title").inner_text()
    shown.keyboard.press("Escape")
    assert shown.locator(".rnb-detail h4").count() == 0


@browser
def test_two_thousand_steps_stay_fluid(tmp_path: Path, opened: Open) -> None:
    """Only the rows in sight are in the page; the newest is one key away; the filter finds any."""
    shown = opened(page(long_thread(tmp_path / "t.duckdb", 2000, 1), "long"))
    shown.locator(".rnb-step").first.wait_for()
    assert shown.locator(".rnb-step").count() < 40
    shown.locator(".rnb-scroll").focus()
    shown.keyboard.press("End")
    shown.locator(".rnb-step", has_text="step 1999").wait_for()
    shown.keyboard.press("Enter")
    shown.locator(".rnb-detail h4", has_text="step 1999").wait_for()
    shown.get_by_label("Filter steps").fill("step 1234")

    shown.wait_for_function("document.querySelectorAll('.rnb-step').length < 2")  # it is drawn with the next frame
    assert shown.locator(".rnb-step").count() == 1
    detail = choose(shown, "step 1234")
    look_at(shown, "State")
    assert "1,235 items" in detail.inner_text()


@browser
def test_what_is_left_out_is_said(db: Path, opened: Open) -> None:
    """A file with too little room for the contexts says how many calls are missing, and where to see them."""
    shown = opened(page(Store.open(db), "bees", limit=6000))
    detail = choose(shown, "plan")
    look_at(shown, "What the model saw")

    assert "not in this file" in detail.inner_text()


def test_the_command_writes_the_file(db: Path, tmp_path: Path) -> None:
    """`resumable-nb timeline` writes it where it is told, with a policy that allows no network."""
    output = tmp_path / "bees.html"
    command = ["timeline", "--db", str(db), "--thread", "bees", "--output", str(output)]
    told = subprocess.run([sys.executable, "-m", "resumable_nb", *command], capture_output=True, text=True, check=True)
    text = output.read_text()
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)

    assert str(output) in told.stdout
    assert "default-src &#x27;none&#x27;" in text
    assert data is not None
    assert json.loads(data[1])["picture"]["thread"] == "bees"


def test_a_file_that_cannot_be_written_is_said_in_a_line(db: Path, tmp_path: Path) -> None:
    """A folder that is not there is named, with what to do; there is no traceback."""
    output = tmp_path / "missing" / "bees.html"
    command = ["timeline", "--db", str(db), "--thread", "bees", "--output", str(output)]
    told = subprocess.run([sys.executable, "-m", "resumable_nb", *command], capture_output=True, text=True, check=False)

    assert told.returncode == 2
    assert f"{output} cannot be written" in told.stderr
    assert "--output" in told.stderr and "Traceback" not in told.stderr
