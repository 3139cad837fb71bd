"""The one way to a store's file: take our lock, open DuckDB, work, stay open for a moment, close.

DuckDB lets one process have a file, and notebooks are many, so nobody keeps it. Found by trying (DuckDB 2.0.1):

- Without a lock of our own around open … close, committed rows get lost when several processes open and close at once.
- Writers starve if a busy one never lets go: it holds the file for `HOLD_S` and pauses `PAUSE_S` before the next time.
- Four notebooks with a step a second each waited 0.2 s for a file that nobody used. So who waits says so, by the time
  stamp of the lock file, and who holds it, idle, looks at that; for a while both then close after each use.
- A write-ahead log that was damaged in its middle is replayed up to there *without a word*, and deleted on close. So a
  log that is there when we come (somebody died) is first read without writing, and counted against the witness.
- A forked child that exits checkpoints, and unlinks, the log of its parent: the lease is closed before a fork.
- When the file under us was replaced or written over, an ordinary close would write into it and delete *its* log.
"""

from __future__ import annotations

import atexit
import errno
import os
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import duckdb
import filelock

from resumable_nb.errors import StoreDamaged, StoreReplaced, StoreUntrusted, StoreUnwritable
from resumable_nb.journal import files, reading, schema, sealing, troubles, trust, witness
from resumable_nb.journal.bars import without_bars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


HOLD_S = 1.0
PAUSE_S = 0.01
_POLL_S = 0.005
_LOOK_S = 0.02
_SHARED_IDLE_S = 0.03
_SHARED_S = 10.0
_RETRY_S = 0.05
_TRIES = 10


class Lease:
    """The open file of one store in this process, for as long as it is needed.

    Attributes:
        mutex: held around every use of the connection, so that number and INSERT of a row are one.
        reader: what answers questions while the file is `closed`.
        access: how DuckDB opens it, with or without a key.
        heads: newest seq of each thread that was looked at since the file was opened; forgotten when it is closed.
    """

    def __init__(self, path: Path, *, idle_s: float, wait_s: float) -> None:
        self.path, self.idle_s, self.wait_s = path, idle_s, wait_s
        self.mutex, self._closed = threading.RLock(), threading.Event()
        self.reader = reading.Reader(path)
        self.heads: dict[str, int] = {}
        self.store_id = self._database = ""
        self._wal = str(files.wal_path(path))
        self.access = sealing.Access(path)
        self._con: duckdb.DuckDBPyConnection | None = None
        self._writing: duckdb.DuckDBPyConnection | None = None
        self._parsed: dict[str, duckdb.Statement] = {}
        self._lock: filelock.BaseFileLock | None = None
        self._witness: witness.Witness | None = None
        self._seen: files.Look | None = None  # the file as DuckDB left it after our last use
        self._trusted: tuple[int, int] | None = None
        self._rows = self._openings = self._depth = 0
        self._opened_at = self._used_at = self._not_before = self._shared_until = 0.0
        self._asked_at: int | None = None  # time stamp of the lock file when we took it
        self._made_lock = False  # whether there was no lock file before
        _leases.add(self)

    @property
    def is_open(self) -> bool:
        """Whether this process has the file open at the moment."""
        return self._con is not None

    def is_same_file(self) -> bool:
        """Whether the path still names the file that was opened last; True if none was."""
        try:
            return self._seen is None or files.look(self.path).identity == self._seen.identity
        except StoreReplaced:
            return self._seen is None

    @contextmanager
    def using(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The open connection, with `mutex` held. DuckDB's errors come out as ours.

        Raises:
            StoreLocked, StoreReplaced, StoreDamaged, StoreUntrusted, StoreTooNew, StoreUnwritable
        """
        with self.mutex:
            self._depth += 1
            try:
                yield self._enter()
            except duckdb.Error as error:
                if isinstance(error, duckdb.FatalException):
                    self.close()  # it can do nothing more; the next one opens the file anew
                    self.access.forget()
                raise troubles.translate(error, self.path) from error
            except RuntimeError as error:
                if "interrupted" not in str(error):
                    raise
                raise KeyboardInterrupt from None  # DuckDB's form of Ctrl-C
            finally:
                self._depth -= 1

    def _enter(self) -> duckdb.DuckDBPyConnection:
        now = time.monotonic()
        if self._con is not None and self._depth == 1:  # a nested use keeps the connection of the outer one
            if now - self._opened_at > HOLD_S:
                self._rest()
            elif not self._is_untouched():
                self.close()
                self._check_identity()  # if it is the same file, written over, look anew at what is in it
        self._used_at = now
        return self._con or self._open()

    def insert(self, con: duckdb.DuckDBPyConnection, sql: str, parameters: object) -> None:
        """Run one INSERT of values. The log is made by the first one; its file is for this user only.

        On a cursor without the optimizer, which has nothing to improve there and costs a tenth; the text is parsed once
        in an opening, which is another.
        """
        if self._writing is None:
            self._writing = self.access.cursor(con)
            self._writing.execute("PRAGMA disable_optimizer")
            self._parsed = {}
        con = self._writing
        if sql not in self._parsed:
            (self._parsed[sql],) = con.extract_statements(sql)
        if os.path.exists(self._wal):
            con.execute(self._parsed[sql], parameters)
        else:
            with files.private_files():
                con.execute(self._parsed[sql], parameters)

    def acknowledge(self, count: int) -> None:
        """Say that `count` rows more are committed: the file is still the one we opened, and the witness knows.

        Raises:
            StoreReplaced: it is not. The rows went to a file that nobody will find.
        """
        self._seen = self._check_identity()  # with a new stamp, where DuckDB has merged its log
        self._rows += count
        if self._witness is not None:
            self._witness.write(self._rows)

    def reopen(self) -> duckdb.DuckDBPyConnection:
        """A new connection for one that can do nothing more, inside `using`."""
        self.close()
        self.access.forget()
        return self._open()

    def close(self) -> None:
        """Let go of the file. A closed store is whole without its log."""
        with self.mutex:
            con, self._con = self._con, None
            writing, self._writing = self._writing, None
            try:
                if writing is not None:
                    writing.close()
                if con is not None and self._is_untouched():
                    self.access.close(con)
                elif con is not None:
                    with suppress(duckdb.FatalException):  # it writes nothing more anyway
                        con.execute("PRAGMA disable_checkpoint_on_shutdown")
                    self.access.close(con)
                    self.access.forget()
            finally:
                self._let_go()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Keep everybody, this process included, from writing, with the file closed: for reading it by other means.

        Where the lock file cannot be made (a read-only folder), nobody is kept out, and reading goes on all the same.
        """
        with self.mutex:
            self.close()
            try:
                self._take_lock(time.monotonic() + self.wait_s)
            except StoreUnwritable:
                if os.access(self.path.parent, os.W_OK):
                    raise
            try:
                yield
            except (StoreUntrusted, StoreDamaged):
                self.withdraw()
                raise
            finally:
                self._let_go()

    def withdraw(self) -> None:
        """Take away the lock file that this process made beside what is no store, while it has the lock."""
        if self._made_lock:
            with suppress(OSError):
                os.unlink(files.lock_path(self.path))

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """As `closed`, with everything in the main file and nothing in a log; the file may be another one afterwards.

        Raises:
            StoreLocked: others write all the time.
        """
        for _ in range(_TRIES):
            with self.using():
                pass  # merges the log of somebody who died, after counting it
            with self.closed():
                if not os.path.exists(self._wal):
                    try:
                        yield
                    finally:
                        if not self.is_same_file():
                            self._seen = self._trusted = None
                    return
        raise troubles.not_locked(self.path, "others that write to it", self.wait_s)

    # ------------------------------------------------------------------ opening
    def _open(self) -> duckdb.DuckDBPyConnection:
        deadline = time.monotonic() + self.wait_s
        time.sleep(max(0.0, self._not_before - time.monotonic()))
        while True:
            try:
                self._take_lock(deadline)
                self._con = self._connect()
                break
            except troubles.HeldElsewhere as held:
                self._let_go()
                if time.monotonic() > deadline:
                    raise troubles.not_locked(self.path, held.holder, self.wait_s) from held
                time.sleep(_RETRY_S)
            except (StoreUntrusted, StoreDamaged):
                self.withdraw()
                self._let_go()
                raise
            except BaseException:
                self._let_go()
                raise
        self.heads.clear()
        self._opened_at = self._used_at = time.monotonic()
        self._openings += 1
        self._closed = threading.Event()
        closer = threading.Thread(
            target=self._close_when_idle,
            args=(self._openings, self._closed),
            name="resumable_nb lease",
            daemon=True,
        )
        closer.start()
        return self._con

    def _take_lock(self, deadline: float) -> None:
        if self._lock is None:
            self._lock = filelock.FileLock(
                files.lock_path(self.path),
                mode=0o600,
                thread_local=False,
                fallback_to_soft=False,
                poll_interval=_POLL_S,
            )
        if not self.path.parent.is_dir():  # filelock would make it
            raise troubles.no_side_file(self.path, files.lock_path(self.path), FileNotFoundError(errno.ENOENT, "gone"))
        self._made_lock = not os.path.lexists(files.lock_path(self.path))
        try:
            self._wait_for_lock(self._lock, deadline)
        except filelock.Timeout:
            raise troubles.not_locked(self.path, troubles.lock_holder(self.path), self.wait_s) from None
        except OSError as error:
            raise troubles.no_side_file(self.path, files.lock_path(self.path), error) from error
        self._asked_at = self._lock_stamp()

    def _wait_for_lock(self, lock: filelock.BaseFileLock, deadline: float) -> None:
        """Take it; while another process has it, tell that one again and again that somebody waits."""
        with suppress(filelock.Timeout):
            lock.acquire(timeout=0)
            return
        while True:
            self._shared_until = time.monotonic() + _SHARED_S
            with suppress(OSError):  # another user's: it is waited for all the same
                os.utime(files.lock_path(self.path))
            left = max(0.0, deadline - time.monotonic())
            try:
                lock.acquire(timeout=min(left, 5 * _LOOK_S))
            except filelock.Timeout:
                if left == 0:
                    raise
            else:
                return

    def _lock_stamp(self) -> int | None:
        with suppress(OSError):
            return os.stat(files.lock_path(self.path)).st_mtime_ns
        return None

    def _idle_s(self) -> float:
        """How long the file stays open without being used."""
        if self._lock_stamp() != self._asked_at:  # somebody waits
            self._shared_until = time.monotonic() + _SHARED_S
        return min(self.idle_s, _SHARED_IDLE_S) if time.monotonic() < self._shared_until else self.idle_s

    @without_bars()
    def _connect(self) -> duckdb.DuckDBPyConnection:
        found = files.look(self.path).identity
        try:
            is_new = self._seen is not None and self._seen.identity != found
            is_counted = (is_new or os.path.exists(self._wal)) and self._look_first()
            con = self.access.open()
            try:
                con.execute("SET threads = 1")  # a second one only makes an INSERT wait for it, for 0.2 ms
                facts = self._examine(con, found)
                if not is_counted:
                    reading.check_whole(self.path, facts)
                self._witness = self._open_witness(facts.store_id)
            except BaseException:
                self.access.close(con)
                raise
        except duckdb.Error as error:
            raise troubles.translate(error, self.path) from error
        self.store_id, self._rows, self._seen = facts.store_id, facts.rows, files.look(self.path)
        return con

    def _look_first(self) -> bool:
        """Read a store that may not be whole, or not ours, without writing: DuckDB would merge its log and delete it.

        That is one with the log of somebody who died, and a file that was put in the place of ours.
        """
        try:
            if os.path.exists(self._wal):
                files.make_private(self._wal)
            con = reading.attached(self.path)
        except duckdb.ResourceInUseException:
            return False  # somebody in this very process has it open, so the log is in use, not left behind
        with con:
            facts = reading.facts(con, "store", self.path)
        self._check_same_store(facts)
        reading.check_whole(self.path, facts)
        return True

    def _check_same_store(self, facts: reading.Facts) -> None:
        if self.store_id not in ("", facts.store_id):
            raise StoreReplaced(
                f"{self.path} is another store now: it has store_id {facts.store_id}, and this kernel opened "
                f"{self.store_id}. Put the file back, or restart the kernel to work with the new one"
            )

    def _examine(self, con: duckdb.DuckDBPyConnection, found: tuple[int, int]) -> reading.Facts:
        """Facts about the store; if this process sees the file for the first time, it is compared with what we make."""
        if files.look(self.path).identity != found:
            raise StoreReplaced(f"{self.path} was replaced while it was being opened. Run this again")
        is_known = found == self._trusted
        facts = reading.facts(con, self._database, self.path) if is_known else self._ask_stranger(con)
        self._check_same_store(facts)
        self._trusted = found
        return facts

    def _ask_stranger(self, con: duckdb.DuckDBPyConnection) -> reading.Facts:
        with trust.outside(con, self.path) as self._database:
            facts = reading.facts(con, self._database, self.path)
            known = schema.check_format(facts.format, self.path)
            trust.check_all(con, self._database, self.path, known)
        schema.migrate(con, known)
        return facts

    def _open_witness(self, store_id: str) -> witness.Witness:
        try:
            return witness.Witness(files.witness_path(self.path), store_id)
        except OSError as error:
            raise troubles.no_side_file(self.path, files.witness_path(self.path), error) from error

    # ------------------------------------------------------------------ letting go
    def _check_identity(self) -> files.Look:
        found = files.look(self.path)
        if self._seen is None or found.identity != self._seen.identity:
            raise StoreReplaced(
                f"{self.path} was replaced by another file while this kernel had it open. Nothing more is written. Put "
                "the file back that was there before, or restart the kernel to work with the new one"
            )
        return found

    def _is_untouched(self) -> bool:
        """Whether the path names the file that we opened, as DuckDB left it."""
        try:
            return files.look(self.path) == self._seen
        except StoreReplaced:
            return False

    def _let_go(self) -> None:
        self._closed.set()
        seen, self._witness = self._witness, None
        try:
            if seen is not None:
                seen.close()
        finally:
            if self._lock is not None and self._con is None:
                self._lock.release()

    def _rest(self) -> None:
        """Close, and give others a chance before the file is opened again."""
        self.close()
        self._not_before = time.monotonic() + PAUSE_S

    def _close_when_idle(self, opening: int, closed: threading.Event) -> None:
        left = 0.0
        # it looks without the mutex: a burst of writes would wait for this thread, for 3 ms each time
        while not closed.wait(max(0.001, min(left, _LOOK_S))):
            left = self._left()
            if left <= 0:
                with self.mutex:
                    if self._openings == opening and self._con is not None and self._left() <= 0:
                        self._rest()

    def _left(self) -> float:
        """Seconds that the file may still stay open."""
        return min(self._used_at + self._idle_s(), self._opened_at + HOLD_S) - time.monotonic()

    def after_fork_in_child(self) -> None:
        """Begin anew: mutex, lock and threads of the parent do not exist here."""
        self.mutex, self._closed = threading.RLock(), threading.Event()
        self._lock, self._depth = None, 0


_leases: weakref.WeakSet[Lease] = weakref.WeakSet()
_held_over_fork: list[Lease] = []


def _before_fork() -> None:
    """Close every store: a child that exits would write to, and delete, the log of its parent."""
    for lease in list(_leases):
        lease.mutex.acquire()
        _held_over_fork.append(lease)
        lease.close()
        lease.reader.close()  # the threads of these two do not exist in the child
        lease.access.forget()


def _after_fork_in_parent() -> None:
    while _held_over_fork:
        _held_over_fork.pop().mutex.release()


def _after_fork_in_child() -> None:
    while _held_over_fork:
        _held_over_fork.pop().after_fork_in_child()


def _close_all() -> None:
    for lease in list(_leases):
        lease.close()
        lease.reader.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_close_all)
