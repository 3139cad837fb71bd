"""The file itself: how it is made, what is refused, what happens when it or its disk changes."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from resumable_nb.errors import StoreDamaged, StoreError, StoreReplaced, StoreTooNew, StoreUntrusted, StoreUnwritable
from resumable_nb.journal import Row, Session, Store, schema
from tests.journal.others import killed, run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount, or to become another user")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


# ---------------------------------------------------------------- made
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_every_file_is_for_its_user_only(path: Path, umask: int) -> None:
    """Store, log, lock and side file have mode 0600 under any umask, from the first moment that they are there."""
    before = os.umask(umask)
    try:
        session = Store.open(path, idle_s=600).open_session("t", about={})
        session.append(Row(kind="notice"))
        found = {p.name: mode(p) for p in path.parent.iterdir()}
        assert os.umask(umask) == umask
    finally:
        os.umask(before)

    assert found == dict.fromkeys([path.name + s for s in ("", ".wal", ".lock", ".seen")], 0o600)


def test_the_log_of_a_killed_process_is_for_its_user_only(path: Path) -> None:
    """A process that dies right after its first INSERT leaves no log that others can read."""
    Store.open(path)
    killed(
        "Store.open(args[0], idle_s=600).open_session('t', about={})",
        path,
        env={"RESUMABLE_NB_FAILPOINT": "journal.append.after"},
    )

    assert mode(beside(path, ".wal")) == 0o600


def test_a_store_is_made_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When making it fails, no half store is left; when it works, nothing but the store and its lock is."""
    with monkeypatch.context() as broken:
        broken.setattr(schema, "part", lambda name, _: {"tables": "CREATE TABLE journal (i INT)"}.get(name, "nonsense"))
        with pytest.raises(StoreUnwritable, match="cannot be made"):
            Store.open(path)
    assert [p.name for p in path.parent.iterdir()] == ["research.duckdb.lock"]
    Store.open(path)

    assert sorted(p.name for p in path.parent.iterdir()) == ["research.duckdb", "research.duckdb.lock"]


def test_stores_made_at_once_are_one(path: Path) -> None:
    """Four processes that open a store that is not there end up with one and the same."""
    from tests.journal.others import Other

    others = [Other("say(0); hear(); say(Store.open(args[0]).store_id)", path) for _ in range(4)]
    [o.hear() for o in others]
    [o.say() for o in others]
    ids = [o.hear() for o in others]
    [o.end() for o in others]

    assert len(set(ids)) == 1


def test_one_store_per_file_in_a_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the path is written, a process has one object for a store."""
    store = Store.open(path)
    monkeypatch.chdir(path.parent)

    assert Store.open(path.name) is store
    assert Store.open(path.parent / "." / ".." / path.parent.name / path.name) is store


def test_the_storage_format_keeps_closing_cheap(path: Path) -> None:
    """The file has DuckDB's v2.0.0 format: older ones write tens of megabytes at each close."""
    Store.open(path)
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{path}' AS s (READ_ONLY)")
        (tags,) = con.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 's'").fetchall()[0]

    assert tags["storage_version"].startswith("v2.0")


def test_a_log_without_its_store_stops_a_new_one(store: Store, session: Session) -> None:
    """If the store is gone but its newest rows are still there, no new one is made over them: a person decides."""
    path = store.path
    killed(
        "Store.open(args[0], idle_s=600).open_session('u', about={})",
        path,
        env={"RESUMABLE_NB_FAILPOINT": "open.after"},
    )
    path.unlink()
    with pytest.raises(StoreDamaged, match=r"is gone, but .*\.wal.*mv "):
        Store.open(path)

    assert beside(path, ".wal").exists()


# ---------------------------------------------------------------- refused
def test_a_missing_store_is_not_made_when_it_must_exist(path: Path) -> None:
    """`create=False` refuses a path without a store and makes none."""
    with pytest.raises(StoreError, match="There is no store at"):
        Store.open(path, create=False)

    assert list(path.parent.iterdir()) == []


def test_a_symbolic_link_is_refused_unless_asked_for(tmp_path: Path, path: Path) -> None:
    """A link is named with its target; asked for, it is the store that it points to."""
    store = Store.open(path)
    link = tmp_path / "link.duckdb"
    link.symlink_to(path)
    with pytest.raises(
        StoreUntrusted, match=f"symbolic link to {path}.* name the file itself: {os.path.realpath(path)}$"
    ):
        Store.open(link)

    assert Store.open(link, allow_symlink=True) is store


@pytest.mark.parametrize("suffix", [".lock", ".seen"])
def test_a_link_in_place_of_a_side_file_is_refused(tmp_path: Path, store: Store, suffix: str) -> None:
    """A link that somebody put where a side file belongs is not followed: its target stays as it is."""
    target = tmp_path / "precious"
    target.write_text("mine")
    target.chmod(0o644)
    beside(store.path, suffix).symlink_to(target)
    with pytest.raises(StoreUntrusted, match="symbolic link"):
        store.open_session("t", about={})

    assert (target.read_text(), mode(target)) == ("mine", 0o644)


@ROOT_ONLY
def test_another_users_store_is_refused_unless_asked_for(store: Store) -> None:
    """The owner is named; asked for, the store is opened."""
    os.chown(store.path, 1234, -1)
    with pytest.raises(StoreUntrusted, match="belongs to user 1234"):
        Store.open(store.path)

    assert Store.open(store.path, allow_owner=True) is store


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_is_refused(path: Path, make: object) -> None:
    """A folder or a pipe at the path is named as such, and is not waited for."""
    make(path)
    with pytest.raises(StoreError, match=r"is a (folder|pipe), not a file"):
        Store.open(path)


@pytest.mark.parametrize("folder", ["missing/research.duckdb", "file/research.duckdb"])
def test_a_folder_that_is_none(tmp_path: Path, folder: str) -> None:
    """A store in a folder that does not exist, or is a file, is refused with the reason; no folder is made."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnwritable, match="folder"):
        Store.open(tmp_path / folder)

    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@ROOT_ONLY
def test_a_path_that_may_not_be_reached(public_folder: Path) -> None:
    """A store in a folder that is closed to this user is refused in words."""
    public_folder.chmod(0o700)
    source = """
import shutil
from resumable_nb.errors import StoreError
os.setgid(65534); os.setuid(65534)
try:
    Store.open(args[0])
except StoreError as error:
    say(str(error))
"""

    assert "Permission denied" in run(source, public_folder / "research.duckdb")[0]


def test_a_database_of_something_else_is_left_alone(path: Path) -> None:
    """A DuckDB file with other tables is no store; nothing is written to it."""
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE sales (amount INT)")
    before = path.read_bytes()
    with pytest.raises(StoreUntrusted, match="no store of this library"):
        Store.open(path).open_session("t", about={})
    with pytest.raises(StoreUntrusted, match="no store of this library"):
        Store.open(path).rows("select 1")

    assert path.read_bytes() == before


def test_a_store_of_a_newer_version_is_refused(store: Store) -> None:
    """A store with a format that this version does not know is neither written nor read; the message says: update."""
    with duckdb.connect(str(store.path)) as con:
        con.execute("UPDATE store_info SET value = '2' WHERE name = 'format'")
        con.execute("ALTER TABLE journal ADD COLUMN novelty INT")
    for use in (lambda: store.open_session("t", about={}), lambda: store.rows("select 1"), store.threads):
        with pytest.raises(StoreTooNew, match=r"has format 2.*pip install -U resumable-nb"):
            use()


@pytest.mark.parametrize("said", [None, "0", "-1", "one", ""])
def test_a_store_of_no_known_format_is_refused(store: Store, said: str | None) -> None:
    """A format that never was is damage, not something to guess at."""
    with duckdb.connect(str(store.path)) as con:
        con.execute("UPDATE store_info SET value = ? WHERE name = 'format'", [said])
    with pytest.raises(StoreDamaged, match="format"):
        store.open_session("t", about={})


def test_a_file_of_a_newer_duckdb_is_refused(store: Store) -> None:
    """A storage version that this DuckDB does not know leads to "update DuckDB", not to "damaged"."""
    content = bytearray(store.path.read_bytes())
    content[12:20] = struct.pack("<Q", 1000)
    content[:8] = struct.pack("<Q", checksum(content[8:4096]))
    store.path.write_bytes(content)
    with pytest.raises(StoreTooNew, match=r"newer DuckDB.*pip install -U duckdb"):
        store.open_session("t", about={})


def checksum(block: bytes) -> int:
    """DuckDB's checksum of a block (src/common/checksum.cpp)."""
    result = 5381
    for (word,) in struct.iter_unpack("<Q", block):
        result ^= word * 0xBF58476D1CE4E5B9 % 2**64
    return result


def test_a_file_system_without_locks_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `flock` is not to be had, the store is refused with "local disk". (None such can be mounted here.)"""
    import fcntl

    def flock(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StoreUnwritable, match=r"No locks available.*local disk"):
        store.open_session("t", about={})


# ---------------------------------------------------------------- changed under us
@pytest.mark.parametrize("is_open", [True, False], ids=["while open", "while closed"])
@pytest.mark.parametrize("change", ["deleted", "moved", "new store", "copy", "folder deleted"])
def test_a_file_that_is_not_the_same_any_more_stops_the_session(
    store: Store, session: Session, change: str, is_open: bool, tmp_path: Path
) -> None:
    """Deleted, moved away, replaced: the append is refused in words, and what is at the path now stays as it is."""
    path, spare = store.path, tmp_path / "spare.duckdb"
    store.close()
    shutil.copy(path, spare)
    if change == "new store":
        spare.unlink()
        Store.open(spare)
    session.append(Row(kind="notice"))
    if not is_open:
        store.close()
    match change:
        case "deleted":
            path.unlink()
        case "moved":
            path.rename(tmp_path / "elsewhere.duckdb")
        case "folder deleted":
            os.rename(tmp_path, beside(tmp_path, ".away"))
        case _:
            os.replace(spare, path)
    there = path.read_bytes() if path.exists() else None
    with pytest.raises((StoreReplaced, StoreDamaged)) as told:
        session.append(Row(kind="notice"))

    assert path.name in str(told.value)
    assert (path.read_bytes() if path.exists() else None) == there
    if change == "folder deleted":
        os.rename(beside(tmp_path, ".away"), tmp_path)


def test_a_store_that_is_put_back_is_taken_again(store: Store, session: Session, tmp_path: Path) -> None:
    """A store that was moved away and came back, here or with another inode, is written to again."""
    away = tmp_path / "away.duckdb"
    store.close()
    store.path.rename(away)
    with pytest.raises(StoreReplaced, match="is gone"):
        session.append(Row(kind="notice"))
    shutil.copy(away, store.path)

    assert session.append(Row(kind="notice")) == [3]


@pytest.mark.parametrize("used", [True, False])
def test_closing_over_a_replaced_file_leaves_its_log_alone(
    store: Store, session: Session, tmp_path: Path, used: bool
) -> None:
    """If another store *with its log* is put in place while ours is open, our letting go does not delete that log."""
    other = tmp_path / "other.duckdb"
    killed(
        "Store.open(args[0], idle_s=600).open_session('u', about={})",
        other,
        env={"RESUMABLE_NB_FAILPOINT": "open.after"},
    )
    session.append(Row(kind="notice"))
    log = beside(other, ".wal").read_bytes()
    os.replace(other, store.path)
    os.replace(beside(other, ".wal"), beside(store.path, ".wal"))
    if used:
        for words in ("replaced by another file", "another store now"):
            with pytest.raises(StoreReplaced, match=words):
                session.append(Row(kind="notice"))
    store.close()

    assert beside(store.path, ".wal").read_bytes() == log


def test_a_new_store_after_the_old_one_was_deleted(path: Path) -> None:
    """Somebody who deletes the store to begin anew gets a new one in the same kernel; the old session is refused."""
    old = Store.open(path)
    session = old.open_session("t", about={})
    old.close()
    path.unlink()
    new = Store.open(path)
    assert new.threads() == []
    assert new.store_id != old.store_id
    new.close()

    with pytest.raises(StoreReplaced):
        session.append(Row(kind="notice"))


# ---------------------------------------------------------------- cannot be written
@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def fill(session: Session) -> int:
    """Append until the disk is full; the last number that was acknowledged."""
    while True:
        try:
            session.append(Row(kind="value", body=os.urandom(100_000)))
        except StoreUnwritable as error:
            assert "Free some space" in str(error)
            return session.head


@ROOT_ONLY
def test_a_full_disk_loses_nothing_that_was_acknowledged(small_disk: Path) -> None:
    """A full disk is said in words; what was acknowledged is there, when there is room again the session goes on."""
    store = Store.open(small_disk / "research.duckdb", idle_s=5)
    session = store.open_session("t", about={})
    last = fill(session)
    assert fill(session) >= last
    last = session.head
    subprocess.run(["mount", "-o", "remount,size=60m", small_disk], check=True)
    session.append(Row(kind="notice"))
    store.close()

    read = store.visitor("t").read()
    assert [r.seq for r in read] == list(range(1, last + 2))
    assert all(len(r.body) == 100_000 for r in read if r.kind == "value" and r.body is not None)
    store.close()


def test_a_file_size_limit_is_said_like_a_full_disk(path: Path) -> None:
    """RLIMIT_FSIZE stops an append in words; nothing that was acknowledged is lost, and the process lives."""
    source = """
import resource
from resumable_nb.errors import StoreUnwritable
session = Store.open(args[0], idle_s=60).open_session("t", about={})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
try:
    while True:
        session.append(Row(kind="value", body=os.urandom(100_000)))
except StoreUnwritable as error:
    said = str(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
last = session.head
session.append(Row(kind="notice"))
say([said, last, session.head])
"""
    said, last, head = run(source, path)[0]

    assert "file size limit" in said
    assert head == last + 1 == len(Store.open(path).visitor("t").read())


def test_a_dead_connection_is_replaced_once(store: Store, session: Session) -> None:
    """After DuckDB's FatalException the append is done on a new connection, without a row twice or missing."""
    session.append(Row(kind="notice"))
    with duckdb.connect(str(store.path)) as con:
        con.execute("SET debug_checkpoint_abort = 'before_header'")
        with pytest.raises(duckdb.FatalException):
            con.execute("CHECKPOINT")

    assert session.append(Row(kind="notice"), Row(kind="notice")) == [4, 5]
    assert [r.seq for r in session.read(kinds=["notice"])] == [3, 4, 5]


@pytest.mark.parametrize("at", ["before_truncate", "before_header", "after_free_list_write"])
def test_an_append_whose_connection_dies_is_done_once(store: Store, session: Session, at: str) -> None:
    """DuckDB dies while it merges its log at the end of an INSERT: the rows are in the store once, and known."""
    came: list[Row] = []
    session.on_foreign = came.extend
    session.append(Row(kind="notice"))
    with duckdb.connect(str(store.path)) as con:
        con.execute(f"SET debug_checkpoint_abort = '{at}'; SET checkpoint_threshold = '1KB'")
    new = [Row(kind="value", body=bytes(100_000)), Row(kind="notice", ref_seq=-1)]

    assert session.append(*new) == [4, 5]
    assert session.append(Row(kind="notice")) == [6]
    assert [(r.seq, r.ref_seq) for r in new] == [(4, None), (5, 4)]
    assert [r.seq for r in session.read()] == [1, 2, 3, 4, 5, 6]


def test_a_file_system_without_hard_links(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no hard link can be made, a store is made all the same, and none is written over."""

    def link(_source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    Store.open(path)
    content = path.read_bytes()
    with pytest.raises(FileExistsError):
        schema.create(path, None)

    assert path.read_bytes() == content


NOBODY = """
import shutil
os.setgid(65534); os.setuid(65534)
from resumable_nb.errors import StoreError
store = Store.open(args[0], allow_owner=True)
say(store.rows("select count(*) from journal")[1][0][0])
try:
    store.open_session("t", about={})
except StoreError as error:
    say([type(error).__name__, str(error)])
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users reach; pytest keeps its own ones closed."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@ROOT_ONLY
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_read_only_store_can_be_read(public_folder: Path, what: str) -> None:
    """Who may not write the file, or its folder, can ask SQL; opening a thread says what has to be writable."""
    path = public_folder / "research.duckdb"
    run("Store.open(args[0]).open_session('t', about={}).close()", path)
    for file in (path, beside(path, ".lock"), beside(path, ".seen")):
        os.chown(file, 65534, 65534)
        file.chmod(0o400 if what == "file" and file == path else 0o600)
    if what == "file":
        os.chown(public_folder, 65534, 65534)
    else:
        beside(path, ".lock").unlink()
    count, (kind, told) = run(NOBODY, path)

    assert count == 3
    assert kind == "StoreUnwritable"
    assert "has to be writable" in told or "have to be writable" in told


@ROOT_ONLY
def test_a_read_only_file_system_can_be_read(small_disk: Path) -> None:
    """On a read-only mount SQL is answered, and opening a thread is refused in words."""
    store = Store.open(small_disk / "research.duckdb")
    store.open_session("t", about={}).close()
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)

    assert store.rows("select thread_id from threads")[1] == [("t",)]
    with pytest.raises(StoreUnwritable, match="Read-only file system"):
        store.open_session("t", about={})
