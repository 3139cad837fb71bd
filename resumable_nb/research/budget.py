"""Budgets: what the research may cost, looked at before each question to a model, also to one for embeddings."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator

from resumable_nb.calls.approval import approve
from resumable_nb.cells import Spent
from resumable_nb.journal import Row
from resumable_nb.llm.usage import Usage
from resumable_nb.research.records import Budget
from resumable_nb.scope import Run, scope
from resumable_nb.terminal import counted, one_line

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
        since: calls that are shared and stand up to this row are counted already; see `Usage.seq`.
        shared: those behind it that are, too.

    Attributes:
        unpriced: models of which nobody knows a price.
        estimated: model → how many answers came without a count of tokens, and how many were counted for them.
    """

    def __init__(
        self, budget: Budget, around: Meter | None = None, *, since: int = 0, shared: Iterable[int] = ()
    ) -> None:
        self.budget = budget
        self.spent = dict.fromkeys(LIMITS, 0.0)
        self.unpriced: set[str] = set()
        self.estimated: dict[str, tuple[int, int]] = {}
        self._refused = False
        self._around = around
        self._lock = threading.Lock()
        self._since, self._shared = since, set(shared)

    def before(self) -> None:
        """Raises BudgetSpent if a limit is reached."""
        with self._lock:
            for name, limit in limits_of(self.budget).items():
                if self.spent[name] >= limit:
                    measure = _MEASURES.get(name)
                    told = measure.format(limit) if measure else counted(int(limit), name.removesuffix("s"))
                    share = f"the budget's share for it, {told}," if self._around else f"the budget of {told}"
                    raise BudgetSpent(f"{share} is used up")

    def after(self, used: Usage) -> None:
        """Count an answer."""
        cost, tokens = _price(used, self.budget), used.input_tokens + used.output_tokens
        with self._lock:
            if used.seq in self._shared:  # another branch was first
                return
            self._shared |= {used.seq} - {0}
            if cost is None:
                self.unpriced.add(used.model)
            if used.is_estimated:
                calls, before = self.estimated.get(used.model, (0, 0))
                self.estimated[used.model] = calls + used.calls, before + tokens
            self.spent["calls"] += used.calls
            self.spent["tokens"] += tokens
            self.spent["money"] += cost or 0.0
            self.spent["minutes"] += used.ms / 60_000
        if self._around is not None:
            self._around.after(used)

    def knows(self, used: Usage) -> bool:
        """Whether a call that several share is counted: by this meter, or as one of the steps above."""
        with self._lock:
            return 0 < used.seq <= self._since or used.seq in self._shared

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
            share_of = Budget(**share, prices=self.budget.prices)
            yield Meter(share_of, self, since=self._since, shared=self._shared)

    def ask_for_more(self, what_for: str) -> bool:
        """Ask the person for as much again, which they may edit. Whether they gave it; a no is not asked about again.

        Raises:
            Paused: nobody has decided yet.
        """
        if self._refused:
            return False
        more = limits_of(self.budget)
        question = message = f"The budget is used up. Spend as much again on {what_for}?"
        while (answer := approve(message, more, raise_on_reject=False)) and not _fits(answer.payload, more):
            given = one_line(json.dumps(answer.payload, ensure_ascii=False), 30)
            message = f"{given} could not be used: give {', '.join(more)}, from 0 on. {question}"  # its end may be cut
        if answer:
            raised = {name: value + answer.payload.get(name, 0) for name, value in more.items()}
            self.budget = self.budget.model_copy(update=raised)
            tell(self.budget)
        self._refused = not answer
        return bool(answer)

    @property
    def notes(self) -> list[str]:
        """What is to be said about the accounts."""
        notes = [f"No price is known of {model}: its calls count as free." for model in sorted(self.unpriced)]
        counts = self.budget.tokens is not None or self.budget.money is not None
        for model, (calls, tokens) in sorted(self.estimated.items() if counts else ()):
            answers = f"{counted(calls, 'answer')} of {model} came without a count of tokens"
            notes.append(f"{answers}: {counted(tokens, 'token')} of the budget are estimated from the texts.")
        return notes


def _fits(given: dict[str, float], asked: dict[str, float]) -> bool:
    """Whether a person gave more of what is limited; of which kind the numbers are, the gate itself looks at."""
    return given.keys() <= asked.keys() and all(value >= 0 for value in given.values())


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

    meter = Meter(budget or Budget(), since=_entry())
    if limits_of(meter.budget):
        tell(meter.budget)
        for used in _spent_above(model or DEFAULT_MODEL):
            meter.after(used)
    return meter


def _entry() -> int:
    """The checkpoint that the running step starts from; 0 outside any."""
    running = scope()
    return running.entry if isinstance(running, Run) else 0


def _spent_above(model: str) -> Iterator[Usage]:
    """What was spent up to where the running step starts: by steps of the lineage, and for vectors."""
    running = scope()
    if not isinstance(running, Run):
        return
    from resumable_nb.llm.ledger import up_to

    fold = running.thread.fold
    above = [row for seq in fold.chain if seq <= running.entry and (row := fold.row(seq)) and row.step is not None]
    spent = sum((fold.record(row.seq).spent for row in above), Spent())
    steps = {row.step for row in above}
    entries = [e for e in up_to(running.thread, running.entry) if e.step in steps or (e.embeds and e.step is None)]
    untold = sum(entry.untold.calls for entry in entries if not entry.embeds)
    yield Usage(model, spent.input_tokens, spent.output_tokens, spent.ms, calls=spent.calls - untold)
    yield from (entry.told for entry in entries if entry.embeds)
    yield from (entry.untold for entry in entries if entry.untold.calls)


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
