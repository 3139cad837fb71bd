"""Findings in the store as they come, though only the end of the research puts them in order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from resumable_nb.errors import ResumableError
from resumable_nb.research.planning import questions_of
from resumable_nb.research.records import Finding, SubQuestion
from resumable_nb.scope import Run, scope
from resumable_nb.state import ResearchState

if TYPE_CHECKING:
    from resumable_nb.state import State


class Shelf:
    """Where parallel sub-questions put what they find: it is in the state until `clear`, and so in the step's progress.

    Args:
        state: of the research; only that of the running step is changed.
        plan: as it is before.

    Attributes:
        findings: those known at the start: of the steps above, and of a run of this step that was broken off.
        ended: the sub-questions that had been looked into by then.
    """

    def __init__(self, state: ResearchState, plan: Sequence[SubQuestion]) -> None:
        running = scope()
        self._run = running if isinstance(running, Run) and running.thread.live.state is state else None
        self._state, self._before, self._plan = state, (list(state.findings), list(state.plan)), list(plan)
        self._lock, self._is_closed = threading.Lock(), False
        self._put = {(f.source, f.quote) for f in _findings_of(state)}
        earlier = self._earlier()
        self.findings = _findings_of(state) + (_findings_of(earlier) if earlier else [])
        known = {one.question: one.status for one in questions_of(earlier)} if earlier else {}
        self.ended = [one.question for one in plan if known.get(one.question, one.status) != "open"]

    def _earlier(self) -> ResearchState | None:
        """The state as far as a run that was broken off came. Only for showing: the replay comes there again."""
        earlier: State | None = None
        with contextlib.suppress(ResumableError):
            earlier = self._run.progress_before() if self._run is not None else None
        return earlier if isinstance(earlier, ResearchState) else None

    def put(self, finding: Finding) -> None:
        """One more; what another sub-question found is there already."""
        with self._lock:
            key = finding.source, finding.quote
            if self._run is not None and not self._is_closed and key not in self._put:
                self._put.add(key)
                self._run.shelve(findings=[finding])

    def end(self, result: SubQuestion) -> None:
        """A sub-question has ended."""
        with self._lock:
            self._plan = [result if one.question == result.question else one for one in self._plan]
            if self._run is not None and not self._is_closed:
                self._run.shelve(plan=self._plan)

    def clear(self) -> None:
        """Take everything out of the state again. A branch that goes on after Ctrl-C puts in nothing more."""
        with self._lock:
            self._is_closed = True
            if self._run is not None:
                self._state.findings[:], self._state.plan[:] = self._before


def _findings_of(state: ResearchState) -> list[Finding]:
    return [finding for finding in state.findings if isinstance(finding, Finding)]
