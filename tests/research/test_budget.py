"""Budgets: checked before each call, shared between branches, and over budget a person is asked."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import resumable_nb
from resumable_nb import ask, gates
from resumable_nb.errors import Paused
from resumable_nb.llm.prices import price
from resumable_nb.llm.usage import Usage
from resumable_nb.notebook.accounts import accounts
from resumable_nb.research import Budget, Folder, coordinator, planner, reporter, research, researcher
from resumable_nb.research.budget import BudgetSpent, Meter
from tests.research.conftest import ISLAND
from tests.support.research_model import ResearchModel

TWO = "When was the lamp electrified, and when did the tide mill close?"
CHEAP = Usage("m", 1000, 100, 60_000)


@pytest.mark.parametrize(
    ("limits", "answers"),
    [
        ({"calls": 2}, 2),
        ({"tokens": 2200}, 2),
        ({"tokens": 2201}, 3),
        ({"minutes": 1.5}, 2),
        ({"money": 0.0025}, 3),
        ({"calls": 0}, 0),
    ],
)
def test_a_meter_stops_at_each_limit(limits: dict, answers: int):
    """The answer that reaches it is the last."""
    meter = Meter(Budget(**limits, prices={"m": (1.0, 1.0)}))
    for _ in range(answers):
        meter.before()
        meter.after(CHEAP)

    with pytest.raises(BudgetSpent, match="used up"):
        meter.before()


def test_shares_add_up_to_what_is_left():
    """The first ones get the rest of the division; what a share spends is spent of the whole."""
    meter = Meter(Budget(calls=8, tokens=10_000))
    meter.after(CHEAP)
    shares = list(meter.shares(3))
    shares[0].after(CHEAP)

    assert [share.budget.calls for share in shares] == [3, 2, 2]
    assert sum(share.budget.tokens or 0 for share in shares) == 10_000 - 1100
    assert meter.left.calls == 6


def test_a_shared_call_counts_once():
    """For each branch that uses it, once for the whole; not at all where the steps above had paid it."""
    meter = Meter(Budget(calls=10), since=5)
    above, before, new = (replace(CHEAP, seq=seq) for seq in (4, 6, 7))
    meter.after(before)
    shares = list(meter.shares(2))
    for share in shares:
        assert share.knows(above) and share.knows(before) and not share.knows(new)
        share.after(new)

    assert [share.spent["calls"] for share in shares] == [1, 1]
    assert meter.spent["calls"] == 2 and meter.knows(new)


def test_prices_come_from_the_table_or_the_package():
    """A table of the user's goes first; the embedded model is free; of others genai-prices knows, or nobody."""
    assert price("gpt-4o-mini", 1_000_000, 0, {"gpt-4o-mini": (7.0, 1.0)}) == 7.0
    assert price("gpt-4o-mini", 1_000_000, 0) == pytest.approx(0.15)
    assert price("smollm2-135m-instruct", 1_000_000, 5) == 0
    assert price("nobody-knows", 1, 1) is None


def test_a_model_without_a_price_is_told(model: ResearchModel, thread: Any):
    """Its calls count as free, and report and status say so."""
    options: Any = {"approve": False, "budget": Budget(money=1.0), "model": "nobody-knows"}
    report = thread.step("all", lambda: research(TWO, sources=Folder(str(ISLAND)), **options))

    assert "No price is known of nobody-knows: its calls count as free." in report.notes
    assert report.findings
    left = "$1.0000 of $1.0000 (no price is known of nobody-knows: counted as free)"
    assert accounts(thread)[-1] == f"left of the budget: {left}"


@pytest.mark.parametrize("approve", [True, False])
def test_over_budget_a_person_is_asked(approve: bool, model: ResearchModel, tmp_path: Path):
    """With a yes, and as much more as they write, it goes on; with a no, the report says what stayed open."""

    def run() -> Any:
        with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as thread:
            budget = Budget(tokens=220)
            return thread.step("all", lambda: research(TWO, sources=Folder(str(ISLAND)), approve=False, budget=budget))

    with pytest.raises(Paused, match="The budget is used up"):
        run()
    assert model.asked() == 2
    gates.decide(
        resumable_nb.journal.Store.open(tmp_path / "t.duckdb"),
        "t",
        "all",
        approve=approve,
        payload='{"tokens": 5000}' if approve else None,
    )
    report = run()

    open_notes = [note for note in report.notes if "was not looked into to the end" in note]
    assert bool(open_notes) == bool(report.open_questions) == (not approve)
    assert all("the budget's share for it, 0 tokens, is used up" in note for note in open_notes)
    assert ("tide-mill.md" in {f.source for f in report.findings}) == approve


@pytest.mark.parametrize("wrong", ['{"call": 3}', '{"calls": -3}', '{"tokens": 9}'])
def test_more_of_what_is_not_limited_is_asked_about_again(wrong: str, model: ResearchModel, thread: Any):
    """Such as a limit with a wrong name, or less than nothing: the question says what can be given."""
    source = Folder(str(ISLAND))

    def plan(state: Any) -> Any:
        return planner(state, source, budget=Budget(calls=0, minutes=5))

    thread.step("query", lambda state: state.update(query=TWO))
    with pytest.raises(Paused):
        thread.step("plan", plan)
    gates.decide(thread.store, "t", "plan", approve=True, payload=wrong)
    told = f"{wrong} could not be used: give calls, minutes, from 0 on. The budget"
    with pytest.raises(Paused, match=re.escape(told)):
        thread.step("plan", plan)
    gates.decide(thread.store, "t", "plan", approve=True, payload='{"calls": 3}')

    assert len(thread.step("plan", plan)) == 2


def test_what_the_steps_above_cost_counts(model: ResearchModel, thread: Any):
    """A budget is of the whole research, also where each stage is a cell; a no is not asked about again."""
    source, budget = Folder(str(ISLAND)), Budget(calls=1)

    def plan(state: Any) -> Any:
        return planner(state, source, budget=budget)

    thread.step("brief", lambda state: coordinator(state, source, question=TWO, budget=budget))
    with pytest.raises(Paused, match="on a plan"):
        thread.step("plan", plan)
    gates.decide(thread.store, "t", "plan", approve=False)
    planned = thread.step("plan", plan)

    assert model.asked() == 1
    assert planned[0].notes == ["The model made no plan: the budget of 1 call is used up."]
    assert thread.fold.budget == {"calls": 1}


def test_status_tells_what_was_spent_saved_and_left(model: ResearchModel, tmp_path: Path):
    """Spent is what was billed, also after a restart; saved is what was skipped; left is of the limits told last."""

    def run() -> list[str]:
        source = Folder(str(ISLAND))
        budget = Budget(calls=10, tokens=2000, money=0.5, minutes=60, prices={"gpt-5.4-mini": (1000.0, 1000.0)})
        with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as thread:
            thread.step("all", lambda: research(TWO, sources=source, approve=False, budget=budget))
            return accounts(thread)

    first, again = run(), run()

    asked = model.asked()
    assert first[0].startswith(f"spent: {asked} LLM calls, {asked * 110} tokens, ")
    left = f"left of the budget: {10 - asked} of 10 calls, {2000 - asked * 110:,} of 2,000 tokens, 60.0 of 60.0 minutes, $0.0000 of"
    assert first[1].startswith(left)
    assert again[0] == first[0] and again[2] == first[1]
    assert again[1].startswith(f"saved by resuming since it was opened: {asked} LLM calls, {asked * 110} tokens, ")


@pytest.mark.parametrize("embed", [None, "embedder"])
def test_a_server_that_tells_no_tokens_has_them_estimated(embed: str | None, model: ResearchModel, tmp_path: Path):
    """The report and the status say how many, and never add them to what was told; both count the same."""
    model.script({"path": "/chat/completions", "untold": True, "times": 99}, {"path": "/embeddings", "untold": True})
    source, budget = Folder(str(ISLAND), embed=embed), Budget(tokens=100_000)
    with resumable_nb.open("t", db=tmp_path / "t.duckdb", query=TWO, say=lambda _: None) as thread:
        thread.step("plan", lambda state: planner(state, source, budget=budget))
        thread.step("find", lambda state: researcher(state, source, budget=budget))
        report = thread.step("report", lambda state: reporter(state, source, budget=budget))
        spent, left = accounts(thread)

    told = [note for note in report.notes if "without a count of tokens" in note]
    in_report = sum(int(re.search(r": ([\d,]+) token", note)[1].replace(",", "")) for note in told)
    in_status = int(
        re.search(r"estimated from the length of the texts, ([\d,]+) tokens more", spent)[1].replace(",", "")
    )
    exactly = int(re.search(r"LLM calls?, ([\d,]+) tokens", spent)[1].replace(",", ""))
    assert len(told) == (2 if embed else 1) and in_report == in_status > 100
    assert (exactly > 0) == bool(embed)  # of the questions that were embedded, it told the tokens
    assert f"{100_000 - in_status - exactly:,} of 100,000 tokens" in left


def test_an_estimate_ends_a_budget(model: ResearchModel, thread: Any):
    """As a count would."""
    model.script({"untold": True, "times": 99})
    source, budget = Folder(str(ISLAND)), Budget(tokens=100)

    with pytest.raises(Paused, match="The budget is used up"):
        thread.step("all", lambda: research(TWO, sources=source, approve=False, budget=budget))
    assert model.asked() == 1


def test_what_a_source_asks_a_model_counts(model: ResearchModel, thread: Any):
    """A source of one's own may have a query put into other words, say: a question as any other."""

    class InOtherWords:
        def search(self, query: str, count: int) -> Any:
            return Folder(str(ISLAND)).search(ask(query, context=False), count)

        def fetch(self, ref: str) -> Any:
            return Folder(str(ISLAND)).fetch(ref)

    def plan(state: Any) -> None:
        state.update(query=TWO)
        planner(state, InOtherWords(), budget=Budget(calls=1))

    with pytest.raises(Paused, match="on a plan"):
        thread.step("plan", plan)
    assert model.asked() == model.asked("Text") == 1
