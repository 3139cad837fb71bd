"""What a run of a step knows of recorded answers: their rows, read a few at a time, and what they cost."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from resumable_nb.cells import Cell, Spent

if TYPE_CHECKING:
    from resumable_nb.journal import Row
    from resumable_nb.thread import Thread


@dataclass
class Account:
    """What the answers of a run cost, recorded and live; a stream that was left open counts by its last row."""

    costs: dict[int, Spent] = field(default_factory=dict)

    def add(self, row: Row) -> Spent:
        """Count an answer. What it cost."""
        cost = self.costs[row.ref_seq or row.seq] = Spent(
            int(row.kind == "llm"),
            row.gen_ai_usage_input_tokens or 0,
            row.gen_ai_usage_output_tokens or 0,
            row.duration_ms or 0.0,
        )
        return cost

    @property
    def spent(self) -> Spent:
        """The sum."""
        return sum(self.costs.values(), Spent())


class Recorded:
    """The recorded answers of a step, read a few at a time: a replay asks for them in about the order of their rows."""

    AHEAD, AHEAD_BYTES = 512, 1 << 20

    def __init__(self, thread: Thread, cell: Cell) -> None:
        self._thread, self._cell = thread, cell
        self._count = 32
        self._order: list[int] = []
        self._ahead: dict[int, Row] = {}

    def take(self, seq: int) -> Row:
        """The whole row of an answer."""
        if seq not in self._ahead:
            self._read_from(seq)
        return self._ahead.pop(seq)

    def _read_from(self, seq: int) -> None:
        if seq not in self._order:
            self._order = sorted(self._thread.fold.answers(self._cell).values())
        place = bisect.bisect_left(self._order, seq)
        few = self._order[place : place + self._count]
        self._ahead = {row.seq: row for row in self._thread.session.read(seqs=few)}
        if seq not in self._ahead:
            self._ahead[seq] = self._thread.read(seq)
        size = sum(len(r.body or b"") + len(r.response or "") for r in self._ahead.values())
        # to read one, DuckDB unpacks up to 2,048 that were written before it
        self._count = max(1, min(self.AHEAD, self.AHEAD_BYTES * len(self._ahead) // max(1, size)))
