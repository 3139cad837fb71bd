"""What a thread has cost, what resuming has saved, and what is left of a budget: lines for `%resumable status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resumable_nb.cells import Spent
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from resumable_nb.thread import Thread

_BILLED = """
SELECT coalesce(gen_ai_request_model, '?'), count(*) FILTER (phase IN ('done', 'partial')),
       coalesce(sum(gen_ai_usage_input_tokens), 0), coalesce(sum(gen_ai_usage_output_tokens), 0),
       coalesce(sum(duration_ms) FILTER (phase IN ('done', 'partial')), 0)
FROM llm_calls WHERE thread_id = ? GROUP BY 1"""


def accounts(thread: Thread) -> list[str]:
    """The lines; what there is nothing to say about is left out."""
    billed = thread.store.rows(_BILLED, [thread.thread_id])[1]
    spent = sum((Spent(*row[1:]) for row in billed), Spent())
    lines = [f"spent: {spent}"] if spent.calls else []
    if thread.saved.calls:
        lines.append(f"saved by resuming since it was opened: {thread.saved}")
    if thread.fold.budget:
        lines.append(f"left of the budget: {', '.join(_left(thread.fold.budget, billed, spent))}")
    return lines


def _left(budget: dict[str, Any], billed: list[tuple[Any, ...]], spent: Spent) -> list[str]:
    told = []
    if "calls" in budget:
        told.append(f"{max(budget['calls'] - spent.calls, 0):,} of {counted(budget['calls'], 'call')}")
    if "tokens" in budget:
        tokens = spent.input_tokens + spent.output_tokens
        told.append(f"{max(budget['tokens'] - tokens, 0):,} of {counted(budget['tokens'], 'token')}")
    if "minutes" in budget:
        told.append(f"{max(budget['minutes'] - spent.ms / 60_000, 0):.1f} of {budget['minutes']:.1f} minutes")
    if "money" in budget:
        from resumable_nb.llm.prices import price

        cost = sum(price(row[0], row[2], row[3], budget.get("prices")) or 0 for row in billed)
        told.append(f"${max(budget['money'] - cost, 0):,.4f} of ${budget['money']:,.4f}")
    return told
