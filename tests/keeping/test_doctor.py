"""`doctor`: everything that is wrong with a store is named, with what to do, and nothing is changed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result

import resumable_nb
from resumable_nb.cli import cli
from resumable_nb.journal import Row, Store
from tests.keeping import victim


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "r.duckdb"
    victim.work(path, steps=3)
    with resumable_nb.open("other", db=path, say=victim.said.append) as t:
        t.step("bytes", lambda: b"\x01" * 50_000)
    Store.open(path).close()
    return path


def doctor(db: Path) -> Result:
    return CliRunner().invoke(cli, ["doctor", "--db", str(db)], standalone_mode=False)


def test_a_sound_store_has_a_line_for_each_thread(db: Path) -> None:
    """Rows and checkpoints are counted; nothing is the matter; the file is as it was."""
    before = db.read_bytes()
    told = doctor(db)

    assert told.return_value == 0, told.output
    assert "thread t: " in told.output
    assert "5 checkpoints, in order" in told.output
    assert "nothing is the matter" in told.output
    assert db.read_bytes() == before


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DELETE FROM journal WHERE thread_id = 't' AND seq IN (4, 5, 9)", "3 rows of 23 missing (R1): 4 to 5, 9"),
        ("UPDATE journal SET body = 'x' WHERE kind = 'value'", "a large value that is not what its hash says"),
        ("UPDATE journal SET body = NULL, key = 'y', phase = 'pruned' WHERE kind = 'value'", "a large value that is not there"),
        ("UPDATE journal SET ts = 'infinity' WHERE seq = 12", "a time that no clock tells: row 12"),
        ("UPDATE journal SET data = '[1]' WHERE kind = 'session'", "data of another form"),
        ("UPDATE journal SET ref_seq = 40 WHERE seq = 12", "a later row or none: row 12"),
        ("UPDATE journal SET run_seq = 1 WHERE kind = 'call'", "a run that is no step (R2)"),
        ("UPDATE journal SET parent_seq = 5 WHERE kind = 'checkpoint' AND seq > 15", "from outside its lineage (R3)"),
        ("UPDATE journal SET changes = '{\"set\": {\"a-b\": 1}}' WHERE seq = 3", "one that is no name (R4)"),
        ("UPDATE journal SET phase = 'strange' WHERE kind = 'session'", "a phase that this version does not know"),
        ("UPDATE journal SET phase = 'retired' WHERE kind = 'checkpoint'", "a phase that this version does not know"),
        ("UPDATE journal SET session_id = 'x' WHERE kind = 'checkpoint'", "a session that never opened"),
        ("UPDATE journal SET session_id = 'x' WHERE kind = 'call' AND phase = 'started'", "a session that never opened"),
        ("UPDATE journal SET gen_ai_usage_input_tokens = -1 WHERE kind = 'call'", "a negative number of tokens"),
        ("UPDATE journal SET changes = '{\"more\": {}}' WHERE seq = 3", "changes of another form (R4)"),
        ("UPDATE journal SET key = 'z' WHERE kind = 'effect' AND phase = 'done'", "another key than the row that it completes (R5)"),
        ("UPDATE journal SET changes = '{\"set\": {\"a\": 1}}' WHERE kind = 'session'", "that can have none (R7)"),
        ("UPDATE journal SET changes = '{\"append\": {\"query\": [1]}}' WHERE seq = (SELECT max(seq) FROM journal WHERE kind = 'checkpoint' AND thread_id = 't')", "Its newest state cannot be built"),
        ("UPDATE journal SET kind = 'spell' WHERE kind = 'notice' OR seq = 2", "a kind that this version does not know"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_row_is_named(db: Path, sql: str, words: str) -> None:
    """Each rule that the views rest on, hashes and numbers: the row, and what can be done; exit code 1."""
    with duckdb.connect(str(db)) as con:
        con.execute(sql)
    db.with_name("r.duckdb.seen").unlink()  # the witness, which sees missing rows before this
    before = db.read_bytes()
    told = doctor(db)

    assert words in told.output, told.output
    assert "put a copy of the store back" in told.output
    assert told.return_value == 1
    assert db.read_bytes() == before


def test_files_beside_the_store_are_looked_at(db: Path, tmp_path: Path) -> None:
    """Files that others can read are a finding; a log and what a killed process left are told, not touched."""
    (tmp_path / ".r.duckdb.prune-x").mkdir()
    assert "note: .r.duckdb.prune-x was left" in doctor(db).output
    os.chmod(db, 0o644)
    told = doctor(db)
    assert f"chmod 600 '{db}'" in told.output
    assert told.return_value == 1
    assert (tmp_path / ".r.duckdb.prune-x").exists()


def test_a_store_in_use_is_checked_too(db: Path) -> None:
    """A thread that is open and works is in order; outputs of others and pruned rows are notes."""
    with resumable_nb.open("t", db=db, say=victim.said.append) as t:
        t.append(Row(kind="outputs", ref_seq=3, response='[{"output_type": "stream"}]', key="forged"))
        told = doctor(db)
        assert told.return_value == 0, told.output
        assert "not signed by you" in told.output
        t.append(Row(kind="notice", name="goes on"))
    resumable_nb.prune(db, keep=1, yes=True)
    told = doctor(db)
    assert told.return_value == 0, told.output
    assert "rows were pruned" in told.output


def test_rebuilding_says_what_it_cannot_mend(db: Path) -> None:
    """A gap stays one in a clean store: that is said, and the exit code tells it; a store that is sound then gives 0."""
    with duckdb.connect(str(db)) as con:
        con.execute("CREATE VIEW extra AS SELECT 1")
    command = ["doctor", "--db", str(db), "--rebuild"]
    mended = CliRunner().invoke(cli, command, standalone_mode=False)
    with duckdb.connect(str(db)) as con:
        con.execute("DELETE FROM journal WHERE thread_id = 't' AND seq = 4")
    left = CliRunner().invoke(cli, command, standalone_mode=False)

    assert mended.return_value == 0, mended.output
    assert "cannot mend" not in mended.output
    assert left.return_value == 1, left.output
    told = left.output.partition("cannot mend")[2]
    assert "1 row of 23 missing (R1): 4" in told


def test_what_saves_a_store_is_told_as_a_command(db: Path) -> None:
    """The line at the end can be run as it is, and then nothing is the matter."""
    with duckdb.connect(str(db)) as con:
        con.execute("CREATE VIEW extra AS SELECT 1")
    program, *command = shlex.split(doctor(db).output.splitlines()[-1].split("`")[1])
    CliRunner().invoke(cli, command, standalone_mode=False)

    assert (program, command) == ("resumable-nb", ["doctor", "--rebuild", "--db", str(db)])
    assert "nothing is the matter" in doctor(db).output
