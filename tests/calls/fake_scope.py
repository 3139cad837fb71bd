"""The simplest honest scope: one step over any journal that has `append` and `read`, to test the transport alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from resumable_nb import scope as scopes

if TYPE_CHECKING:
    from resumable_nb.journal import Row


class Journal(Protocol):
    """What it needs of a journal."""

    def append(self, *rows: Row) -> list[int]: ...

    def read(self) -> list[Row]: ...


@dataclass
class MemoryJournal:
    """Rows in a list, under one lock."""

    rows: list[Row] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def append(self, *rows: Row) -> list[int]:
        with self.lock:
            for row in rows:
                row.seq = len(self.rows) + 1
                self.rows.append(replace(row))
            return [row.seq for row in rows]

    def read(self) -> list[Row]:
        with self.lock:
            return list(self.rows)


@dataclass(frozen=True)
class FakeClaim:
    occurrence: int
    answer: Row | None


@dataclass
class FakeScope:
    """One run of a step. A new one over the same journal is what a restart gives."""

    journal: Journal
    step: str | None = "s"
    known: str = ""
    notices: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    used: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    callbacks: list[Callable[[], None]] = field(default_factory=list)

    def claim(self, key: str, *, kind: str = "llm", request: str = "") -> FakeClaim:
        with self.lock:
            used = self.used.setdefault((kind, key), set())
            number = next(n for n in range(len(used) + 1) if n not in used)
            used.add(number)
            rows = [
                r
                for r in self.journal.read()
                if (r.step, r.kind, r.key, r.occurrence) == (self.step, kind, key, number)
            ]
            return FakeClaim(number, next((r for r in reversed(rows) if r.phase in ("done", "partial")), None))

    def release(self, key: str, occurrence: int, *, kind: str = "llm") -> None:
        with self.lock:
            self.used[kind, key].discard(occurrence)

    def append(self, *rows: Row) -> list[int]:
        for row in rows:
            row.step = self.step
        return self.journal.append(*rows)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def before_commit(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def context(self) -> str:
        return self.known

    def commit(self) -> None:
        """The end of the step."""
        for callback in self.callbacks:
            callback()

    @property
    def claimed(self) -> int:
        """How many numbers are taken."""
        return sum(len(numbers) for numbers in self.used.values())


@contextlib.contextmanager
def running(journal: Journal, *, step: str | None = "s", known: str = "") -> Iterator[FakeScope]:
    """A run of a step, for this context and for threads of pools."""
    scope = FakeScope(journal, step, known)
    with scopes.within(scope):  # type: ignore[arg-type]  # it has what a scope has
        yield scope


def phases(journal: Journal) -> list[str]:
    """Of the rows, in their order."""
    return [row.phase for row in journal.read()]


def last(journal: Journal) -> Row:
    """The newest row."""
    return journal.read()[-1]
