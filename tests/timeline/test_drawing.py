"""A picture that is kept and goes on with the rows that are new: it is what all rows at once would give."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import resumable_nb
from resumable_nb.errors import ThreadNotFound
from resumable_nb.journal import Row, Store
from resumable_nb.timeline import Drawing
from resumable_nb.timeline.lanes import Lanes
from resumable_nb.timeline.picture import tell
from tests.timeline.histories import History

Json = dict[str, Any]
NOW = 9e6


def at_once(store: Store, thread_id: str, **options: Any) -> Json:
    drawing = Drawing(store, thread_id)
    drawing.refresh()
    return drawing.tell(now=NOW, **options)


def went_on(drawing: Drawing, **options: Any) -> Json:
    drawing.refresh()
    return drawing.tell(now=NOW, **options)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(3, 150),
    stops=st.sets(st.integers(0, 150), max_size=12),
    at_most=st.sampled_from([2, 4, 100]),
)
def test_however_rows_come_in_the_picture_is_the_same(seed: int, size: int, stops: set[int], at_most: int) -> None:
    """Told after any of its rows, a history is what all rows up to there tell at once; what was told stays as it was."""
    rows, kept, told = History(seed).grow(size), Lanes(), []
    for number, row in enumerate(rows, 1):
        kept.take(row)
        if number not in stops and row is not rows[-1]:
            continue
        picture, anew = tell(kept, at_most=at_most, now=NOW), Lanes()
        for earlier in rows[:number]:
            anew.take(earlier)
        assert picture == tell(anew, at_most=at_most, now=NOW)
        told.append((picture, json.dumps(picture)))

    assert all(json.dumps(picture) == text for picture, text in told)


def test_rows_that_nothing_touched_are_not_told_anew(tmp_path: Path) -> None:
    """A new row of one step leaves the rows of the others the very objects that they were."""
    store = Store.open(tmp_path / "t.duckdb")
    with resumable_nb.open("t", db=store.path) as thread:
        thread.step("one", lambda: None)
        thread.step("two", lambda: None)
    drawing = Drawing(store, "t")
    before = went_on(drawing)["rows"]
    store.visitor("t").append(Row(kind="step", phase="retired", step="two", cell_id="step two"))
    after = went_on(drawing)["rows"]

    assert [row["name"] for row in after] == ["start", "one", "two"]
    assert [new is old for new, old in zip(after, before, strict=True)] == [True, True, False]


def test_each_look_reads_only_what_is_new(db: Path, tmp_path: Path) -> None:
    """Looked at every few rows, a thread that was killed twice ends as the picture of all rows at once."""
    lived = Store.open(shutil.copy(db, tmp_path / "bees.duckdb"))
    rows = lived.look("bees")[2:]  # the first two are made by the session that writes them anew
    grown = Store.open(tmp_path / "grown.duckdb")
    session, drawing = grown.open_session("bees", about={}), Drawing(grown, "bees")
    for start in range(0, len(rows), 9):
        session.append(*rows[start : start + 9])
        assert went_on(drawing) == at_once(grown, "bees")

    told = [(row["name"], row["stands"]) for row in at_once(lived, "bees")["rows"]]
    assert [(row["name"], row["stands"]) for row in went_on(drawing)["rows"]] == told


def test_what_was_pruned_meanwhile_is_drawn_anew(db: Path, tmp_path: Path) -> None:
    """Pruning leaves the numbers of the rows as they are; the picture that was kept notices all the same."""
    path = Path(shutil.copy(db, tmp_path / "bees.duckdb"))
    drawing = Drawing(Store.open(path), "bees")
    before, stamp = went_on(drawing), drawing.stamp
    resumable_nb.prune(path, thread="bees", keep=1, yes=True)
    after = went_on(drawing)

    assert after == at_once(Store.open(path), "bees")
    assert after["head"] == before["head"]
    assert drawing.stamp != stamp
    assert [row["stands"] for row in after["rows"]][1] == "pruned"


def test_a_fork_goes_on_by_itself(db: Path, tmp_path: Path) -> None:
    """What comes in the fork changes its picture, and not the one of the thread that it came from."""
    store = Store.open(shutil.copy(db, tmp_path / "bees.duckdb"))
    bees, fork = Drawing(store, "bees"), Drawing(store, "fork")
    before, stamp = went_on(bees), bees.stamp
    store.fork("bees", before["newest"], "fork")
    forked = went_on(fork)
    with resumable_nb.open("fork", db=store.path) as thread:
        thread.step("another", lambda: None)

    assert forked["forked"] == {"from": "bees", "seq": before["newest"]}
    assert went_on(fork) == at_once(store, "fork")
    assert "another" in [row["name"] for row in went_on(fork)["rows"]]
    assert (went_on(bees), bees.stamp) == (before, stamp)


def test_a_thread_that_was_dropped_and_made_anew_is_another_one(tmp_path: Path) -> None:
    """Under its old name it is drawn from its first row, though it has as many rows; while it is gone, that is said."""
    store = Store.open(tmp_path / "t.duckdb")
    for name in ("t", "other"):
        with resumable_nb.open(name, db=store.path) as thread:
            thread.step("one", lambda: None)
    drawing = Drawing(store, "t")
    head = went_on(drawing)["head"]
    resumable_nb.prune(store.path, drop=["t"], yes=True)
    with pytest.raises(ThreadNotFound, match="It has 'other'"):
        drawing.refresh()
    with resumable_nb.open("t", db=store.path) as thread:
        thread.step("new", lambda: None)

    assert went_on(drawing) == at_once(store, "t")
    assert went_on(drawing)["head"] == head
    assert [row["name"] for row in went_on(drawing)["rows"]] == ["start", "new"]


def test_older_rows_can_be_asked_for(tmp_path: Path) -> None:
    """Of more rows than are told the oldest are one; asked for more, it tells them one by one, and the others as before."""
    store = Store.open(tmp_path / "t.duckdb")
    with resumable_nb.open("t", db=store.path) as thread:
        for number in range(6):
            thread.step(f"step {number}", lambda: None)
    drawing = Drawing(store, "t")
    few, all_of_them = went_on(drawing, at_most=3), went_on(drawing, at_most=20)

    assert few["earlier"]["count"] == 4
    assert [row["name"] for row in few["rows"]] == ["step 3", "step 4", "step 5"]
    assert all_of_them["earlier"] is None
    assert all(new is old for new, old in zip(all_of_them["rows"][4:], few["rows"], strict=True))
    assert few["totals"] == all_of_them["totals"]
