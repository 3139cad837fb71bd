"""Asking a store with SQL, on behalf of a person."""

from __future__ import annotations

import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from resumable_nb.errors import QueryRefused, StoreError, StoreUntrusted
from resumable_nb.journal import Row, Session, Store
from tests.journal.others import Other, run
from tests.support.sealed import KEY, crypto

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
    "the store's own file": "SELECT * FROM read_blob('{store}')",
    "the store's own file, bare": "FROM '{store}'",
    "the store's own file, as a database": "FROM read_duckdb('{store}')",
    "the store's own folder": "SELECT * FROM glob('{store}')",
    "writing over the store's own file": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{store}'",
    "the same, behind a comment": "EXPLAIN /* x */ ANALYZE COPY (SELECT 1) TO '{store}'",
    "two statements, the first an EXPLAIN": "EXPLAIN SELECT 1; COPY (SELECT 1) TO '{store}'",
    "a file in a subquery": "SELECT 1 WHERE 1 IN (SELECT 1 FROM glob('{store}'))",
    "a file in a window": "SELECT count(*) OVER (ORDER BY (SELECT max(file) FROM glob('{store}')))",
    "a file in a recursion": "WITH RECURSIVE t AS (SELECT '' AS f UNION SELECT file FROM glob('{store}')) FROM t",
    "a file in SUMMARIZE": "SUMMARIZE FROM glob('{store}')",
    "a file in DESCRIBE": "DESCRIBE FROM read_csv('{store}')",
    "the network": "SELECT * FROM read_parquet('https://localhost:1/x.parquet')",
    "the network, bare": "FROM 's3://bucket/x.parquet'",
    "an extension that would load by itself": "SELECT * FROM postgres_scan('', '', '')",
    "the environment": "SELECT getenv('HOME')",
    "text as SQL": "FROM query('SELECT 1')",
    "text as a table": "FROM query_table('journal')",
    "a plan as SQL": "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "a log file": "FROM enable_logging(storage = 'file', storage_path = '{folder}')",
    "a profile": "FROM enable_profiling(save_location = '{folder}/out.json')",
    "a checkpoint": "FROM force_checkpoint('store')",
    "another grammar": "FROM add_grammar_extension('x')",
    "a pointer": "FROM arrow_scan(1, 2, 3)",
    "secrets": "FROM duckdb_secrets()",
    "a view of the file's own": "SELECT * FROM store.main.threads",
    "a view of the file's own, otherwise written": 'DESCRIBE "STORE".threads',
    "a macro of the file's own": "SELECT store.main.sum(1)",
    "sleep": "SELECT pg_sleep(1000000)",
    "sleep, otherwise": "SELECT 1 WHERE sleep_ms(1000000000) IS NULL",
    "an empty name": 'SELECT * FROM ""',
    "deep nesting": "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "a long chain": "SELECT " + "1 + " * 900 + "1",
    "a setting": "SET VARIABLE x = 1",
    "PREPARE": "PREPARE x AS SELECT 1",
    "EXECUTE": "EXECUTE x",
    "USE": "USE store",
    "DETACH": "DETACH store",
    "too much memory": "SELECT list(i) FROM range(2000000000) r(i)",
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
        store.rows(REFUSED[kind].format(folder=tmp_path, store=store.path))

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
        "SELECT claim.lower() FROM findings",
        "FROM memory.main.journal",
        "PIVOT steps ON phase IN ('done') USING count(*)",
        "SELECT * FROM json_each('[1]'), unnest([1]), range(2)",
        "SELECT column_name FROM duckdb_columns() WHERE table_name = 'findings'",
        "SELECT * FROM information_schema.tables",
        "FROM duckdb_tables",
        "SELECT (SELECT max(seq) FROM Checkpoints)",
        "WITH RECURSIVE t AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM t WHERE i < 5) FROM t",
    ],
)
def test_what_is_answered(store: Store, session: Session, sql: str) -> None:
    """Every form of SELECT, and EXPLAIN of it, is answered."""
    names, rows = store.rows(sql)

    assert names
    assert isinstance(rows, list)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("PIVOT steps ON phase USING count(*)", r"PIVOT without IN.*ON phase IN \('done', 'failed'\)"),
        ("EXPLAIN FROM (PIVOT steps ON phase USING count(*))", "PIVOT without IN"),
        ("SELECT write_log('x')", r"write_log\(\) cannot be asked: .* not allowed"),
        ("SELECT sleep_ms(1)", r"sleep_ms\(\) cannot be asked: .* not allowed"),
    ],
)
def test_a_refusal_says_what_it_is_and_what_to_do(store: Store, session: Session, sql: str, told: str) -> None:
    """What is refused is named by the words of the query, with what can be asked instead."""
    with pytest.raises(QueryRefused, match=told):
        store.rows(sql)


def test_more_time_can_be_had_where_the_message_says(store: Store, session: Session) -> None:
    """The advice holds in a notebook and on a terminal, where a query has no option for its time."""
    with pytest.raises(QueryRefused, match=r"in Python, `thread\.sql\(query, timeout_s=60\)` gives it more time"):
        store.rows("SELECT count(*) FROM range(1000000000000) r(i) WHERE hash(i) = 1", timeout_s=0.2)


def test_an_endless_recursion_is_broken_off(store: Store, session: Session) -> None:
    """A recursion without an end is interrupted after its time, and the next question is answered."""
    with pytest.raises(QueryRefused, match=r"longer than 0\.2 s"):
        store.rows(
            "WITH RECURSIVE t AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM t) SELECT max(i) FROM t", timeout_s=0.2
        )

    assert store.rows("SELECT last_seq FROM threads")[1] == [(2,)]


def test_a_question_leaves_nothing_to_the_next(store: Store, session: Session) -> None:
    """Whatever was refused before, names, times and settings mean what they meant, and rows written since are seen."""
    question = "SELECT count(*), any_value(current_setting('TimeZone')) FROM journal"
    assert store.rows(question)[1] == [(2, "UTC")]
    for refused in REFUSED.values():
        with pytest.raises(QueryRefused):
            store.rows(refused.format(folder="/nonexistent", store=store.path), timeout_s=1)
    session.append(Row(kind="notice"))

    assert store.rows(question)[1] == [(3, "UTC")]
    assert store.rows("SELECT * FROM findings")[1] == []


def test_a_file_that_was_changed_since_the_last_question_is_looked_at_anew(store: Store, session: Session) -> None:
    """The database in memory is kept from question to question; what the file holds is checked at each."""
    session.close()
    store.close()
    assert store.rows("SELECT last_seq FROM threads")[1] == [(3,)]
    run(
        "con = duckdb.connect(args[0]); con.execute('ALTER TABLE store_info ADD COLUMN x INTEGER DEFAULT 1')",
        store.path,
    )

    with pytest.raises(StoreUntrusted, match="store_info"):
        store.rows("SELECT last_seq FROM threads")


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
    with pytest.raises(KeyboardInterrupt):
        timer.start()
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


def test_sums_of_a_query_are_whole_numbers(store: Store) -> None:
    """`sum` of whole numbers is shown without a decimal point; where there is none, it is missing, and not 0."""
    query = """
    SELECT sum(i) AS total, sum(i) FILTER (g = 1) AS some, sum(i) FILTER (false) AS nothing, sum(i / 2) AS half,
           sum(i) * 100000000000000000000 AS huge, sum(i) AS total
    FROM (SELECT i, i % 2 AS g FROM range(5) t(i)) GROUP BY g ORDER BY g
    """
    frame = store.query(query)

    assert [str(kind) for kind in frame.dtypes] == ["int64", "Int64", "Int64", "float64", "float64", "int64"]
    assert frame.iloc[:, 0].tolist() == frame.iloc[:, 5].tolist() == [6, 4]
    assert frame["some"].isna().tolist() == [True, False]
    assert frame["nothing"].isna().all()
    assert frame["huge"].tolist() == [6e20, 4e20]
    assert str(store.query("SELECT sum(i) FROM range(0) t(i)").dtypes.iloc[0]) == "Int64"


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


@pytest.mark.parametrize(
    "value",
    ["repeat('x', 2000000000)", "lpad('x', 2000000000, 'y')", "rpad('x', 2000000000, 'y')", "'xy'.repeat(2000000000)"],
)
def test_one_value_may_not_be_giant(store: Store, value: str) -> None:
    """A text of gigabytes, which DuckDB would make whatever its memory limit is, is refused before it is made."""
    with pytest.raises(QueryRefused, match="would make a value of more than 67108864 characters"):
        store.rows(f"SELECT length({value})")
    with pytest.raises(QueryRefused, match="would make a value"):
        store.query(f"SELECT length({value.replace('2000000000', '(1000000000 * i)::INT')}) FROM range(1, 3) t(i)")


def test_long_texts_are_made_as_ever(store: Store) -> None:
    """The functions with a bound take and give what DuckDB's own do."""
    asked = "repeat('ab', 2), repeat([1], 3), repeat('a'::BLOB, 2), repeat(NULL, 2), repeat('a', NULL), repeat('a', -1)"
    found = store.rows(f"SELECT {asked}, lpad('7', 3, '0'), rpad('a', 2, 'bc'), length(repeat('x', 1000000))")[1]

    assert found == [("abab", [1, 1, 1], b"aa", None, None, "", "007", "ab", 1000000)]


def test_the_user_s_own_connections_stay_as_they_are(store: Store, session: Session) -> None:
    """Locking our in-memory database locks no other connection of the process."""
    store.rows("SELECT 1")

    assert Path(SECRETS).read_text() == duckdb.execute(f"SELECT content FROM read_text('{SECRETS}')").fetchall()[0][0]
    assert time.tzname


FORKS = """
store = Store.open(args[0])
ask = lambda: store.rows("SELECT last_seq FROM threads")[1][0][0]
before = ask()
child = os.fork()
if child == 0:
    say(ask())
    sys.exit()
os.waitpid(child, 0)
say(ask() - before)
"""


def test_a_forked_child_asks_too(store: Store, session: Session) -> None:
    """What is kept in memory from question to question is not used in a forked child, and still works in the parent."""
    store.close()

    assert run(FORKS, store.path) == [2, 0]


def test_the_key_cannot_be_asked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an encrypted store, no catalog, setting, plan or error tells the key that it was attached with."""
    crypto(monkeypatch)
    monkeypatch.setenv("RESUMABLE_NB_KEY", KEY)
    store = Store.open(path)
    store.open_session("t", about={}).close()
    asked = [
        "FROM duckdb_databases()",
        "FROM duckdb_settings()",
        "SELECT current_query()",
        "EXPLAIN ANALYZE FROM journal",
    ]

    told = [str(store.rows(query)) for query in asked]
    with pytest.raises(QueryRefused) as refused:
        store.rows("SELECT * FROM read_blob('key')")
    assert not any(KEY in text for text in [*told, str(refused.value)])
    assert store.rows("SELECT last_seq FROM threads")[1] == [(3,)]
