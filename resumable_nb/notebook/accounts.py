"""What a thread has cost, what resuming has saved, and what is left of a budget: lines for `%resumable status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resumable_nb.cells import Spent
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from resumable_nb.llm.ledger import Entry
    from resumable_nb.llm.usage import Usage
    from resumable_nb.thread import Thread


def accounts(thread: Thread) -> list[str]:
    """The lines; what there is nothing to say about is left out."""
    from resumable_nb.llm.ledger import billed

    entries = billed(thread)
    calls = sum(entry.told.calls + entry.untold.calls for entry in entries)
    told = [entry.told for entry in entries]
    spent = sum((Spent(0, one.input_tokens, one.output_tokens, one.ms) for one in told), Spent(calls))
    lines = [f"spent: {spent}{_untold(entries)}"] if spent.calls else []
    if thread.saved.calls:
        lines.append(f"saved by resuming since it was opened: {thread.saved}")
    if thread.fold.budget:
        lines.append(f"left of the budget: {', '.join(_left(thread.fold.budget, entries, spent))}")
    return lines


def _untold(entries: list[Entry]) -> str:
    """How many answers came without tokens, and about how many those are."""
    untold = [entry.untold for entry in entries if entry.untold.calls]
    if not untold:
        return ""
    answers = counted(sum(one.calls for one in untold), "answer")
    tokens = counted(sum(map(_tokens, untold)), "token")
    return f"; {answers} came without a count of tokens: estimated from the length of the texts, {tokens} more"


def _tokens(used: Usage) -> int:
    return used.input_tokens + used.output_tokens


def _left(budget: dict[str, Any], entries: list[Entry], spent: Spent) -> list[str]:
    told = []
    if "calls" in budget:
        told.append(f"{max(budget['calls'] - spent.calls, 0):,} of {counted(budget['calls'], 'call')}")
    if "tokens" in budget:
        tokens = sum(_tokens(entry.told) + _tokens(entry.untold) for entry in entries)
        told.append(f"{max(budget['tokens'] - tokens, 0):,} of {counted(budget['tokens'], 'token')}")
    if "minutes" in budget:
        told.append(f"{max(budget['minutes'] - spent.ms / 60_000, 0):.1f} of {budget['minutes']:.1f} minutes")
    if "money" in budget:
        from resumable_nb.llm.prices import price

        used = [one for entry in entries for one in (entry.told, entry.untold) if one.calls]
        costs = [(u.model, price(u.model, u.input_tokens, u.output_tokens, budget.get("prices"))) for u in used]
        left = max(budget["money"] - sum(cost or 0 for _, cost in costs), 0)
        unpriced = sorted({model for model, cost in costs if cost is None})
        free = f" (no price is known of {', '.join(unpriced)}: counted as free)" if unpriced else ""
        told.append(f"${left:,.4f} of ${budget['money']:,.4f}{free}")
    return told
