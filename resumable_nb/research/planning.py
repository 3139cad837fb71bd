"""From a question to a plan that a person has approved: coordinator, planner, gate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from resumable_nb.calls.approval import approve
from resumable_nb.errors import AnswerRejected, Rejected, UsageError
from resumable_nb.research.budget import BudgetSpent, Meter, metering
from resumable_nb.research.findings import one_line
from resumable_nb.research.prompting import Voice, listed, text_of, voice, why, with_fewer
from resumable_nb.research.records import Brief, Budget, ProposedQuestion, SubQuestion
from resumable_nb.research.sources import Source, Together, heading_above
from resumable_nb.research.watching import Watch
from resumable_nb.scope import Run, scope
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from resumable_nb.state import ResearchState

MOST_QUESTIONS = 4
_FOR_ANOTHER_PLAN = (
    "For another plan use `%resumable fresh` (`thread.fresh` in a script) with the step that plans, and run again: the "
    "planner knows then what was rejected, and why. If it knows none, change the question or `state.plan`."
)
_LOOKED_AT = 24
_BETWEEN_CLAUSES = re.compile(
    r"\?\s+(?:and\s+)?|;\s+(?:and\s+)?|,?\s+and\s+(?=(?:when|why|who|whom|whose|what|which|where|how)\b)", re.IGNORECASE
)
_REFERS_BACK = re.compile(r"\b(?:it|its|he|him|his|she|hers?|they|them|their)\b", re.IGNORECASE)
_CLEAR = ("", "none", "nothing", "n/a", "no", "-")  # what models write into a field that is to be empty


class Understood(BaseModel):
    """What a model makes of a question."""

    question: Annotated[str, text_of(400)]
    scope: Annotated[str, text_of(400, empty=True)]
    unclear: Annotated[str, Field(description="what has to be known first; empty if the question is clear")]


class Planned(BaseModel):
    """One sub-question as a model writes it."""

    question: Annotated[str, text_of(400)]
    answered_by: Annotated[str, text_of(400, empty=True)]


class Plan(BaseModel):
    """What a model plans."""

    sub_questions: Annotated[list[Planned], Field(min_length=1, max_length=MOST_QUESTIONS)]


def as_one(sources: Source | Iterable[Source]) -> Together:
    """One source that asks all."""
    if isinstance(sources, Together):
        return sources
    return Together([sources] if hasattr(sources, "search") else sources)  # type: ignore[list-item]  # then it is one


def coordinator(
    state: ResearchState,
    sources: Source | Iterable[Source],
    *,
    question: str | None = None,
    budget: Budget | Meter | None = None,
    model: str | None = None,
    writes: bool | None = None,
) -> Brief:
    """Clarify the question, and set scope and budget. The question that comes of it is put into `state.query`.

    A model that finds the question unclear makes the person asked what is meant, by a gate.

    Args:
        state: of the research.
        sources: where answers will be looked for.
        question: what is asked; None: `state.query`.
        budget: limits of the research.
        model: as for `ask`.
        writes: whether the model can write; None: every one but the embedded one.

    Raises:
        UsageError: There is no question.
        Paused: the person has to say what is meant.
    """
    asked = (question or state.query).strip()
    if not asked:
        raise UsageError("What is asked? Give question=…, or open the thread with --query.")
    meter, source = metering(budget, model), as_one(sources)
    with Watch("coordinator") as watch:
        who = voice(model, meter, watch, writes=writes)
        brief = Brief(question=asked, scope=f"Looked for in: {source}.", budget=meter.budget)
        if who.writes:
            brief = _understood(who, brief, source)
        watch.end("the question is clear" if who.writes else "the question is taken as it was asked")
    if state.query != brief.question:
        state.update(query=brief.question)
    return brief


def _understood(who: Voice, brief: Brief, source: Together) -> Brief:
    try:
        understood = _ask_what_is_meant(who, brief, source)
    except (AnswerRejected, BudgetSpent) as error:
        return brief.model_copy(update={"scope": f"{brief.scope} Taken as it was asked: {why(error)}."})
    question = understood.question
    if understood.unclear.strip(" .").lower() not in _CLEAR:
        says = why(ValueError(understood.unclear))
        says += "" if says.endswith(("?", "!", "…")) else "."
        asked = f"What is meant? The model says: {says} Edit the question, or approve it."
        question = approve(asked, brief.question).payload
    return brief.model_copy(update={"question": question, "scope": f"{brief.scope} {understood.scope}"})


def _ask_what_is_meant(who: Voice, brief: Brief, source: Together) -> Understood:
    def ask(headings: Sequence[str]) -> Understood:
        prompt = (
            f"Question: {brief.question}\n\nSources: {source}. Passages that may matter:\n{listed(headings)}\n\n"
            "Restate the question in one sentence without changing what is asked. Say in one sentence what belongs to "
            "it. If it cannot be researched before the person says what they mean, say in `unclear` what is missing; "
            "else leave that empty."
        )
        understood: Understood = who.ask_in_turn(prompt, Understood, what_for="understanding the question")
        return understood

    return with_fewer(ask, _headings(who, source, brief.question), least=0)[0]


def planner(
    state: ResearchState,
    sources: Source | Iterable[Source],
    *,
    budget: Budget | Meter | None = None,
    model: str | None = None,
    writes: bool | None = None,
    most: int = MOST_QUESTIONS,
) -> list[SubQuestion]:
    """Divide `state.query` into sub-questions, each with what would answer it; they are put into `state.plan`.

    A model that cannot write gets the clauses of the question, and chooses by number which headings of what a search
    finds are worth a sub-question. Once the step was told to ask afresh, the model is told which plans a person had
    rejected, and why; one that cannot write goes without their sub-questions.

    Args:
        state: of the research.
        sources: where answers will be looked for.
        budget: limits of the research.
        model: as for `ask`.
        writes: whether the model can write; None: every one but the embedded one.
        most: sub-questions.
    """
    source = as_one(sources)
    with Watch("planner") as watch:
        who = voice(model, metering(budget, model), watch, writes=writes)
        try:
            headings = _headings(who, source, state.query)
            plan = (_written if who.writes else _chosen)(who, state.query, headings, most, _rejected())
        except (AnswerRejected, BudgetSpent) as error:
            plan = [SubQuestion(question=state.query, notes=[f"The model made no plan: {why(error)}."])]
        watch.end(counted(len(plan), "sub-question"))
    state.update(plan=plan)
    return plan


def _rejected() -> list[tuple[list[str], str]]:
    """The plans that a person rejected before the running step was told to ask afresh, each with what they said."""
    running = scope()
    gates = running.thread.fold.rejected_before_fresh(running.cell) if isinstance(running, Run) else []
    plans = [(_questions_in(gate.payload), gate.decision.comment if gate.decision else "") for gate in gates]
    return [(plan, said) for plan, said in plans if plan]


def _questions_in(payload: Any) -> list[str]:
    """The questions of a plan as a gate has it stored; nothing where it asks about something else."""
    items = [item for item in payload if isinstance(item, dict)] if isinstance(payload, list) else []
    return [str(item.get("question")) for item in items if item.get("$type") == ProposedQuestion.__name__]


def _written(
    who: Voice, question: str, headings: Sequence[str], most: int, rejected: list[tuple[list[str], str]]
) -> list[SubQuestion]:
    noes = "".join(
        "\n".join(["\n\nA person rejected this plan:", *(f"- {one_line(one)}" for one in plan), *said])
        for plan, said in ((plan, [f"They say: {comment}"] if comment else []) for plan, comment in rejected)
    )

    def ask(headings: Sequence[str]) -> Plan:
        prompt = (
            f"Question: {question}\n\nPassages that may matter:\n{listed(headings)}\n\nWrite 1 to "
            f"{min(most, MOST_QUESTIONS)} sub-questions that together answer the question, each with what would answer "
            f"it. Do not answer them.{noes}"
        )
        plan: Plan = who.ask_in_turn(prompt, Plan, what_for="a plan")
        return plan

    planned = with_fewer(ask, headings, least=0)[0].sub_questions[:most]
    return _each_once(SubQuestion(question=one.question, answered_by=one.answered_by) for one in planned)


def _chosen(
    who: Voice, question: str, headings: Sequence[str], most: int, rejected: list[tuple[list[str], str]]
) -> list[SubQuestion]:
    """What the question itself consists of and, of each heading that the model finds worth it, what stands there.

    Without what a person rejected: this model cannot read why.
    """
    noes = {one for plan, _ in rejected for one in plan}
    parts = [part for part in clauses(question)[:most] if part not in noes]
    own = [SubQuestion(question=part, answered_by="a sentence of any source") for part in parts]
    left = [heading for heading in headings if f"{question} ({heading})" not in noes]
    chosen = _choose(who, question, left, most - len(own))
    plan = [*own, *(SubQuestion(question=f"{question} ({t})", answered_by=f"a sentence about {t}") for t in chosen)]
    if not plan:
        raise AnswerRejected("a person rejected all that it can choose. Put what to look into in `state.plan`.")
    return plan


def _choose(who: Voice, question: str, headings: Sequence[str], room: int) -> Sequence[str]:
    """Headings by the model's choice. Where there is room for all, it is not asked: it would choose fewer."""
    if len(headings) <= room or room < 1:
        return headings[: max(room, 0)]

    def ask(headings: Sequence[str]) -> list[int]:
        number: Any = Literal[tuple(range(1, len(headings) + 1))]
        form = Annotated[list[number], Field(min_length=1, max_length=room)]
        prompt = (
            f"Question: {question}\n\n{listed(headings)}\n\n"
            f"Which {room} of these help to answer it? Give their numbers."
        )
        numbers: list[int] = who.ask_in_turn(prompt, form, what_for="a plan", max_tokens=60)
        return numbers

    numbers, headings = with_fewer(ask, headings)
    return [headings[place - 1] for place in dict.fromkeys(numbers)]


def clauses(question: str) -> list[str]:
    """The questions that a question consists of. One that says `it`, or just `why`, has the first behind it."""
    parts = [part for piece in _BETWEEN_CLAUSES.split(question) if (part := piece.strip(" ?,;."))]
    if len(parts) < 2:
        return [question]
    first, *others = parts
    return [f"{first}?", *(f"{one[0].upper()}{one[1:]}?{_reference(one, first)}" for one in others)]


def _reference(clause: str, first: str) -> str:
    return f" ({first})" if len(clause.split()) < 3 or _REFERS_BACK.search(clause) else ""


def _headings(who: Voice, source: Together, question: str) -> list[str]:
    """What the passages with the best sentences are about: the headings above them, else their documents' titles."""
    found = []
    for sentence in who.search(source, question, _LOOKED_AT):
        try:
            document = source.fetch(sentence.source)
        except LookupError:
            found.append(sentence.source)
        else:
            found.append(heading_above(document.text, sentence.start) or document.title or sentence.source)
    return list(dict.fromkeys(found))[:8]


def approve_plan(state: ResearchState, message: str = "Research these questions?") -> list[SubQuestion]:
    """The gate before anything is spent on research: a person approves the plan, edits it as a list, or rejects it.

    Raises:
        Paused: nobody has decided yet.
        Rejected: a person said no; the comment says why.
    """
    plan = questions_of(state)
    asked = [ProposedQuestion(question=one.question, answered_by=one.answered_by) for one in plan]
    try:
        approved = approve(message, asked).payload
    except Rejected as no:
        raise Rejected(f"{no} {_FOR_ANOTHER_PLAN}", no.answer) from None
    if approved != asked:
        known = {one.question: one for one in plan}
        plan = _each_once(_as_edited(one, known.get(one.question)) for one in approved)
        state.update(plan=plan)
    return plan


def _as_edited(approved: ProposedQuestion, before: SubQuestion | None) -> SubQuestion:
    """What a person made of a sub-question; of one that was in the plan before, what is known about it stays."""
    one = before or SubQuestion(question=approved.question)
    return one.model_copy(update={"answered_by": approved.answered_by}) if approved.answered_by else one


def questions_of(state: ResearchState) -> list[SubQuestion]:
    """The plan as sub-questions, each once, also where a person wrote plain texts."""
    return _each_once(p if isinstance(p, SubQuestion) else SubQuestion(question=str(p)) for p in state.plan)


def _each_once(plan: Iterable[SubQuestion]) -> list[SubQuestion]:
    """Sub-questions without those that say nothing or the same again: one would be paid twice, and told as both."""
    first: dict[str, SubQuestion] = {}
    for one in plan:
        first.setdefault(one_line(one.question).casefold(), one)
    first.pop("", None)
    return list(first.values())
