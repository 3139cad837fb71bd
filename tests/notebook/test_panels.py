"""What a person sees of a thread: as text, and as HTML in which nothing lives."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumable_nb.cells import Spent
from resumable_nb.history import Diff
from resumable_nb.notebook import panels
from resumable_nb.notebook.summary import StepSummary, Summary
from resumable_nb.panel import Panel, line
from resumable_nb.resuming import Line
from resumable_nb.terminal import plain, when

MOMENT = datetime(2024, 5, 1, 12, tzinfo=UTC)
HOSTILE = "<img src=x onerror=alert(1)><script>1</script> [x](javascript:alert(1)) <b>go</b> \" ' &lt;"


class Page(HTMLParser):
    """The tags and the words of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.words += data + "\n"


def hostile_panels() -> list[Panel]:
    step = StepSummary(HOSTILE, "done", 7, MOMENT, Spent(2, 30, 4, 1500.0), 2)
    unfinished = StepSummary(HOSTILE, "unfinished", answered=17, gained=(f"17 {HOSTILE}",))
    found = Summary(
        HOSTILE, HOSTILE, 9, MOMENT, HOSTILE, (HOSTILE,), (step, unfinished, StepSummary(HOSTILE, "not done"))
    )
    history = [{"seq": 1, "at": MOMENT, "step": HOSTILE, "origin": HOSTILE, "in_lineage": False, "changed": [HOSTILE]}]
    before = {"query": "none", "notes": f"same\nnone {HOSTILE}", "findings": []}
    diff = Diff(
        HOSTILE, before, {"query": HOSTILE, "notes": f"same\n{HOSTILE}", "findings": [HOSTILE], "a": {"b": HOSTILE}}
    )
    return [
        panels.resume_panel(found, [Line(HOSTILE, HOSTILE, is_over=False)]),
        panels.status_panel(found),
        panels.history_panel(HOSTILE, history),
        diff.panel(),
    ]


@pytest.mark.parametrize("number", range(4))
def test_text_of_a_model_is_no_html(number: int) -> None:
    """Whatever stands in the state, in names or in notices is readable in full, and no tag or link."""
    panel = hostile_panels()[number]
    page = Page(panel.html())

    assert page.tags <= {"div", "b", "table", "tr", "th", "td", "ins", "del"}
    assert page.attributes <= {"style"}
    assert HOSTILE in page.words
    assert "<img" in panel.text()


@given(st.text())
def test_any_text_is_shown_as_it_is(text: str) -> None:
    """Any text comes out of the HTML as it went in, but for control characters."""
    page = Page(Panel(text, [text]).html())

    assert page.tags == {"div", "b"}
    assert page.words.split() == (plain(text) + "\n" + plain(text)).split()


def test_a_line_is_text_and_html() -> None:
    """A line is shown in any front end, control characters taken out."""
    data = line(f"\x1b]0;t\x07{HOSTILE}")

    assert data["text/plain"] == HOSTILE
    assert Page(data["text/html"]).tags == {"div"}


def test_the_resume_panel_says_where_the_work_stands() -> None:
    """After opening, a person reads what was loaded, what is done and saved, what is unfinished, and what is left."""
    steps = (
        StepSummary("plan", "done", 5, MOMENT, Spent(1, 100, 20, 10_000.0)),
        StepSummary("search", "done", 9, MOMENT, Spent(40, 12_000, 180, 120_000.0)),
        StepSummary("research", "unfinished", answered=17, gained=("17 findings",)),
        StepSummary("report", "not done"),
    )
    text = panels.resume_panel(
        Summary("t", "/a/t.duckdb", 9, MOMENT, "why?", ("3 plan",), steps),
        [Line("outside", "token renewed"), Line("going on", "with the first new call", is_over=False)],
    ).text()

    assert text.startswith(f"Thread t: checkpoint 9 of {when(MOMENT)} was loaded")
    for words in (
        "query: why?",
        "done: `plan`, `search` (41 LLM calls, 12,300 tokens, 2 min 10 s, not spent again unless what they depend on has changed)",
        "`research`, unfinished: 17 calls answered, 17 findings so far",
        "to do: `report`",
        "✓  outside    token renewed",
        "…  going on   with the first new call",
        "Run All",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("step", "word", "told"),
    [
        (StepSummary("s", "unfinished"), "unfinished", "`s`, unfinished: no call was answered yet"),
        (StepSummary("s", "unfinished", waits_for=("Go?",)), "waits", "`s` waits for a decision: Go?"),
        (
            StepSummary("s", "unfinished", doubts=("mail-1", "mail-2")),
            "waits",
            "`s` waits for your word: nobody knows whether `mail-1`, `mail-2` happened",
        ),
        (
            StepSummary(
                "s", "unfinished", decided="rejected by ann at noon: no. When it is run, it stops and says so."
            ),
            "decided",
            "`s` was rejected by ann at noon: no. When it is run, it stops and says so.",
        ),
    ],
)
def test_an_unfinished_step_says_why(step: StepSummary, word: str, told: str) -> None:
    """What a step has stopped for is told as it is: nothing came yet, a person is asked, or has answered."""
    assert (step.stands_at, str(step)) == (word, told)


def test_a_new_thread_says_so() -> None:
    """A thread without finished steps promises no savings."""
    text = panels.resume_panel(Summary("t", "t.duckdb", 1, MOMENT, "", (), ())).text()

    assert text == "Thread t is open; no step is done yet\n  store: t.duckdb"


def test_history_stays_short() -> None:
    """Of a long history the newest checkpoints are shown, and a line says how many there are besides."""
    history = [
        {"seq": n, "at": MOMENT, "step": None, "origin": "edit", "in_lineage": n % 2 == 0, "changed": ["findings"]}
        for n in range(5000)
    ]
    panel = panels.history_panel("t", history)

    assert len(panel.rows) == panels.HISTORY_ROWS
    assert [row[0] for row in panel.rows] == list(range(5000 - panels.HISTORY_ROWS, 5000))
    assert "4,950 earlier ones" in panel.text()
    assert len(panel.html()) < 50_000
