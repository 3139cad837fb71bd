"""What a person sees of a stage while it runs: progress, findings as they come, what the model writes, a short log."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic_core import from_json

from resumable_nb import pictures
from resumable_nb.errors import Paused
from resumable_nb.terminal import counted, one_line

if TYPE_CHECKING:
    from resumable_nb.research.records import Finding

ROWS = 12
_DRAWN_EACH_S = 0.2
_WRITTEN_CHARS, _WRITTEN_LINE_CHARS, _LINE_CHARS, _NAME_CHARS = 500, 80, 110, 60


class Watch:
    """One stage, seen while the block runs. Any thread may tell it something; one of its own draws.

    Args:
        stage: its name.
        questions: the sub-questions that it looks into, in their order.
    """

    def __init__(self, stage: str, questions: Sequence[str] = ()) -> None:
        self._stage, self._questions = stage, list(dict.fromkeys(questions))
        self._findings: dict[tuple[str, str], Finding] = {}
        self._ended: set[str] = set()
        self._refused = 0
        self._told = self._stopped = ""
        self._writing: dict[str, list[str]] = {}
        self._log: deque[str] = deque(maxlen=pictures.LOG_LINES)
        self._news: list[str] = []
        self._lock = threading.Lock()
        self._is_new, self._is_over = threading.Event(), threading.Event()

    def __enter__(self) -> Self:
        self._frame = pictures.frame()
        self._frame.draw(self._picture())
        context = contextvars.copy_context()  # it says in which cell this is to be seen
        self._drawing = threading.Thread(target=context.run, args=(self._draw,), name="resumable-watch", daemon=True)
        self._drawing.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._is_over.set()
        self._is_new.set()
        self._drawing.join()
        if error is not None:
            self._stopped = "waits for a person" if isinstance(error, Paused) else "not finished"
        self._frame.draw(self._picture(is_over=True))

    def _draw(self) -> None:
        """The picture anew, whenever something has changed, a few times a second."""
        while self._is_new.wait() and not self._is_over.is_set():
            self._is_new.clear()
            self._frame.draw(self._picture())
            self._is_over.wait(_DRAWN_EACH_S)

    # ------------------------------------------------------------------ what it is told
    def log(self, text: str) -> None:
        """Something happened."""
        with self._telling():
            self._log.append(one_line(text, 2 * _LINE_CHARS))

    def knows(self, findings: Iterable[Finding], ended: Iterable[str]) -> None:
        """What was found, and which sub-questions were looked into, before."""
        with self._telling():
            self._add(findings)
            self._ended.update(ended)

    def found(self, finding: Finding, who: str) -> None:
        """A finding was accepted."""
        with self._telling():
            self._add([finding])
            told = one_line(finding.claim, _LINE_CHARS)
            self._log.append(f"{who} found: {told} ({one_line(finding.source, _NAME_CHARS)})")

    def refused(self, quote: str, who: str) -> None:
        """A quotation was not in its source."""
        with self._telling():
            self._refused += 1
            self._log.append(f"{who} refused a quotation that is not in its source: {one_line(quote, _NAME_CHARS)}")

    def ended(self, question: str, told: str) -> None:
        """A sub-question was looked into to its end."""
        with self._telling():
            self._ended.add(question)
            self._news.append(f"{told}: {one_line(question, _LINE_CHARS)}")
            self._log.append(self._news[-1])

    def end(self, told: str = "", findings: Iterable[Finding] = ()) -> None:
        """What stays to be seen of it: a few words, and the findings in their order."""
        with self._telling():
            self._told = told
            self._findings.clear()
            self._add(findings)

    @contextlib.contextmanager
    def hearing(self, who: str = "") -> Iterator[Callable[[str], None]]:
        """While a model writes: what gets each piece of its text."""
        pieces: list[str] = []

        def hear(piece: str) -> None:
            with self._telling():
                if not piece:  # another answer begins
                    pieces.clear()
                pieces.append(piece)

        self._writing[who] = pieces
        try:
            yield hear
        finally:
            with self._telling():
                self._writing.pop(who, None)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        with self._lock:
            yield
        self._is_new.set()

    def _add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._findings.setdefault((finding.source, finding.quote), finding)

    # ------------------------------------------------------------------ what it shows
    def _picture(self, *, is_over: bool = False) -> pictures.Picture:
        with self._lock:
            writing = [(who, "".join(pieces)) for who, pieces in self._writing.items() if len(pieces) > 1]
            limit = _WRITTEN_LINE_CHARS if self._questions else _WRITTEN_CHARS
            found = list(self._findings.values())
            number = {question: str(place) for place, question in enumerate(self._questions, 1)}
            rows = [
                (number.get(f.question, ""), one_line(f.claim, 160), one_line(f.source, _NAME_CHARS)) for f in found
            ]
            if len(rows) > ROWS:
                rows = [("", f"… {len(rows) - ROWS} more above", ""), *rows[-ROWS:]]
            return pictures.Picture(
                title=self._stage,
                told=self._words(len(found)),
                done=len(self._ended & set(self._questions)),
                total=len(self._questions),
                columns=("", "finding", "source"),
                rows=rows,
                writing=[(who, _end_of(readable(text), limit)) for who, text in writing],
                log=list(self._log),
                news=list(self._news),
                is_over=is_over,
            )

    def _words(self, found: int) -> str:
        told = [self._told] if self._told else []
        if self._questions:
            done = len(self._ended & set(self._questions))
            told = [f"{done} of {counted(len(self._questions), 'sub-question')}", counted(found, "finding"), *told]
            told += [f"{counted(self._refused, 'quotation')} refused"] if self._refused else []
        return ", ".join([*told, self._stopped] if self._stopped else told)


def readable(text: str) -> str:
    """The words of what a model writes, without the brackets of its form, also of half of it."""
    try:
        return " · ".join(_words(from_json(text, allow_partial="trailing-strings")))
    except ValueError:
        return text


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _words(part)


def _end_of(text: str, limit: int) -> str:
    text = one_line(text)
    return text if len(text) <= limit else f"…{text[-limit:]}"
