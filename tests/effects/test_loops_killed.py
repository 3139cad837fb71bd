"""A process killed anywhere in a loop of durable calls: the next one does what is missing, and the bar starts there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from resumable_nb.journal import Store
from tests.effects import loops
from tests.support import forked

forked.preload("tests.effects.loops")
ROWS = [f"journal.append.{side}:{nth}" for side, nth in (("before", 4), ("after", 5), ("after", 8), ("before", 10))]


@pytest.mark.parametrize("kind", ["map", "track"])
def test_after_a_kill_only_what_is_missing_runs(kind: str, tmp_path: Path) -> None:
    """Results and state as without a kill; what is recorded does not run again, and is in the bar from the start."""
    for point in ROWS:
        folder = tmp_path / point.replace(":", "-")
        folder.mkdir()
        assert forked.outcome(loops.run, folder, kind, point)[0] == -signal.SIGKILL
        store = Store.open(folder / "t.duckdb")
        recorded = store.rows("SELECT count(*) FROM journal WHERE kind = 'call' AND phase = 'done'")[1][0][0]
        store.close()
        ran = folder / "ran"
        before = ran.read_text().split() if ran.exists() else []
        ran.write_text("")

        ended, (result, findings, bars) = forked.outcome(loops.run, folder, kind, "")
        again = ran.read_text().split()

        assert (ended, result, findings) == (0, [30, 10, 40, 20], loops.ITEMS), point
        assert len(again) == len(set(again)) == len(loops.ITEMS) - recorded, point
        assert {*before, *again} == {"1", "2", "3", "4"}, point
        assert bars == ([] if kind == "map" else [(recorded, 4, 4)]), point
