"""`%resumable back` in a real notebook: an earlier run counts again, and nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import resumable_nb
from resumable_nb.back import find
from resumable_nb.errors import Paused, ThreadNotFound
from tests.notebook.screen import OPEN, Screen, screen

ASK = """from pathlib import Path
def look(word):
    with Path('asked').open('a+') as file:
        file.write(word + ' ')
    return word + '!' * Path('asked').read_text().count(word)"""
CELLS = {
    "open": OPEN,
    "ask": f"from resumable_nb import durable\n{ASK}",
    "plan": "%%resumable plan\nstate.update(plan=['p'])",
    "research": "%%resumable research\nstate.update(findings=[durable(look)('one')])",
    "report": "%%resumable report\nstate.update(findings=['report of ' + ', '.join(state.findings)])",
}
TWO = CELLS["research"].replace("one", "two")


@pytest.fixture
def nb(tmp_path: Path) -> Iterator[Screen]:
    with screen(tmp_path, **CELLS) as found:
        assert all(shown.status == "ok" for shown in found.run_all().values())
        yield found


def asked(nb: Screen) -> list[str]:
    return (nb.folder / "asked").read_text().split()


def findings(nb: Screen) -> list[str]:
    found: list[str] = nb.value("list(thread.state.findings)")
    return found


def test_cells_below_are_run_again_from_there(nb: Screen) -> None:
    """The newest state is that after the step; what was done from there is skipped, and comes forward again."""
    said = nb.execute("%resumable back plan", "tool").said

    assert "back at the last run of `plan`" in said
    assert "To run from there: `research`, `report`" in said
    assert "skipped if inputs and code are as then: all of them" in said
    assert findings(nb) == []
    assert "Run `research` first" in nb.run("report").text()
    assert "restored" in nb.run("research").said
    assert "restored" in nb.run("report").said
    assert findings(nb) == ["one!", "report of one!"]
    assert asked(nb) == ["one"]


def test_an_earlier_run_counts_again_over_a_restart(nb: Screen) -> None:
    """Cells below start from it, without a run of the step; Run All goes by the notebook as it is."""
    nb.cells["research"] = TWO
    nb.save()
    nb.run("research", "report")
    assert findings(nb) == ["two!", "report of two!"]
    back = nb.execute("%resumable back research --run 1", "tool").said
    assert "back at run 1 of 2 of `research`" in back
    assert findings(nb) == ["one!"]
    nb.restart()
    nb.run("open", "ask")
    assert findings(nb) == ["one!"]

    assert "restored" in nb.run("report").said
    assert findings(nb) == ["one!", "report of one!"]
    (forward,) = re.findall(r"and `(%resumable back \d+)` also after something was run or skipped from here", back)
    nb.execute(forward, "tool")
    assert findings(nb) == ["two!", "report of two!"]
    nb.run_all()
    assert findings(nb) == ["two!", "report of two!"]
    assert asked(nb) == ["one", "two"]


def test_going_back_and_forward_changes_nothing(nb: Screen) -> None:
    """Every checkpoint that there was can be opened as before, and the newest one comes forward again."""
    before = nb.value("[(h['seq'], thread.raw_state_at(h['seq'])) for h in thread.history()]")
    nb.execute("%resumable back start", "tool")
    assert nb.value("thread.raw_state_at('newest')") == before[0][1]
    back = nb.execute("%resumable back plan", "tool").said
    forward = nb.execute("%resumable back newest", "tool").said

    assert "`%resumable back newest` goes forward again" in back
    assert "goes forward again" not in forward
    assert nb.value("[(h['seq'], thread.raw_state_at(h['seq'])) for h in thread.history()]")[: len(before)] == before
    assert findings(nb) == ["one!", "report of one!"]
    assert "nothing to do" in nb.execute("%resumable back report", "tool").said
    assert "restored" in nb.run("report").said


def test_a_retired_run_counts_again_with_its_answers(nb: Screen) -> None:
    """Who asked anew and liked the old answers better takes the old run back, and pays nothing."""
    nb.execute("%resumable fresh research", "tool")
    nb.run("research")
    assert asked(nb) == ["one", "one"]
    nb.execute("%resumable back research --run 1", "tool")

    assert [shown.status for shown in nb.run_all().values()] == ["ok"] * 5
    assert asked(nb) == ["one", "one"]
    assert findings(nb) == ["one!", "report of one!"]


def test_what_does_not_stand_in_the_notebook_is_said(nb: Screen) -> None:
    """An input that is another one now: going back says so, and which cell has to run."""
    nb.cells["limit"] = "LIMIT = 1"
    nb.cells = {n: nb.cells[n] for n in ("open", "ask", "limit", "plan", "research", "report")}
    nb.cells["research"] += "\nstate.update(findings=[LIMIT])"
    nb.save()
    nb.run("limit", "research")
    nb.cells["limit"] = "LIMIT = 2"
    nb.save()
    nb.run("limit", "research")
    said = nb.execute("%resumable back research --run 2", "tool").said

    assert "does not stand" in said
    assert "`research` has to run first" in said
    assert findings(nb) == ["one!", 1]


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_kernel_that_dies_has_gone_back_or_not(nb: Screen, side: str) -> None:
    """Killed right before or after the journal has it: the thread is where it was, or there; then it can be done again."""
    nb.stop(kill=False)
    nb.env["RESUMABLE_NB_FAILPOINT"] = f"journal.append.{side}:2"
    nb.start()
    nb.run("open")
    nb.send("%resumable back plan", "tool")
    nb.died()
    del nb.env["RESUMABLE_NB_FAILPOINT"]
    nb.restart()
    nb.run("open", "ask")
    there = findings(nb)
    nb.execute("%resumable back plan", "tool")

    assert there == ([] if side == "after" else ["one!", "report of one!"])
    assert findings(nb) == []
    assert "restored" in nb.run("research", "report").said
    assert asked(nb) == ["one"]


def test_what_cannot_be_gone_back_to_is_refused(nb: Screen) -> None:
    """Each message says what there is; nothing is written."""
    head = nb.value("thread.session.head")
    refusals = {
        "nobody": "There is no step `nobody`",
        "plan --run 2": "`plan` has 1 finished run, so there is no run 2",
        "1": "no checkpoint that a cell left. Near it:",
        "": "required: STEP",
    }
    for arguments, message in refusals.items():
        assert message in nb.execute(f"%resumable back {arguments}", "tool").text()
    assert nb.value("thread.session.head") == head
    assert "`inside` is running" in nb.execute("%%resumable inside\n%resumable back plan", "inside").text()


def test_another_notebook_is_told_that_it_has_no_such_place(nb: Screen) -> None:
    """A step of another notebook has no place in this one: a look at its state, and a fork, are what there is."""
    nb.stop()
    nb.path = nb.folder / "other.ipynb"
    nb.env["JPY_SESSION_NAME"] = str(nb.path)
    nb.cells = {"open2": OPEN + " --continue", "more": "%%resumable more\nstate.update(findings=['more'])"}
    nb.save()
    nb.start()
    nb.run("open2", "more")
    shown = nb.execute("%resumable back plan", "tool").text()

    assert "is no cell of this notebook" in shown
    assert "%resumable fork" in shown
    assert "is where the thread is: nothing to do" in nb.execute("%resumable back more", "tool").said


READS = {
    "reads": "for question in state.plan:\n    last = question",
    "prints": "print(len(state.findings), state.plan)",
}


def test_a_cell_that_only_reads_the_state_need_not_run_again(tmp_path: Path) -> None:
    """Going back names no cell below that left the state as it was, and the thread is where that cell found it."""
    above, below = (("open", "ask", "plan"), ("research", "report"))
    cells = {n: CELLS[n] for n in above} | READS | {n: CELLS[n] for n in below}
    with screen(tmp_path, **cells, shows="state.findings") as nb:
        nb.run_all()
        assert "nothing to do" in nb.execute("%resumable back report", "tool").said
        said = nb.execute("%resumable back plan", "tool").said

        assert "To run from there: `research`, `report`; done" in said
        assert "may change the state" not in nb.run("research").said
        assert findings(nb) == ["one!"]
        assert "restored" in nb.run("report").said


def test_where_nothing_has_ended_there_is_nothing_to_go_back_to(tmp_path: Path) -> None:
    """A thread without a finished step, and a step that never ended, are told as what they are."""

    with resumable_nb.open("t", db=tmp_path / "t.duckdb") as thread:
        with pytest.raises(ThreadNotFound, match="No step has ended yet in thread 't': there is nothing to go back to"):
            find(thread, "newest")
        with pytest.raises(Paused):
            thread.step("look", lambda: resumable_nb.approve("Go on?"))
        with pytest.raises(ThreadNotFound, match="`look` has never ended in thread 't'"):
            find(thread, "look")
        with pytest.raises(ThreadNotFound, match=r"There is no step `other` in thread 't'. Its steps: `look`"):
            find(thread, "other")
