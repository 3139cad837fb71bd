"""What a piece of research keeps in the state: the brief, sub-questions, findings, the report.

Their classes are found again in a kernel that has not imported the assistant yet (`values.classes`), so they live in
this one module, which imports nothing heavy.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Confidence = Literal["low", "medium", "high"]
_CONFIDENCES = ("low", "medium", "high")
_LOCATION = re.compile(r"characters (\d+) to (\d+)")


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Budget(_Record):
    """Limits of a piece of research; None is no limit.

    Attributes:
        calls: questions to the model, and batches of texts to an embedding model.
        tokens: input and output together, by the server's own numbers. Where it tells none, they are estimated from
            the length of the texts (4 characters for a token), and that is said.
        money: in US dollars, see `prices`.
        minutes: of waiting for models, added up over their answers.
        prices: model → US dollars for a million tokens of input and of output. Without it the package `genai-prices`
            is asked; a model that it does not know counts as free, and that is said.
    """

    calls: Annotated[int, Field(ge=0)] | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    money: Annotated[float, Field(ge=0)] | None = None
    minutes: Annotated[float, Field(ge=0)] | None = None
    prices: dict[str, tuple[float, float]] = {}


class Brief(_Record):
    """What the coordinator made of a question.

    Attributes:
        question: as it was understood.
        scope: where answers are looked for, and what the model makes of it.
        budget: what the research may cost.
    """

    question: str
    scope: str
    budget: Budget = Budget()


class SubQuestion(_Record):
    """One item of the plan.

    Attributes:
        question: what is to be found out.
        answered_by: what would answer it.
        status: `open`, `done` (something was found), or `not found`.
        refused: quotations that the model gave and that are not in their source.
        notes: what went wrong or is missing, in sentences.
    """

    question: str
    answered_by: str = ""
    status: Literal["open", "done", "not found"] = "open"
    refused: int = 0
    notes: list[str] = []


class ProposedQuestion(_Record):
    """A sub-question as it is put before a person, who may edit it; one that they write may be its text alone."""

    question: str
    answered_by: str = ""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, given: Any) -> Any:
        return {"question": given} if isinstance(given, str) else given


class Finding(_Record):
    """One thing that was found, with its evidence.

    Attributes:
        claim: what it says; the quotation itself where the model cannot write.
        quote: word for word in the source, see `findings.locate`.
        source: the document, as `fetch` takes it.
        location: where the quotation stands in the document.
        question: the sub-question that it answers.
        confidence: how well it answers it, as the model says.
        also_answers: other sub-questions for which the same was found.
    """

    claim: str
    quote: str
    source: str
    location: str
    question: str
    confidence: Confidence
    also_answers: list[str] = []

    @property
    def span(self) -> tuple[int, int] | None:
        """First character of the quotation and the one after its last; None if the location does not say."""
        return span(self.location)


class Statement(_Record):
    """A sentence of the report and the findings that it rests on, by number from 1 on."""

    text: str
    findings: list[int]


class Report(_Record):
    """A cited report.

    Attributes:
        question: what was asked.
        answer: statements, each of which rests on findings.
        findings: what is cited, each checked again against its source.
        links: source → link, where it has one: of a file, its path from the working directory.
        disagreements: statements about findings that contradict each other.
        open_questions: what is left to find out.
        not_found: sub-questions without an answer in the sources.
        notes: what went wrong, what was refused, what the model could not do.
    """

    question: str
    answer: list[Statement] = []
    findings: list[Finding] = []
    links: dict[str, str] = {}
    disagreements: list[Statement] = []
    open_questions: list[str] = []
    not_found: list[str] = []
    notes: list[str] = []

    @property
    def markdown(self) -> str:
        """The report as Markdown. Text of models and sources is escaped: it is never HTML, a link or an image."""
        from resumable_nb.research.rendering import render

        return render(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a Markdown file, in which links to files lead from where that file stands.

        Its folder is made if need be: what a report cost is not lost to a missing folder.
        """
        from resumable_nb.research.rendering import render

        where = Path(path)
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(render(self, seen_from=where.resolve().parent), encoding="utf-8")

    def _repr_markdown_(self) -> str:
        return self.markdown


def location(start: int, end: int) -> str:
    """A place in a document, for a person and for `Finding.span`."""
    return f"characters {start} to {end}"


def span(place: str) -> tuple[int, int] | None:
    """The characters that a location names, the first and the one after the last; None if it names none."""
    found = _LOCATION.fullmatch(place)
    return (int(found[1]), int(found[2])) if found else None


def surer(one: Confidence, other: Confidence) -> Confidence:
    """The higher of two."""
    return max(one, other, key=_CONFIDENCES.index)
