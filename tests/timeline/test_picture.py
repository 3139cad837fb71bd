"""What the timeline tells of a thread, from the stores of processes that were killed."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import resumable_nb
from resumable_nb.errors import ThreadNotFound
from resumable_nb.journal import Row, Store
from resumable_nb.timeline import Details, overview, picture
from tests.timeline.conftest import REPORT
from tests.timeline.research import EVIL

Json = dict[str, Any]


def row(drawn: Json, name: str) -> Json:
    found: Json = next(row for row in drawn["rows"] if row["name"] == name)
    return found


def hows(drawn: Json, name: str) -> list[str]:
    return [run["how"] for run in row(drawn, name)["runs"]]


def test_each_step_has_a_row_in_the_order_of_the_notebook(drawn: Json) -> None:
    """Rows are the start and the steps, in their order, whatever was run when."""
    assert [r["name"] for r in drawn["rows"]] == ["start", "plan", "sources", "rank", REPORT]
    assert [r["stands"] for r in drawn["rows"]] == ["start", "done", "done", "done", "in doubt"]


def test_what_became_of_each_run_is_told(drawn: Json) -> None:
    """Ran, skipped, lost by SIGKILL, failed, stopped for a person: each run of each step says which."""
    assert hows(drawn, "plan") == ["ran", *["skipped"] * 4]
    assert hows(drawn, "sources") == ["lost", "ran", *["skipped"] * 3]
    assert hows(drawn, "rank") == ["failed", "replayed", *["skipped"] * 2]
    assert hows(drawn, REPORT) == ["waiting", "lost", "waiting"]
    assert row(drawn, "rank")["runs"][0]["error"] == f"RuntimeError: the ranking broke {EVIL}"


def test_a_run_tells_what_was_answered_from_the_journal(drawn: Json) -> None:
    """The run after the kill took three recorded answers and asked two questions."""
    lost, again = row(drawn, "sources")["runs"][:2]

    assert (again["replayed"], again["count"]) == (3, 4)
    assert [call["phase"] for call in lost["calls"]] == ["done"] * 6
    assert again["changed"] == ["findings +5"]


def test_what_it_cost_is_what_was_billed(drawn: Json) -> None:
    """Tokens and calls of rows and totals are those of the view `threads`; what a skip saved is told apart."""
    total = drawn["totals"]

    assert (total["calls"], total["input"], total["output"]) == (8, 800, 80)
    assert sum(r["input"] for r in drawn["rows"]) == 800
    assert total["usd"] == pytest.approx(sum(r["usd"] for r in drawn["rows"]))
    assert total["saved_calls"] > 0


def test_sessions_and_crashes_are_marks(drawn: Json) -> None:
    """Five openings, of which two ended by SIGKILL, at the time of their last row; recoveries beside them."""
    assert [s["ended"] for s in drawn["sessions"]] == ["crashed", "closed", "closed", "crashed", "closed"]
    assert [m["kind"] for m in drawn["marks"]] == ["crash", "recovery", "crash", "recovery"]
    assert drawn["marks"][0]["at"] == drawn["sessions"][0]["last"]


def test_gates_and_effects_stand_in_their_step(drawn: Json) -> None:
    """Who decided, with which words, after how long; and the effect of which nobody knows what became of it."""
    found = row(drawn, REPORT)
    (wait,), (effect,) = found["waits"], found["effects"]

    assert (wait["word"], wait["comment"]) == ("approved", "go <b>on</b>")
    assert wait["end"] > wait["at"]
    assert (effect["key"], effect["stands"]) == ("send-lab", "in doubt")


def test_a_process_that_was_killed_is_a_crash_before_anybody_opens_the_thread_again(tmp_path: Path) -> None:
    """Right after the kill its run is lost and its session crashed; while it lived it was running."""
    store = Store.open(tmp_path / "t.duckdb")
    session = store.open_session("t", about={})
    session.append(Row(kind="step", phase="started", step="s", cell_id="c", parent_seq=0))
    alive = picture(store, "t")
    dead = {**json.loads(session.read(kinds=["session"])[0].data or "{}"), "process_started": "0"}
    visitor = store.visitor("t")
    visitor.append(Row(kind="session", phase="opened", data=json.dumps(dead)))
    visitor.append(Row(kind="step", phase="started", step="s2", cell_id="c2", parent_seq=0))

    assert hows(alive, "s") == ["running"]
    assert alive["sessions"][0]["ended"] == ""
    assert hows(picture(store, "t"), "s2") == ["lost"]
    assert picture(store, "t")["sessions"][-1]["ended"] == "crashed"


def test_a_fork_is_told_and_costs_nothing(db: Path, tmp_path: Path) -> None:
    """What a fork brought along is drawn, and billed where it was paid for."""
    copy = Store.open(tmp_path / "copy.duckdb")
    with resumable_nb.open("a", db=copy.path) as thread:
        thread.step("one", lambda: None)
        thread.fork(thread.history()[-1]["seq"], "b")
    drawn = picture(copy, "b")

    assert drawn["forked"]["from"] == "a"
    assert [m["kind"] for m in drawn["marks"]] == ["fork"]
    assert hows(drawn, "one") == ["ran"]
    assert drawn["totals"]["calls"] == 0


def test_edits_and_fresh_are_told(tmp_path: Path) -> None:
    """`fresh` retires a step: the row says so, and that it is no longer done."""
    with resumable_nb.open("t", db=tmp_path / "t.duckdb") as thread:
        thread.step("one", lambda: None)
        thread.fresh("one")
        drawn = picture(thread.store, "t")

    assert hows(drawn, "one") == ["ran", "retired"]
    assert row(drawn, "one")["stands"] == "retired"


def test_an_unknown_thread_is_named_with_those_that_there_are(db: Path) -> None:
    """The message lists the threads of the store."""
    with pytest.raises(ThreadNotFound, match="'bees'"):
        picture(Store.open(db), "wasps")


def long_thread(path: Path, steps: int, calls: int) -> Store:
    store = Store.open(path)
    session = store.open_session("long", about={})
    session.append(Row(kind="checkpoint", phase="start", parent_seq=0, changes='{"set": {"findings": []}}'))
    for number in range(steps):
        name = {"step": f"step {number}", "cell_id": f"c{number}"}
        started = [Row(kind="step", phase="started", parent_seq=session.head, key=str(number), **name)]
        for call in range(calls):
            model = {"key": str(call), "occurrence": 0, "gen_ai_request_model": "m", "run_seq": -1 - 2 * call}
            started.append(Row(kind="llm", phase="started", request='{"path": "/", "body": {}}', **model, **name))
            model = {**model, "run_seq": -2 - 2 * call, "gen_ai_usage_input_tokens": 9, "duration_ms": 5.0}
            started.append(Row(kind="llm", phase="done", ref_seq=-1, response="{}", **model, **name))
        changes = json.dumps({"append": {"findings": [{"claim": f"finding {number}"}]}})
        end = Row(
            kind="checkpoint", phase="step", ref_seq=-len(started), parent_seq=session.head, changes=changes, **name
        )
        session.append(*started, end)
    session.close()
    store.close()
    return store


def test_a_long_thread_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many rows the oldest are one, of many calls some are told one by one; sums count them all."""
    module = importlib.import_module("resumable_nb.timeline.picture")
    monkeypatch.setattr(module, "ROWS_AT_MOST", 20)
    monkeypatch.setattr(module, "CALLS_AT_MOST", 100)
    drawn = picture(long_thread(tmp_path / "t.duckdb", 30, 8), "long")

    assert len(drawn["rows"]) == 20
    assert (drawn["earlier"]["count"], drawn["earlier"]["calls"]) == (11, 80)
    assert {len(run["calls"]) for r in drawn["rows"] for run in r["runs"]} == {5}
    assert {run["count"] for r in drawn["rows"] for run in r["runs"]} == {8}
    assert (drawn["totals"]["calls"], drawn["totals"]["input"]) == (240, 2160)


def test_details_give_word_for_word_what_the_model_saw(db: Path, drawn: Json) -> None:
    """The messages of the request, who said them, and the answer."""
    run = row(drawn, "plan")["runs"][0]
    (call,) = Details(Store.open(db), "bees").exchanges([run["seq"]])["calls"]

    assert call["messages"] == [
        {"role": "system", "text": f"Answer in brief. {EVIL}"},
        {"role": "user", "text": f"Q1: {EVIL}"},
    ]
    assert call["answer"] == {"role": "assistant", "text": "AQ1-1"}
    assert call["settings"] == "model gpt-4o-mini"


def test_details_say_what_they_leave_out(db: Path, drawn: Json) -> None:
    """Beyond the limit the newest are given, and the others are counted."""
    details = Details(Store.open(db), "bees")
    runs = [run["seq"] for run in row(drawn, "sources")["runs"]]
    checkpoints = [run["checkpoint"] for r in drawn["rows"] for run in r["runs"] if "checkpoint" in run]
    whole, some = details.exchanges(runs), details.exchanges(runs, limit=2000)

    assert whole["left"] == 0
    assert some["calls"] == whole["calls"][: len(some["calls"])]
    assert some["left"] == len(whole["calls"]) - len(some["calls"]) > 0
    assert details.changes(checkpoints)["left"] == 0
    assert details.changes(checkpoints, limit=1) == {"changes": {}, "left": len(set(checkpoints))}


def test_the_list_of_threads_tells_what_waits_and_who_works(db: Path, tmp_path: Path) -> None:
    """Each thread with its effects in doubt, its gates, what it cost, and the process that has it."""
    (bees,) = overview(Store.open(db))
    store = Store.open(tmp_path / "t.duckdb")
    session = store.open_session("live", about={})
    asked = {"step": "s", "cell_id": "c", "name": "Go?", "key": "k", "data": '{"message": "Go?", "payload": 1}'}
    session.append(Row(kind="approval", phase="requested", **asked), Row(kind="effect", phase="started", key="e"))
    (live,) = overview(store)
    session.close()
    (closed,) = overview(store)

    assert (bees["calls"], bees["doubt"], bees["waiting"], bees["open"]) == (8, 1, 0, "no")
    assert bees["usd"] > 0
    assert (live["waiting"], live["gates"], live["doubt"], live["open"]) == (1, ["s"], 0, "yes")
    assert f"process {os.getpid()} " in live["who"]
    assert (closed["doubt"], closed["open"]) == (1, "no")


def test_an_effect_that_was_done_again_is_in_doubt_no_more(tmp_path: Path) -> None:
    """Of several attempts at one effect, the newest says how it stands: in the picture and in the list."""
    store = Store.open(tmp_path / "t.duckdb")
    session = store.open_session("t", about={})
    about = {"kind": "effect", "step": "s", "cell_id": "c", "name": "send", "key": "send-lab"}
    session.append(Row(phase="started", **about), Row(phase="lost", ref_seq=-1, **about))
    doubt = overview(store)[0]["doubt"]
    session.append(Row(phase="started", **about), Row(phase="done", ref_seq=-1, **about))
    drawn = picture(store, "t")

    assert doubt == 1
    assert [effect["stands"] for effect in row(drawn, "s")["effects"]] == ["done again", "happened"]
    assert drawn["totals"]["doubt"] == overview(store)[0]["doubt"] == 0


def test_what_was_pruned_is_told(db: Path, tmp_path: Path) -> None:
    """A step whose checkpoint went is no longer done; of its calls the cost stays, and the content is said to be gone."""
    copy = tmp_path / "bees.duckdb"
    shutil.copy(db, copy)
    resumable_nb.prune(copy, thread="bees", keep=1, answers_before="2100-01-01", yes=True)
    drawn = picture(Store.open(copy), "bees")
    run = row(drawn, "plan")["runs"][0]
    (call,) = Details(Store.open(copy), "bees").exchanges([run["seq"]])["calls"]

    assert (row(drawn, "plan")["stands"], run["how"]) == ("pruned", "pruned")
    assert drawn["totals"]["input"] == 800
    assert (call["messages"], call["answer"]["text"]) == ([], "(what was asked and answered was pruned)")
