"""The researcher: for each sub-question search, read, extract findings, and decide whether more is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from resumable_nb.errors import AnswerRejected
from resumable_nb.progress import map as parallel
from resumable_nb.research.budget import BudgetSpent, Meter, metering
from resumable_nb.research.findings import accept, merge
from resumable_nb.research.planning import as_one, questions_of
from resumable_nb.research.prompting import Voice, listed, text_of, voice, why, with_fewer
from resumable_nb.research.records import Budget, Confidence, Finding, SubQuestion
from resumable_nb.research.shelf import Shelf
from resumable_nb.research.watching import Watch
from resumable_nb.terminal import counted, one_line
from resumable_nb.values.secrets import contains_secret

if TYPE_CHECKING:
    from resumable_nb.research.sources import Sentence, Source, Together
    from resumable_nb.state import ResearchState

ROUNDS, PASSAGES = 2, 6


class Quoted(BaseModel):
    """One finding as a model writes it."""

    number: Annotated[int, Field(ge=1, le=PASSAGES)]
    quote: Annotated[str, text_of(600, empty=True), Field(description="copied word for word from that sentence")]
    claim: Annotated[str, text_of(400, empty=True), Field(description="what it says about the question, one sentence")]
    confidence: Confidence


class Extracted(BaseModel):
    """What a model finds in some sentences."""

    findings: Annotated[list[Quoted], Field(max_length=PASSAGES)]
    enough: Annotated[bool, Field(description="whether the question is answered now")]
    next_query: Annotated[str, text_of(300, empty=True), Field(description="words to search for next; empty if enough")]


class Inquiry:
    """One sub-question on its way. It can stop where a budget ends, and go on there.

    Args:
        asked: the sub-question.
        who: the model.
        source: where to look.
        shelf: where others see what is found as it comes.
        number: of the sub-question, for the person who watches.
    """

    def __init__(self, asked: SubQuestion, who: Voice, source: Together, shelf: Shelf, number: int) -> None:
        self._shelf, self._watch, self._number = shelf, who.watch, str(number)
        self.asked, self.findings, self.refused = asked, list[Finding](), 0
        self.notes = list(asked.notes)
        self.stopped = ""
        self._who, self._source = who, source
        self._query, self._round, self._enough = asked.question, 0, False
        self._seen: set[tuple[str, int]] = set()
        self._fits = PASSAGES

    def run(self, meter: Meter) -> None:
        """Go on until it is answered, nothing more is found, or the budget ends."""
        self.stopped = ""
        try:
            while self._round < ROUNDS and not self._enough and (found := self._new_sentences(meter)):
                read = self._read(found, meter)
                self._round += 1
                self._seen.update((sentence.source, sentence.start) for sentence in read)
        except BudgetSpent as error:
            self.stopped = why(error)
        except AnswerRejected as error:
            self.notes.append(f"The model gave no usable answer on {self.asked.question!r}: {why(error)}.")
        if not self.stopped:
            self._shelf.end(self.result)
            self._watch.ended(self.asked.question, counted(len(self.findings), "finding"))

    def _new_sentences(self, meter: Meter) -> list[Sentence]:
        found = self._who.search(self._source, self._query, PASSAGES * (self._round + 1), meter=meter)
        new = [sentence for sentence in found if (sentence.source, sentence.start) not in self._seen][: self._fits]
        self._watch.log(f"{self._number} searched {one_line(self._query, 80)}: {counted(len(new), 'new sentence')}")
        if new:
            documents = dict.fromkeys(one_line(sentence.source, 40) for sentence in new)
            self._watch.log(f"{self._number} reads {', '.join(documents)}")
        return new

    def _read(self, found: Sequence[Sentence], meter: Meter) -> Sequence[Sentence]:
        """Take what the model finds in them, or in the first of them, where a prompt with all is too long. Those."""
        if not self._who.writes:
            numbers, read = with_fewer(partial(self._choose, meter=meter), found)
            self._told_fewer(found, read)
            for number in numbers:
                self._take(read[number - 1], read[number - 1].text, claim="", confidence="low")
            self._enough = bool(self.findings)
            return read
        extracted, read = with_fewer(partial(self._extract, meter=meter), found)
        self._told_fewer(found, read)
        self._keep(extracted, read)
        return read

    def _told_fewer(self, found: Sequence[Sentence], read: Sequence[Sentence]) -> None:
        """The next prompt is not tried with more."""
        if len(read) < len(found):
            self._fits = len(read)
            self.notes.append(
                f"On {self.asked.question!r} {self._who.name} was shown {len(read)} of {len(found)} passages: it takes "
                "no longer prompt."
            )

    def _keep(self, extracted: Extracted, found: Sequence[Sentence]) -> None:
        for one in extracted.findings:
            if one.number <= len(found):
                self._take(found[one.number - 1], one.quote, claim=one.claim, confidence=one.confidence)
            else:
                self._refuse(one.quote)
        self._enough = extracted.enough
        self._query = extracted.next_query.strip() or self._query

    def _choose(self, found: Sequence[Sentence], meter: Meter) -> list[int]:
        """Numbers of the sentences that answer; 0, for none of them, is left out."""
        number: Any = Literal[tuple(range(len(found) + 1))]
        form = Annotated[list[number], Field(min_length=1, max_length=2)]
        prompt = (
            f"Question: {self.asked.question}\n\n{listed([sentence.text for sentence in found])}\n\n"
            "Which sentences answer it? Give their numbers, or 0 if none does."
        )
        return [
            place
            for place in dict.fromkeys(self._who.ask(prompt, form, max_tokens=40, meter=meter, who=self._number))
            if place
        ]

    def _extract(self, found: Sequence[Sentence], meter: Meter) -> Extracted:
        known = "".join(f"\nAlready found: {finding.claim}" for finding in self.findings)
        answered_by = f"\nIt would be answered by: {self.asked.answered_by}" if self.asked.answered_by else ""
        prompt = (
            f"Question: {self.asked.question}{answered_by}{known}\n\nSentences, each from a document of its own:\n"
            f"{listed([sentence.text for sentence in found])}\n\nWhich of them help to answer the question? Copy from "
            "each what does, word for word. Leave out those that do not; none at all is a good answer. Say whether the "
            "question is answered now, and else what to search for next."
        )
        extracted: Extracted = self._who.ask(prompt, Extracted, meter=meter, who=self._number)
        return extracted

    def _take(self, sentence: Sentence, quote: str, *, claim: str, confidence: Confidence) -> None:
        """Keep a finding, if its quotation is in the document."""
        try:
            document = self._source.fetch(sentence.source)
        except LookupError as error:
            self.notes.append(f"A document could not be fetched, so nothing of it is quoted: {why(error)}.")
            return
        if contains_secret(quote.encode("utf-8", "replace")):
            self.notes.append(f"A quotation of {document.ref} is left out: it looks like a credential.")
            return
        finding = accept(document, quote, claim=claim, question=self.asked.question, confidence=confidence)
        if finding is None:
            self._refuse(quote)
        else:
            self.findings.append(finding)
            self._watch.found(finding, self._number)
            self._shelf.put(finding)

    def _refuse(self, quote: str) -> None:
        self.refused += 1
        self._watch.refused(quote, self._number)

    @property
    def result(self) -> SubQuestion:
        """The sub-question with what came of it."""
        status: Literal["open", "done", "not found"] = "done" if self.findings else "not found"
        notes = self.notes
        if self.stopped:
            status = "open"
            notes = [*notes, f"{self.asked.question!r} was not looked into to the end: {self.stopped}."]
        refused = self.asked.refused + self.refused
        return self.asked.model_copy(update={"status": status, "refused": refused, "notes": notes})


def researcher(
    state: ResearchState,
    sources: Source | Iterable[Source],
    *,
    budget: Budget | Meter | None = None,
    model: str | None = None,
    writes: bool | None = None,
) -> list[Finding]:
    """Look into the open sub-questions of `state.plan`, several at once; what is found is added to `state.findings`.

    A quotation that is not in its document is refused and counted. Where the budget ends, the person is asked for more
    by a gate; without it the rest of the plan stays open, and the report says so.

    What is found is seen as it comes, and is in the store with the next answer: as progress of the step, in the order
    of time. In the state, and for the prompts of the other sub-questions, it counts from the end, in the order of the
    plan: it must not depend on which sub-question was answered first.

    Args:
        state: of the research.
        sources: where to look.
        budget: limits of the research; what the steps above cost counts.
        model: as for `ask`.
        writes: whether the model can write; None: every one but the embedded one.

    Returns:
        What is new.

    Raises:
        Paused: the budget is used up, and nobody has decided yet whether to go on.
    """
    meter, source = metering(budget, model), as_one(sources)
    plan = questions_of(state)
    shelf, watch = Shelf(state, plan), Watch("researcher", [one.question for one in plan])
    watch.knows(shelf.findings, shelf.ended)
    with watch:
        who = voice(model, meter, watch, writes=writes)
        numbered = enumerate(plan, 1)
        inquiries = [Inquiry(one, who, source, shelf, number) for number, one in numbered if one.status == "open"]
        try:
            if inquiries:
                with contextlib.suppress(BudgetSpent):  # each of them will say so
                    who.in_turn(source.prepare, what_for="searching the sources")
            _run(inquiries, meter)
        finally:
            shelf.clear()
        known = [finding for finding in state.findings if isinstance(finding, Finding)]
        before = {(finding.source, finding.quote) for finding in known}
        merged = merge([*known, *(finding for inquiry in inquiries for finding in inquiry.findings)])
        watch.end(findings=merged)
    new = [finding for finding in merged if (finding.source, finding.quote) not in before]
    again = {(f.source, f.quote): f for f in merged if (f.source, f.quote) in before and f not in known}
    if again:  # known already, and now it answers another sub-question, or is surer
        state.findings = [again.get((f.source, f.quote), f) if isinstance(f, Finding) else f for f in state.findings]
    for inquiry in inquiries:  # the report may be written by another step, where no source fails
        inquiry.notes += source.failures
    results = {inquiry.asked.question: inquiry.result for inquiry in inquiries}
    state.update(findings=new, plan=[results.get(one.question, one) for one in plan])
    return new


def _run(inquiries: list[Inquiry], meter: Meter) -> None:
    """All of them in parallel; again with those that a budget stopped, as long as the person gives more."""

    def look(work: tuple[Inquiry, Meter]) -> None:
        inquiry, share = work
        inquiry.run(share)

    todo = inquiries
    while todo:
        parallel(look, list(zip(todo, meter.shares(len(todo)), strict=True)))
        todo = [inquiry for inquiry in todo if inquiry.stopped]
        if todo and not meter.ask_for_more(counted(len(todo), "sub-question")):
            return
