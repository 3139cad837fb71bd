"""Asking a store with SQL, on behalf of a person."""

from __future__ import annotations

import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from resumable_nb.errors import QueryRefused, StoreError
from resumable_nb.journal import Row, Session, Store
from tests.journal.others import Other, run

SECRETS = "/etc/hostname"
REFUSED = {
    "two statements": "SELECT 1; SELECT 2",
    "nothing": "",
    "a comment": "-- SELECT 1",
    "INSERT": "INSERT INTO journal (thread_id) VALUES ('x')",
    "DELETE": "DELETE FROM store.main.journal",
    "CREATE": "CREATE TABLE t AS SELECT 1",
    "ATTACH": "ATTACH ':memory:' AS other",
    "SET": "SET threads = 1",
    "PRAGMA": "PRAGMA enable_profiling",
    "COPY": "COPY (SELECT 1) TO '{folder}/out.csv'",
    "EXPORT": "EXPORT DATABASE '{folder}/out'",
    "INSTALL": "INSTALL httpfs",
    "LOAD": "LOAD httpfs",
    "CALL": "CALL pragma_version()",
    "EXPLAIN of a write": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/out.csv'",
    "EXPLAIN of a write, with options": "/* x */ explain (analyze, format json) DELETE FROM journal",
    "write in a WITH": "WITH x AS (INSERT INTO store.main.journal (thread_id) VALUES ('x') RETURNING 1) FROM x",
    "another file": f"SELECT * FROM read_text('{SECRETS}')",
    "another file, bare": f"SELECT * FROM '{SECRETS}'",
    "another file, CSV": f"SELECT * FROM read_csv('{SECRETS}')",
    "another file, through query": f"SELECT * FROM query('SELECT * FROM read_text(''{SECRETS}'')')",
    "a folder": "SELECT * FROM glob('/etc/*')",
    "a Python variable": "SELECT * FROM variable",
    "an unknown name": "SELECT * FROM no_such_view",
    "nonsense": "SELEC 1",
    "a huge sort": "SELECT * FROM range(2000000000) r(i) ORDER BY hash(i)",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(store: Store, session: Session, kind: str, tmp_path: Path) -> None:
    """Anything but one SELECT, or EXPLAIN of one, is refused in words, and nothing is made or changed."""
    variable = [1]
    assert variable
    session.close()
    store.close()
    files = sorted(tmp_path.iterdir())
    before = store.path.read_bytes()
    with pytest.raises(QueryRefused) as told:
        store.rows(REFUSED[kind].format(folder=tmp_path))

    assert str(told.value)
    assert [p for p in sorted(tmp_path.iterdir()) if p.suffix != ".lock"] == [p for p in files if p.suffix != ".lock"]
    assert store.path.read_bytes() == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM journal",
        "-- words; and a semicolon\nSELECT 1;",
        "FROM threads",
        "WITH x AS (SELECT 1 AS i) SELECT * FROM x",
        "VALUES (1)",
        "DESCRIBE journal",
        "SUMMARIZE journal",
        "SHOW TABLES",
        "EXPLAIN SELECT * FROM llm_calls",
        "EXPLAIN ANALYZE SELECT * FROM llm_calls",
        "/* why */ explain (format json) SELECT 1",
        "SELECT * FROM state_at('t', 5)",
        "SELECT * FROM in_flight('t')",
        "SELECT * FROM llm_exchange('t', 2)",
        "SELECT * FROM store_info",
    ],
)
def test_what_is_answered(store: Store, session: Session, sql: str) -> None:
    """Every form of SELECT, and EXPLAIN of it, is answered."""
    names, rows = store.rows(sql)

    assert names
    assert isinstance(rows, list)


def test_values_are_bound(store: Store, session: Session) -> None:
    """Parameters by place and by name keep their type and stay data."""
    text = "'; DROP TABLE journal; -- $x ?"

    assert store.rows("SELECT ?, ? + 1, ?::BLOB", [text, 2, b"\x00"])[1] == [(text, 3, b"\x00")]
    assert store.rows("SELECT $b, $a", {"a": 1, "b": text})[1] == [(text, 1)]
    with pytest.raises(QueryRefused):
        store.rows("SELECT ?", [])


def test_a_query_that_takes_too_long_is_broken_off(store: Store, session: Session) -> None:
    """After its time a query is interrupted, says so, and the store is free again."""
    with pytest.raises(QueryRefused, match=r"longer than 0\.2 s"):
        store.rows("SELECT count(*) FROM range(1000000000000) r(i) WHERE hash(i) = 1", timeout_s=0.2)

    assert session.append(Row(kind="notice")) == [3]


def test_ctrl_c_ends_a_query(store: Store, session: Session) -> None:
    """An interrupt of the kernel ends a query as KeyboardInterrupt, and the store is free again."""
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        store.rows("SELECT count(*) FROM range(1000000000000) r(i) WHERE hash(i) = 1")
    timer.join()

    assert session.append(Row(kind="notice")) == [3]


def test_what_was_just_written_is_read(store: Store, session: Session) -> None:
    """A query sees every row that was acknowledged before it, also from an open lease, and appending goes on."""
    for i in range(3):
        session.append(Row(kind="notice"))
        assert store.rows("SELECT count(*) FROM journal WHERE kind = 'notice'")[1] == [(i + 1,)]


def test_two_readers_get_along(store: Store, session: Session) -> None:
    """Queries from several threads and another process are answered one after the other."""
    store.close()
    answers: list[object] = []
    threads = [
        threading.Thread(target=lambda: answers.append(store.rows("SELECT last_seq FROM threads")[1])) for _ in range(3)
    ]
    with Other(
        "for _ in range(3): say(Store.open(args[0]).rows('SELECT last_seq FROM threads')[1])", store.path
    ) as other:
        [t.start() for t in threads]
        [t.join() for t in threads]
        code, said, err = other.end()

    assert code == 0, err
    assert answers == [[(2,)]] * 3
    assert said == [[[2]]] * 3


def test_a_data_frame(store: Store, session: Session) -> None:
    """`query` gives a DataFrame with the names of the columns, also when there are no rows."""
    frame = store.query("SELECT kind, phase, ts, seq FROM journal ORDER BY seq")

    assert frame["phase"].tolist() == ["created", "opened"]
    assert str(frame["ts"].dtype) == "datetime64[us, UTC]"
    assert list(store.query("SELECT * FROM findings").columns)[:3] == ["thread_id", "seq", "ts"]


WRITE = """
session = Store.open(args[0]).open_session(args[1], about={})
session.append(Row(kind="llm", phase="started"), Row(kind="llm", phase="done", ref_seq=-1),
               Row(kind="approval", phase="requested"), Row(kind="approval", phase="approved", ref_seq=-1),
               Row(kind="recovery"))
session.close()
"""
TIMES = """
import pandas
store = Store.open(args[0])
for view, column in [("sessions", "opened_at"), ("sessions", "last_at"), ("sessions", "closed_at"), ("llm_calls", "ts"),
                     ("approvals", "ts"), ("approvals", "decided_at"), ("recoveries", "ts"), ("threads", "started_at")]:
    sql = f"SELECT {column}::VARCHAR AS text, {column} AS at FROM {view} ORDER BY {column}"
    for text, at in store.rows(sql)[1]:
        say([view, at.timestamp(), text])
    say([view, *(t.timestamp() for t in store.query(sql)["at"])])
"""


def test_times_mean_the_same_in_every_time_zone(path: Path) -> None:
    """Written under three time zones and read under two, each instant is that of the test's clock, in UTC."""
    before = datetime.now(UTC) - timedelta(seconds=1)
    for zone in ("Asia/Tokyo", "America/Los_Angeles", "UTC"):
        run(WRITE, path, zone, env={"TZ": zone})
    after = datetime.now(UTC) + timedelta(seconds=1)
    said = [run(TIMES, path, env={"TZ": zone}) for zone in ("Asia/Tokyo", "America/Los_Angeles")]

    assert said[0] == said[1]
    instants = [x for _, *values in said[0] for x in values if isinstance(x, float)]
    assert len(instants) == 2 * 3 * 8
    assert all(before.timestamp() <= x <= after.timestamp() for x in instants)
    assert all(text.endswith("+00") for _, *values in said[0] for text in values if isinstance(text, str))


def test_sums_of_tokens_are_whole_numbers(store: Store, session: Session) -> None:
    """Sums that the views make are BIGINT: a DataFrame shows them without a decimal point."""
    session.append(Row(kind="llm", phase="done", step="s", gen_ai_usage_input_tokens=100))

    assert str(store.query("SELECT input_tokens FROM threads")["input_tokens"].dtype) == "int64"
    assert store.query("SELECT input_tokens FROM steps").iloc[0, 0] == 100


def test_a_store_in_use_elsewhere_is_read_after_a_wait(store: Store, session: Session) -> None:
    """A process that has the file open in DuckDB delays a query; it is answered when that process lets go."""
    store.close()
    with Other("con = duckdb.connect(args[0]); say(1); hear()", store.path) as holder:
        holder.hear()
        timer = threading.Timer(0.4, holder.say)
        timer.start()
        assert store.rows("SELECT last_seq FROM threads")[1] == [(2,)]
        timer.join()


def test_a_missing_store_cannot_be_asked(path: Path) -> None:
    """If the file went away since the store was opened, a query says so and makes none."""
    store = Store.open(path)
    path.unlink()
    with pytest.raises(StoreError, match=r"gone|No such file"):
        store.rows("SELECT 1")

    assert not path.exists()


def test_an_empty_store_can_be_asked(store: Store) -> None:
    """Each view answers with no row before anything was written."""
    views = "threads sessions steps checkpoints state_changes findings llm_calls effects approvals recoveries"

    assert [store.rows(f"SELECT * FROM {view}")[1] for view in views.split()] == [[]] * 10


def test_memory_is_limited(store: Store) -> None:
    """The in-memory database may use no more than a gigabyte, and spills nothing to disk."""
    names, rows = store.rows(
        "SELECT value FROM duckdb_settings() WHERE name IN ('memory_limit', 'temp_directory') ORDER BY name"
    )

    assert names == ["value"]
    assert rows[0][0] == "953.6 MiB"
    assert not rows[1][0]


def test_the_user_s_own_connections_stay_as_they_are(store: Store, session: Session) -> None:
    """Locking our in-memory database locks no other connection of the process."""
    store.rows("SELECT 1")

    assert Path(SECRETS).read_text() == duckdb.execute(f"SELECT content FROM read_text('{SECRETS}')").fetchall()[0][0]
    assert time.tzname
