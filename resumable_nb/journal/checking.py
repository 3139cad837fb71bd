"""Whether the rows of a thread are as this library writes them: numbers, references, JSON, hashes, rules of the views.

Asked of a store by `doctor`, and of a file before it is imported: whatever holds rows is there as `journal`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from resumable_nb.journal import rows
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

_SHOWN = 5
_LAST_US = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000  # in any time zone still a date of Python's
_KINDS = (
    *("thread", "session", "step", "checkpoint", "cell", "llm", "call", "effect", "approval", "resource", "recovery"),
    *("notice", "value", "outputs", "verification"),
)
_PHASES = {
    "thread": ("created", "forked", "imported"),
    "session": ("opened", "closed"),
    "step": ("started", "failed", "interrupted", "waiting", "lost", "retired", "pruned"),
    "checkpoint": ("start", "step", "edit", "taken up", "migration"),
    "cell": ("done", "dropped"),
    "llm": ("started", "done", "partial", "failed", "lost"),
    "call": ("started", "done", "partial", "failed", "lost"),
    "effect": ("started", "done", "failed", "not done", "lost"),
    "approval": ("requested", "approved", "rejected", "refused", "dropped", "done"),
    "resource": ("probed", "started", "done", "failed", "lost"),
    "verification": ("started", "trial", "done", "lost"),
}
"""Of the other kinds the phase says nothing, or that they were pruned."""
_STRANGE = " OR ".join(
    f"(j.kind = '{kind}' AND j.phase NOT IN ({', '.join(map(repr, known))}))" for kind, known in _PHASES.items()
)
_JSON = " OR ".join(f"NOT json_valid(j.{c}::VARCHAR)" for c in rows.JSON_COLUMNS)
_SIZES = (*(f"strlen(j.{c}::VARCHAR)" for c in rows.JSON_COLUMNS), "octet_length(j.body)")
_LARGE = " OR ".join(f"{size} > {rows.MAX_VALUE_BYTES}" for size in _SIZES)
_NAME = r"[\p{L}\p{Nl}_][\p{L}\p{Nl}\p{M}\p{N}\p{Pc}]*"
_OBJECTS = " OR ".join(
    f"coalesce(json_type(j.changes, '$.{part}'), 'OBJECT') <> 'OBJECT'" for part in ("set", "append", "drop")
)
_FIELDS = " || ".join(f"coalesce(json_keys(j.changes, '$.{part}'), [])" for part in ("set", "append", "drop"))

# What is asked of each row. Conditions that read large texts come last; NULL is no finding.
_ROWS: tuple[tuple[str, str], ...] = (
    ("a reference to itself, a later row or none", "j.ref_seq >= j.seq OR j.ref_seq < 1"),
    ("a parent that is itself, a later row or none", "j.parent_seq >= j.seq OR j.parent_seq < 0"),
    ("a run that is itself, a later row or none", "j.run_seq >= j.seq OR j.run_seq < 1"),
    ("a kind that this version does not know", f"j.kind NOT IN ({', '.join(map(repr, _KINDS))})"),
    ("a phase that this version does not know", _STRANGE),
    (
        "a session that never opened",  # what visitors, forks and imports add is of none
        "(j.kind = 'checkpoint' OR (j.kind IN ('llm', 'call') AND j.phase = 'started')) AND o.session_id IS NULL",
    ),
    ("a negative number of tokens", "least(j.gen_ai_usage_input_tokens, j.gen_ai_usage_output_tokens) < 0"),
    ("a time that no clock tells", f"NOT isfinite(j.ts) OR epoch_us(j.ts) NOT BETWEEN 0 AND {_LAST_US}"),
    (
        "a completing row that names no row that was started (R2)",
        (
            "j.kind IN ('llm', 'call', 'effect') AND j.phase <> 'started' AND (r.seq IS NULL OR r.kind <> j.kind OR "
            "r.phase <> 'started')"
        ),
    ),
    (
        "a decision that names no question (R2)",
        (
            "j.kind = 'approval' AND j.phase <> 'requested' AND (r.seq IS NULL OR r.kind <> 'approval' OR "
            "r.phase <> 'requested')"
        ),
    ),
    (
        "another key than the row that it completes (R5)",
        "j.kind IN ('llm', 'call', 'effect') AND r.kind = j.kind AND j.key IS DISTINCT FROM r.key",
    ),
    ("a checkpoint without a parent (R3)", "j.kind = 'checkpoint' AND j.parent_seq IS NULL"),
    (
        "a run that is no step (R2)",
        "j.kind IN ('llm', 'call', 'checkpoint') AND (s.kind <> 'step' OR s.phase <> 'started')",
    ),
    (
        "changes on a row that can have none (R7)",
        "j.changes IS NOT NULL AND j.kind NOT IN ('checkpoint', 'llm', 'call', 'effect', 'approval')",
    ),
    (
        "progress that does not say where it starts from (R7)",
        "j.changes IS NOT NULL AND j.kind <> 'checkpoint' AND j.parent_seq IS NULL",
    ),
    (f"a value of more than {rows.MAX_VALUE_BYTES >> 20} MB", _LARGE),
    ("JSON that cannot be read", _JSON),
    (
        "data of another form",
        (
            "CASE WHEN j.kind IN ('session', 'approval', 'checkpoint', 'resource', 'recovery', 'verification') AND "
            "json_valid(j.data::VARCHAR) THEN json_type(j.data) <> 'OBJECT' END"
        ),
    ),
    (
        "a large value that is not what its hash says",
        "j.kind = 'value' AND j.phase <> 'pruned' AND (j.body IS NULL OR sha256(j.body) IS DISTINCT FROM j.key)",
    ),
    (
        "changes of another form (R4)",
        (
            f"CASE WHEN json_valid(j.changes::VARCHAR) THEN json_type(j.changes) <> 'OBJECT' OR {_OBJECTS} "
            "OR NOT list_has_all(['set', 'append', 'drop', 'version'], json_keys(j.changes)) END"
        ),
    ),
    (
        "a field in two parts of its changes, or one that is no name (R4)",
        (
            f"CASE WHEN json_valid(j.changes::VARCHAR) THEN list_unique({_FIELDS}) <> len({_FIELDS}) OR "
            f"len(list_filter({_FIELDS}, lambda f: NOT regexp_full_match(f, '{_NAME}'))) > 0 END"
        ),
    ),
)
_ROW_SQL = f"""
SELECT n, count(*), list(seq ORDER BY seq)[1:{_SHOWN}] FROM (
    SELECT j.seq, unnest(list_filter([{", ".join(f"CASE WHEN {c} THEN {n} END" for n, (_, c) in enumerate(_ROWS))}],
                                     lambda x: x IS NOT NULL)) AS n
    FROM journal j
    LEFT JOIN light r ON r.seq = j.ref_seq
    LEFT JOIN light s ON s.seq = j.run_seq
    LEFT JOIN (SELECT DISTINCT session_id FROM journal
               WHERE thread_id = $1 AND kind = 'session' AND phase = 'opened') o ON o.session_id = j.session_id
    WHERE j.thread_id = $1)
GROUP BY n ORDER BY n
"""
# Names of large values stand in texts as {"$type": …, "sha256": …}; what merely looks so is sorted out by `_names`.
_NAMED = """
WITH texts AS (
    SELECT seq, text FROM (UNPIVOT (
        SELECT seq, changes::VARCHAR AS changes, data::VARCHAR AS data,
               CASE WHEN kind <> 'llm' THEN response::VARCHAR END AS response
        FROM journal WHERE thread_id = $1 AND kind <> 'value')
    ON changes, data, response INTO NAME column_name VALUE text)),
named AS (
    SELECT seq, text, unnest(regexp_extract_all(text, '"sha256": ?"([0-9a-f]{64})"', 1)) AS key
    FROM texts WHERE contains(text, '"sha256"') AND contains(text, '"$type"'))
SELECT seq, text, list(DISTINCT key) FROM named
ANTI JOIN (SELECT key FROM journal WHERE thread_id = $1 AND kind = 'value' AND body IS NOT NULL) USING (key)
GROUP BY seq, text ORDER BY seq
"""


class Finding(NamedTuple):
    """Something that is not as it should be.

    Attributes:
        what: it, for a person.
        seqs: the first of the rows that have it.
    """

    what: str
    seqs: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.seqs:
            return self.what
        return f"{self.what}: row{'s' * (len(self.seqs) > 1)} {', '.join(map(str, self.seqs))}"


def findings(con: duckdb.DuckDBPyConnection, thread_id: str) -> Iterator[Finding]:
    """What is wrong with the rows of a thread, in `journal`."""
    con.execute(
        "CREATE OR REPLACE TEMP TABLE light AS SELECT seq, kind, phase, key FROM journal WHERE thread_id = $1",
        [thread_id],
    )
    yield from _gaps(con)
    yield from _lineage(con, thread_id)
    for number, count, seqs in con.execute(_ROW_SQL, [thread_id]).fetchall():
        yield _counted(_ROWS[number][0], count, seqs)
    candidates = con.execute(_NAMED, [thread_id]).fetchall()
    seqs = sorted({seq for seq, text, keys in candidates if not _names(text).isdisjoint(keys)})
    if seqs:
        yield _counted("the name of a large value that is not there", len(seqs), seqs[:5])


def _names(text: str) -> set[str]:
    """The large values that a JSON text of ours names; a hash in somebody's own data is no name."""
    found: set[str] = set()
    try:
        nodes = [json.loads(text)]
    except (ValueError, RecursionError):  # what is no JSON is a finding of its own
        return found
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if "$type" in node and isinstance(node.get("sha256"), str):
                found.add(node["sha256"])
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
    return found


def _counted(what: str, count: int, seqs: list[int]) -> Finding:
    return Finding(f"{counted(count, 'row')} with {what}" if count > 1 else f"A row with {what}", tuple(seqs))


def _gaps(con: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    (count, first, last, distinct) = con.execute(
        "SELECT count(*), min(seq), max(seq), count(DISTINCT seq) FROM light"
    ).fetchall()[0]
    if distinct != count:
        yield Finding(f"{counted(count - distinct, 'row')} with a number that another one has (R1)")
    if first != 1 or distinct != last:
        missing = con.execute(
            "SELECT b, e FROM (SELECT coalesce(lag(seq) OVER (ORDER BY seq), 0) + 1 AS b, seq - 1 AS e FROM light) "
            f"WHERE b <= e ORDER BY b LIMIT {_SHOWN}"
        ).fetchall()
        told = ", ".join(f"{b}" if b == e else f"{b} to {e}" for b, e in missing)
        yield Finding(f"{counted(last - distinct, 'row')} of {last} missing (R1): {told}")


def _lineage(con: duckdb.DuckDBPyConnection, thread_id: str) -> Iterator[Finding]:
    """R3: a checkpoint starts from one that is in the lineage as of then, or from the empty beginning."""
    sql = "SELECT seq, coalesce(parent_seq, 0) FROM journal WHERE thread_id = ? AND kind = 'checkpoint' ORDER BY seq"
    chain, wrong = [0], []
    for seq, parent in con.execute(sql, [thread_id]).fetchall():
        while chain[-1] > parent:
            chain.pop()
        if chain[-1] != parent:
            wrong.append(seq)
        chain.append(seq)
    if wrong:
        yield _counted("a checkpoint that starts from outside its lineage (R3)", len(wrong), wrong[:_SHOWN])
