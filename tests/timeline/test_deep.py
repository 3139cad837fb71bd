"""JSON nested thousands of levels deep, as only a file from elsewhere brings it: it is said, and the rest is drawn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import resumable_nb
from resumable_nb.errors import ThreadError
from resumable_nb.journal import Row, Store
from resumable_nb.notebook.timeline import Desk
from resumable_nb.timeline import Details, overview, page, picture

DEEP = "[" * 30_000 + "]" * 30_000
ABOUT = {"step": "s", "cell_id": "c"}
BEGINNING = '{"version": 1, "set": {"query": "q", "plan": [], "findings": [], "receipts": [], "decisions": []}}'


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """An imported thread `t`, whose requests, answers, changes, errors and notices are that deep; and one like others."""
    store = Store.open(tmp_path / "made.duckdb")
    session = store.open_session("t", about={})
    session.append(Row(kind="checkpoint", phase="start", parent_seq=0, changes=BEGINNING))
    for changed in (DEEP, "[1]"):
        run, parent = session.head + 1, session.head
        call = {"kind": "llm", "key": "k", "gen_ai_request_model": "m", "run_seq": run, **ABOUT}
        session.append(
            Row(kind="step", phase="started", parent_seq=parent, **ABOUT),
            Row(phase="started", request=f'{{"path": "/", "body": {{"messages": {DEEP}}}}}', **call),
            Row(phase="done", ref_seq=-1, response=f'{{"content": {DEEP}}}', **call),
            Row(kind="checkpoint", phase="step", ref_seq=run, parent_seq=parent, **ABOUT,
                changes=f'{{"set": {{"findings": {changed}}}}}', data=f'{{"spent": {DEEP}}}'),
        )  # fmt: skip
    session.append(Row(kind="notice", name="skipped", data=f'{{"steps": {DEEP}}}'))
    session.close()
    resumable_nb.export_thread("t", tmp_path / "t.thread", db=store.path)
    with resumable_nb.open("other", db=tmp_path / "in.duckdb") as thread:
        for number in range(3):
            thread.step(f"step {number}", lambda: None)
    resumable_nb.import_thread(tmp_path / "t.thread", db=tmp_path / "in.duckdb")
    return tmp_path / "in.duckdb"


def test_the_picture_says_what_it_could_not_read(deep: Path) -> None:
    """Steps, runs and costs are drawn; the rows whose data are too deep are named; the list of threads is whole."""
    drawn = picture(Store.open(deep), "t")

    assert [row["stands"] for row in drawn["rows"]] == ["start", "done"]
    assert drawn["unread"] == [7, 11, 12]
    assert sorted(one["thread"] for one in overview(Store.open(deep))) == ["other", "t"]
    assert "picture" not in Desk(Store.open(deep)).answer({"id": 1, "ask": "picture", "thread": "t"})
    assert resumable_nb.threads(deep, "t")


def test_what_a_model_saw_is_shown_as_it_stands(deep: Path) -> None:
    """A request or an answer that cannot be taken apart is the text that the store holds, cut."""
    call = Details(Store.open(deep), "t").exchanges([4])["calls"][0]

    assert call["messages"][0]["text"].startswith('{"path":')
    assert call["answer"]["text"].startswith('{"content":')
    assert call["answer"]["cut"] > 0


@pytest.mark.browser
def test_the_page_names_the_checkpoint(deep: Path, opened: Callable[..., Any]) -> None:
    """The file opens; the state there says which checkpoint is too deep, and how to get its text; the start is shown."""
    shown = opened(page(Store.open(deep), "t"))
    shown.locator(".rnb-step", has_text="start").click()
    shown.locator(".rnb-panel", has_text="query").wait_for()
    assert "what row 7, 11, 12 says" in shown.locator(".rnb-head").inner_text()
    shown.locator(".rnb-step", has_text="s").last.click()
    shown.locator(".rnb-error", has_text="Checkpoint 7 put something into the state").wait_for()

    assert shown.said == []


def test_the_command_line_has_no_traceback(deep: Path, tmp_path: Path) -> None:
    """`timeline` writes the file, and the line of the message on the state there works."""
    asked = Details(Store.open(deep), "t").changes([7])["changes"]["7"]["unread"].split('sql "')[1].rstrip('"')
    output = ["--output", str(tmp_path / "t.html")]
    for command in (["timeline", "--thread", "t", *output], ["sql", asked], ["status", "--thread", "t"]):
        command = [sys.executable, "-m", "resumable_nb", *command, "--db", str(deep)]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (told.returncode, told.stderr) == (0, "")


def test_prune_says_what_can_be_done(deep: Path) -> None:
    """Checkpoints that rest on such a state cannot be merged: thread and row are named, and each way out works."""
    with pytest.raises(
        ThreadError, match=r"thread 't' cannot be merged.* Row 7: .*nested too deeply.*--thread"
    ) as raised:
        resumable_nb.prune(deep, keep=1, yes=True)
    others = resumable_nb.prune(deep, thread="other", keep=1, yes=True)
    answers = resumable_nb.prune(deep, thread="t", answers_before="2100-01-01", yes=True)
    Store.open(deep).fork("t", 3, "before")
    dropped = resumable_nb.prune(deep, drop="t", yes=True)

    assert all(way in str(raised.value) for way in ("--answers-before", "--drop", "resumable-nb fork SEQ NEW"))
    assert (others.is_done, answers.is_done, dropped.is_done) == (True, True, True)
    assert Store.open(deep).threads() == ["before", "other"]
