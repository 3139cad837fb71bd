"""The rows of a thread as its picture needs them, and how it is noticed that those read before are no longer the same.

A journal only grows, so rows that were read need not be read again. What rewrites them (pruning, an older copy put
back, a thread dropped and made anew) shows in a checksum over all of them, which costs some milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from resumable_nb.calls.matching import read_json

if TYPE_CHECKING:
    from resumable_nb.journal import Store

Json = dict[str, Any]

_SQL = """
WITH known AS (
    SELECT bit_xor(hash(seq, ts, session_id, kind, phase, parent_seq)) FILTER (seq <= $2) AS before,
           bit_xor(hash(seq, ts, session_id, kind, phase, parent_seq)) AS whole, max(seq) AS head
    FROM journal WHERE thread_id = $1),
fresh AS (
SELECT seq, kind, phase, epoch_ms(ts) AS at, session_id, ref_seq, parent_seq, run_seq, step, cell_id,
       name[:300] AS name,
       CASE WHEN kind IN ('llm', 'call', 'effect') THEN key[:120] END AS key, occurrence, duration_ms,
       gen_ai_request_model AS model, coalesce(gen_ai_usage_input_tokens, 0) AS input,
       coalesce(gen_ai_usage_output_tokens, 0) AS output,
       CASE WHEN kind = 'checkpoint'
            THEN list_concat(json_keys(changes, '$.set'), json_keys(changes, '$.drop')) END AS sets,
       CASE WHEN kind = 'checkpoint' THEN list_transform(json_keys(changes, '$.append'),
            lambda f: f || ' +' || json_array_length(changes, '$.append."' || f || '"')) END AS adds,
       CASE WHEN data IS NULL THEN NULL
            WHEN kind IN ('session', 'thread', 'recovery')
                 OR (kind = 'notice' AND name IN ('skipped', 'budget')) THEN data
            WHEN kind = 'step' AND phase <> 'started'
            THEN json_object('error', (data->>'error')[:300], 'message', (data->>'message')[:300])
            WHEN kind = 'checkpoint' AND phase = 'taken up' THEN data
            WHEN kind = 'checkpoint' THEN json_object('spent', data->'spent')
            WHEN kind IN ('llm', 'call', 'effect', 'resource')
            THEN json_object('why', (data->>'why')[:300], 'by', data->>'by')
            WHEN kind = 'approval' THEN json_object('message', (data->>'message')[:300], 'who', data->>'who',
                 'comment', (data->>'comment')[:300], 'edited', (data->'approved_payload') IS NOT NULL)
       END AS data
FROM journal WHERE thread_id = $1 AND seq > $2 AND kind NOT IN ('value', 'outputs'))
SELECT known.before, known.whole, known.head, fresh.* FROM known LEFT JOIN fresh ON true ORDER BY fresh.seq"""
_OF_ALL = 3
"""Columns that say something of the thread, in each row."""


DEEPEST = 500
"""Levels that a JSON value may have to be told. No thread of ours has as many, but an imported one may have thousands,
which neither Python nor a browser reads or writes."""


def value_of(text: str) -> Any:
    """The value of a JSON text of the journal.

    Raises:
        ValueError: it is none, or nested more than `DEEPEST` deep.
    """
    return read_json(text.encode(), max_depth=DEEPEST)


@dataclass(slots=True)
class Row:
    """One row of the journal."""

    seq: int
    kind: str
    phase: str
    at: float
    session_id: str
    ref_seq: int | None
    parent_seq: int | None
    run_seq: int | None
    step: str | None
    cell_id: str | None
    name: str | None
    key: str | None
    occurrence: int | None
    duration_ms: float | None
    model: str | None
    input: int
    output: int
    sets: list[str] | None
    adds: list[str] | None
    text: str | None
    data: Json = field(init=False)
    is_unread: bool = field(init=False)

    def __post_init__(self) -> None:
        self.data, self.is_unread = {}, False
        try:
            found = value_of(self.text) if self.text else {}
        except ValueError:
            self.is_unread = True
        else:
            self.data = found if isinstance(found, dict) else {}


class Rows(NamedTuple):
    """What was read.

    Attributes:
        before: the checksum of the rows that were not read, up to `after`; None: there are none.
        whole: the checksum of all.
        head: the newest row of the thread; None: there is no such thread.
        fresh: the rows after `after`, as the journal has them: in their order.
    """

    before: int | None
    whole: int | None
    head: int | None
    fresh: list[Row]


def read(store: Store, thread_id: str, *, after: int = 0) -> Rows:
    """What stands in the store now after a row."""
    rows = store.rows(_SQL, [thread_id, after])[1]
    before, whole, head = rows[0][:_OF_ALL]
    return Rows(before, whole, head, [Row(*row[_OF_ALL:]) for row in rows if row[_OF_ALL] is not None])
