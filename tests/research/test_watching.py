"""What is seen of the stages while they run: words, progress and findings as they come, before and after a kill."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from resumable_nb import ask, map, pictures
from resumable_nb.errors import Paused
from resumable_nb.journal import Store
from resumable_nb.pictures import Picture
from resumable_nb.research import Budget, Folder, research
from resumable_nb.research.records import Finding
from resumable_nb.research.watching import ROWS, Watch, readable
from resumable_nb.scope import Run, scope
from tests.research import victim
from tests.research.conftest import ISLAND
from tests.support.forked import CONTEXT, outcome, preload
from tests.support.research_model import ResearchModel

preload("tests.research.victim")
LAMP = "When was the lamp electrified?"
TWO = "When was the lamp electrified, and when did the tide mill close?"


class Wall:
    """A front end that keeps every picture, each frame's in a list."""

    def __init__(self) -> None:
        self.frames: list[list[Picture]] = []

    def frame(self) -> Any:
        drawn: list[Picture] = []
        self.frames.append(drawn)
        return type("Frame", (), {"draw": staticmethod(drawn.append)})

    def of(self, stage: str) -> list[Picture]:
        return [picture for drawn in self.frames for picture in drawn if picture.title == stage]


@pytest.fixture
def wall() -> Iterator[Wall]:
    found = Wall()
    pictures.draw_with(found)
    yield found
    pictures.draw_no_more_with(found)


def finding(number: int) -> Finding:
    text = f"fact {number}"
    return Finding(claim=text, quote=text, source="a.md", location="characters 0 to 6", question="q", confidence="low")


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("half", "words"),
    [
        ('{"findings": [{"number": 1, "quote": "The la', "The la"),
        ('{"question": "Why?", "unclear": ""}', "Why?"),
        ("It is plain te", "It is plain te"),
        ('{"answer": [1, 2', ""),
        ("", ""),
    ],
)
def test_half_an_answer_can_be_read(half: str, words: str):
    """The words of a form without its brackets; plain text as it is."""
    assert readable(half) == words


def test_a_picture_follows_what_happens(wall: Wall):
    """The first picture is drawn at once; what comes is drawn while the block runs; the last one is short."""
    with Watch("stage", ["q", "p"]) as watch:
        (drawn,) = wall.frames
        assert (drawn[0].done, drawn[0].total, list(drawn[0].rows)) == (0, 2, [])
        with watch.hearing("1") as hear:
            for piece in ("", '{"a": "no', "", '{"a": "ye', "s"):  # a second answer takes the place of the first
                hear(piece)
            until(lambda: drawn[-1].writing == [("1", "yes")])
        watch.found(finding(1), "1")
        watch.ended("q", "1 finding")
        until(lambda: drawn[-1].done == 1)
        assert [row[1] for row in drawn[-1].rows] == ["fact 1"] and drawn[-1].log[-1] == "1 finding: q"
        watch.end(findings=[finding(n) for n in range(ROWS + 5)])

    last = drawn[-1]
    assert last.is_over and last.told == f"1 of 2 sub-questions, {ROWS + 5} findings"
    assert [last.rows[0][1], last.rows[-1][1]] == ["… 5 more above", f"fact {ROWS + 4}"] and len(last.rows) == ROWS + 1
    assert "1 finding: q" not in last.text()


def test_what_is_drawn_is_only_text(wall: Wall):
    """A model's words, a source's name and a question do nothing in the page."""
    evil = '<img src=x onerror="alert(1)">'
    with Watch(evil, [evil]) as watch, watch.hearing(evil) as hear:
        hear("")
        hear(evil)
        watch.found(finding(1).model_copy(update={"claim": evil, "source": evil}), evil)
        watch.refused(evil, evil)
        until(lambda: wall.frames[0][-1].writing and wall.frames[0][-1].rows)

    assert not [picture for picture in wall.frames[0] if "<img" in picture.html()]
    assert any("&lt;img" in picture.html() for picture in wall.frames[0])


def test_findings_and_words_come_while_others_are_still_asked(model: ResearchModel, thread: Any, wall: Wall):
    """One sub-question is answered while the other still waits; the words of both come in pieces."""

    def one_is_seen_alone() -> bool:
        return any(picture.rows and picture.done < picture.total == 2 for picture in wall.of("researcher"))

    def release_then() -> None:
        try:
            until(one_is_seen_alone)
        finally:
            model.release()

    model.script({"marker": "Extracted", "chunk_delay_s": 0.02}, {"marker": "Extracted", "hold": True})
    watching = threading.Thread(target=release_then)
    watching.start()
    thread.step("all", lambda: research(TWO, sources=Folder(str(ISLAND)), approve=False))
    watching.join()

    seen = wall.of("researcher")
    assert one_is_seen_alone()
    assert any(picture.writing for picture in seen)
    assert [picture.title for drawn in wall.frames for picture in drawn[-1:]] == [
        "coordinator",
        "planner",
        "researcher",
        "reporter",
    ]
    assert all(drawn[-1].is_over for drawn in wall.frames)
    assert wall.of("planner")[-1].told == "2 sub-questions"
    assert any("searched" in line for picture in seen for line in picture.log)


def test_a_refused_quotation_is_told(model: ResearchModel, thread: Any, wall: Wall):
    """In the log while it runs, and counted in what stays."""
    number = {"number": 1, "quote": "Nobody wrote this.", "claim": "c", "confidence": "low"}
    said = json.dumps({"findings": [number], "enough": True, "next_query": ""})
    model.script({"marker": "Extracted", "text": said})
    thread.step("all", lambda: research(LAMP, sources=Folder(str(ISLAND)), approve=False))

    last = wall.of("researcher")[-1]
    assert last.told == "1 of 1 sub-question, 0 findings, 1 quotation refused"
    assert any("1 refused a quotation" in line for line in last.log)


def test_in_a_script_a_few_lines_tell_how_it_goes(model: ResearchModel, thread: Any, capsys: pytest.CaptureFixture):
    """One line for each stage and each sub-question, on standard error."""
    thread.step("all", lambda: research(TWO, sources=Folder(str(ISLAND)), approve=False))

    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["coordinator", "planner", *["researcher"] * 3, "reporter"]
    assert any(line.startswith("researcher: ") and line.endswith("findings: " + LAMP) for line in lines)


def test_what_was_found_before_a_kill_is_in_the_store_and_seen_first(model: ResearchModel, tmp_path: Path, wall: Wall):
    """It came with the next answer, as progress; the next run shows it at once, and ends as if nothing had happened."""
    env = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-test-SECRET"}
    more = {"marker": "Extracted", "more": True}
    model.script(more)
    _, expected = outcome(victim.run, tmp_path / "whole.duckdb", "", "lamp", {}, env)
    asked = model.asked()
    model.reset()
    model.script(more)
    killed, _ = outcome(victim.run, tmp_path / "t.duckdb", "http.receive.after:4", "lamp", {}, env)
    store = Store.open(tmp_path / "t.duckdb")
    found = store.rows(
        "SELECT from_json(value, '[{\"claim\": \"VARCHAR\"}]') FROM state_changes WHERE is_progress AND field = 'findings'"
    )[1]
    receiver, sender = CONTEXT.Pipe(duplex=False)
    victim.run(tmp_path / "t.duckdb", "", "lamp", {}, {}, sender)
    first = wall.of("researcher")[0]

    assert killed == -signal.SIGKILL and len(found) == 1 and found[0][0]
    assert [row[1] for row in first.rows] == [one["claim"] for one in found[0][0]]
    assert receiver.recv() == expected and model.asked() == asked


def test_a_branch_sees_nothing_of_what_another_has_shelved(model: ResearchModel, thread: Any):
    """It is in the store with the next answer; the state that a branch's prompt is made of is that at its start."""

    def body(state: Any) -> list[str]:
        def one(n: int) -> str:
            running = scope()
            assert isinstance(running, Run)
            running.shelve(findings=[f"found {n}"])
            return ask(f"How is it with {n}?") and running.context()

        before = list(state.findings)
        contexts = map(one, [1, 2])
        assert sorted(state.findings) == ["found 1", "found 2"]
        state.findings[:] = before
        return contexts

    contexts = thread.step("s", body)
    held = thread.sql("SELECT value FROM state_changes WHERE is_progress AND field = 'findings'")

    assert contexts[0] == contexts[1] and "found" not in contexts[0]
    assert thread.state.findings == [] and "found" in str(held["value"].iloc[0])


@pytest.mark.parametrize(("times", "kept"), [(2, True), (3, False)])
def test_a_stream_that_broke_off_is_asked_for_again(times: int, kept: bool, model: ResearchModel, thread: Any):
    """As often as an answer in one piece would be; then it is the step's error, and the next run goes on."""
    model.script({"marker": "Plan", "keep": 2, "end": "drop", "times": times})

    def run() -> Any:
        return thread.step("all", lambda: research(LAMP, sources=Folder(str(ISLAND)), approve=False))

    if not kept:
        with pytest.raises(openai.APIConnectionError):
            run()
    assert run().findings and model.asked("Plan") == times + 1


def test_over_budget_is_told_where_it_stops(model: ResearchModel, thread: Any, wall: Wall):
    """What was found stays to be seen, with the reason why it goes no further."""
    budget = Budget(calls=3)
    with pytest.raises(Paused):
        thread.step("all", lambda: research(TWO, sources=Folder(str(ISLAND)), approve=False, budget=budget))

    last = wall.of("researcher")[-1]
    assert last.is_over and last.rows and last.told.endswith("waits for a person") and last.done == 1
    assert thread.live.state.findings == []
