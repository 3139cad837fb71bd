"""What people read: the views and macros over the journal, held against a plain fold of its rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from resumable_nb.journal import Row, Store, schema
from resumable_nb.journal.rows import Place, insert_sql, parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTRACT = {
    "threads": "thread_id started_at last_at last_seq last_checkpoint llm_calls input_tokens output_tokens "
    "forked_from is_complete forked_at_seq",
    "sessions": "thread_id session_id opened_at last_at closed_at first_seq last_seq host pid user_name data ended",
    "steps": "thread_id step phase finished_runs last_checkpoint last_seq first_at last_at duration_ms llm_calls "
    "input_tokens output_tokens",
    "checkpoints": "thread_id seq parent_seq ts session_id step cell_id origin key duration_ms in_lineage changes data "
    "run_seq",
    "state_changes": "thread_id seq parent_seq ts step in_lineage is_progress op field value kind",
    "findings": "thread_id seq ts step is_current finding claim quote source location question confidence",
    "llm_calls": "thread_id seq started_seq ts session_id step cell_id name phase key occurrence duration_ms "
    "gen_ai_provider_name gen_ai_operation_name gen_ai_request_model gen_ai_response_model gen_ai_response_id "
    "gen_ai_response_finish_reasons gen_ai_usage_input_tokens gen_ai_usage_output_tokens response data "
    "run_seq http_status why",
    "calls": "thread_id seq started_seq ts session_id step cell_id run_seq name phase key occurrence duration_ms http_status "
    "why response",
    "effects": "thread_id seq ts session_id step name idempotency_key phase settled_at receipt_seq receipt duration_ms",
    "approvals": "thread_id seq ts step name payload_hash occurrence message payload phase decided_at who comment "
    "approved_payload",
    "recoveries": "thread_id seq ts session_id died_session_id duration_ms calls_done calls_again share data",
    "verifications": "thread_id seq started_at ended_at subject phase points trials trials_passed recovery_median_s "
    "recovery_p95_s recovery_worst_s calls_again_worst completeness largest_loss readability versions settings",
    "verification_runs": "thread_id seq verification_seq ts point nth leg about was_reached criterion result why "
    "recovery_s calls_done calls_again share versions",
}


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute(schema.part("tables"))
        con.execute(schema.part("views"))
        yield con


def fill(con: duckdb.DuckDBPyConnection, journal: list[Row], thread_id: str = "t") -> None:
    """The rows as the whole journal of a thread, a second apart."""
    con.execute("DELETE FROM journal WHERE thread_id = ?", [thread_id])
    start, values = datetime(2026, 1, 1, tzinfo=UTC), []
    for seq, row in enumerate(journal, 1):
        values += parameters(row, Place(thread_id, seq, start + timedelta(seconds=seq), row.session_id or "s", "w"))
    if journal:
        con.execute(insert_sql(len(journal)), values)


def ask(con: duckdb.DuckDBPyConnection, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    return con.execute(sql, list(args)).fetchall()


@pytest.mark.parametrize("view", CONTRACT)
def test_the_columns_of_a_view_are_a_contract(con: duckdb.DuckDBPyConnection, view: str) -> None:
    """Names and order of the columns that people and tools rely on."""
    assert [name for name, *_ in ask(con, f"DESCRIBE {view}")] == CONTRACT[view].split()


# ---------------------------------------------------------------- the state
FIELDS = ("query", "plan", "findings", "über")
VALUES = (
    st.none()
    | st.integers(-5, 5)
    | st.text(max_size=3)
    | st.lists(st.integers(0, 9), max_size=3)
    | st.just({"a": [1.5]})
)


@dataclass
class Journal:
    """A journal under construction, and the state after each of its rows."""

    rows: list[Row] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)  # by seq; [0] is the empty beginning
    lineage: list[int] = field(default_factory=lambda: [0])  # checkpoints, from the beginning to the newest
    run: tuple[int, int] | None = None  # started row and entry of the run that is under way

    def __post_init__(self) -> None:
        self.states.append({})

    @property
    def seq(self) -> int:
        return len(self.rows)

    def add(self, row: Row, state: dict[str, Any] | None = None) -> None:
        self.rows.append(row)
        self.states.append(self.states[-1] if state is None else state)


def fold(state: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    new = {k: v for k, v in state.items() if k not in changes.get("drop", {})}
    new |= changes.get("set", {})
    for name, items in changes.get("append", {}).items():
        new[name] = [*new.get(name, []), *items]
    return new


@st.composite
def changes_to(draw: st.DrawFn, state: dict[str, Any]) -> dict[str, Any]:
    """Changes that fit the state: nothing is appended to what is no list."""
    changes: dict[str, dict[str, Any]] = {}
    for name in FIELDS:
        is_list = isinstance(state.get(name, []), list)
        what = draw(st.sampled_from(["", "", "set", "append" if is_list else "set", "drop" if name in state else ""]))
        if what:
            value = {"set": VALUES, "append": st.lists(VALUES, min_size=1, max_size=3), "drop": st.just(True)}[what]
            changes.setdefault(what, {})[name] = draw(value)
    return changes


@st.composite
def journals(draw: st.DrawFn) -> Journal:
    """Checkpoints that start from any place of the lineage; runs with progress, broken off or finished."""
    journal = Journal()
    for _ in range(draw(st.integers(0, 12))):
        match draw(st.sampled_from(["checkpoint", "checkpoint", "start", "progress", "progress", "finish", "other"])):
            case "checkpoint":
                checkpoint(journal, draw(st.sampled_from(journal.lineage)), None, draw)
            case "start":
                journal.add(Row(kind="step", phase="started", step="s"))
                journal.run = (journal.seq, draw(st.sampled_from(journal.lineage)))
            case "progress" if journal.run:
                started, entry = journal.run
                before = progress_of(journal, started, entry)
                changes = draw(changes_to(before))
                text = json.dumps(changes) if changes else None
                row = Row(kind="llm", phase="done", changes=text, parent_seq=entry if text else None, run_seq=started)
                journal.add(row, fold(before, changes) if changes else None)
            case "finish" if journal.run:
                started, entry = journal.run
                if entry in journal.lineage:
                    checkpoint(journal, entry, started, draw)
                journal.run = None
            case _:
                journal.add(Row(kind=draw(st.sampled_from(["notice", "cell", "approval"])), phase="requested"))
    return journal


def progress_of(journal: Journal, started: int, entry: int) -> dict[str, Any]:
    """The state inside a run: its entry, and what its calls have changed since."""
    state = journal.states[entry]
    for row in journal.rows:
        if row.kind == "llm" and row.run_seq == started and row.changes:
            state = fold(state, json.loads(row.changes))
    return state


def checkpoint(journal: Journal, parent: int, started: int | None, draw: st.DrawFn) -> None:
    state = journal.states[parent]
    changes = draw(changes_to(state))
    row = Row(
        kind="checkpoint", phase="step", parent_seq=parent, ref_seq=started, step="s", changes=json.dumps(changes)
    )
    journal.add(row, fold(state, changes))
    journal.lineage = [*journal.lineage[: journal.lineage.index(parent) + 1], journal.seq]


@settings(max_examples=30, deadline=None)
@given(journal=journals())
def test_state_at_is_the_fold_of_the_lineage(con: duckdb.DuckDBPyConnection, journal: Journal) -> None:
    """After every row, `state_at` gives the state of the newest checkpoint, or of the progress that came after it."""
    fill(con, journal.rows)
    for seq, state in enumerate(journal.states):
        if seq and journal.states[seq - 1] is state and seq != journal.seq:
            continue  # a row that says nothing about the state
        found = {name: json.loads(value) for name, value in ask(con, "SELECT field, value FROM state_at('t', ?)", seq)}
        assert found == state


@settings(max_examples=30, deadline=None)
@given(journal=journals())
def test_the_lineage_is_the_chain_from_the_newest_checkpoint(con: duckdb.DuckDBPyConnection, journal: Journal) -> None:
    """`in_lineage` marks the checkpoints that lead to the newest one, and no other; progress is never among them."""
    fill(con, journal.rows)

    assert ask(con, "SELECT seq FROM checkpoints WHERE in_lineage ORDER BY seq") == [(s,) for s in journal.lineage[1:]]
    assert ask(con, "SELECT count(*) FROM state_changes WHERE is_progress AND in_lineage") == [(0,)]


@settings(max_examples=30, deadline=None)
@given(journal=journals())
def test_current_findings_are_those_of_the_newest_state(con: duckdb.DuckDBPyConnection, journal: Journal) -> None:
    """The findings with `is_current` are, in order, the list in the state of the newest checkpoint."""
    fill(con, journal.rows)
    newest = journal.states[journal.lineage[-1]].get("findings", [])
    found = ask(con, "SELECT finding FROM findings WHERE is_current ORDER BY seq")

    assert [json.loads(f) for (f,) in found] == (newest if isinstance(newest, list) else [])


@settings(max_examples=25, deadline=None)
@given(journal=journals())
def test_state_changes_are_the_changes(con: duckdb.DuckDBPyConnection, journal: Journal) -> None:
    """One row per field, operation and row, with the value as it was written."""
    fill(con, journal.rows)
    expected = []
    for seq, row in enumerate(journal.rows, 1):
        for op, fields in (json.loads(row.changes) if row.changes else {}).items():
            expected += [(seq, row.kind == "llm", op, name, None if op == "drop" else v) for name, v in fields.items()]
    found = ask(con, "SELECT seq, is_progress, op, field, value FROM state_changes")

    key = lambda r: (r[0], r[2], r[3])  # noqa: E731
    assert sorted([(*r[:4], json.loads(r[4]) if r[4] is not None else None) for r in found], key=key) == sorted(
        expected, key=key
    )


# ---------------------------------------------------------------- accounts
def call(phase: str = "done", step: str | None = "s", **more: Any) -> list[Row]:
    """A call and how it ended, with 100 and 10 tokens where it was billed."""
    billed = {"gen_ai_usage_input_tokens": 100, "gen_ai_usage_output_tokens": 10} if phase in ("done", "failed") else {}
    return [
        Row(kind="llm", phase="started", step=step, request='{"q": 1}', **more),
        Row(kind="llm", phase=phase, step=step, ref_seq=-1, response='{"a": 1}', **billed, **more),
    ]


def test_llm_calls_add_up_to_what_was_billed(con: duckdb.DuckDBPyConnection) -> None:
    """Answered, failed, partial and lost calls each are one row; sums of tokens are those of the bill."""
    journal = [
        *call(),
        *call("partial"),
        *call("failed"),
        *call("lost"),
        *call(step=None),
        Row(kind="llm", phase="started"),
    ]
    fill(con, journal)
    total = "sum(gen_ai_usage_input_tokens), sum(gen_ai_usage_output_tokens)"

    assert ask(con, "SELECT phase, started_seq FROM llm_calls ORDER BY seq") == [
        ("done", 1),
        ("partial", 3),
        ("failed", 5),
        ("lost", 7),
        ("done", 9),
    ]
    assert ask(con, f"SELECT {total} FROM llm_calls") == [(300, 30)]
    assert ask(con, "SELECT llm_calls, input_tokens, output_tokens FROM threads") == [(3, 300, 30)]
    assert ask(con, "SELECT step, llm_calls, input_tokens, output_tokens FROM steps") == [("s", 2, 200, 20)]
    assert ask(con, "SELECT request, response FROM llm_exchange('t', 2)") == [('{"q": 1}', '{"a": 1}')]


def test_what_a_fork_brought_along_is_billed_once(store: Store) -> None:
    """Sums over a store with forks, and forks of forks, are what was billed: a copied call stands where it was made."""
    session = store.open_session("t", about={})
    session.append(*call())
    session.append(
        *call(), Row(kind="checkpoint", phase="step", step="s", parent_seq=0, changes='{"append":{"findings":["f"]}}')
    )
    head = store.fork("t", session.head, "u")
    fork = store.open_session("u", about={})
    fork.append(*call())
    store.fork("u", fork.head, "v")
    assert head == session.head + 1

    assert store.rows("SELECT thread_id, sum(gen_ai_usage_input_tokens) FROM llm_calls GROUP BY ALL ORDER BY ALL")[
        1
    ] == [
        ("t", 200),
        ("u", 100),
    ]
    assert store.rows("SELECT thread_id, llm_calls, input_tokens, forked_from FROM threads ORDER BY ALL")[1] == [
        ("t", 2, 200, None),
        ("u", 1, 100, "t"),
        ("v", 0, 0, "u"),
    ]
    assert store.rows("SELECT thread_id, phase, llm_calls FROM steps ORDER BY ALL")[1] == [
        ("t", "done", 2),
        ("u", "done", 1),
        ("v", "done", 0),
    ]
    assert store.rows("SELECT thread_id, finding FROM findings WHERE is_current ORDER BY ALL")[1] == [
        (t, '"f"') for t in "tuv"
    ]


STEPS = {
    "started": [("step", "started")],
    "done": [("step", "started"), ("checkpoint", "step")],
    "done at once": [("checkpoint", "step")],
    "failed after done": [("checkpoint", "step"), ("step", "started"), ("step", "failed")],
    "retired": [("checkpoint", "step"), ("step", "retired")],
    "lost": [("step", "started"), ("step", "lost")],
    "interrupted": [("step", "started"), ("step", "interrupted")],
    "taken up": [("step", "retired"), ("checkpoint", "taken up")],
    "edited": [("checkpoint", "step"), ("checkpoint", "edit")],
    "only calls": [("llm", "done")],
}


@pytest.mark.parametrize("history", STEPS)
def test_how_far_a_step_is(con: duckdb.DuckDBPyConnection, history: str) -> None:
    """The phase of a step is what its newest run came to: a checkpoint makes it done, an edit says nothing about it."""
    fill(con, [Row(kind=kind, phase=phase, step="s", duration_ms=len(kind)) for kind, phase in STEPS[history]])
    expected = {
        "done at once": "done",
        "failed after done": "failed",
        "taken up": "done",
        "edited": "done",
        "only calls": None,
    }
    ((phase, runs),) = ask(con, "SELECT phase, finished_runs FROM steps")

    assert phase == expected.get(history, history)
    assert runs == STEPS[history].count(("checkpoint", "step"))


def test_calls_in_flight(con: duckdb.DuckDBPyConnection) -> None:
    """A started row of any kind is in flight until a row of its kind, or the checkpoint of its step, names it."""
    kinds = ("step", "llm", "call", "effect")
    journal = [Row(kind=k, phase="started", name=k) for k in kinds]
    fill(con, [*journal, Row(kind="notice", ref_seq=2)])
    assert [name for (name,) in ask(con, "SELECT name FROM in_flight('t')")] == list(kinds)
    completed = [
        Row(kind="checkpoint", ref_seq=1),
        *(Row(kind=k, phase="done", ref_seq=i) for i, k in enumerate(kinds[1:], 2)),
    ]
    fill(con, [*journal, *completed])

    assert ask(con, "SELECT * FROM in_flight('t')") == []


def test_effects_without_a_receipt_are_in_doubt(con: duckdb.DuckDBPyConnection) -> None:
    """Started, or lost in a crash, is in doubt; a receipt, also a later one, settles it."""
    start = Row(kind="effect", phase="started", name="close", key="close-42", step="s")
    receipt = Row(kind="effect", phase="done", ref_seq=1, data='{"receipt": {"id": 7}}', duration_ms=5.0)
    sql = "SELECT idempotency_key, phase, receipt_seq, receipt FROM effects"
    for completed, expected in [
        ([], ("in doubt", None, None)),
        ([Row(kind="effect", phase="lost", ref_seq=1)], ("in doubt", None, None)),
        ([receipt], ("done", 2, '{"id":7}')),
        ([Row(kind="effect", phase="lost", ref_seq=1), receipt], ("done", 3, '{"id":7}')),
        ([Row(kind="effect", phase="failed", ref_seq=1)], ("failed", 2, None)),
    ]:
        fill(con, [start, *completed])
        assert ask(con, sql) == [("close-42", *expected)]


def test_the_first_decision_stands(con: duckdb.DuckDBPyConnection) -> None:
    """A question waits until it is decided; the view shows who decided first, and what was approved."""
    question = Row(
        kind="approval",
        phase="requested",
        key="h",
        name="gate",
        occurrence=0,
        data='{"message": "Send?", "payload": {"amount": 100}}',
    )
    sql = "SELECT message, payload, phase, who, comment, approved_payload FROM approvals"
    fill(con, [question])
    assert ask(con, sql) == [("Send?", '{"amount":100}', "waiting", None, None, None)]
    fill(
        con,
        [
            question,
            Row(
                kind="approval",
                phase="approved",
                ref_seq=1,
                data='{"who": "ada", "comment": "ok", "approved_payload": {"amount": 70}}',
            ),
            Row(kind="approval", phase="rejected", ref_seq=1, data='{"who": "bob"}'),
        ],
    )

    assert ask(con, sql) == [("Send?", '{"amount":100}', "approved", "ada", "ok", '{"amount":70}')]


def test_recoveries_and_sessions(con: duckdb.DuckDBPyConnection) -> None:
    """A recovery shows what was done again; a session shows who had the thread; a visitor is no session."""
    journal = [
        Row(kind="session", phase="opened", session_id="a", data='{"host": "h", "pid": 7, "user": "ada"}'),
        Row(
            kind="recovery",
            session_id="a",
            data='{"died": "z", "calls_done": 4, "calls_again": 1, "share": 0.25}',
            duration_ms=9.0,
        ),
        Row(kind="approval", phase="approved", session_id="visitor"),
        Row(kind="session", phase="closed", session_id="a"),
    ]
    fill(con, journal)

    assert ask(
        con, "SELECT session_id, host, pid, user_name, first_seq, last_seq, closed_at > opened_at FROM sessions"
    ) == [("a", "h", 7, "ada", 1, 4, True)]
    assert ask(con, "SELECT died_session_id, calls_done, calls_again, share FROM recoveries") == [("z", 4, 1, 0.25)]


def test_how_a_session_ended(con: duckdb.DuckDBPyConnection) -> None:
    """A session was closed, was taken over, or died; nothing is said of the newest, nor of what a fork brought along."""
    opened = [
        Row(kind="session", phase="opened", session_id="closed"),
        Row(kind="session", phase="closed", session_id="closed"),
        Row(kind="session", phase="opened", session_id="fenced"),
        Row(kind="session", phase="opened", session_id="dead", data='{"took_over": "fenced"}'),
        Row(kind="session", phase="opened", session_id="open"),
    ]
    ended = [("closed", "closed"), ("fenced", "taken over"), ("dead", "died"), ("open", None)]
    sql = "SELECT session_id, ended FROM sessions WHERE thread_id = 't' ORDER BY first_seq"
    fill(con, opened)
    assert ask(con, sql) == ended

    forked = Row(kind="thread", phase="forked", session_id="open", data='{"from": "s", "seq": 5}')
    fill(con, [*opened, forked, Row(kind="session", phase="opened", session_id="own")])
    assert ask(con, sql) == [("closed", "closed"), ("fenced", None), ("dead", None), ("open", None), ("own", None)]
    assert ask(con, "SELECT forked_from, forked_at_seq FROM threads WHERE thread_id = 't'") == [("s", 5)]


def test_calls_that_ask_no_model(con: duckdb.DuckDBPyConnection) -> None:
    """Functions and requests stand in `calls`, calls of models in `llm_calls`, each with its run, status and reason."""
    failed = '{"status": 500, "why": "no"}'
    journal = [
        Row(kind="step", phase="started", step="s"),
        Row(kind="call", phase="started", step="s", name="load", run_seq=1),
        Row(kind="call", phase="done", step="s", name="load", run_seq=1, ref_seq=-1, response="[1]", data='[{"x": 1}]'),
        Row(kind="llm", phase="failed", step="s", run_seq=1, data=failed),
        Row(kind="call", phase="failed", step="s", name="GET /x", run_seq=1, data=failed),
        Row(kind="checkpoint", phase="step", step="s", run_seq=1, changes='{"set": {"x": 1}}'),
    ]
    fill(con, journal)

    assert ask(con, "SELECT name, run_seq, http_status, why, response FROM calls ORDER BY seq") == [
        ("load", 1, None, None, "[1]"),
        ("GET /x", 1, 500, "no", None),
    ]
    assert ask(con, "SELECT run_seq, http_status, why FROM llm_calls") == [(1, 500, "no")]
    assert ask(con, "SELECT run_seq FROM checkpoints") == [(1,)]
    assert ask(con, "SELECT kind FROM state_changes") == [("checkpoint",)]


def test_a_thread_with_a_gap_is_not_complete(con: duckdb.DuckDBPyConnection) -> None:
    """`is_complete` tells a thread whose numbers have a gap, and only that one."""
    fill(con, [Row(kind="notice")] * 3)
    fill(con, [Row(kind="notice")] * 3, "u")
    con.execute("DELETE FROM journal WHERE thread_id = 'u' AND seq = 2")

    assert ask(con, "SELECT thread_id, is_complete FROM threads ORDER BY ALL") == [("t", True), ("u", False)]
    con.execute("DELETE FROM journal WHERE thread_id = 'u'")


def test_state_at_says_the_version_of_the_state_class(con: duckdb.DuckDBPyConnection) -> None:
    """That of the newest checkpoint of the lineage that says one, else 1; an abandoned branch does not count."""
    changes = ['{"set": {"f": 1}}', '{"version": 3, "set": {"f": 2}}', '{"set": {"g": 2}}', '{"version": 2}']
    rows = [Row(kind="checkpoint", phase="step", parent_seq=i, changes=text) for i, text in enumerate(changes)]
    fill(con, [*rows, Row(kind="checkpoint", phase="step", parent_seq=1, changes='{"set": {"h": 1}}')])

    found = [ask(con, "SELECT DISTINCT schema_version FROM state_at('t', ?)", seq) for seq in range(1, 6)]
    assert found == [[(1,)], [(3,)], [(3,)], [(2,)], [(1,)]]


def test_state_at_a_row_that_is_not_there_gives_nothing(con: duckdb.DuckDBPyConnection) -> None:
    """A number beyond the newest row is no way to ask for the newest state."""
    fill(con, [Row(kind="checkpoint", phase="start", parent_seq=0, changes='{"set":{"query":"q"}}')])

    assert [ask(con, "SELECT count(*) FROM state_at('t', ?)", seq) for seq in (1, 2)] == [[(1,)], [(0,)]]
