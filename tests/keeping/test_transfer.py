"""A thread as a file: exact, whole or not at all, and nothing in it is trusted."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

import resumable_nb
from resumable_nb.calls.family import newest_of_relatives
from resumable_nb.cli import cli
from resumable_nb.errors import StoreTooNew, ThreadNotFound, TransferDamaged, UsageError
from resumable_nb.journal import Row, Store, repair
from tests.keeping import victim


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "r.duckdb"
    victim.work(path, steps=3)
    return path


@pytest.fixture
def file(db: Path, tmp_path: Path) -> Path:
    return resumable_nb.export_thread("t", tmp_path / "t.thread", db=db)


def rows_of(db: Path, thread: str = "t") -> list[Row]:
    return Store.open(db).visitor(thread).read()


def repacked(file: Path, change: Callable[[dict[str, bytes]], None], compression: int = zipfile.ZIP_STORED) -> Path:
    """The file with other parts."""
    with zipfile.ZipFile(file) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    change(parts)
    target = file.with_name("changed.thread")
    with zipfile.ZipFile(target, "w", compression) as packed:
        for name, content in parts.items():
            packed.writestr(name, content)
    return target


def with_rows(file: Path, sql: str) -> Path:
    """The file with other rows, and a hash that fits."""
    import hashlib

    def change(parts: dict[str, bytes]) -> None:
        before, after = file.with_name("before.parquet"), file.with_name("after.parquet")
        before.write_bytes(parts["journal.parquet"])
        with duckdb.connect() as con:
            con.execute(f"CREATE VIEW journal AS SELECT * FROM '{before}'")
            con.execute(f"COPY ({sql}) TO '{after}'")
            (count,) = con.execute(f"SELECT count(*) FROM '{after}'").fetchall()[0]
        parts["journal.parquet"] = after.read_bytes()
        manifest = json.loads(parts["manifest.json"])
        manifest |= {"sha256": hashlib.sha256(parts["journal.parquet"]).hexdigest(), "rows": count}
        parts["manifest.json"] = json.dumps(manifest).encode()

    return repacked(file, change)


def test_a_round_trip_gives_every_value_back(tmp_path: Path) -> None:
    """Every column of every row: text of JSON, bytes, microseconds, floats to the last bit, NULL beside empty."""
    store = Store.open(tmp_path / "a.duckdb")
    session = store.open_session("dürer \"'%\\ 日本", about={})
    floats = [0.1, 1e-320, -0.0, 1.7976931348623157e308, math.inf, math.nan, 123456.78901234567]
    session.append(*(Row(kind="call", phase="started", key=str(f), duration_ms=f) for f in floats))
    session.append(
        Row(kind="value", key="6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d", body=b"\x00"),
        Row(kind="notice", data=' {"a" :  1.0, "b": "\\u0000 \\ud83d\\ude00"}', name="", body=b"", occurrence=0),
        Row(kind="notice", request="[1e400, 12345678901234567890123]", response="null", gen_ai="{}", step="ä\n\x01"),
    )
    session.close()
    before = store.visitor(session.thread_id).read()
    target = resumable_nb.export_thread(session.thread_id, tmp_path / "x.thread", db=store.path)
    resumable_nb.import_thread(target, db=tmp_path / "b.duckdb")
    after = Store.open(tmp_path / "b.duckdb").visitor(session.thread_id).read()

    assert [repr(row) for row in after[:-1]] == [repr(row) for row in before]
    assert (after[-1].kind, after[-1].phase) == ("thread", "imported")
    assert os.stat(target).st_mode & 0o077 == 0
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".part")] == []


def test_an_imported_thread_goes_on_elsewhere(file: Path, tmp_path: Path) -> None:
    """Done steps are skipped, the effect is not repeated, the gate waits and can be decided there."""
    there = tmp_path / "there.duckdb"
    resumable_nb.import_thread(file, db=there)
    assert Store.open(there).rows("SELECT count(*) FROM approvals WHERE phase = 'waiting'")[1] == [(1,)]
    Path(os.environ["HAPPENED"]).unlink()
    victim.work(there, steps=3)

    assert not Path(os.environ["HAPPENED"]).exists()
    assert repair.examine(there).troubles == []


def test_a_copy_beside_the_original_is_a_fork(db: Path, file: Path) -> None:
    """Under another name: no answer is counted twice, no gate is open twice, effects of one are known to the other."""
    with pytest.raises(UsageError, match="--as NEW"):
        resumable_nb.import_thread(file, db=db)
    assert resumable_nb.import_thread(file, db=db, new_id="copy") == "copy"
    store = Store.open(db)

    assert store.rows("SELECT forked_from FROM threads WHERE thread_id = 'copy'")[1] == [("t",)]
    assert store.rows("SELECT sum(llm_calls) FROM threads WHERE thread_id = 'copy'")[1] == [(0,)]
    assert store.rows("SELECT phase FROM approvals WHERE thread_id = 'copy'")[1] == [("dropped",)]
    assert store.family("t") == ["copy"]
    with resumable_nb.open("t", db=db, say=victim.said.append) as t:
        t.append(
            Row(kind="effect", phase="started", key="later", name="f"),
            Row(kind="effect", phase="done", ref_seq=-1, key="later"),
        )
    with resumable_nb.open("copy", db=db, say=victim.said.append) as copy:
        found = newest_of_relatives(copy, "later")
        assert found is not None
        assert found.thread_id == "t"


def test_an_effect_in_flight_is_in_doubt_after_the_import(db: Path, tmp_path: Path) -> None:
    """The file of a thread that is open holds what its session is at: nobody knows whether that happened."""
    with resumable_nb.open("t", db=db, say=victim.said.append) as t:
        t.append(Row(kind="effect", phase="started", key="now", name="f"))
        file = resumable_nb.export_thread("t", tmp_path / "open.thread", db=db)
    resumable_nb.import_thread(file, db=tmp_path / "there.duckdb")
    with resumable_nb.open("t", db=tmp_path / "there.duckdb", say=victim.said.append) as t:
        assert t.fold.effects.by_key["now"].standing == "in doubt"


def test_a_hash_in_somebodys_data_is_no_missing_value(tmp_path: Path) -> None:
    """Fields called `sha256`, of a result, of the state or of an import, hinder neither doctor nor another import."""
    first, second, third = (tmp_path / f"{name}.duckdb" for name in ("first", "second", "third"))
    hashed = {"$type": "file", "sha256": "ab" * 32, "size": 9}
    with resumable_nb.open("t", db=first, query="q", say=victim.said.append) as t:
        t.step("hash", lambda: resumable_nb.durable(lambda: hashed)())
        t.step("keep", lambda state: state.update(findings=[hashed]))
    for here, there in ((first, second), (second, third)):
        resumable_nb.import_thread(resumable_nb.export_thread("t", there.with_suffix(".thread"), db=here), db=there)
        assert CliRunner().invoke(cli, ["doctor", "--db", str(there)]).exit_code == 0
    with resumable_nb.open("t", db=third, say=victim.said.append) as t:
        assert list(t.state.findings) == [hashed]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda p: p.update({"journal.parquet": p["journal.parquet"][:-9] + b"\x00" * 9}), TransferDamaged, "hash"),
        (lambda p: p.update({"../evil": b"x"}), UsageError, "does not hold"),
        (lambda p: p.pop("manifest.json"), UsageError, "does not hold"),
        (lambda p: p.update({"manifest.json": b"[1]"}), TransferDamaged, "manifest"),
        (lambda p: p.update({"manifest.json": b"{" * 70_000}), TransferDamaged, "manifest"),
        (lambda p: p.update({"manifest.json": p["manifest.json"].replace(b'"format": 1', b'"format": 9')}), StoreTooNew, "Update"),
        (lambda p: p.update({"manifest.json": p["manifest.json"].replace(b'"rows": ', b'"rows": 1')}), TransferDamaged, "does not hold the"),
        (lambda p: p.update({"manifest.json": p["manifest.json"].replace(b'"thread": "t"', b'"thread": "u"')}), TransferDamaged, "does not hold the"),
    ],
)  # fmt: skip
def test_a_file_that_was_changed_is_refused(
    db: Path, file: Path, change: Any, error: type[Exception], words: str
) -> None:
    """What is damaged, foreign or newer is named, and not a row comes in."""
    bad = repacked(file, change)
    with pytest.raises(error, match=words):
        resumable_nb.import_thread(bad, db=db, new_id="new")
    with pytest.raises(error, match=words):
        resumable_nb.import_thread(bad, db=file.with_name("new.duckdb"))
    assert Store.open(db).threads() == ["t"]
    assert not file.with_name("new.duckdb").exists()
    assert not (file.parent.parent / "evil").exists()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT * FROM journal WHERE seq <> 3", "does not hold the"),
        ("SELECT * EXCLUDE writer FROM journal", "other columns"),
        ("SELECT * REPLACE (CASE seq WHEN 2 THEN '{' ELSE data END AS data) FROM journal", "JSON that cannot be read"),
        ("SELECT * REPLACE (CASE kind WHEN 'checkpoint' THEN seq + 1 END AS parent_seq) FROM journal", "a later row"),
        ("SELECT * REPLACE (CASE seq WHEN 4 THEN 'magic' ELSE kind END AS kind) FROM journal", "does not know"),
        ("SELECT * REPLACE ('infinity'::TIMESTAMPTZ AS ts) FROM journal", "a time that no clock tells"),
        ("SELECT * REPLACE (TIMESTAMPTZ '4000-01-01 (BC) 00:00+00' AS ts) FROM journal", "a time that no clock tells"),
        ("SELECT * REPLACE (CASE kind WHEN 'session' THEN 'null' ELSE data END AS data) FROM journal", "data of another form"),
        ("SELECT * REPLACE ('x' AS thread_id) FROM journal", "does not hold the"),
        ("SELECT * REPLACE (repeat('\"', 40000000)::BLOB || repeat('x', 40000000)::BLOB AS body) FROM journal", "than 64 MB"),
    ],
)  # fmt: skip
def test_rows_that_no_library_of_ours_writes_are_refused(db: Path, file: Path, sql: str, words: str) -> None:
    """A file with the right hash and wrong rows is named for what is wrong with them."""
    with pytest.raises(TransferDamaged, match=words):
        resumable_nb.import_thread(with_rows(file, sql), db=db, new_id="new")
    assert Store.open(db).threads() == ["t"]


def test_a_packed_bomb_is_not_unpacked(db: Path, file: Path) -> None:
    """Parts that a zip would blow up are refused before they are read."""
    with pytest.raises(UsageError, match="compressed"):
        resumable_nb.import_thread(repacked(file, lambda _: None, zipfile.ZIP_DEFLATED), db=db, new_id="new")
    (db.parent / "text").write_text("no zip")
    with pytest.raises(TransferDamaged, match="damaged, or no thread"):
        resumable_nb.import_thread(db.parent / "text", db=db)


def test_nothing_is_written_over(db: Path, file: Path, tmp_path: Path) -> None:
    """An export makes a new file only, of a thread that there is."""
    before = file.read_bytes()
    with pytest.raises(UsageError, match="is there already"):
        resumable_nb.export_thread("t", file, db=db)
    assert file.read_bytes() == before
    with pytest.raises(ThreadNotFound, match="has no thread 'u'"):
        resumable_nb.export_thread("u", tmp_path / "u.thread", db=db)
    assert not (tmp_path / "u.thread").exists()


@pytest.mark.parametrize("side", ["before", "after"])
def test_killed_at_the_insert_all_or_nothing_is_there(file: Path, tmp_path: Path, side: str) -> None:
    """One INSERT: after SIGKILL the store has the whole thread or none of it, and is sound."""
    there = tmp_path / "there.duckdb"
    Store.open(there).close()
    source = "import sys; from resumable_nb import import_thread; import_thread(sys.argv[1], db=sys.argv[2])"
    environment = {**os.environ, "RESUMABLE_NB_FAILPOINT": f"journal.append.{side}"}
    ended = subprocess.run([sys.executable, "-c", source, str(file), str(there)], env=environment, check=False)
    assert ended.returncode == -9
    assert repair.examine(there).troubles == []
    assert Store.open(there).threads() == ([] if side == "before" else ["t"])
    if side == "after":
        with resumable_nb.open("t", db=there, say=victim.said.append) as t:
            assert len(t.state.findings) == 3


def test_other_programs_read_the_rows(file: Path, tmp_path: Path) -> None:
    """The part with the rows is plain Parquet; times are UTC, JSON is text."""
    with zipfile.ZipFile(file) as packed:
        packed.extract("journal.parquet", tmp_path)
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        found = con.execute(
            f"SELECT min(ts), count(*), typeof(any_value(data)) FROM '{tmp_path}/journal.parquet'"
        ).fetchone()
    assert found is not None
    assert abs((datetime.now(UTC) - found[0]).total_seconds()) < 3600
    assert found[2] == "VARCHAR"


def test_the_commands_move_a_thread(db: Path, tmp_path: Path) -> None:
    """Out of one store, into another, and beside the original."""
    run = CliRunner().invoke
    file, there = str(tmp_path / "x.thread"), str(tmp_path / "there.duckdb")
    assert "Thread t is in" in run(cli, ["export", "t", file, "--db", str(db)]).output
    assert run(cli, ["import", file, "--db", there]).output == f"Thread t is in {there}.\n"
    assert "as a fork of t" in run(cli, ["import", file, "--db", there, "--as", "u"]).output
    assert Store.open(there).threads() == ["t", "u"]


def test_the_thread_to_export_is_named_as_for_the_other_commands(db: Path, tmp_path: Path) -> None:
    """By `--thread`, or not at all where the store holds one only; two different names are refused."""
    run, n = CliRunner().invoke, iter(range(9))
    for named in ([], ["--thread", "t"]):
        assert (
            "Thread t is in"
            in run(cli, ["export", *named, str(tmp_path / f"{next(n)}.thread"), "--db", str(db)]).output
        )
    for words in (["t", "x", "--thread", "u"], ["t", "u", "x"]):
        refused = run(cli, ["export", *words, "--db", str(db)])
        assert isinstance(refused.exception, UsageError)
        assert "one thread and one file" in str(refused.exception)
    assert not Path("x").exists()


KILLED = """
import os, signal, sys
from resumable_nb import export_thread
from resumable_nb.journal import transfer
transfer.zipfile.ZipFile = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # the rows are written
export_thread("t", sys.argv[2], db=sys.argv[1])
"""


def test_a_killed_export_leaves_plain_rows_nowhere_but_beside_its_file(db: Path, tmp_path: Path) -> None:
    """What a killed export had written lies in a folder for this user only, which the next one takes away."""
    temporary, out = tmp_path / "temporary", tmp_path / "out"
    temporary.mkdir()
    out.mkdir()
    command = [sys.executable, "-c", KILLED, str(db), str(out / "t.thread")]
    killed = subprocess.run(command, env={**os.environ, "TMPDIR": str(temporary)}, check=False)

    assert killed.returncode == -signal.SIGKILL
    assert list(temporary.iterdir()) == []
    (left,) = out.iterdir()
    assert left.stat().st_mode & 0o777 == 0o700
    assert [p.name for p in left.iterdir()] == ["journal.parquet"]
    resumable_nb.export_thread("t", out / "t.thread", db=db)
    assert [p.name for p in out.iterdir()] == ["t.thread"]
    assert resumable_nb.import_thread(out / "t.thread", db=tmp_path / "new.duckdb") == "t"
