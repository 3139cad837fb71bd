"""Encryption at rest."""

from __future__ import annotations

import os
import random
import time
import traceback
from pathlib import Path

import duckdb
import pytest

from resumable_nb.errors import KeyRefused, StoreDamaged, StoreUnwritable, UsageError
from resumable_nb.journal import Row, Store, converting, repair, sealing
from resumable_nb.journal.lease import Lease
from tests.journal.others import Other, killed, run
from tests.support.sealed import KEY, OTHER_KEY, crypto

TEXT = "what the model said in confidence"
APPEND = """
from resumable_nb.journal import lease
lease.HOLD_S = 600  # so that the log is not merged on the way
store = Store.open(args[0], idle_s=600)
session = store.open_session("t", about={}, take_over=True)
say("open")
for n in range(int(args[1])):
    session.append(Row(kind="notice", name=str(n), body=b"x" * 700))
    say(n)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _crypto(monkeypatch: pytest.MonkeyPatch) -> None:
    crypto(monkeypatch)
    monkeypatch.setenv("RESUMABLE_NB_KEY", KEY)


@pytest.fixture
def plain(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that was made without a key, with a log that is not merged."""
    with monkeypatch.context() as without:
        without.delenv("RESUMABLE_NB_KEY")
        fill(path)
        killed(APPEND, path, 3)
    return path


def fill(path: Path) -> None:
    store = Store.open(path)
    session = store.open_session("t", about={"notebook": "a.ipynb"})
    session.append(*(Row(kind="notice", name=TEXT, body=TEXT.encode()) for _ in range(20)))
    session.close()
    store.close()


def files_of(path: Path) -> dict[str, bytes]:
    """All of the store's files as they stand on the disk, but the lock."""
    return {p.name: p.read_bytes() for p in path.parent.rglob("*") if p.is_file() and p.suffix != ".lock"}


def on_disk(path: Path) -> bytes:
    return b"".join(files_of(path).values())


def is_encrypted(path: Path) -> bool:
    """As the head of the file says: https://duckdb.org/docs/stable/internals/storage"""
    return bool(path.read_bytes()[20] & 1)


def rows_of(path: Path) -> list[Row]:
    store = Store.open(path)
    found = store.visitor("t").read()
    store.close()
    return found


def test_nothing_of_a_row_can_be_read_on_the_disk(path: Path) -> None:
    """Neither while it stands in the log nor when it is merged; with the key, it is all there."""
    store = Store.open(path, idle_s=600)
    session = store.open_session("t", about={"notebook": TEXT})
    session.append(Row(kind="notice", name=TEXT, body=TEXT.encode()))
    in_log = files_of(path)
    store.close()

    assert "research.duckdb.wal" in in_log
    assert "research.duckdb.wal" not in files_of(path)
    assert TEXT.encode() not in b"".join(in_log.values()) + on_disk(path)
    assert rows_of(path)[-1].body == TEXT.encode()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("key", "told"), [(None, "RESUMABLE_NB_KEY is not set"), (OTHER_KEY, "another key than the one")]
)
def test_without_its_key_a_store_stays_shut(
    path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None, told: str
) -> None:
    """Whoever writes, reads or examines is told which variable it takes, and nothing is changed."""
    fill(path)
    killed(APPEND, path, 2)
    before = files_of(path)
    monkeypatch.delenv("RESUMABLE_NB_KEY")
    if key:
        monkeypatch.setenv("RESUMABLE_NB_KEY", key)
    store = Store.open(path)

    for use in (lambda: store.open_session("t", about={}), store.threads, lambda: store.rows("FROM threads")):
        with pytest.raises(KeyRefused, match=told) as refused:
            use()
        assert OTHER_KEY not in str(refused.value)
    (trouble,) = repair.examine(path).troubles
    assert told in trouble
    with pytest.raises(KeyRefused, match=told):
        repair.rebuild(path, path.with_name("rebuilt"))
    assert files_of(path) == before


def test_a_plain_store_is_not_taken_for_an_encrypted_one(plain: Path) -> None:
    """With a key set, it is refused, for reading too, with the command that encrypts it; nothing is changed."""
    before = files_of(plain)
    store = Store.open(plain)

    for use in (lambda: store.open_session("t", about={}), lambda: store.rows("FROM threads")):
        with pytest.raises(KeyRefused, match=f"resumable-nb encrypt --db {plain}"):
            use()
    assert files_of(plain) == before


@pytest.mark.parametrize("key", ["", "short", KEY[:31], "ab" * 20, KEY + " ", KEY + "ü", KEY + "\\x00"])
def test_a_weak_key_is_refused_without_being_shown(path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """Also one that DuckDB would quote in an error; the message says how to make a good one; no store is made."""
    monkeypatch.setenv("RESUMABLE_NB_KEY", key)

    with pytest.raises(KeyRefused, match="token_urlsafe") as refused:
        Store.open(path)
    assert not key or key not in str(refused.value)
    assert not path.exists()


def test_the_key_can_stand_in_a_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As secrets are handed to containers; both variables at once, or a file that is not there, are refused."""
    fill(path)
    file = path.with_name("key")
    file.write_text(KEY + "\n")
    monkeypatch.setenv("RESUMABLE_NB_KEY_FILE", str(file))
    with pytest.raises(KeyRefused, match="both set"):
        rows_of(path)
    monkeypatch.delenv("RESUMABLE_NB_KEY")

    assert len(rows_of(path)) == 23
    file.unlink()
    with pytest.raises(KeyRefused, match="cannot be read"):
        rows_of(path)


def test_no_query_shows_the_key(path: Path) -> None:
    """Not even on the connection that writes: no table of DuckDB, no setting, no plan and no error holds it."""
    lease = Lease(path, idle_s=5, wait_s=3)
    Store.open(path)
    with lease.using() as con:
        functions = con.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'table' AND len(parameters) = 0 "
            "AND (function_name LIKE 'duckdb\\_%' ESCAPE '\\' OR function_name LIKE 'pragma\\_%' ESCAPE '\\')"
        ).fetchall()
        shown = [con.execute(f"FROM {name}()").fetchall() for (name,) in functions]
        shown += con.execute("EXPLAIN ANALYZE SELECT * FROM journal").fetchall()
        shown += [con.execute("SELECT encrypted, cipher FROM duckdb_databases() WHERE path IS NOT NULL").fetchone()]
        for wrong in ("SELECT nothing", f"ATTACH '{path}' AS again", "DETACH nothing"):
            with pytest.raises(duckdb.Error) as error:
                con.execute(wrong)
            shown.append(str(error.value))
    lease.close()

    assert len(functions) > 10
    assert (True, "GCM") in shown
    assert KEY not in repr(shown)


def test_a_traceback_with_the_values_of_variables_shows_no_key(tmp_path: Path) -> None:
    """As `%xmode Verbose` makes it, when DuckDB fails while it is given the key."""
    try:
        with duckdb.connect() as con:
            sealing.attach(con, tmp_path / "no folder" / "x.duckdb", "x", key=sealing.key_of())
    except duckdb.Error as error:
        told = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())

    assert "<key from RESUMABLE_NB_KEY>" in told
    assert KEY not in told


def test_without_the_extension_nothing_is_written(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What DuckDB brings along encrypts with weak random numbers: it reads, and is not used for writing."""
    killed(APPEND, path, 3)
    before = files_of(path)
    monkeypatch.undo()
    monkeypatch.setenv("RESUMABLE_NB_KEY", KEY)
    store = Store.open(path)

    with pytest.raises(StoreUnwritable, match="INSTALL httpfs"):
        store.open_session("t", about={})
    with pytest.raises(StoreUnwritable, match="INSTALL httpfs"):
        Store.open(tmp_path / "new.duckdb")
    assert store.rows("SELECT count(*) FROM journal")[1] == [(5,)]
    assert files_of(path) == before


def test_a_conversion_without_a_key_says_how_to_make_one(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither way is begun, and nothing is changed."""
    before = files_of(plain)
    monkeypatch.delenv("RESUMABLE_NB_KEY")

    with pytest.raises(UsageError, match="token_urlsafe"):
        converting.encrypt(Store.open(plain))
    with pytest.raises(UsageError, match="RESUMABLE_NB_KEY"):
        converting.decrypt(Store.open(plain))
    assert files_of(plain) == before


@pytest.mark.parametrize("count", [1, 7, 40])
def test_no_acknowledged_row_is_lost_when_the_process_is_killed(path: Path, count: int) -> None:
    """The encrypted log is replayed, and the next session goes on."""
    fill(path)
    assert killed(APPEND, path, count) == ["open", *range(count)]

    assert [row.name for row in rows_of(path)][-count:] == [str(n) for n in range(count)]
    killed(APPEND, path, 1)
    assert len(rows_of(path)) == 23 + 1 + count + 2


def test_kills_at_any_moment_lose_nothing(path: Path) -> None:
    """Wherever SIGKILL comes, also while the log is merged: what was acknowledged is there, and no half of a row."""
    fill(path)
    endless = APPEND.replace("    say(n)", "    say(n)\n    if n % 5 == 4: store.close()")
    chance, before = random.Random(1), 0
    for _ in range(8):
        with Other(endless, path, 1000) as other:
            assert other.hear() == "open"
            acknowledged = [other.hear() for _ in range(chance.randrange(1, 12))]
            other.kill()

        numbers = [row.name for row in rows_of(path) if row.kind == "notice" and row.name != TEXT]
        written, before = numbers[before:], len(numbers)
        assert written == [str(n) for n in range(len(written))]  # it may have written more than was heard of
        assert len(written) >= len(acknowledged)


@pytest.mark.parametrize("part", ["head", "rows", "log"])
def test_a_changed_byte_is_noticed(path: Path, part: str) -> None:
    """GCM proves that each block is as it was written; the message is that of a damaged store."""
    fill(path)
    killed(APPEND, path, 5)
    damaged = path.with_name(path.name + ".wal") if part == "log" else path
    content = bytearray(damaged.read_bytes())
    content[{"head": 4200, "rows": 12288 + 500, "log": len(content) // 2}[part]] ^= 1
    damaged.write_bytes(content)

    with pytest.raises(StoreDamaged):
        Store.open(path).open_session("t", about={}, take_over=True)
    with pytest.raises(StoreDamaged):
        Store.open(path).rows("SELECT * FROM journal")


def test_a_store_keeps_rows_and_id_over_keys(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encrypted, given another key and decrypted, it is the same store; meanwhile nothing of it can be read."""
    monkeypatch.delenv("RESUMABLE_NB_KEY")
    rows, store_id = rows_of(plain), Store.open(plain).store_id
    Store.open(plain).close()
    monkeypatch.setenv("RESUMABLE_NB_KEY", KEY)
    converting.encrypt(Store.open(plain))
    sealed = on_disk(plain)
    assert rows_of(plain) == rows
    with pytest.raises(KeyRefused, match="RESUMABLE_NB_OLD_KEY"):
        converting.encrypt(Store.open(plain))
    monkeypatch.setenv("RESUMABLE_NB_OLD_KEY", KEY)
    monkeypatch.setenv("RESUMABLE_NB_KEY", OTHER_KEY)
    converting.encrypt(Store.open(plain))
    sealed += on_disk(plain)
    assert rows_of(plain) == rows
    converting.decrypt(Store.open(plain))
    with pytest.raises(KeyRefused, match="not encrypted"):
        converting.decrypt(Store.open(plain))
    monkeypatch.delenv("RESUMABLE_NB_KEY")

    assert TEXT.encode() not in sealed
    assert TEXT.encode() in on_disk(plain)
    assert rows_of(plain) == rows
    assert Store.open(plain).store_id == store_id
    assert plain.stat().st_mode & 0o077 == 0
    assert sorted(p.name for p in plain.parent.iterdir()) == [f"research.duckdb{s}" for s in ("", ".lock", ".seen")]


CONVERT = """
from resumable_nb.journal import converting
say("begins")
converting.encrypt(Store.open(args[0]))
say("done")
"""


@pytest.mark.parametrize("point", ["store.replace.before", "store.replace.after"])
def test_a_conversion_that_is_killed_leaves_the_old_store_or_the_new_one(
    plain: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Before the rename it is the plain one, after it the encrypted one; what was begun is cleared away by the next."""
    killed(CONVERT, plain, env={"RESUMABLE_NB_FAILPOINT": point})
    is_new = point.endswith("after")
    assert is_encrypted(plain) is is_new
    assert [p for p in plain.parent.iterdir() if p.is_dir()]
    if is_new:
        monkeypatch.setenv("RESUMABLE_NB_OLD_KEY", KEY)
    converting.encrypt(Store.open(plain))

    assert len(rows_of(plain)) == 27
    assert not [p for p in plain.parent.iterdir() if p.is_dir()]


def test_a_conversion_that_is_killed_at_any_moment_loses_no_row(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store opens as what it was before or as what it is after, with all its rows."""
    chance = random.Random(1)
    for n in range(4):
        with Other(CONVERT, plain) as other:
            assert other.hear() == "begins"
            time.sleep(n * 0.07 + chance.random() * 0.07)
            other.kill()
        with monkeypatch.context() as now:
            if not is_encrypted(plain):
                now.delenv("RESUMABLE_NB_KEY")
            assert len(rows_of(plain)) == 27
            Store.open(plain).close()
        if is_encrypted(plain):
            converting.decrypt(Store.open(plain))


def test_a_store_that_somebody_works_with_is_not_converted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel has no key: it goes on, and the store stays plain."""
    monkeypatch.delenv("RESUMABLE_NB_KEY")
    session = Store.open(path).open_session("t", about={})
    with Other(CONVERT, path, env={"RESUMABLE_NB_KEY": KEY}) as other:
        code, said, error = other.end()
    session.append(Row(kind="notice"))

    assert (code, said) == (1, ["begins"])
    assert "ThreadInUse" in error
    assert len(rows_of(path)) == 3


def test_a_reader_finds_the_store_that_was_encrypted_under_it(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is kept open for questions is refused without the key, and answers with it."""
    monkeypatch.delenv("RESUMABLE_NB_KEY")
    store = Store.open(plain)
    before = store.rows("SELECT count(*) FROM journal")
    store.close()
    run(CONVERT, plain, env={"RESUMABLE_NB_KEY": KEY})
    with pytest.raises(KeyRefused, match="RESUMABLE_NB_KEY is not set"):
        store.rows("SELECT count(*) FROM journal")
    monkeypatch.setenv("RESUMABLE_NB_KEY", KEY)

    assert store.rows("SELECT count(*) FROM journal") == before


def test_a_rebuilt_store_and_a_fork_of_its_thread_are_encrypted_too(path: Path) -> None:
    """No other way leads out of the file."""
    fill(path)
    assert Store.open(path).fork("t", 10, "u") == 11
    Store.open(path).close()
    target = path.with_name("rebuilt.duckdb")

    assert repair.examine(path).troubles == []
    assert repair.rebuild(path, target) == 34
    assert is_encrypted(target)
    assert TEXT.encode() not in on_disk(path)


def test_a_forked_child_opens_the_store_anew(path: Path) -> None:
    """The kept instance of the parent is not used in the child; both have written afterwards."""
    fill(path)
    source = """
store = Store.open(args[0])
session = store.open_session("a", about={})
pid = os.fork()
if pid == 0:
    Store.open(args[0]).open_session("b", about={}).close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
session.append(Row(kind="notice"))
store.close()
say(store.threads())
"""

    assert run(source, path) == [["a", "b", "t"]]
    assert os.environ["RESUMABLE_NB_KEY"] == KEY
