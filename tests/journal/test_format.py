"""Stores of every released format open, and stay what they were."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from resumable_nb.journal import Row, Store, schema

GOLDEN = Path(__file__).parent / "golden"
FORMATS = range(1, schema.FORMAT + 1)


@pytest.fixture(params=FORMATS)
def golden(request: pytest.FixtureRequest, path: Path) -> Store:
    shutil.copy(GOLDEN / f"format{request.param}.duckdb", path)
    return Store.open(path)


def test_every_format_has_a_golden_store() -> None:
    """A store that was written by the first version of each format is kept in the tests."""
    assert [p.name for p in sorted(GOLDEN.iterdir())] == [f"format{n}.duckdb" for n in FORMATS]


def test_a_golden_store_is_read(golden: Store) -> None:
    """What was written is read by the views and by a session, as it was."""
    assert golden.threads() == ["other", "research"]
    assert golden.rows("SELECT phase, response, gen_ai_usage_input_tokens, data FROM llm_calls")[1] == [
        ("done", '{"answer" :  1.0}', 100, '{"status": 200}')
    ]
    last = golden.rows("SELECT last_checkpoint FROM threads WHERE thread_id = 'research'")[1][0][0]
    assert golden.rows("SELECT field, value FROM state_at('research', ?)", [last])[1] == [
        ("findings", '["f1"]'),
        ("plan", '["a"]'),
        ("query", '"q"'),
    ]
    assert golden.rows("SELECT step, phase, llm_calls FROM steps WHERE thread_id = 'research' ORDER BY step")[1] == [
        ("search", "done", 1),
        ("send", None, 0),
    ]
    assert golden.rows("SELECT phase, receipt FROM effects WHERE thread_id = 'research'")[1] == [("done", "7")]
    assert golden.rows("SELECT phase, who FROM approvals WHERE thread_id = 'research'")[1] == [("approved", "ada")]
    assert [r.body for r in golden.visitor("other").read(kinds=["value"])] == [b"\x00\xff"]


def test_a_golden_store_is_gone_on_with(golden: Store) -> None:
    """A thread of it is opened and appended to; afterwards the store has the newest format."""
    session = golden.open_session("research", about={})
    session.append(Row(kind="notice"))

    assert [r.seq for r in session.read()] == list(range(1, session.head + 1))
    assert golden.rows("SELECT value FROM store_info WHERE name = 'format'")[1] == [(str(schema.FORMAT),)]


MIGRATIONS = {1: "ALTER TABLE journal ADD COLUMN extra VARCHAR", 2: "CREATE VIEW more AS SELECT extra FROM journal"}


def found_format(con: duckdb.DuckDBPyConnection) -> str:
    return str(con.execute("SELECT value FROM store_info WHERE name = 'format'").fetchall()[0][0])


def test_migrations_run_one_format_at_a_time(golden: Store) -> None:
    """A store of format 1 is lifted by each migration in turn, and says so."""
    with duckdb.connect(str(golden.path)) as con:
        schema.migrate(con, 1, MIGRATIONS)
        assert found_format(con) == "3"
        assert con.execute("SELECT count(*) FROM more WHERE extra IS NULL").fetchall()[0][0] > 0


def test_a_migration_that_fails_changes_nothing(golden: Store) -> None:
    """A migration and the number that says it was done are one transaction; those before it stay."""
    with duckdb.connect(str(golden.path)) as con:
        with pytest.raises(duckdb.Error):
            schema.migrate(con, 1, {**MIGRATIONS, 2: "CREATE VIEW more AS SELECT extra FROM journal; SELECT nonsense"})
        assert found_format(con) == "2"
        with pytest.raises(duckdb.CatalogException):
            con.execute("FROM more")
