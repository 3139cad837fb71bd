"""Saving what can be saved."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb
import pytest

from resumable_nb.errors import StoreDamaged, StoreTooNew, StoreUntrusted
from resumable_nb.journal import Row, Session, Store, repair
from tests.journal.others import killed


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def contents(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.parent.iterdir() if p.suffix != ".lock"}


@pytest.fixture
def crashed(store: Store) -> Path:
    """Five rows in the main file, six in the log of a process that was killed."""
    session = store.open_session("t", about={})
    session.append(Row(kind="notice", body=b"\x00"), Row(kind="notice"))
    session.close()
    store.close()
    source = """
from resumable_nb.journal import lease
lease.HOLD_S = 600  # so that the log is not merged on the way
session = Store.open(args[0], idle_s=600).open_session("t", about={})
for i in range(5):
    session.append(Row(kind="notice", name=str(i), data='{"text": "' + "x" * 300 + '"}'))
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed(source, store.path)
    return store.path


def test_a_sound_store_has_no_troubles(crashed: Path) -> None:
    """A store that is only not closed is sound: examining it changes nothing."""
    before = contents(crashed)

    assert repair.examine(crashed) == repair.Report({"t": 11}, [], "")
    assert contents(crashed) == before


def test_a_strangers_store_is_rebuilt_without_its_code(store: Store, session: Session, tmp_path: Path) -> None:
    """All rows come over, in every column; what else was in the file does not; the old file is only renamed."""
    session.append(Row(kind="value", key="k", body=b"\x00\xff", data=' {"a" :  1.0}'))
    session.close()
    rows = store.visitor("t").read()
    store.close()
    with duckdb.connect(str(store.path)) as con:
        con.execute("CREATE VIEW extra AS SELECT 1; ALTER TABLE journal ADD COLUMN more VARCHAR")
    report = repair.examine(store.path)
    assert report.needs == "rebuild"
    assert any("extra is not ours" in words for words in report.troubles)
    old = store.path.read_bytes()
    assert repair.rebuild(store.path, tmp_path / "clean.duckdb") == 4
    kept = repair.put_in_place(store.path, tmp_path / "clean.duckdb")

    assert repair.examine(store.path).troubles == []
    assert Store.open(store.path).visitor("t").read() == rows
    assert old in [p.read_bytes() for p in kept]


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_damaged_log_is_set_aside_and_the_rest_is_saved(crashed: Path, tmp_path: Path, damage: str) -> None:
    """What is whole is copied; file and log are renamed, never deleted; the thread goes on from there."""
    log = beside(crashed, ".wal")
    content = bytearray(log.read_bytes())
    if damage == "cut":
        content = content[:-10]
    else:
        content[-3] ^= 0xFF
    log.write_bytes(content)
    report = repair.examine(crashed)
    assert len(report.troubles) == 1
    with_log = report.needs == "rebuild"
    assert with_log == (damage == "cut")
    old = contents(crashed)
    count = repair.rebuild(crashed, tmp_path / "clean.duckdb", with_log=with_log)
    assert count == report.rows["t"] == (10 if with_log else 5)
    kept = repair.put_in_place(crashed, tmp_path / "clean.duckdb")

    assert sorted(p.read_bytes() for p in kept) == sorted(old.values())
    session = Store.open(crashed).open_session("t", about={})
    assert session.append(Row(kind="notice")) == [session.head]
    assert [r.seq for r in session.read()] == list(range(1, session.head + 1))


def test_a_thread_with_a_gap_is_told(store: Store, session: Session) -> None:
    """A missing row is named with the numbers; so is what the side file misses."""
    session.append(Row(kind="notice"), Row(kind="notice"))
    store.close()
    with duckdb.connect(str(store.path)) as con:
        con.execute("DELETE FROM journal WHERE seq = 3")

    report = repair.examine(store.path)
    assert "Thread 't' has 3 of 4 rows" in report.troubles
    assert any("has 3 rows, but 4 were stored" in words for words in report.troubles)


@pytest.mark.parametrize("content", [b"", b"hello" * 5000])
def test_what_cannot_be_read_is_said(path: Path, content: bytes) -> None:
    """A file that is no database has its trouble named; rebuilding refuses and leaves no new file behind."""
    path.write_bytes(content)
    report = repair.examine(path)
    assert (report.rows, report.needs) == ({}, "")
    assert "no DuckDB file" in report.troubles[0]
    with pytest.raises(StoreDamaged):
        repair.rebuild(path, beside(path, ".new"))

    assert not beside(path, ".new").exists()


def test_a_journal_that_computes_is_not_rebuilt(store: Store, tmp_path: Path) -> None:
    """A journal whose columns are computed, or that is a view, is refused: nothing in it is evaluated."""
    with duckdb.connect(str(store.path)) as con:
        con.execute("DROP TABLE journal; CREATE TABLE journal (thread_id VARCHAR, seq BIGINT, kind VARCHAR AS ('x'))")
    with pytest.raises(StoreUntrusted, match="kind"):
        repair.rebuild(store.path, tmp_path / "new.duckdb")

    assert not (tmp_path / "new.duckdb").exists()


def test_a_store_of_a_newer_version_is_not_rebuilt(store: Store, session: Session, tmp_path: Path) -> None:
    """Its rows would lose what this version does not know: an update is what helps, and nothing else is offered."""
    store.close()
    with duckdb.connect(str(store.path)) as con:
        con.execute(
            "UPDATE store_info SET value = '2' WHERE name = 'format'; ALTER TABLE journal ADD COLUMN novelty INT"
        )
    report = repair.examine(store.path)
    with pytest.raises(StoreTooNew, match="pip install -U resumable-nb"):
        repair.rebuild(store.path, tmp_path / "new.duckdb")

    assert report.needs == ""
    assert "pip install -U resumable-nb" in report.troubles[0]
    assert not (tmp_path / "new.duckdb").exists()


def test_nothing_is_written_over(store: Store, session: Session, tmp_path: Path) -> None:
    """Rebuilding into a file that is there is refused, and the file is kept."""
    target = tmp_path / "there.duckdb"
    shutil.copy(store.path, target)
    os.truncate(target, 100)
    store.close()
    with pytest.raises(FileExistsError):
        repair.rebuild(store.path, target)

    assert target.stat().st_size == 100
