"""A store: the DuckDB file that holds the journal of many threads."""

from __future__ import annotations

import json
import shlex
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duckdb

from resumable_nb.errors import StoreDamaged, StoreError, StoreUnwritable, ThreadInUse, ThreadNotFound, UsageError
from resumable_nb.failpoints import passing
from resumable_nb.journal import files, past, processes, rewriting, schema, sealing, transfer, troubles
from resumable_nb.journal.lease import Lease
from resumable_nb.journal.rows import Row, from_values, select
from resumable_nb.journal.session import Session, live, told_by

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from resumable_nb.journal.rewriting import Change, Freed
    from resumable_nb.journal.statements import Parameters

QUERY_TIMEOUT_S = 20.0
"""Less than the time that a writer waits, because nobody can write while a query runs."""
_stores: dict[Path, Store] = {}


class Store:
    """A store, opened by `Store.open`. There is one object per real path in a process; no file is held open for long.

    Attributes:
        path: where it is; absolute, without symbolic links.
    """

    def __init__(self, path: Path, *, idle_s: float, wait_s: float) -> None:
        self.path = path
        self._lease = Lease(path, idle_s=idle_s, wait_s=wait_s)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        idle_s: float = 0.5,
        wait_s: float = 30.0,
        allow_symlink: bool = False,
        allow_owner: bool = False,
    ) -> Store:
        """The store at a path. DuckDB opens the file only when it is used; most troubles show then.

        Args:
            path: the DuckDB file.
            create: make it if there is none.
            idle_s: seconds that the file stays open after its last use, for the next one to be fast.
            wait_s: seconds to wait while somebody else holds it.
            allow_symlink: follow a symbolic link.
            allow_owner: open a file that belongs to another user.

        Raises:
            StoreError: there is no file and `create` is False, or it is no ordinary file.
            StoreUntrusted: a symbolic link, or another user's file.
            StoreUnwritable: it cannot be made.
        """
        real = files.real_path(path, allow_symlink=allow_symlink)
        store = _stores.get(real)
        if store is None or not store.names_its_file():
            store = cls(real, idle_s=idle_s, wait_s=wait_s)
        if not real.exists():
            if not create:
                raise StoreError(f"There is no store at {real}. Check the path (`--db`), or open a thread to make one")
            store._create()
        files.check_fit(real, allow_owner=allow_owner)
        _stores[real] = store
        return store

    def names_its_file(self) -> bool:
        """Whether the file at `path` is the one that was opened there last; True if none was."""
        return self._lease.is_same_file()

    @property
    def store_id(self) -> str:
        """What tells this store from every other one, wherever it is moved."""
        if not self._lease.store_id:
            with self._lease.using():
                pass
        return self._lease.store_id

    def threads(self) -> list[str]:
        """The threads in the store, in the order of their names."""
        with self._lease.using() as con:
            return [
                str(name) for (name,) in con.execute("SELECT DISTINCT thread_id FROM journal ORDER BY 1").fetchall()
            ]

    def mark(self) -> tuple[tuple[int, int] | None, ...]:
        """What is another one once somebody has written to the store: the file and its log as they lie there.

        That is cheap, and does not open the file. A new mark does not say that there are new rows.
        """
        found: list[tuple[int, int] | None] = []
        for path in (self.path, files.wal_path(self.path)):
            try:
                about = path.stat()
                found.append((about.st_mtime_ns, about.st_size))
            except FileNotFoundError:
                found.append(None)
        return tuple(found)

    def open_session(self, thread_id: str, *, take_over: bool = False, about: dict[str, Any]) -> Session:
        """Own a thread: a new one, one that nobody has, one whose owner is dead, or, with `take_over`, anybody's.

        On return the session stands in the journal, and every call that was started and never completed is lost.

        Args:
            thread_id: the thread; it is made if there is none.
            take_over: fence off the session that has it; its next append raises `ThreadTakenOver`.
            about: facts to keep in the row that opens the session, such as the notebook; values that JSON knows.

        Raises:
            ThreadInUse: another session has it, and lives, or may live on another machine.
            StoreError: see its subclasses.
        """
        past.check_name(thread_id)
        passing("open.before")
        with self._lease.using() as con:
            found = past.read(con, thread_id, self.path)
            alive = found.owner_is_alive()
            if found.owner and alive is not False and not take_over:
                raise _in_use(thread_id, found.owner, alive)
            died = found.owner.session_id if found.owner and not alive else None
            session = Session(self._lease, thread_id, head=found.head, owns_thread=True, died=died)
            data = {**about, **processes.describe()}
            if found.owner and alive is not False:
                data["took_over"] = found.owner.session_id
            opened = Row(kind="session", phase="opened", data=json.dumps(data))
            created = [Row(kind="thread", phase="created")] if not found.head else []
            session.append(*created, opened, *found.losses())
        live[session.session_id] = session
        passing("open.after")
        return session

    def visitor(self, thread_id: str) -> Session:
        """A session that may read a thread and append to it (a decision, say) without owning it; writes no row itself.

        Raises:
            ThreadNotFound: there is no such thread.
        """
        with self._lease.using() as con:
            found = past.read(con, thread_id, self.path)
            if not found.head:
                raise past.not_found(con, thread_id, self.path)
            return Session(self._lease, thread_id, head=found.head, owns_thread=False)

    def fork(self, thread_id: str, seq: int, new_id: str) -> int:
        """Copy the rows 1 to `seq` of a thread to a new one, in one INSERT; gives the number of rows it then has.

        What is open there is closed in the copy: calls in flight are lost, undecided approvals dropped. The last row
        says where the copy comes from.

        Raises:
            ThreadNotFound: there is no such thread, or no such row.
            UsageError: a thread `new_id` is there already.
        """
        past.check_name(new_id)
        with self._lease.using() as con:
            head = past.read(con, thread_id, self.path).head
            if not head:
                raise past.not_found(con, thread_id, self.path)
            if not 1 <= seq <= head:
                raise ThreadNotFound(
                    f"Thread {thread_id!r} has no row {seq}: it has 1 to {head}. See `%resumable history`"
                )
            past.check_state_is_left(con, thread_id, seq)
            if past.read(con, new_id, self.path).head:
                raise UsageError(f"{self.path} has a thread {new_id!r} already. Give the fork another name")
            passing("journal.append.before")
            self._lease.insert(con, *past.fork_statement(thread_id, seq, new_id, datetime.now(UTC)))
            passing("journal.append.after")
            copied = past.read(con, new_id, self.path).head
            self._lease.acknowledge(copied)
        return copied

    def family(self, thread_id: str) -> list[str]:
        """The other threads that are forks or copies of this one, or that it is one of, at any remove."""
        return [str(name) for (name,) in self.rows(past.FAMILY, {"thread": thread_id})[1]]

    def export(self, thread_id: str, file: Path) -> dict[str, Any]:
        """Write a thread to a new file. See `transfer.export`."""
        with self._lease.closed(), self._translated():
            return transfer.export(self.path, thread_id, file)

    def take_in(self, unpacked: transfer.Unpacked, new_id: str | None = None) -> str:
        """Take the thread of a file that was checked in, in one INSERT; gives its name.

        Where the store has the thread or one of its family, it comes in as a fork: what was paid is counted there, and
        what is open there is not open twice. Else what waits goes on waiting here.

        Raises:
            UsageError: there is a thread of that name.
        """
        name = new_id or unpacked.thread_id
        past.check_name(name)
        with self._lease.using() as con:
            if past.read(con, name, self.path).head:
                raise UsageError(f"{self.path} has a thread {name!r} already. Give this one another name: --as NEW")
            statement = transfer.import_statement(con, unpacked, name, datetime.now(UTC))
            passing("journal.append.before")
            self._lease.insert(con, *statement)
            passing("journal.append.after")
            self._lease.acknowledge(past.read(con, name, self.path).head)
        return name

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            raise troubles.translate(error, self.path) from error

    def freed(self, changes: Sequence[Change], stamp: str) -> dict[str, Freed]:
        """What `rewrite` with these changes would free, by thread. Nothing is changed."""
        with self._lease.closed(), self._translated():
            return rewriting.freed(self.path, changes, stamp)

    def rewrite(
        self, changes: Sequence[Change], stamp: str, *, backup: Path | None = None, leave_unseen: bool = False
    ) -> None:
        """Put a store that is changed so in the place of this one, whole or not at all. See `rewriting.rewrite`."""
        with self._lease.replacing(), self._translated():
            key = sealing.key_of()
            rewriting.rewrite(self.path, changes, stamp, key, backup=backup, leave_unseen=leave_unseen)

    def convert(self, key: sealing.Key | None, *, leave_unseen: bool) -> None:
        """Put the same store in the place of this one, encrypted with a key, or plain if that is None."""
        with self._lease.replacing(), self._translated():
            rewriting.rewrite(self.path, (), "", key, backup=None, leave_unseen=leave_unseen)

    def query(self, sql: str, params: Parameters = None, *, timeout_s: float = QUERY_TIMEOUT_S) -> pd.DataFrame:
        """Ask one SELECT (or EXPLAIN) of the views, or of `journal`, without trusting the file; times are UTC.

        Args:
            sql: the statement; `?` or `$name` stand for values.
            params: the values, a list or a dict.
            timeout_s: seconds until it is broken off.

        Raises:
            QueryRefused: it is something else, is wrong, or takes too long.
        """
        with self._lease.closed():
            return self._lease.reader.frame(sql, params, timeout_s=timeout_s, wait_s=self._lease.wait_s)

    def rows(
        self, sql: str, params: Parameters = None, *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The same as `query` without pandas: names of the columns, and rows."""
        with self._lease.closed():
            return self._lease.reader.rows(sql, params, timeout_s=timeout_s, wait_s=self._lease.wait_s)

    def look(self, thread_id: str) -> list[Row]:
        """All rows of a thread without request, response and body, read without trusting the file."""
        query = f"SELECT {select(bodies=False)} FROM journal WHERE thread_id = ? ORDER BY seq"
        return [from_values(row) for row in self.rows(query, [thread_id])[1]]

    def close(self) -> None:
        """Let go of the file now instead of after `idle_s`. The store and its sessions can still be used."""
        self._lease.close()

    def _create(self) -> None:
        wal = files.wal_path(self.path)
        if not self.path.parent.is_dir():
            raise StoreUnwritable(
                f"{self.path} cannot be made: {self.path.parent} is no folder. Make it, or name another"
            )
        with self._lease.closed():
            if self.path.exists():
                return  # somebody else was faster
            if wal.exists():
                aside = wal.with_name(f"{wal.name}.{time.strftime('%Y%m%d-%H%M%S')}")
                raise StoreDamaged(
                    f"{self.path} is gone, but {wal.name} with its newest rows is there. Put {self.path.name} back; "
                    f"or, to begin a new store, rename it first: mv '{wal}' '{aside}'"
                )
            schema.create(self.path, sealing.key_of())


def _in_use(thread_id: str, owner: Row, alive: bool | None) -> ThreadInUse:  # noqa: FBT001
    unseen = "" if alive else " (whether it still runs cannot be seen from here)"
    opens = f"%resumable open {shlex.quote(thread_id)} --take-over"
    return ThreadInUse(
        f"Thread {thread_id!r} is open in {told_by(owner)}{unseen}. Close it there, or take it over: "
        f"`{opens}`, or take_over=True; the other session can then write to it no more"
    )
