"""Damage: said, never made worse, never overlooked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb
import pytest

from resumable_nb.errors import StoreDamaged, StoreReplaced
from resumable_nb.journal import Row, Session, Store, lease
from resumable_nb.journal.reading import Facts, check_whole
from tests.journal.others import killed, run

ROWS = 60
WRITER = """
from resumable_nb.journal import lease
lease.HOLD_S = 600  # on a busy machine the rows take longer than the file is held, and the log would be merged on the way
session = Store.open(args[0], idle_s=60).open_session("t", about={})
for i in range(args[1]):
    session.append(Row(kind="notice", name=str(i), data='{"text": "' + "x" * 300 + '"}'))
os.kill(os.getpid(), signal.SIGKILL)
"""


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


@pytest.fixture(scope="module")
def _crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with rows in its log, left by a process that was killed."""
    path = tmp_path_factory.mktemp("crashed") / "research.duckdb"
    run("Store.open(args[0]).open_session('t', about={}).append(Row(kind='notice'))", path)
    killed(WRITER, path, ROWS)
    return path


@pytest.fixture
def crashed(_crashed: Path, path: Path) -> Path:
    for suffix in ("", ".wal", ".lock", ".seen"):
        shutil.copy(beside(_crashed, suffix), beside(path, suffix))
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.parent.iterdir() if not p.name.endswith(".lock")}


def assert_refused(path: Path, *words: str) -> None:
    """Opening and reading say so, twice, and change no file."""
    before = contents(path)
    for use in (lambda s: s.open_session("t", about={}), lambda s: s.rows("select 1"), lambda s: s.threads()) * 2:
        with pytest.raises(StoreDamaged) as told:
            use(Store.open(path))
        for word in (path.name, "doctor", *words):
            assert word in str(told.value)
    Store.open(path).close()
    assert contents(path) == before


def test_a_killed_process_leaves_everything(crashed: Path) -> None:
    """After SIGKILL every acknowledged row is there, by SQL and by the next opening, and the log is merged."""
    store = Store.open(crashed)
    assert store.rows("select count(*) from journal where kind = 'notice'")[1] == [(ROWS + 1,)]
    assert beside(crashed, ".wal").exists()

    session = store.open_session("t", about={})
    assert [r.name for r in session.read(kinds=["notice"])][1:] == [str(i) for i in range(ROWS)]
    store.close()
    assert not beside(crashed, ".wal").exists()


@pytest.mark.parametrize("part", range(0, 100, 6))
def test_a_flipped_byte_in_the_log_is_never_overlooked(crashed: Path, part: int) -> None:
    """Wherever a byte of the log is wrong, every row is still there, or the store is refused and kept as it is."""
    log = beside(crashed, ".wal")
    content = bytearray(log.read_bytes())
    content[(len(content) - 1) * part // 96] ^= 0x40
    log.write_bytes(content)
    try:
        rows = Store.open(crashed).rows("select count(*) from journal where kind = 'notice'")[1]
    except StoreDamaged:
        assert_refused(crashed, ".wal")
    else:
        assert rows == [(ROWS + 1,)]


@pytest.mark.parametrize("cut", [1, 10, 400, 5000, 15_000])
def test_a_log_that_was_cut_off_is_noticed(crashed: Path, cut: int) -> None:
    """A shorter log, which DuckDB takes without a word, is refused with both numbers and kept."""
    log = beside(crashed, ".wal")
    os.truncate(log, log.stat().st_size - cut)

    assert_refused(crashed, "was cut off", f"but {ROWS + 4} were stored")


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_missing_log_is_noticed(crashed: Path, how: str) -> None:
    """Without the log, or with an empty one, the rows that were in it are missed, with both numbers."""
    log = beside(crashed, ".wal")
    log.unlink() if how == "removed" else os.truncate(log, 0)

    assert_refused(crashed, "has 3 rows", f"but {ROWS + 4} were stored")


def test_the_log_of_another_store_is_refused(crashed: Path, tmp_path: Path) -> None:
    """A log that belongs to another file is neither replayed nor deleted."""
    other = tmp_path / "other"
    other.mkdir()
    killed(WRITER, other / "o.duckdb", 3)
    shutil.copy(other / "o.duckdb.wal", beside(crashed, ".wal"))
    shutil.rmtree(other)

    assert_refused(crashed, ".wal", "belongs to another file")


def test_a_kill_before_the_witness_is_written_is_no_damage(path: Path) -> None:
    """A process that dies between a commit and the side file leaves a store that opens, with that row in it."""
    Store.open(path).open_session("t", about={}).close()
    Store.open(path).close()
    source = """
session = Store.open(args[0]).open_session("t", about={})
session.append(Row(kind="notice"))
"""
    killed(source, path, env={"RESUMABLE_NB_FAILPOINT": "journal.append.after:2"})
    session = Store.open(path).open_session("t", about={})

    assert [r.phase or r.kind for r in session.read()] == ["created", "opened", "closed", "opened", "notice", "opened"]


def test_a_kill_before_an_insert_leaves_nothing(path: Path) -> None:
    """A process that dies just before a commit leaves the store as it was."""
    Store.open(path).open_session("t", about={}).close()
    Store.open(path).close()
    killed(
        "Store.open(args[0]).open_session('t', about={})", path, env={"RESUMABLE_NB_FAILPOINT": "journal.append.before"}
    )

    assert len(Store.open(path).visitor("t").read()) == 3


@pytest.mark.parametrize("how", ["over it", "in its place"])
def test_an_older_copy_put_back_is_noticed_in_the_same_kernel(
    store: Store, session: Session, tmp_path: Path, how: str
) -> None:
    """The session that wrote more rows than the copy has is refused, with both numbers, and writes nothing over it."""
    old = tmp_path / "old.duckdb"
    session.append(Row(kind="notice"))
    store.close()
    shutil.copy(store.path, old)
    session.append(Row(kind="notice"))
    store.close()
    beside(store.path, ".seen").unlink()  # the session's own memory has to do
    shutil.copy(old, store.path) if how == "over it" else os.replace(old, store.path)
    before = store.path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreReplaced, match="has 3 rows of thread 't', but this session had stored 4"):
            session.append(Row(kind="notice"))
    store.close()

    assert store.path.read_bytes() == before


@pytest.mark.parametrize("with_log", [True, False], ids=["log left", "log removed"])
@pytest.mark.parametrize("used", [True, False])
def test_a_file_written_over_while_it_is_open_is_not_made_worse(
    store: Store, session: Session, tmp_path: Path, with_log: bool, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync tool writes an older copy over the open file: no row is missing, or it is said; never a mixture."""
    monkeypatch.setattr(lease, "HOLD_S", 600)  # so that the log is not merged on the way
    store._lease.idle_s = 600
    old = tmp_path / "old.duckdb"
    for i in range(50):
        session.append(Row(kind="notice", name=str(i)))
    store.close()
    shutil.copy(store.path, old)
    for i in range(50, 100):
        session.append(Row(kind="notice", name=str(i)))
    shutil.copy(old, store.path)
    if not with_log:
        beside(store.path, ".wal").unlink()
    try:
        if used:
            session.append(Row(kind="notice", name="100"))
        store.close()
        names = [r.name for r in session.read(kinds=["notice"])]
    except (StoreReplaced, StoreDamaged) as told:
        assert not with_log
        assert "102" in str(told)
        assert store.path.read_bytes() == old.read_bytes()
    else:
        assert with_log
        assert names == [str(i) for i in range(101 if used else 100)]


def test_an_older_copy_that_went_on_is_noticed(store: Store, session: Session, tmp_path: Path) -> None:
    """A copy that has as many rows by now, but other ones, is not taken for the store that this session wrote."""
    old = tmp_path / "old.duckdb"
    store.close()
    shutil.copy(store.path, old)
    session.append(Row(kind="notice", name="ours"))
    store.close()
    run("v = Store.open(args[0]).visitor('t')\nfor _ in range(3): v.append(Row(kind='notice', name='theirs'))", old)
    os.replace(old, store.path)
    with pytest.raises(StoreReplaced, match="row 3 is not the one that this session stored"):
        session.append(Row(kind="notice"))


def test_an_older_copy_is_noticed_by_another_process(store: Store, session: Session, tmp_path: Path) -> None:
    """Also a process that wrote nothing is told that rows are missing; a person may go on from the copy."""
    old = tmp_path / "old.duckdb"
    store.close()
    shutil.copy(store.path, old)
    session.append(Row(kind="notice"))
    session.close()
    store.close()
    os.replace(old, store.path)
    with pytest.raises(StoreDamaged, match=r"has 2 rows, but 4 were stored.*older copy.*delete research.duckdb.seen"):
        Store.open(store.path).threads()

    beside(store.path, ".seen").unlink()
    assert Store.open(store.path).threads() == ["t"]


@pytest.mark.parametrize("seen", [None, b"", b"garbage", b"0" * 32 + b"                 999\n"])
def test_a_store_without_its_own_side_file_opens(store: Store, session: Session, seen: bytes | None) -> None:
    """A store that was moved, or lies beside the side file of another one, is taken as it is; a new file is written."""
    store.close()
    side = beside(store.path, ".seen")
    side.unlink() if seen is None else side.write_bytes(seen)

    assert session.append(Row(kind="notice")) == [3]
    assert side.read_text().split() == [store.store_id, "3"]


def test_a_store_can_be_copied_and_moved(store: Store, session: Session, tmp_path: Path) -> None:
    """A copy under another name is a store of its own, and both go on."""
    store.close()
    shutil.copy(store.path, tmp_path / "copy.duckdb")
    session.append(Row(kind="notice", name="original"))
    copy = Store.open(tmp_path / "copy.duckdb").open_session("t", take_over=True, about={})
    copy.append(Row(kind="notice", name="copy"))

    assert [r.name for r in session.read(kinds=["notice"])] == ["original"]
    assert [r.name for r in copy.read(kinds=["notice"])] == ["copy"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b"hello world" * 1000,
        lambda b: bytes(len(b)),
        lambda b: b[: len(b) // 2],
        lambda b: b[:8] + bytes([b[8] ^ 255]) + b[9:],
        lambda b: b[:4100] + bytes([b[4100] ^ 255]) + b[4101:],
        lambda b: b[:8200] + bytes([b[8200] ^ 255]) + b[8201:],
        lambda b: b[:12388] + bytes([b[12388] ^ 255]) + b[12389:],
    ],
    ids=["empty", "text", "zeros", "half", "magic", "header 1", "header 2", "first block"],
)
def test_a_file_that_is_broken_is_refused_or_whole(store: Store, session: Session, damage: object) -> None:
    """A broken file gives a short message and is kept; damage to the header that is not in use changes nothing."""
    session.append(Row(kind="notice"))
    session.close()
    store.close()
    store.path.write_bytes(damage(store.path.read_bytes()))
    try:
        found = Store.open(store.path).rows("select last_seq from threads")[1]
    except StoreDamaged:
        assert_refused(store.path)
    else:
        assert found == [(4,)]


def test_a_file_that_lacks_its_end_is_noticed(path: Path) -> None:
    """Wherever a file ends too early, no row is missing, or it is said: DuckDB opens some of these without a word."""
    store = Store.open(path)
    session = store.open_session("t", about={})
    for _ in range(4):
        session.append(*(Row(kind="value", body=os.urandom(200_000)) for _ in range(5)))
        store.close()
    session.close()
    store.close()
    content, question = path.read_bytes(), "SELECT count(*), sum(hash(body)) FROM journal"
    whole, noticed = store.rows(question), 0
    for size in range(500_000, len(content), 300_000):
        path.write_bytes(content[:size])
        try:
            assert store.rows(question) == whole
        except StoreDamaged:
            noticed += 1
        assert path.read_bytes() == content[:size]

    assert noticed > 20


def test_a_file_that_is_shorter_than_its_header_says_is_cut_off(store: Store) -> None:
    """Where DuckDB opens such a file without a word, as it did with blocks of 256 KiB, we say it."""
    size = store.path.stat().st_size
    facts = Facts(store.store_id, "1", 0, size + 32768)

    with pytest.raises(StoreDamaged, match=f"was cut off: it has {size} bytes and must have {size + 32768} at least"):
        check_whole(store.path, facts)


def test_a_row_that_was_deleted_by_hand_is_noticed(store: Store, session: Session) -> None:
    """A gap in the numbers of a thread is damage: the thread is not opened, and the view says so."""
    session.append(Row(kind="notice"), Row(kind="notice"))
    session.close()
    store.close()
    with duckdb.connect(str(store.path)) as con:
        con.execute("DELETE FROM journal WHERE seq = 3")
    beside(store.path, ".seen").unlink()
    with pytest.raises(StoreDamaged, match="lacks rows of thread 't' before its row 5"):
        store.open_session("t", about={})

    assert store.rows("select is_complete from threads")[1] == [(False,)]


def test_damage_inside_is_found_when_it_is_read(path: Path) -> None:
    """A flipped byte in a block of data gives `StoreDamaged` when those rows are read, not DuckDB's own words alone."""
    store = Store.open(path)
    session = store.open_session("t", about={})
    for _ in range(20):
        session.append(Row(kind="value", body=os.urandom(200_000)))
    session.close()
    store.close()
    content = bytearray(path.read_bytes())
    for at in range(1_500_000, len(content), 100_000):
        content[at] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match="damaged"):
        Store.open(path).visitor("t").read()
    with pytest.raises(StoreDamaged, match="damaged"):
        Store.open(path).rows("select sum(hash(body)) from journal")
