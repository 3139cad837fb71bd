"""Skips and replays stand in the journal, by rows that are written anyway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import resumable_nb
from resumable_nb.journal import Row


def told(path: Path) -> list[dict[str, Any]]:
    rows = resumable_nb.journal.Store.open(path).visitor("t").read()
    return [json.loads(row.data or "") for row in rows if row.name == "skipped"]


def test_a_skip_is_told_once_though_ctrl_c_came_right_after_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is in the store then: the next one does not bring it again."""
    path = tmp_path / "r.duckdb"
    for _ in range(2):
        with resumable_nb.open("t", db=path) as thread:
            thread.step("a", lambda: 1)
            append = thread.session.append

            def interrupted(*rows: Row) -> list[int]:
                append(*rows)
                raise KeyboardInterrupt

            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                patched.setattr(thread.session, "append", interrupted)
                thread.append(Row(kind="notice", name="x"))
            thread.append(Row(kind="notice", name="y"))

    assert [len(one["steps"]) for one in told(path)] == [1]


def test_a_skip_that_could_not_be_written_is_told_by_the_next_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store refused is not lost."""
    path = tmp_path / "r.duckdb"
    for _ in range(2):
        with resumable_nb.open("t", db=path) as thread:
            thread.step("a", lambda: 1)

            def refused(*rows: Row) -> list[int]:
                raise OSError(28, "No space left on device")

            with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
                patched.setattr(thread.session, "append", refused)
                thread.append(Row(kind="notice", name="x"))

    assert [len(one["steps"]) for one in told(path)] == [1]
