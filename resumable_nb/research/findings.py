"""Findings: a quotation is in its source word for word, or it is refused; what was found twice is one finding."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from resumable_nb.research.records import Confidence, Finding, location, surer

if TYPE_CHECKING:
    from resumable_nb.research.sources import Document


def one_line(text: str) -> str:
    """A text with each run of white space as one space."""
    return " ".join(text.split())


def locate(quote: str, text: str) -> tuple[int, int] | None:
    """Where a quotation stands in a text: its first character, and the one after its last. None: it does not.

    The rule: the same characters in the same order; only white space may differ, and only in its kind and length (a
    line break and an indent for a space, never a space for nothing). Case, punctuation, accents and hyphens count. A
    quotation without a letter or digit is none.
    """
    words = quote.split()
    if not any(character.isalnum() for character in quote):
        return None
    found = re.search(r"\s+".join(map(re.escape, words)), text)
    return found.span() if found else None


def accept(document: Document, quote: str, *, claim: str, question: str, confidence: Confidence) -> Finding | None:
    """A finding, if the quotation is in the document; else None: whoever asks counts it as refused."""
    place = locate(quote, document.text)
    if place is None:
        return None
    return Finding(
        claim=one_line(claim) or one_line(quote),
        quote=one_line(quote),
        source=document.ref,
        location=location(*place),
        question=question,
        confidence=confidence,
    )


def still_stands(finding: Finding, document: Document) -> bool:
    """Whether the quotation is in the document, at its location."""
    place = finding.span
    return place is not None and one_line(document.text[slice(*place)]) == finding.quote


def merge(findings: Iterable[Finding]) -> list[Finding]:
    """Each quotation of a source once, in the order in which they first came.

    The first claim stays, the highest confidence holds, and the other sub-questions are kept in `also_answers`.
    """
    merged: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = finding.source, finding.quote
        first = merged.setdefault(key, finding)
        if first is not finding:
            others = [q for q in (finding.question, *finding.also_answers) if q != first.question]
            changes = {
                "confidence": surer(first.confidence, finding.confidence),
                "also_answers": list(dict.fromkeys([*first.also_answers, *others])),
            }
            merged[key] = first.model_copy(update=changes)
    return list(merged.values())
