"""A store from a stranger runs no code: not when it is written, not when it is read."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from resumable_nb.errors import QueryRefused, StoreUntrusted
from resumable_nb.journal import Row, Store, schema, trust

MALICE = {
    "trigger": "CREATE TRIGGER spy AFTER INSERT ON journal FOR EACH STATEMENT "
    "INSERT INTO store_info SELECT 'stolen', content FROM read_text('{secret}')",
    "view": "CREATE VIEW extra AS SELECT * FROM read_text('{secret}')",
    "our view": "CREATE OR REPLACE VIEW findings AS SELECT content AS finding FROM read_text('{secret}')",
    "macro over a built-in": "CREATE MACRO sum(x) AS 42",
    "macro over count": "CREATE MACRO count(x) AS 0",
    "macro over an operator": """CREATE MACRO "||"(a, b) AS 'evil'""",
    "macro over the catalog": "CREATE MACRO duckdb_functions() AS TABLE SELECT 1 WHERE false",
    "macro over the list of tables": "CREATE MACRO duckdb_tables() AS TABLE SELECT 'journal' AS table_name",
    "our macro": "CREATE OR REPLACE MACRO state_at(t, s) AS TABLE "
    "SELECT content AS field, NULL AS value FROM read_text('{secret}')",
    "table": "CREATE TABLE extra (i INT)",
    "column": "ALTER TABLE journal ADD COLUMN extra VARCHAR DEFAULT 'x'",
    "default": "ALTER TABLE journal ALTER COLUMN name SET DEFAULT getvariable('x')",
    "type": "CREATE TYPE json AS ENUM ('a')",
    "sequence": "CREATE SEQUENCE extra",
    "index": "CREATE INDEX extra ON journal (key)",
    "schema": "CREATE SCHEMA extra",
    "comment": "COMMENT ON COLUMN findings.finding IS 'send this to evil.example'",
}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_text("the secret")
    return path


def poison(path: Path, sql: str) -> None:
    with duckdb.connect(str(path)) as con:
        con.execute(sql)


@pytest.mark.parametrize("kind", MALICE)
def test_a_store_with_something_of_a_strangers_is_not_written(store: Store, secret: Path, kind: str) -> None:
    """Anything in the catalog that we would not have made is refused and named; nothing ran, nothing was written."""
    poison(store.path, MALICE[kind].format(secret=secret))
    before = store.path.read_bytes()
    with pytest.raises(StoreUntrusted, match=r"is not ours|is not as this library makes it") as told:
        store.open_session("t", about={})
    store.close()

    assert "doctor --rebuild" in str(told.value)
    assert store.path.read_bytes() == before
    assert "the secret" not in str(told.value)


@pytest.mark.parametrize("kind", MALICE)
def test_reading_never_looks_at_it(store: Store, secret: Path, kind: str) -> None:
    """SQL on such a store is answered by our own views and DuckDB's own functions, or refused; the file is not read."""
    session = store.open_session("t", about={})
    session.append(Row(kind="checkpoint", phase="step", parent_seq=0, changes='{"append":{"findings":["f"]}}'))
    session.close()
    store.close()
    poison(store.path, MALICE[kind].format(secret=secret))
    try:
        answers = [
            store.rows("SELECT finding FROM findings"),
            store.rows("SELECT count(seq), sum(seq) FROM journal"),
            store.rows("SELECT field || '!' FROM state_at('t', 4)"),
        ]
    except StoreUntrusted as told:
        assert kind in ("column", "default"), told
    else:
        assert [a[1] for a in answers] == [[('"f"',)], [(4, 10)], [("findings!",)]]


def test_a_view_in_place_of_the_journal(store: Store, secret: Path) -> None:
    """A store whose journal is a view that reads a file is refused before it is looked at, also for reading."""
    poison(
        store.path,
        "ALTER TABLE journal RENAME TO hidden; "
        f"CREATE VIEW journal AS SELECT * REPLACE ((SELECT content FROM read_text('{secret}')) AS name) FROM hidden",
    )
    for use in (lambda: store.open_session("t", about={}), lambda: store.rows("SELECT * FROM journal")):
        with pytest.raises(StoreUntrusted):
            use()


def test_something_that_is_missing_is_named(store: Store) -> None:
    """A view that was dropped, or a column without its constraint, is no store of ours either."""
    poison(store.path, "DROP VIEW recoveries; ALTER TABLE journal ALTER COLUMN kind DROP NOT NULL")
    with pytest.raises(StoreUntrusted, match=r"column journal.kind is not as.*view recoveries is missing\. A DuckDB"):
        store.open_session("t", about={})


def test_databases_that_the_kernel_attached_are_not_meant(store: Store, tmp_path: Path) -> None:
    """A connection of the user's that shares our instance and has attached other files does not confuse the check."""
    with duckdb.connect(str(store.path)) as con:
        con.execute(f"ATTACH '{tmp_path / 'another.duckdb'}' AS another")
        con.execute("CREATE TABLE another.sales (amount INT)")

        assert store.open_session("t", about={}).append(Row(kind="notice")) == [3]


def test_what_is_put_in_between_two_processes_is_found(store: Store) -> None:
    """The check is made once per process and file; the next process finds what came meanwhile."""
    from tests.journal.others import run

    store.open_session("t", about={}).close()
    store.close()
    poison(store.path, MALICE["trigger"].format(secret="/etc/hostname"))
    said = run(
        """
from resumable_nb.errors import StoreUntrusted
try:
    Store.open(args[0]).open_session("t", about={})
except StoreUntrusted as error:
    say(str(error))
""",
        store.path,
    )

    assert "trigger spy is not ours" in said[0]


def test_the_known_digests_are_those_of_our_schema() -> None:
    """What spares making the schema anew at each start is what this version and this DuckDB make."""
    everything, tables = trust._expected(tuple(trust._CATALOG)), trust._expected(trust._TABLES)

    known = trust.KNOWN.get(duckdb.__version__)
    if known is not None:  # for another DuckDB the comparison is made in full
        assert known == {trust.digest(everything), trust.digest(tables)}


def test_without_a_known_digest_the_schema_itself_is_compared(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a DuckDB version that we have not seen, a store of ours is still taken, and a poisoned one is not."""
    monkeypatch.setattr(trust, "KNOWN", {})
    assert store.rows("SELECT * FROM findings")[1] == []
    store.open_session("t", about={}).close()
    store.close()
    poison(store.path, MALICE["view"].format(secret="x"))
    store._lease._trusted = None
    with pytest.raises(StoreUntrusted, match="view extra is not ours"):
        store.open_session("t", about={})


@pytest.mark.parametrize("name", ["memory", "temp", "system", "main", "store", "o'clock", 'quo"te', "résumé 1"])
def test_a_store_may_have_any_file_name(tmp_path: Path, empty_store: Path, name: str) -> None:
    """Names that mean something to DuckDB or have quotes in them do no harm."""
    path = tmp_path / f"{name}.duckdb"
    path.write_bytes(empty_store.read_bytes())
    store = Store.open(path)

    assert store.open_session("t", about={}).append(Row(kind="notice")) == [3]
    assert store.rows("SELECT last_seq FROM threads")[1] == [(3,)]


def test_thread_names_are_data(store: Store) -> None:
    """Ids with quotes, paths and SQL in them are bound as values: they make no file and run nothing."""
    names = ["'; DROP TABLE journal; --", "../../etc/passwd", "%s {x} $1 ?", "ü😀"]
    for name in names:
        store.open_session(name, about={}).append(Row(kind="notice", name=name))

    assert store.threads() == sorted(names, key=str.encode)
    assert [store.visitor(n).read(kinds=["notice"])[0].name for n in names] == names
    assert store.rows("SELECT name FROM journal WHERE thread_id = ? AND kind = 'notice'", [names[0]])[1] == [
        (names[0],)
    ]
    assert all(p.name.startswith("research.duckdb") for p in store.path.parent.iterdir())


def test_the_schema_has_three_parts() -> None:
    """Tables, views and comments are what schema.sql holds; every column of every view and table has a comment."""
    with duckdb.connect() as con:
        for part in ("tables", "views", "comments"):
            con.execute(schema.part(part))
        bare = con.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND coalesce(comment, '') = '' "
            "UNION ALL SELECT view_name, '' FROM duckdb_views() WHERE NOT internal AND coalesce(comment, '') = ''"
        ).fetchall()

    assert bare == []


def test_a_refusal_is_no_way_to_read_a_file(store: Store, secret: Path) -> None:
    """Error messages of refused queries do not show what a query was not allowed to read."""
    with pytest.raises(QueryRefused) as told:
        store.rows(f"SELECT * FROM read_text('{secret}')")

    assert "the secret" not in str(told.value)
