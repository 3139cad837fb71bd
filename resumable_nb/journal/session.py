"""One opening of a thread: appending to it, and seeing what others appended."""

from __future__ import annotations

import functools
import json
import os
import weakref
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from resumable_nb.errors import StoreDamaged, StoreReplaced, ThreadError, ThreadTakenOver, ValueNotStorable
from resumable_nb.failpoints import passing
from resumable_nb.journal import processes, rows
from resumable_nb.journal.rows import Place, Row
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from resumable_nb.journal.lease import Lease

Mark = tuple[int, str, int]
"""A row in short: number, session, microseconds since 1970."""

_MARKS = "SELECT seq, session_id, epoch_us(ts) FROM journal WHERE thread_id = ? AND seq >= ? ORDER BY seq"
_CLOCK_STEP = timedelta(seconds=60)
_AT_ONCE = 1000
_SEQ = attrgetter("seq")
_selected = functools.cache(lambda bodies: rows.select(bodies=bodies))
_insert_sql = functools.lru_cache(maxsize=32)(rows.insert_sql)

live: weakref.WeakValueDictionary[str, Session] = weakref.WeakValueDictionary()
"""By id, the sessions of this process that own their thread and are not closed."""


class Opener(NamedTuple):
    """Who opened a session.

    Attributes:
        told: process, host, user and time, for a message.
        runs_elsewhere: whether it is another process, and lives; None if that cannot be seen from here.
    """

    told: str
    runs_elsewhere: bool | None


class Session:
    """One opening of a thread. Get one from `Store.open_session` or `Store.visitor`. Thread-safe.

    Attributes:
        thread_id: the thread.
        session_id: this opening of it; stands in every row that it writes.
        head: number of the last row of the thread that this session has seen.
        owns_thread: False for a visitor, who fences nobody and is fenced by nobody.
        died: the session that had the thread before and ended without a `closed` row, because its process died.
        on_foreign: called with rows that are in the thread and were not appended here, before this session goes on. It
            must not append.
    """

    def __init__(self, lease: Lease, thread_id: str, *, head: int, owns_thread: bool, died: str | None = None) -> None:
        self.thread_id, self.session_id, self.head = thread_id, os.urandom(16).hex(), head
        self.owns_thread, self.died = owns_thread, died
        self.on_foreign: Callable[[list[Row]], object] = lambda _: None
        self._lease, self._pid, self._writer = lease, os.getpid(), processes.writer()
        self._seen: Mark | None = None  # the row `head`
        self._lost: ThreadTakenOver | None = None
        self._is_closed = False

    @property
    def lost(self) -> ThreadTakenOver | None:
        """Who took the thread over, if somebody did, as of the last look at the store."""
        return self._lost

    def append(self, *new: Row) -> list[int]:
        """Append rows, all or none, in one INSERT. On return they are on disk and carry their numbers, given here too.

        Rows of others that came meanwhile are handed to `on_foreign` first. After Ctrl-C, a row with a number up to
        `head` is in the store; what else is there comes by `on_foreign`.

        Raises:
            ThreadTakenOver: another session owns the thread now. Nothing was appended.
            ValueNotStorable: a value is too large, or no JSON that DuckDB takes. Nothing was appended.
            StoreError: see its subclasses. Nothing was acknowledged; if the rows are in the store all the same, the
                next append hands them to `on_foreign`.
        """
        self._check_usable()
        for row in new:
            rows.check_sizes(row)
        if not new:
            return []
        with self._lease.using() as con:
            try:
                first = self._insert(con, new)
            except duckdb.FatalException:  # the connection is dead, the file is not
                first = self._insert_again(new)
        return list(range(first, first + len(new)))

    def refresh(self) -> list[Row]:
        """Rows that came from others since `head`; they were handed to `on_foreign` too."""
        self._check_usable()
        with self._lease.using() as con:
            return self._catch_up(con)

    def read(
        self,
        *,
        after: int = 0,
        kinds: Iterable[str] | None = None,
        seqs: Iterable[int] | None = None,
        bodies: bool = True,
    ) -> list[Row]:
        """Rows of the thread in order, as they are in the store now.

        Args:
            after: only rows with a greater number.
            kinds: only rows of these kinds.
            seqs: only rows with these numbers.
            bodies: False leaves out `request`, `response` and `body`, which is fast.
        """
        self._check_usable()
        where = "thread_id = ?" + (" AND seq > ?" if after else "")
        params: list[object] = [self.thread_id, *([after] if after else [])]
        narrowed: tuple[tuple[str, Iterable[object] | None], ...] = (("kind", kinds), ("seq", seqs))
        for column, wanted in narrowed:
            if wanted is not None:
                some = list(wanted)
                where, params = f"{where} AND {_is_one_of(column, len(some))}", [*params, *some]
        with self._lease.using() as con:
            found = _fetched(con.execute(f"SELECT {_selected(bodies)} FROM journal WHERE {where}", params))
        found.sort(key=_SEQ)  # in DuckDB it would cost half a millisecond
        return found

    def opener(self, session_id: str) -> Opener:
        """Who opened a session of this thread, or of the one that it was forked from."""
        opened = [r for r in self.read(kinds=("session",), bodies=False) if r.phase == "opened"]
        row = next((r for r in opened if r.session_id == session_id), None)
        if row is None:
            return Opener("a process that the journal does not name", None)
        about = json.loads(row.data or "{}")
        alive = processes.is_alive(about)
        return Opener(told_by(row), alive and about.get("pid") != os.getpid())

    def close(self) -> None:
        """Give the thread free. To close twice, or after a take-over, does nothing."""
        if self._is_closed or self._pid != os.getpid():
            return
        try:
            if self.owns_thread and not self._lost:
                self.append(Row(kind="session", phase="closed"))
        except ThreadTakenOver:
            return  # it was not ours to give
        finally:
            self._is_closed = True
            live.pop(self.session_id, None)

    # ------------------------------------------------------------------ inside
    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            raise ThreadError(
                f"Thread {self.thread_id!r} was opened in process {self._pid}, and this is process {os.getpid()}, "
                "forked from it. Do this in the parent, or open a thread of its own here"
            )
        if self._is_closed:
            raise ThreadError(f"This session of thread {self.thread_id!r} is closed. Open the thread again")

    def _insert(self, con: duckdb.DuckDBPyConnection, new: Sequence[Row]) -> int:
        self._catch_up(con)
        if self._lost:
            raise self._lost.with_traceback(None)
        ts, lease = self._now(), self._lease
        places = [
            Place(self.thread_id, self.head + i, ts, self.session_id, self._writer) for i in range(1, len(new) + 1)
        ]
        values = [value for row, place in zip(new, places, strict=True) for value in rows.parameters(row, place)]
        passing("journal.append.before", new, places[0].seq)
        lease.heads.pop(self.thread_id, None)  # until the INSERT has returned, nobody knows
        try:
            lease.insert(con, _insert_sql(len(new)), values)
        except (duckdb.ConversionException, duckdb.InvalidInputException) as error:
            raise _not_storable(con, new, error) from error
        passing("journal.append.after", new, places[0].seq)
        lease.acknowledge(len(new))
        for row, place in zip(new, places, strict=True):
            row.put(place)
        self._advance((places[-1].seq, self.session_id, rows.microseconds(ts)))
        return places[0].seq

    def _insert_again(self, new: Sequence[Row]) -> int:
        """After the connection died, on a new one; the rows may be in the store already."""
        con, before = self._lease.reopen(), self.head
        came = [row for row in self._catch_up(con) if row.session_id == self.session_id]
        if len(came) != len(new):
            return self._insert(con, new)
        for row, stored in zip(new, came, strict=True):
            row.put(Place(stored.thread_id, stored.seq, stored.ts, stored.session_id, stored.writer))
        return before + 1

    def _now(self) -> datetime:
        """The time; where the clock was set back a little, that of the last row: time and number tell one order."""
        now = datetime.now(UTC)
        last = rows.from_microseconds(self._seen[2]) if self._seen else now
        return last if now < last < now + _CLOCK_STEP else now

    def _advance(self, seen: Mark) -> None:
        self._seen, self.head = seen, seen[0]
        self._lease.heads[self.thread_id] = self.head

    def _catch_up(self, con: duckdb.DuckDBPyConnection) -> list[Row]:
        """See rows that came since `head`. Asks once per opening of the file: meanwhile, nobody else can write."""
        if self._lease.heads.get(self.thread_id) == self.head:
            return []
        marks = con.execute(_MARKS, [self.thread_id, self.head]).fetchall()
        self._check_history(con, marks)
        came = self.read(after=self.head) if marks and marks[-1][0] > self.head else []
        openings = [r for r in came if (r.kind, r.phase) == ("session", "opened") and r.session_id != self.session_id]
        if openings and self.owns_thread:
            self._lost = _taken_over(self.thread_id, openings[-1])
            live.pop(self.session_id, None)
        if came:
            self.on_foreign(came)
        self._advance(marks[-1] if marks else (0, "", 0))
        return came

    def _check_history(self, con: duckdb.DuckDBPyConnection, marks: list[Mark]) -> None:
        """The row `head` has to be there and the same, and no row may be missing after it."""
        path, thread_id = self._lease.path, self.thread_id
        if self.head and (not marks or marks[0][0] != self.head):
            (newest,) = con.execute(_NEWEST, [thread_id]).fetchall()[0]
            raise StoreReplaced(
                f"{path} has {counted(newest, 'row')} of thread {thread_id!r}, but this session had stored "
                f"{self.head}: an older copy was put back. Nothing was written over. Put the newer file back; or "
                "restart the kernel to go on from the older one"
            )
        if self.head and self._seen and marks[0] != self._seen:
            raise StoreReplaced(
                f"{path} has {counted(marks[-1][0], 'row')} of thread {thread_id!r}, but row {self.head} is not the "
                "one that this session stored: another copy was put in its place. Nothing was written over. Put the "
                "file back; or restart the kernel to go on from this one"
            )
        if marks and marks[-1][0] - marks[0][0] + 1 != len(marks):
            raise missing_rows(path, thread_id, marks[-1][0])


def _fetched(asked: duckdb.DuckDBPyConnection) -> list[Row]:
    """The rows of an answer, a part at a time and their texts shared: all at once, 20,000 rows are 20 MB more."""
    found: list[Row] = []
    known: dict[str | None, str | None] = {}
    while some := asked.fetchmany(_AT_ONCE):
        found += [rows.from_values(values, known) for values in some]
        if len(some) < _AT_ONCE:
            break
    return found


def _is_one_of(column: str, count: int) -> str:
    return f"{column} = ?" if count == 1 else f"{column} IN ({', '.join('?' * count)})" if count else "false"


_NEWEST = "SELECT coalesce(max(seq), 0) FROM journal WHERE thread_id = ?"


def missing_rows(path: object, thread_id: str, newest: int) -> StoreDamaged:
    """A thread has a gap in its numbers."""
    return StoreDamaged(
        f"{path} lacks rows of thread {thread_id!r} before its row {newest}: it is damaged, or rows were deleted by "
        f"hand. Nothing was changed. Put a copy back; `resumable-nb doctor --db {path}` says what can be saved"
    )


def told_by(row: Row) -> str:
    """Who opened a session, where and when, from the row that opened it."""
    about = json.loads(row.data or "{}")
    return (
        f"process {about.get('pid', '?')} on {about.get('host', '?')} (user {about.get('user', '?')}), "
        f"since {row.ts:%Y-%m-%d %H:%M:%S} UTC"
    )


def _taken_over(thread_id: str, row: Row) -> ThreadTakenOver:
    return ThreadTakenOver(
        f"Thread {thread_id!r} was taken over by {told_by(row)}. This session can write to it no more; what it stored "
        "before is kept. Go on there, or take it back: `%resumable open --take-over`"
    )


def _not_storable(con: duckdb.DuckDBPyConnection, new: Sequence[Row], error: Exception) -> ValueNotStorable:
    """Name the value that DuckDB refused."""
    for number, row in enumerate(new):
        for column in rows.COLUMNS:
            value, kind = getattr(row, column), "JSON" if column in rows.JSON_COLUMNS else "VARCHAR"
            if isinstance(value, str):
                try:
                    con.execute(f"SELECT ?::{kind}", [value])
                except duckdb.Error as refused:
                    return ValueNotStorable(
                        f"{column} of a {row.kind} row ({number + 1} of {len(new)})", _first_line(refused)
                    )
    return ValueNotStorable(f"a {new[0].kind} row", _first_line(error))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition("  Input:")[0]
