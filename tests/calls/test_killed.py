"""A process killed at any point of a call: what was answered is not asked again, and the accounts say what was lost."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.calls import victim
from tests.support import forked

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer

forked.preload("tests.calls.victim")
CALLS = 6


def run(db: Path, server: ModelServer, failpoint: str = "") -> tuple[int | None, Any]:
    """The exit code of one process, and what it sent."""
    return forked.outcome(victim.run, db, server.base_url, failpoint)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize(
    ("boundary", "nth"),
    [
        ("send", 1),
        ("send", 4),
        ("send", 6),
        ("receive", 2),
        ("receive", 5),
        ("receive", 6),
        ("stream", 2),
        ("stream", 5),
    ],
)
def test_nothing_answered_is_asked_again(
    boundary: str, nth: int, side: str, server: ModelServer, tmp_path: Path
) -> None:
    """Killed at any point around sending, receiving and streaming, the next run asks only what was in flight."""
    db = tmp_path / "t.duckdb"

    killed, _ = run(db, server, f"http.{boundary}.{side}:{nth}")
    ended, (result, accounts) = run(db, server)

    phases = Counter(row["phase"] for row in accounts)
    assert (killed, ended, len(result)) == (-signal.SIGKILL, 0, 5)
    assert server.asked() - CALLS <= phases["lost"] <= 2  # two only where two were in flight
    assert phases["done"] == CALLS - 1
    assert phases["partial"] >= 1
    assert sum(row["tokens"] for row in accounts) == 10 * phases["done"]
