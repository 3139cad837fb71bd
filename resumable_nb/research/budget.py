"""Budgets: what the research may cost, looked at before each question to the model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

from resumable_nb.calls.approval import approve
from resumable_nb.cells import Spent
from resumable_nb.journal import Row
from resumable_nb.llm.usage import Usage
from resumable_nb.research.records import Budget
from resumable_nb.scope import Run, scope
from resumable_nb.terminal import counted

LIMITS = ("calls", "tokens", "money", "minutes")
_MEASURES = {"money": "${:,.4f}", "minutes": "{:.1f} minutes"}


class BudgetSpent(Exception):
    """No further question may be asked; the message says which limit was reached."""


class Meter:
    """Counts what answers cost, recorded ones as much as live ones, so that a replay stops where the first run did.

    The limit is looked at before each question: the answer that reaches it may go beyond it.

    Args:
        budget: the limits.
        around: the meter of which this one is a share; what is spent here is spent there, too.
    """

    def __init__(self, budget: Budget, around: Meter | None = None) -> None:
        self.budget = budget
        self.spent = dict.fromkeys(LIMITS, 0.0)
        self.unpriced: set[str] = set()
        self._refused = False
        self._around = around
        self._lock = threading.Lock()

    def before(self) -> None:
        """Raises BudgetSpent if a limit is reached."""
        with self._lock:
            for name, limit in limits_of(self.budget).items():
                if self.spent[name] >= limit:
                    measure = _MEASURES.get(name)
                    told = measure.format(limit) if measure else counted(int(limit), name.removesuffix("s"))
                    raise BudgetSpent(f"the budget of {told} is used up")

    def after(self, used: Usage) -> None:
        """Count an answer."""
        cost = _price(used, self.budget)
        with self._lock:
            if cost is None:
                self.unpriced.add(used.model)
            self.spent["calls"] += 1
            self.spent["tokens"] += used.input_tokens + used.output_tokens
            self.spent["money"] += cost or 0.0
            self.spent["minutes"] += used.ms / 60_000
        if self._around is not None:
            self._around.after(used)

    @property
    def left(self) -> Budget:
        """What is left."""
        left = {name: max(limit - self.spent[name], 0) for name, limit in limits_of(self.budget).items()}
        whole = {name: int(value) if name in ("calls", "tokens") else value for name, value in left.items()}
        return Budget(**whole, prices=self.budget.prices)

    def shares(self, count: int) -> Iterator[Meter]:
        """Meters with equal shares of what is left, the first ones with the rest of a division.

        Parallel branches must not depend on which of them is faster, or a replay would stop elsewhere.
        """
        left = limits_of(self.left)
        for place in range(count):
            share = {
                name: (value // count + (place < value % count) if name in ("calls", "tokens") else value / count)
                for name, value in left.items()
            }
            yield Meter(Budget(**share, prices=self.budget.prices), self)

    def ask_for_more(self, what_for: str) -> bool:
        """Ask the person for as much again, which they may edit. Whether they gave it; a no is not asked about again.

        Raises:
            Paused: nobody has decided yet.
        """
        if self._refused:
            return False
        more = limits_of(self.budget)
        answer = approve(f"The budget is used up. Spend as much again on {what_for}?", more, raise_on_reject=False)
        if answer:
            raised = {name: value + answer.payload.get(name, 0) for name, value in more.items()}
            self.budget = self.budget.model_copy(update=raised)
            tell(self.budget)
        self._refused = not answer
        return bool(answer)

    @property
    def notes(self) -> list[str]:
        """What is to be said about the accounts."""
        return [f"No price is known of {model}: its calls count as free." for model in sorted(self.unpriced)]


def limits_of(budget: Budget) -> dict[str, float]:
    """The limits that there are, by name."""
    return {name: value for name in LIMITS if (value := getattr(budget, name)) is not None}


def metering(budget: Budget | Meter | None, model: str | None = None) -> Meter:
    """A meter for a stage: the one that is given, or a new one that knows what the steps above it cost.

    Args:
        budget: limits; None: no limits.
        model: the model that the steps above are taken to have asked.
    """
    if isinstance(budget, Meter):
        return budget
    from resumable_nb.llm.models import DEFAULT_MODEL

    meter = Meter(budget or Budget())
    if limits_of(meter.budget):
        tell(meter.budget)
        above = _spent_above()
        used = Usage(model or DEFAULT_MODEL, above.input_tokens, above.output_tokens, above.ms)
        meter.after(used)
        meter.spent["calls"] = above.calls
    return meter


def _spent_above() -> Spent:
    """What the steps of the lineage cost up to where the running step starts."""
    running = scope()
    if not isinstance(running, Run):
        return Spent()
    fold = running.thread.fold
    above = [seq for seq in fold.chain if seq <= running.entry]
    rows = [row for row in map(fold.row, above) if row is not None and row.step is not None]
    return sum((fold.record(row.seq).spent for row in rows), Spent())


def tell(budget: Budget) -> None:
    """Keep the limits in the journal, so that `%resumable status` can say what is left."""
    running = scope()
    told = budget.model_dump(mode="json", exclude_defaults=True)
    if running is not None and running.thread.fold.budget != told:
        running.append(Row(kind="notice", name="budget", data=json.dumps(told)))


def _price(used: Usage, budget: Budget) -> float | None:
    """What an answer cost, where money is limited; None if nobody knows."""
    if budget.money is None:
        return 0.0
    from resumable_nb.llm.prices import price

    return price(used.model, used.input_tokens, used.output_tokens, budget.prices)
