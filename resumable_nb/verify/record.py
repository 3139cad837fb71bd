"""Verifications in a store: rows of kind `verification`, read by the views `verifications` and `verification_runs`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from resumable_nb.journal import Row, Store

if TYPE_CHECKING:
    from resumable_nb.verify.judge import Judged
    from resumable_nb.verify.verification import Cost, Verification

_HISTORY = """
SELECT started_at, trials, trials_passed, versions FROM verifications
WHERE thread_id = $thread AND phase = 'done' ORDER BY seq"""


class Recorder:
    """Writes one verification down, as it goes. Use it as a context manager.

    Args:
        db: the store; it is made where there is none.
        subject: what is verified; `verify SUBJECT` is its thread.
        settings: how, for the record.
    """

    def __init__(self, db: Path, subject: str, settings: Mapping[str, Any]) -> None:
        self._store, self.thread_id = Store.open(db), f"verify {subject}"
        self._session = self._store.open_session(self.thread_id, about={})
        started = Row(kind="verification", phase="started", name=subject, data=json.dumps(settings, default=str))
        (self.seq,) = self._session.append(started)

    def trial(self, judged: Judged, versions: Mapping[str, str]) -> None:
        """One trial."""
        point = judged.injection.point
        data = {
            "leg": point.leg,
            "about": point.about,
            "reached": judged.injection.was_reached,
            "results": {check: {"result": result, "why": why} for check, (result, why) in judged.results.items()},
            "recovery_s": round(judged.injection.recovery_s, 3),
            "calls_done": judged.calls_done,
            "calls_again": judged.calls_again,
            "share": judged.share,
            "lost": judged.lost,
            "versions": dict(versions),
        }
        self._append("trial", name=point.name, occurrence=point.nth, data=json.dumps(data), run_seq=self.seq)

    def done(self, done: Verification) -> None:
        """What came of it."""
        equal, tried = done.contexts
        data = {
            "versions": done.versions,
            "points": done.points,
            "trials": len(done.judged),
            "trials_passed": sum(one.passed for one in done.judged),
            "seconds": round(done.seconds, 1),
            "recovery_s": _cost(done.recovery_s),
            "calls_again": _cost(done.calls_again),
            "share": _cost(done.share),
            "completeness": equal / tried if tried else 1.0,
            "largest_loss": done.largest_loss,
            "window": done.window,
            "readability": done.readability,
            "live": done.is_live,
        }
        self._append("done", name=done.subject, data=json.dumps(data), ref_seq=self.seq)

    def history(self) -> list[dict[str, Any]]:
        """All finished verifications of this subject, oldest first."""
        columns, rows = self._store.rows(_HISTORY, {"thread": self.thread_id})
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        return [one | {"versions": json.loads(one["versions"] or "{}")} for one in found]

    def _append(self, phase: str, **columns: Any) -> None:
        self._session.append(Row(kind="verification", phase=phase, **columns))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._session.close()
        self._store.close()


def _cost(cost: Cost) -> dict[str, float]:
    return {name: round(value, 3) for name, value in vars(cost).items()}
