"""Texts that are on every machine, cut into sentences that can be quoted, and ranked for a question.

Nobody here wrote them: Python's own language reference (`pydoc_data.topics`) and the descriptions that the installed
packages come with (`importlib.metadata`). Each sentence keeps where it stands, so that a quotation can be checked.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

REFERENCE, PACKAGES = "Python reference", "package"
_PARAGRAPH = re.compile(r"(?:[^\n]*\S[^\n]*\n?)+")
_END = re.compile(r"(?<=[.!?])[\"')*_`]*\s+(?=[\"'(*_`]*[A-Z])")
# Code, tables, headings, lists of links, badges: text that is no prose
_NO_PROSE = re.compile(
    r">>>|::|={3,}|-{3,}|\*{4,}|\|.*\||```|https?://|^\s*(?:[#$%<.]|\.\. )|[{}<>=\\]|\[!|\]\(", re.MULTILINE
)
_SHORT, _LONG = 50, 260
_STOP_WORDS = """
a after all also an and any are as at be been before but by can could do does for from had has have how if in into
is it its may more most no not of on one or other our out see should so some such than that the their them then
there these they this to too use used using was we were what when where which while who why will with would you your
""".split()  # noqa: SIM905 - forty lines of one word each are harder to read


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a text.

    Attributes:
        text: the sentence on one line.
        source: the text that it stands in, such as `Python reference: with` or `package filelock 3.20.0`.
        start: where it begins in that text, in characters.
        end: where it ends.
    """

    text: str
    source: str
    start: int
    end: int

    @property
    def location(self) -> str:
        """Where it stands, for a person and for `Texts.quotes`."""
        return f"characters {self.start} to {self.end}"


class Texts(Mapping[str, str]):
    """Texts by the name of their source, with a ranking of their sentences."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)

    def __getitem__(self, source: str) -> str:
        return self._texts[source]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    @cached_property
    def sentences(self) -> list[Sentence]:
        """All sentences of prose, each once: the reference repeats whole sections under several topics."""
        first: dict[str, Sentence] = {}
        for source, text in self._texts.items():
            for sentence in sentences(text, source):
                first.setdefault(sentence.text, sentence)
        return list(first.values())

    def search(self, question: str, count: int, *, within: str = "") -> list[Sentence]:
        """The sentences that have most to do with a question, best first (BM25; equal scores in order of the texts).

        Args:
            question: any text.
            count: how many sentences at most.
            within: only of sources whose name begins with this.
        """
        import bm25s

        words = bm25s.tokenize([question], stopwords=_STOP_WORDS, return_ids=False, show_progress=False)[0]
        known = [word for word in words if word in self._ranking.vocab_dict]
        if not known:
            return []
        scores = self._ranking.get_scores(known)
        ranked = sorted((i for i, score in enumerate(scores) if score > 0), key=lambda i: -scores[i])
        return [s for s in (self.sentences[i] for i in ranked) if s.source.startswith(within)][:count]

    @cached_property
    def _ranking(self) -> Any:
        import bm25s

        ranking = bm25s.BM25()
        titled = [f"{s.source.partition(': ')[2]} {s.text}" for s in self.sentences]
        tokens = bm25s.tokenize(titled, stopwords=_STOP_WORDS, show_progress=False)
        ranking.index(tokens, show_progress=False)
        return ranking

    def quotes(self, text: str, source: str, location: str) -> bool:
        """Whether a text stands in a source at a location word for word; only line breaks and indents may differ."""
        place = re.fullmatch(r"characters (\d+) to (\d+)", location)
        if place is None or source not in self._texts:
            return False
        return _on_one_line(self._texts[source][int(place[1]) : int(place[2])]) == text


def load() -> Texts:
    """The texts of this machine: this Python's language reference, the descriptions of the packages it can import."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    texts = {f"{REFERENCE}: {name}": text for name, text in sorted(topics.items())}
    return Texts({**texts, **dict(sorted(_descriptions()))})


def _descriptions() -> Iterable[tuple[str, str]]:
    for distribution in importlib.metadata.distributions():
        about = distribution.metadata
        text = about.json.get("description")
        if text and about["Name"]:
            yield f"{PACKAGES} {about['Name']} {about['Version']}", str(text)


def sentences(text: str, source: str) -> Iterator[Sentence]:
    """The sentences of a text's paragraphs of prose that are neither too short nor too long to be quoted."""
    for paragraph in _PARAGRAPH.finditer(text):
        if _NO_PROSE.search(paragraph[0]):
            continue
        start = paragraph.start()
        for end in [*(match.end() for match in _END.finditer(text, start, paragraph.end())), paragraph.end()]:
            piece = text[start:end]
            one_line = _on_one_line(piece)
            if _SHORT <= len(one_line) <= _LONG and one_line[-1] in ".!?" and one_line[0].isupper():
                yield Sentence(one_line, source, start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip()))
            start = end


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def numbered(found: Sequence[Sentence]) -> str:
    """Sentences as a numbered list for a model to choose from."""
    return "\n".join(f"{number}. {sentence.text}" for number, sentence in enumerate(found, 1))
