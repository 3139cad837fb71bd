"""The reporter: a structured report that cites findings only, each checked once more against its source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from resumable_nb.errors import AnswerRejected
from resumable_nb.research.budget import BudgetSpent, Meter, metering
from resumable_nb.research.findings import merge, still_stands
from resumable_nb.research.planning import as_one, questions_of
from resumable_nb.research.prompting import Voice, listed, text_of, voice, why, with_fewer
from resumable_nb.research.records import Budget, Finding, Report, Statement
from resumable_nb.research.watching import Watch
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from resumable_nb.research.sources import Source, Together
    from resumable_nb.state import ResearchState

_MOST_FINDINGS = 60


class Stated(BaseModel):
    """A statement as a model writes it."""

    text: Annotated[str, text_of(800)]
    findings: Annotated[list[int], Field(max_length=8)]


class Written(BaseModel):
    """What a model writes of the findings."""

    answer: Annotated[list[Stated], Field(max_length=8)]
    disagreements: Annotated[list[Stated], Field(max_length=8)]
    open_questions: Annotated[list[Annotated[str, text_of(400)]], Field(max_length=6)]


def reporter(
    state: ResearchState,
    sources: Source | Iterable[Source],
    *,
    budget: Budget | Meter | None = None,
    model: str | None = None,
    writes: bool | None = None,
) -> Report:
    """A report from what was found for the plan of the state. Where there is no plan, all findings are told.

    Findings of other questions, which the thread keeps from earlier research, are only counted. A finding that its
    source does not hold any more is left out, and told.

    A statement of the model that rests on no finding is left out, too. A model that cannot write chooses the finding
    that answers best, and the report says that there is no more to it.

    Args:
        state: of the research.
        sources: where the findings are from.
        budget: limits of the research; what the steps above cost counts.
        model: as for `ask`.
        writes: whether the model can write; None: every one but the embedded one.
    """
    meter, source = metering(budget, model), as_one(sources)
    known = merge(finding for finding in state.findings if isinstance(finding, Finding))
    findings = _of_the_plan(known, [one.question for one in questions_of(state)])
    checked = {number: _stands(finding, source) for number, finding in enumerate(findings)}
    standing = [finding for number, finding in enumerate(findings) if checked[number]]
    gone_with_them = _questions_of(f for n, f in enumerate(findings) if not checked[n]) - _questions_of(standing)
    report = Report(question=state.query, findings=standing)
    report.links = {f.source: link for f in standing if (link := source.link(f))}
    with Watch("reporter") as watch:
        if standing:
            _answer(report, voice(model, meter, watch, writes=writes))
        watch.end(f"{counted(len(report.answer), 'statement')}, {counted(len(standing), 'finding')}")
    _add_what_is_missing(report, state, gone_with_them)
    if others := len(known) - len(findings):
        report.notes.append(f"Findings of other questions, which are kept in the thread and not told here: {others}.")
    verdicts = list(checked.values())
    if gone := verdicts.count(False):
        report.notes.append(f"Findings left out because their quotation is no longer in its source: {gone}.")
    if unchecked := verdicts.count(None):
        report.notes.append(
            f"Findings left out because their source could not be fetched to check them again: {unchecked}."
        )
    report.notes = list(dict.fromkeys([*report.notes, *source.problems, *meter.notes]))
    return report


def _of_the_plan(findings: Iterable[Finding], plan: Sequence[str]) -> list[Finding]:
    """Those that answer a question of the plan, as answers to its questions only; all where there is no plan."""
    if not plan:
        return list(findings)
    answers = [(one, [q for q in (one.question, *one.also_answers) if q in plan]) for one in findings]
    return [one.model_copy(update={"question": own[0], "also_answers": own[1:]}) for one, own in answers if own]


def _stands(finding: Finding, source: Together) -> bool | None:
    """None: the document is not to be had."""
    try:
        return still_stands(finding, source.fetch(finding.source))
    except LookupError:
        return None


def _answer(report: Report, who: Voice) -> None:
    try:
        if who.writes:
            _write(report, who)
        else:
            _choose(report, who)
    except (AnswerRejected, BudgetSpent) as error:
        report.notes.append(f"There is no summary, only what was found: {why(error)}.")


def _choose(report: Report, who: Voice) -> None:
    def ask(findings: Sequence[Finding]) -> int:
        if len(findings) < 2:
            return 1
        number: Any = Literal[tuple(range(1, len(findings) + 1))]
        prompt = (
            f"Question: {report.question}\n\n{listed([finding.quote for finding in findings])}\n\n"
            "Which sentence answers it best? Give its number."
        )
        best: int = who.ask_in_turn(prompt, number, what_for="the report", max_tokens=30)
        return best

    best, findings = with_fewer(ask, report.findings[:12])
    report.answer = [Statement(text=findings[best - 1].quote, findings=[best])]
    report.notes.append(
        f"{who.name} is small: it chose among headings and sentences of the sources and wrote nothing itself. The "
        "sentence that it put first may not be the best. There is no summary, and disagreements between sources were "
        "not looked for."
    )


def _write(report: Report, who: Voice) -> None:
    written, findings = with_fewer(partial(_ask_to_write, report, who), report.findings[:_MOST_FINDINGS])
    report.answer = _resting(written.answer, len(findings))
    report.disagreements = [one for one in _resting(written.disagreements, len(findings)) if len(one.findings) > 1]
    report.open_questions = written.open_questions
    dropped = len(written.answer) - len(report.answer)
    if dropped:
        report.notes.append(f"Statements of the model left out because they rest on no finding: {dropped}.")
    if len(report.findings) > len(findings):
        report.notes.append(f"The summary is of the first {len(findings)} of {len(report.findings)} findings.")


def _ask_to_write(report: Report, who: Voice, findings: Sequence[Finding]) -> Written:
    lines = [f'{finding.claim} ({finding.source}: "{finding.quote}")' for finding in findings]
    prompt = (
        f"Question: {report.question}\n\nFindings:\n{listed(lines)}\n\nAnswer the question in a few statements, each "
        "with the numbers of the findings that it rests on; say nothing that rests on none. List where findings "
        "contradict each other, with the numbers of both, and what is left to find out."
    )
    written: Written = who.ask_in_turn(prompt, Written, what_for="the report")
    return written


def _resting(stated: list[Stated], count: int) -> list[Statement]:
    """Statements with the numbers of findings that exist; without the others."""
    known = [(one.text, [n for n in dict.fromkeys(one.findings) if 1 <= n <= count]) for one in stated]
    return [Statement(text=text, findings=numbers) for text, numbers in known if numbers]


def _questions_of(findings: Iterable[Finding]) -> set[str]:
    return {question for one in findings for question in (one.question, *one.also_answers)}


def _add_what_is_missing(report: Report, state: ResearchState, unanswered: set[str]) -> None:
    """What the plan leaves open, and the sub-questions that were answered only by findings that are left out."""
    plan = questions_of(state)
    report.not_found = [one.question for one in plan if one.status == "not found"]
    left = [one.question for one in plan if one.status == "open" or one.question in unanswered]
    report.open_questions += [question for question in left if question not in report.open_questions]
    report.notes += [note for one in plan for note in one.notes]
    refused = sum(one.refused for one in plan)
    if refused:
        report.notes.append(f"Quotations of the model refused because they are not in their source: {refused}.")
