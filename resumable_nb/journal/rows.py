"""One row of the journal, and how it goes into and comes out of the table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from resumable_nb.errors import ValueNotStorable

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = (
    "thread_id",
    "seq",
    "kind",
    "phase",
    "ts",
    "session_id",
    "ref_seq",
    "parent_seq",
    "run_seq",
    "step",
    "cell_id",
    "name",
    "key",
    "occurrence",
    "duration_ms",
    "gen_ai_request_model",
    "gen_ai_usage_input_tokens",
    "gen_ai_usage_output_tokens",
    "gen_ai",
    "changes",
    "request",
    "response",
    "data",
    "body",
    "writer",
)
JSON_COLUMNS = ("gen_ai", "changes", "request", "response", "data")
_LARGE = ("request", "response", "body")
_LIMITED = (*JSON_COLUMNS, "body")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_VALUE_BYTES = 64 * 2**20


@dataclass(slots=True, kw_only=True)
class Row:
    """One row of the journal; the meaning of each column stands in schema.sql as its comment.

    `ref_seq`, `parent_seq` and `run_seq` that are negative when the row is appended are relative to its own place.
    `thread_id`, `seq`, `ts`, `session_id` and `writer` are set by `Session.append`.
    """

    kind: str
    phase: str = ""
    ref_seq: int | None = None
    parent_seq: int | None = None
    run_seq: int | None = None
    step: str | None = None
    cell_id: str | None = None
    name: str | None = None
    key: str | None = None
    occurrence: int | None = None
    duration_ms: float | None = None
    gen_ai_request_model: str | None = None
    gen_ai_usage_input_tokens: int | None = None
    gen_ai_usage_output_tokens: int | None = None
    gen_ai: str | None = None
    changes: str | None = None
    request: str | None = None
    response: str | None = None
    data: str | None = None
    body: bytes | None = None
    thread_id: str = ""
    seq: int = 0
    ts: datetime = _EPOCH
    session_id: str = ""
    writer: str = ""

    def put(self, place: Place) -> None:
        """Give the row its place in the journal, and make relative references absolute."""
        self.thread_id, seq, self.ts, self.session_id, self.writer = place
        self.seq = seq
        if self.ref_seq is not None and self.ref_seq < 0:
            self.ref_seq += seq
        if self.parent_seq is not None and self.parent_seq < 0:
            self.parent_seq += seq
        if self.run_seq is not None and self.run_seq < 0:
            self.run_seq += seq


class Place(NamedTuple):
    """Where a row stands, and who put it there."""

    thread_id: str
    seq: int
    ts: datetime
    session_id: str
    writer: str


_values = attrgetter(*COLUMNS)
_REFERENCES = tuple(COLUMNS.index(c) for c in ("ref_seq", "parent_seq", "run_seq"))


def parameters(row: Row, place: Place) -> list[object]:
    """The values of a row in the order of `COLUMNS`, as if it had this place; the row itself is left as it is."""
    values: list[Any] = [*_values(row)]
    values[0], values[1], values[4], values[5], values[-1] = place
    for i in _REFERENCES:
        if values[i] is not None and values[i] < 0:
            values[i] += place.seq
    return values


def check_sizes(row: Row) -> None:
    """Refuse a value that is too large to be read back comfortably.

    Raises:
        ValueNotStorable: it has more than `MAX_VALUE_BYTES`.
    """
    for column in _LIMITED:
        value = getattr(row, column)
        if value is not None and len(value) > MAX_VALUE_BYTES:
            raise ValueNotStorable(
                f"{column} of a {row.kind} row",
                f"it has {len(value) / 2**20:.0f} MB, and {MAX_VALUE_BYTES >> 20} MB is the most",
            )


def from_microseconds(us: int) -> datetime:
    """The instant that DuckDB's `epoch_us` means."""
    return _EPOCH + timedelta(microseconds=us)


def microseconds(ts: datetime) -> int:
    """What DuckDB's `epoch_us` gives for an instant."""
    return (ts - _EPOCH) // timedelta(microseconds=1)


def select(*, bodies: bool = True) -> str:
    """The SELECT list that `from_values` reads: times as microseconds, so that no session time zone has a say."""
    return ", ".join(
        "epoch_us(ts)" if c == "ts" else f"NULL AS {c}" if c in _LARGE and not bodies else c for c in COLUMNS
    )


def insert_sql(count: int) -> str:
    """An INSERT of `count` rows, with a parameter for each value."""
    row = "(" + ", ".join("?" * len(COLUMNS)) + ")"
    return f"INSERT INTO journal ({', '.join(COLUMNS)}) VALUES " + ", ".join([row] * count)


def from_values(values: Sequence[Any], known: dict[Any, Any] | None = None) -> Row:
    """The row that a SELECT of `select()` gave; 3 times faster than `Row(**…)`, which `read` of a long thread feels.

    `known`: texts of the rows read before it, for those that many rows have in common to be one object.
    """
    row, same = object.__new__(Row), ({} if known is None else known).setdefault
    # fmt: off
    (
        thread_id, row.seq, kind, phase, ts, session_id, row.ref_seq, row.parent_seq, row.run_seq,
        step, cell_id, name, row.key, row.occurrence, row.duration_ms,
        model, row.gen_ai_usage_input_tokens, row.gen_ai_usage_output_tokens, row.gen_ai,
        row.changes, row.request, row.response, row.data, row.body, writer,
    ) = values
    row.thread_id, row.kind, row.phase = same(thread_id, thread_id), same(kind, kind), same(phase, phase)
    row.session_id, row.writer, row.name = same(session_id, session_id), same(writer, writer), same(name, name)
    row.step, row.cell_id, row.gen_ai_request_model = same(step, step), same(cell_id, cell_id), same(model, model)
    # fmt: on
    row.ts = from_microseconds(ts)
    return row
