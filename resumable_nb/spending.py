"""What a headless run has spent: by the journals of its threads, whatever became of its cells and kernels."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from resumable_nb.errors import ResumableError
from resumable_nb.journal import Store
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from resumable_nb.journal import Session

_ANSWERED = ("done", "partial")


def spent_since(session: Session, since: datetime) -> tuple[int, int]:
    """Calls of a thread that were answered since then, and tokens billed, as `threads` counts them: by anybody."""
    rows = session.read(kinds=("llm", "thread"), bodies=False)
    forked = max((row.seq for row in rows if row.kind == "thread" and row.phase == "forked"), default=0)
    ended = [r for r in rows if r.kind == "llm" and r.phase != "started" and r.seq > forked and r.ts >= since]
    tokens = sum((row.gen_ai_usage_input_tokens or 0) + (row.gen_ai_usage_output_tokens or 0) for row in ended)
    return sum(row.phase in _ANSWERED for row in ended), tokens


@dataclass
class Spending:
    """The account of one run.

    Attributes:
        since: when the run began.
        by_thread: calls and tokens since then, by the store's path and the thread's name.
        is_behind: a kernel ended without telling the last of it.
    """

    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    by_thread: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    is_behind: bool = False

    @property
    def total(self) -> tuple[int, int]:
        """Calls and tokens of all threads."""
        spent = self.by_thread.values()
        return sum(calls for calls, _ in spent), sum(tokens for _, tokens in spent)

    def more_than(self, before: tuple[int, int]) -> str:
        """For a cell's line, what came since `before`; "" if no call did."""
        calls, tokens = (now - then for now, then in zip(self.total, before, strict=True))
        return f", {counted(calls, 'call')}, {counted(tokens, 'token')}" if calls or tokens else ""

    def read(self) -> None:
        """Look into the stores. Those that cannot be read now keep the numbers that are known of them."""
        for path, thread_id in self.by_thread:
            with contextlib.suppress(ResumableError):  # how the run ended must be told all the same
                store = Store.open(Path(path), create=False)
                self.by_thread[path, thread_id] = spent_since(store.visitor(thread_id), self.since)
        self.is_behind = False
