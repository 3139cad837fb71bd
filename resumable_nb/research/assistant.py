"""`research`: all stages, one after the other, in one step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from resumable_nb.errors import UsageError
from resumable_nb.research.budget import metering
from resumable_nb.research.planning import MOST_QUESTIONS, approve_plan, as_one, coordinator, planner
from resumable_nb.research.reporting import reporter
from resumable_nb.research.researching import researcher
from resumable_nb.scope import scope

if TYPE_CHECKING:
    from resumable_nb.research.records import Budget, Report
    from resumable_nb.research.sources import Source
    from resumable_nb.state import ResearchState


def research(
    question: str | None = None,
    *,
    sources: Source | Iterable[Source],
    budget: Budget | None = None,
    model: str | None = None,
    writes: bool | None = None,
    approve: bool = True,
    most: int = MOST_QUESTIONS,
) -> Report:
    """A cited report on a question, from sources. Call it in a step: what was answered is not asked again.

    It clarifies the question, plans, has the plan approved, looks into the sub-questions in parallel, and reports. The
    state has the plan and the findings afterwards.

    Args:
        question: what is asked; None: `state.query`.
        sources: where to look, see `Source`.
        budget: limits; where they are reached, the person is asked.
        model: as for `ask`.
        writes: whether the model can write; None: every one but the embedded one.
        approve: False goes on without asking the person about the plan.
        most: sub-questions.

    Raises:
        UsageError: No thread is open, its state is no `ResearchState`, or there is no question.
        Paused: a person has to decide; run it again then.
        Rejected: a person rejected the plan.
    """
    running = scope()
    if running is None:
        raise UsageError("research(…) needs an open thread: run `%resumable open THREAD` first.")
    state = cast("ResearchState", running.thread.live.state)
    if not {"query", "plan", "findings"} <= type(state).model_fields.keys():
        raise UsageError(f"research(…) needs a subclass of ResearchState, not {type(state).__name__}.")
    meter, source = metering(budget, model), as_one(sources)
    coordinator(state, source, question=question, budget=meter, model=model, writes=writes)
    planner(state, source, budget=meter, model=model, writes=writes, most=most)
    if approve:
        approve_plan(state)
    researcher(state, source, budget=meter, model=model, writes=writes)
    return reporter(state, source, budget=meter, model=model, writes=writes)
