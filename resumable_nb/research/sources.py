"""Sources: what can be searched for sentences and asked for documents.

Each sentence keeps where it stands, so that a quotation can be checked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, zip_longest
from typing import ClassVar, Protocol, Self, TypeVar

from resumable_nb.errors import StoreError, ThreadError, UsageError
from resumable_nb.research import installed
from resumable_nb.research.budget import BudgetSpent
from resumable_nb.research.findings import one_line
from resumable_nb.research.ranking import UNSPACED, Ranking
from resumable_nb.research.records import Finding, location, span
from resumable_nb.terminal import counted

T = TypeVar("T")
_PARAGRAPH = re.compile(r"(?:[^\n]*\S[^\n]*\n?)+")
_END = re.compile(r"(?<=[.!?])[\"')*_`]*\s+(?=[\"'(*_`]*[A-Z])")
# Code, tables, headings, lists of links, badges: text that is no prose
_NO_PROSE = re.compile(
    r">>>|::|={3,}|-{3,}|\*{4,}|\|.*\||```|https?://|^\s*(?:[#$%<.]|\.\. )|[{}<>=\\]|\[!|\]\(", re.MULTILINE
)
_HEADING = re.compile(r"^(?:#{1,6}[ \t]+(\S.*)|(\S.{2,99})\n([=*~^-])\3{2,}[ \t]*$)", re.MULTILINE)
_SHORT, _LONG = 50, 260
# In a text that somebody chose to be searched, almost all can be quoted: not headings, code, rules and tables
_NO_TEXT = re.compile(r"^(?:#|```|~~~|\||={3,}|-{3,}| {4}|\t|>>>)", re.MULTILINE)
_OPENING, _CLOSING = "\"'(*_`\u00ab\u201e\u201c\u2018\u00bf\u00a1", "\"')*_`\u00bb\u201d\u2019"
# A sentence of any script ends before a letter that is no small one; a Chinese or Japanese one with its own full stop
_END_OR_ITEM = re.compile(
    rf"(?<=[.!?\u2026\u061f\u06d4\u0964])[{_CLOSING}]*\s+(?=[{_OPENING}]*([^\W\d_]))"
    r"|(?<=[\u3002\uff01\uff1f])[\u300d\u300f\u201d\u2019\uff09]*\s*"
    r"|\n(?=\s*(?:[-*+]|\d+[.)])\s)"
)
_SHORT_TEXT, _LONG_TEXT, _SHORT_UNSPACED = 15, 500, 5
_NAMED = 5
_CLAUSE = re.compile(r".*(?:[.!?,;:]\s|[\uff0c\u3001\uff1b\uff1a])", re.DOTALL)
_WORDS = re.compile(r".*\s", re.DOTALL)


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
        return location(self.start, self.end)


@dataclass(frozen=True, slots=True)
class Document:
    """A whole text.

    Attributes:
        ref: what its source calls it; a `Finding` names it by this.
        title: for people and for the ranking.
        text: what quotations are checked against.
        link: a web address, or a path beside the notebook; "" where there is none.
    """

    ref: str
    title: str
    text: str
    link: str = ""


class Source(Protocol):
    """Where answers are looked for.

    It may also have `problems` and `failures`: sentences about what of it could not be read, or went wrong in a search;
    and `prepare()`, which a stage calls before it searches in parallel: for what costs something, and is there for all.
    """

    def search(self, query: str, count: int, /) -> Sequence[Sentence]:
        """The sentences that have most to do with a query, best first; the same ones while the source is the same."""
        ...

    def fetch(self, ref: str, /) -> Document:
        """The document that a sentence names as its source.

        Raises:
            LookupError: It has none of this name.
        """
        ...


def version_of(documents: Iterable[Document], told: Iterable[str] = ()) -> str:
    """A short hash of names, titles, texts and links, and of what else is told; for a step, which depends on it."""
    digest = hashlib.sha256()
    parts = (part for one in documents for part in (one.ref, one.title, one.text, one.link))
    for part in chain(parts, told):
        content = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()[:16]


class Texts(Mapping[str, str]):
    """Texts by the name of their source, with a ranking of their sentences. They are indexed once.

    Args:
        texts: name → text. Only its prose can be quoted, as the reference is full of code.
        links: name → where it is to be read.
        embed: the name of an embedding model that ranks along with the words; see `ranking`.

    Attributes:
        version: of names and texts. It is all that a step sees of them as its input.
    """

    COUNTS_BY: ClassVar = ("version", "_prose_only", "embed")

    def __init__(
        self, texts: Mapping[str, str], *, links: Mapping[str, str] | None = None, embed: str | None = None
    ) -> None:
        found = links or {}
        self._texts = dict(texts)
        self._documents = {
            ref: Document(ref, ref.partition(": ")[2], text, found.get(ref, "")) for ref, text in texts.items()
        }
        self._prose_only, self.embed = True, embed
        self.version = version_of(self._documents.values())

    @classmethod
    def of(cls, documents: Iterable[Document], *, embed: str | None = None) -> Self:
        """Texts with titles and links, of which almost all can be quoted. A name that comes twice is the last one's."""
        known = {document.ref: document for document in documents}
        made = cls({ref: document.text for ref, document in known.items()}, embed=embed)
        made._documents, made._prose_only = known, False
        made.version = version_of(known.values())
        return made

    def fetch(self, ref: str) -> Document:
        """One document.

        Raises:
            LookupError: There is none of this name.
        """
        return self._documents[ref]

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
        for sentence in chain.from_iterable(self._by_text.values()):
            first.setdefault(sentence.text, sentence)
        return list(first.values())

    @cached_property
    def _by_text(self) -> dict[str, list[Sentence]]:
        return {ref: list(sentences(text, ref, prose_only=self._prose_only)) for ref, text in self._texts.items()}

    @property
    def problems(self) -> list[str]:
        """In which of the texts no search can find anything, in a sentence."""
        bare = [source for source, found in self._by_text.items() if not found]
        if self._prose_only or not bare:
            return []
        more = f" and {counted(len(bare) - _NAMED, 'other')}" if len(bare) > _NAMED else ""
        told = f"Nothing can be found in {', '.join(bare[:_NAMED])}{more}: there is no sentence that can be quoted. "
        return [told + "Headings, code, tables and lines of a word or two are none."]

    def search(self, question: str, count: int = 5, *, within: str = "") -> list[Sentence]:
        """The sentences that have most to do with a question, best first; see `ranking`.

        Args:
            question: any text.
            count: how many sentences at most.
            within: only of sources whose name begins with this.
        """
        ranked = (self.sentences[place] for place in self._ranking.search(question))
        return [sentence for sentence in ranked if sentence.source.startswith(within)][:count]

    def prepare(self) -> None:
        """Have the vectors of all sentences, where there is an embedding model."""
        if self.embed:
            self._ranking.prepare()

    @cached_property
    def _ranking(self) -> Ranking:
        return Ranking([f"{self._documents[s.source].title} {s.text}" for s in self.sentences], self.embed)

    @property
    def failures(self) -> list[str]:
        """What went wrong in a search, in sentences."""
        return self._ranking.failures

    def __str__(self) -> str:
        return counted(len(self), "text")

    def quotes(self, text: str, source: str, place: str) -> bool:
        """Whether a text stands in a source at a location word for word; only line breaks and indents may differ."""
        characters = span(place)
        return (
            characters is not None
            and source in self._texts
            and one_line(self._texts[source][slice(*characters)]) == text
        )


def load(*, embed: str | None = None) -> Texts:
    """The texts of this machine: this Python's language reference, the descriptions of the packages it can import.

    Make them in an ordinary cell: a step that uses them runs again when a package or Python has changed since. Each
    has a link: to its place in Python's documentation, or to the documentation or home page of the package.

    Args:
        embed: the name of an embedding model that ranks along with the words; see `ranking`.
    """
    known = list(installed.texts())
    links = {name: link for name, _, link in known}
    return Texts({name: text for name, text, _ in known}, links=links, embed=embed)


def sentences(text: str, source: str, *, prose_only: bool = True) -> Iterator[Sentence]:
    """The sentences of a text's paragraphs that are neither too short nor too long to be quoted.

    Args:
        text: the text.
        source: its name.
        prose_only: leave out paragraphs with code, links or tables, and what is no whole English sentence. Else only
            headings, code and tables are left out, and a sentence that is too long is cut into parts.
    """
    skip, cut, fits = (_NO_PROSE, _ended, _is_sentence) if prose_only else (_NO_TEXT, _cut, _is_quotable)
    for paragraph in _paragraphs(text, by_line=not prose_only):
        if skip.search(text, paragraph[0], paragraph[1]):
            continue
        start = paragraph[0]
        for end in cut(text, *paragraph):
            piece = text[start:end]
            flat = one_line(piece)
            if fits(flat):
                yield Sentence(flat, source, start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip()))
            start = end


def _ended(text: str, start: int, end: int) -> Iterator[int]:
    """Where the sentences of English prose end."""
    yield from (match.end() for match in _END.finditer(text, start, end))
    yield end


def _cut(text: str, start: int, end: int) -> Iterator[int]:
    """Where the sentences and list items of any text end; what is too long to be quoted is cut into parts."""
    for match in chain(_END_OR_ITEM.finditer(text, start, end), [None]):
        if match is not None and match[1] and match[1].islower():
            continue
        stop = end if match is None else match.end()
        while stop - start > _LONG_TEXT:
            start += _part(text[start : start + _LONG_TEXT])
            yield start
        yield stop
        start = stop


def _part(window: str) -> int:
    """How much of a text that goes on is cut off as a part: to the end of a clause, else of a word."""
    clause = _CLAUSE.match(window)
    if clause and clause.end() > len(window) // 2:
        return clause.end()
    words = _WORDS.match(window)
    return words.end() if words else len(window)


def _paragraphs(text: str, *, by_line: bool) -> Iterator[tuple[int, int]]:
    """Where the paragraphs begin and end; with `by_line`, a heading is one of its own, also without a line between."""
    for paragraph in _PARAGRAPH.finditer(text):
        start, end = paragraph.span()
        while by_line and text.startswith("#", start) and (line := text.find("\n", start, end)) >= 0:
            start = line + 1
        yield start, end


def heading_above(text: str, place: int) -> str:
    """The last heading in the 20,000 characters before a place; "" if there is none.

    It stands after `#`, or over a line of `=`, `*`, `~`, `^` or `-`.
    """
    found = [one_line(match[1] or match[2]) for match in _HEADING.finditer(text, max(0, place - 20_000), place)]
    return found[-1] if found else ""


def _is_sentence(flat: str) -> bool:
    return _SHORT <= len(flat) <= _LONG and flat[-1] in ".!?" and flat[0].isupper()


def _is_quotable(flat: str) -> bool:
    if " " in flat and _SHORT_TEXT <= len(flat) <= _LONG_TEXT:
        return True
    return _SHORT_UNSPACED <= len(flat) <= _LONG_TEXT and UNSPACED.search(flat) is not None


def numbered(found: Sequence[Sentence]) -> str:
    """Sentences as a numbered list for a model to choose from."""
    return "\n".join(f"{number}. {sentence.text}" for number, sentence in enumerate(found, 1))


def _unloaded(source: Source, error: ImportError) -> UsageError:
    """A package that is not there is no silence of the source: a report without it would count as done."""
    remedy = "Restart the kernel, if a loading of it was stopped by Ctrl-C"
    if isinstance(error, ModuleNotFoundError):
        remedy = "Install it"
    return UsageError(
        f"{named(source)} was not asked: a package that it needs cannot be loaded ({one_line(str(error))[:150]}). "
        f"{remedy}, and run this again; answers so far are kept."
    )


class Together:
    """Several sources as one. One that fails is left out of a search, and that is told in `failures`.

    Args:
        sources: in the order in which equal ranks are given. They are all that a step sees of this as its input.
    """

    COUNTS_BY: ClassVar = ("_sources",)

    def __init__(self, sources: Iterable[Source]) -> None:
        self._sources = list(sources)
        self._failures: list[str] = []

    @property
    def failures(self) -> list[str]:
        """What went wrong in searches, and which source could not be asked."""
        told = chain.from_iterable(getattr(source, "failures", ()) for source in self._sources)
        return sorted({*self._failures, *told})

    def prepare(self) -> None:
        """Have those that can be prepared do it.

        Raises:
            BudgetSpent: No further question may be asked.
        """
        for source in self._sources:
            if hasattr(source, "prepare"):
                self._asked(source, source.prepare)

    def search(self, query: str, count: int = 5) -> list[Sentence]:
        """The best of each source in turn.

        Raises:
            BudgetSpent: A source asks a model, and no further question may be asked.
        """
        found = [self._asked(one, partial(one.search, query, count)) or () for one in self._sources]
        ranked = [sentence for sentence in chain.from_iterable(zip_longest(*found)) if sentence is not None]
        return ranked[:count]

    def _asked(self, source: Source, ask: Callable[[], T]) -> T | None:
        """What it answers; None if it failed."""
        try:
            return ask()
        except (StoreError, ThreadError, BudgetSpent):  # ours: the answer may be there, only not written down
            raise
        except ImportError as error:
            raise _unloaded(source, error) from error
        except Exception as error:  # noqa: BLE001 - a source is anybody's code, and the others can still answer
            self._failed(source, error)
            return None

    def _failed(self, source: Source, error: Exception) -> None:
        told = f"{named(source)} could not be asked ({type(error).__name__}: {one_line(str(error))[:150]})."
        if told not in self._failures:
            self._failures.append(told)

    def fetch(self, ref: str) -> Document:
        """The document, of the first source that has it.

        Raises:
            LookupError: None has it, or the one that may have it failed.
        """
        for source in self._sources:
            try:
                return source.fetch(ref)
            except (StoreError, ThreadError):
                raise
            except ImportError as error:
                raise _unloaded(source, error) from error
            except LookupError:
                continue
            except Exception as error:  # noqa: BLE001 - as in a search
                self._failed(source, error)
        raise LookupError(f"no source has {ref!r}")

    @property
    def problems(self) -> list[str]:
        """What of the sources could not be read or asked."""
        return [
            *chain.from_iterable(getattr(source, "problems", ()) for source in self._sources),
            *self.failures,
        ]

    def link(self, finding: Finding) -> str:
        """Where a finding's document is to be seen; "" if that is not known."""
        try:
            return self.fetch(finding.source).link
        except LookupError:
            return ""

    def __str__(self) -> str:
        return ", ".join(map(named, self._sources)) or "no sources"


def named(source: object) -> str:
    """What messages call a source."""
    if type(source).__str__ is not object.__str__:
        return str(source)
    return type(source).__name__
