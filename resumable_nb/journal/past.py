"""What a thread's rows say to somebody who opens or forks it: who owns it, and what was begun and never completed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from resumable_nb.errors import ThreadNotFound, UsageError
from resumable_nb.journal import processes, rows
from resumable_nb.journal.rows import Row
from resumable_nb.journal.session import live, missing_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    import duckdb

_LIGHT = "SELECT seq, kind, phase, session_id, ref_seq FROM journal WHERE thread_id = ?"
_REPEATED = (
    "run_seq",
    "step",
    "cell_id",
    "name",
    "key",
    "occurrence",
    "gen_ai_request_model",
    "gen_ai",
)


class Past(NamedTuple):
    """A thread as somebody finds it.

    Attributes:
        head: its newest row; 0 if there is no such thread.
        owner: the row that opened the session that has it; None if nobody has.
        unfinished: started rows without a row that completes them.
    """

    head: int
    owner: Row | None
    unfinished: list[Row]

    def owner_is_alive(self) -> bool | None:
        """Whether the owner may still write; None if that cannot be seen from here."""
        if self.owner is None:
            return False
        about = json.loads(self.owner.data or "{}")
        alive = processes.is_alive(about)
        if alive and about.get("pid") == os.getpid():
            return self.owner.session_id in live
        return alive

    def losses(self) -> list[Row]:
        """The rows that say of each unfinished one that it is lost."""
        return [
            Row(kind=row.kind, phase="lost", ref_seq=row.seq, **{column: getattr(row, column) for column in _REPEATED})
            for row in self.unfinished
        ]


def read(con: duckdb.DuckDBPyConnection, thread_id: str, path: Path) -> Past:
    """Read the past of a thread.

    Raises:
        StoreDamaged: a row is missing.
    """
    light = sorted(
        con.execute(_LIGHT, [thread_id]).fetchall()
    )  # in DuckDB, the joins would take longer than all of this
    head = light[-1][0] if light else 0
    if len(light) != head:
        raise missing_rows(path, thread_id, head)
    owner: tuple[int, str] | None = None
    unfinished: dict[int, str] = {}
    for seq, kind, phase, session_id, ref_seq in light:
        if ref_seq in unfinished and kind in (unfinished[ref_seq], "checkpoint"):
            del unfinished[ref_seq]
        if phase == "started":
            unfinished[seq] = kind
        elif kind == "session" and phase == "opened":
            owner = seq, session_id
        elif kind == "thread" or (kind == "session" and owner and session_id == owner[1]):
            owner = None  # closed; or what was before a fork belongs to another thread
    wanted = [*unfinished, *([owner[0]] if owner else [])]
    found = {row.seq: row for row in _rows(con, thread_id, wanted)}
    return Past(head, found[owner[0]] if owner else None, [found[seq] for seq in unfinished])


def _rows(con: duckdb.DuckDBPyConnection, thread_id: str, seqs: list[int]) -> list[Row]:
    if not seqs:
        return []
    marks = ", ".join("?" * len(seqs))
    sql = f"SELECT {rows.select(bodies=False)} FROM journal WHERE thread_id = ? AND seq IN ({marks})"
    return [rows.from_values(values) for values in con.execute(sql, [thread_id, *seqs]).fetchall()]


def not_found(con: duckdb.DuckDBPyConnection, thread_id: str, path: Path) -> ThreadNotFound:
    """There is no such thread; the message lists those that there are."""
    known = [
        str(name) for (name,) in con.execute("SELECT DISTINCT thread_id FROM journal ORDER BY 1 LIMIT 21").fetchall()
    ]
    told = ", ".join(map(repr, known[:20])) + (", …" if len(known) > 20 else "")
    return ThreadNotFound(f"{path} has no thread {thread_id!r}. " + (f"It has {told}" if known else "It is empty"))


# One INSERT: the rows of a source as they are, a completing row for everything that is open there if that is not to be
# open twice, and the row that says where the copy comes from. What is before a last row `forked` was made, and paid
# for, in another thread.
_COPY = f"""
INSERT INTO journal ({", ".join(rows.COLUMNS)})
WITH source AS ({{source}}),
pending AS (
    SELECT j.*, row_number() OVER (ORDER BY seq) AS place FROM source j
    WHERE $phase = 'forked' AND (phase = 'started' OR (kind = 'approval' AND phase = 'requested'))
      AND NOT EXISTS (SELECT 1 FROM source d WHERE d.ref_seq = j.seq AND (d.kind = j.kind OR d.kind = 'checkpoint'))),
copied AS (
    SELECT * REPLACE ($thread AS thread_id) FROM source
    UNION ALL BY NAME
    SELECT $thread AS thread_id, $seq + place AS seq, kind,
           CASE kind WHEN 'approval' THEN 'dropped' ELSE 'lost' END AS phase, $ts::TIMESTAMPTZ AS ts,
           $session AS session_id, seq AS ref_seq, {", ".join(_REPEATED)}, $writer AS writer
    FROM pending
    UNION ALL BY NAME
    SELECT $thread AS thread_id, $seq + 1 + (SELECT count(*) FROM pending) AS seq, 'thread' AS kind, $phase AS phase,
           $ts::TIMESTAMPTZ AS ts, $session AS session_id, $data::JSON AS data, $writer AS writer)
SELECT {", ".join(rows.COLUMNS)} FROM copied ORDER BY seq
"""


_PRUNED = """
SELECT max(seq) FILTER (kind = 'step' AND phase = 'pruned') AS last,
       max(seq) FILTER (seq <= $seq AND (kind = 'checkpoint' OR changes IS NOT NULL)) AS state
FROM journal WHERE thread_id = $thread
"""


def check_state_is_left(con: duckdb.DuckDBPyConnection, thread_id: str, seq: int) -> None:
    """A fork needs the state that it starts from.

    Raises:
        ThreadNotFound: it was pruned.
    """
    last, state = con.execute(_PRUNED, {"thread": thread_id, "seq": seq}).fetchall()[0]
    if last is not None and (state or 0) < last and state != seq:
        raise ThreadNotFound(
            f"The state of thread {thread_id!r} at row {seq} was pruned, so nothing can start from there. Take a later "
            "checkpoint: see `%resumable history`"
        )


def fork_statement(thread_id: str, seq: int, new_id: str, ts: datetime) -> tuple[str, dict[str, object]]:
    """The INSERT, and its parameters, that copies the rows 1 to `seq` of a thread to a new one."""
    source = "SELECT * FROM journal WHERE thread_id = $source AND seq <= $seq"
    sql, parameters = copy_statement(source, seq, new_id, ts, phase="forked", about={"from": thread_id, "seq": seq})
    return sql, {**parameters, "source": thread_id}


def copy_statement(
    source: str, rows_of_it: int, new_id: str, ts: datetime, *, phase: str, about: Mapping[str, object]
) -> tuple[str, dict[str, object]]:
    """The INSERT, and its parameters, that copies rows of a source to a new thread.

    Args:
        source: the SELECT that gives the rows; it may use `$seq`.
        rows_of_it: their number.
        new_id: the name of the thread.
        ts: the time.
        phase: of the last row: `forked` (what is open in the source stays there) or `imported`.
        about: the data of the last row.
    """
    return _COPY.format(source=source), {
        "seq": rows_of_it,
        "thread": new_id,
        "ts": ts,
        "session": os.urandom(16).hex(),
        "phase": phase,
        "data": json.dumps(about),
        "writer": processes.writer(),
    }


FAMILY = """
SELECT thread_id FROM journal WHERE seq = 1 AND session_id = (
    SELECT session_id FROM journal WHERE seq = 1 AND thread_id = $thread) AND thread_id <> $thread ORDER BY thread_id
"""
"""Forks have the first row of the thread that they go back to, and so have copies that were imported."""


def check_name(thread_id: str) -> None:
    """A thread needs a name that can be typed and shown.

    Raises:
        UsageError: it is empty, or has characters that cannot be printed.
    """
    if not thread_id.strip() or not thread_id.isprintable():
        raise UsageError(
            f"{thread_id!r} is no name for a thread: give it at least one letter, and no control characters"
        )
