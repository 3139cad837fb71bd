"""Reading a store on behalf of a person, without trusting what is in the file.

The store is attached read-only to an in-memory database in which our own views are made and everything else is locked:
no other files, no extensions, no Python variables, no configuration, a time and a memory limit; `statements` says what
may be asked at all. Views, macros and triggers that the file brings along are never looked at. Times are UTC, whatever
`TZ` says.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import duckdb

from resumable_nb.errors import QueryRefused, StoreUntrusted
from resumable_nb.journal import files, schema, sealing, statements, troubles, trust, witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import pandas as pd

    from resumable_nb.journal.statements import Parameters

T = TypeVar("T")
CONFIG = {**sealing.CONFIG, "memory_limit": "1GB", "python_enable_replacements": False}
_MOST_CHARS = 64 << 20
_TOO_LONG = f"a value of more than {_MOST_CHARS} characters; ask for a shorter one"
_BOUNDED = {
    name: f"CREATE MACRO {name}({', '.join(('value', 'n', *more))}) AS system.main.{name}(value, "
    f"CASE WHEN {size} > {_MOST_CHARS} THEN error('{name} would make {_TOO_LONG}') ELSE n END"
    f"{''.join(f', {one}' for one in more)})"
    for name, size, more in (
        ("repeat", "strlen(value::VARCHAR) * n", ()),
        ("lpad", "n", ("filling",)),
        ("rpad", "n", ("filling",)),
    )
}
"""DuckDB's functions that make a long text of a number, which it allocates past its memory limit: here with a bound."""
_EXACT_IN_FLOAT = 2**53
_ASKS_FOR_NAMES = re.compile(r"\bshow\b|duckdb_|pragma_|sqlite_|pg_|information_schema", re.IGNORECASE)


SIZE_BYTES = "SELECT 3 * 4096 + used_blocks * block_size FROM pragma_database_size()"
"""What the file has to be long at least: three headers, and the blocks that are in use."""


class Facts(NamedTuple):
    """What a store says of itself."""

    store_id: str
    format: str | None
    rows: int
    size_bytes: int


def facts(con: duckdb.DuckDBPyConnection, database: str, path: Path) -> Facts:
    """Read them without touching anything of the file but its two tables.

    Raises:
        StoreUntrusted: it has no such tables.
    """
    main = f"{trust.quoted(database)}.main"
    sql = "SELECT table_name FROM duckdb_tables() WHERE database_name = ? AND schema_name = 'main'"
    tables = {name for (name,) in con.execute(sql, [database]).fetchall()}
    if not {"journal", "store_info"} <= tables:
        raise StoreUntrusted(
            f"{path} is a DuckDB file, but no store of this library: it has no tables `journal` and `store_info`. Name "
            "another file for the store; it is made if it does not exist"
        )
    info = dict(con.execute(f"SELECT name, value FROM {main}.store_info").fetchall())
    (rows,) = con.execute(f"SELECT count(*) FROM {main}.journal").fetchall()[0]
    (size,) = con.execute(f"{SIZE_BYTES} WHERE database_name = ?", [database]).fetchall()[0]
    return Facts(str(info.get("store_id", "")), info.get("format"), rows, size)


def check_whole(path: Path, found: Facts) -> None:
    """Compare the length of the file, and the number of rows with what the witness knows.

    Raises:
        StoreDamaged: some are missing.
    """
    if path.stat().st_size < found.size_bytes:
        raise troubles.cut_off(path, found.size_bytes)
    expected = witness.read(files.witness_path(path), found.store_id)
    if expected is not None and found.rows < expected:
        raise troubles.rows_missing(path, found.rows, expected)


def attached(path: Path) -> duckdb.DuckDBPyConnection:
    """An in-memory database with the store attached read-only, as `store`. DuckDB's errors pass, but about the key."""
    con = duckdb.connect(config=CONFIG)
    try:
        _attach(con, path)
    except BaseException:
        con.close()
        raise
    return con


def _attach(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    sealing.attach(con, path, "store", "READ_ONLY", key=sealing.key_of())


class Reader:
    """What answers questions about one store, one at a time, with the store's lease held and its file closed.

    The in-memory database is kept from question to question (making one takes 15 ms, all views 20 ms); the file is
    attached, checked and detached for each. It is locked when the file is attached for the first time: DuckDB then
    refuses every file but this one. After an error that may have left something behind, a new one is made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._con: duckdb.DuckDBPyConnection | None = None
        self._made: set[str] = set()

    def rows(
        self, sql: str, params: Parameters, *, timeout_s: float, wait_s: float
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of the columns, and the rows."""

        def fetch(con: duckdb.DuckDBPyConnection) -> tuple[list[str], list[tuple[Any, ...]]]:
            return [str(column[0]) for column in con.description or ()], con.fetchall()

        return self._answer(sql, params, fetch, timeout_s=timeout_s, wait_s=wait_s)

    def frame(self, sql: str, params: Parameters, *, timeout_s: float, wait_s: float) -> pd.DataFrame:
        """The answer as a pandas DataFrame; times have the zone UTC."""
        return self._answer(sql, params, _frame, timeout_s=timeout_s, wait_s=wait_s)

    def close(self) -> None:
        """Drop the in-memory database. The next question makes a new one."""
        con, self._con = self._con, None
        self._made.clear()
        if con is not None:
            con.close()

    def _answer(
        self,
        sql: str,
        params: Parameters,
        fetch: Callable[[duckdb.DuckDBPyConnection], T],
        *,
        timeout_s: float,
        wait_s: float,
    ) -> T:
        con = self._con = self._con or duckdb.connect(config=CONFIG)
        statements.check(con, sql)
        try:
            self._attach(con, wait_s)
            found = _limited(con, lambda: fetch(self._execute(con, sql, params)), timeout_s)
            con.execute("DETACH store")
        except (duckdb.ProgrammingError, duckdb.DataError) as error:
            con.execute("DETACH store")
            if str(error).startswith(f"Invalid Input Error: {troubles.FORGED}"):
                raise troubles.translate(error, self.path) from error
            raise QueryRefused(f"DuckDB refuses the query: {error}") from error
        except duckdb.Error as error:
            self.close()
            # a block with a wrong checksum raises the base class itself
            if isinstance(error, duckdb.IOException | duckdb.FatalException) or type(error) is duckdb.Error:
                raise troubles.translate(error, self.path) from error
            raise QueryRefused(f"DuckDB refuses the query: {error}") from error
        except BaseException:
            self.close()
            raise
        return found

    def _attach(self, con: duckdb.DuckDBPyConnection, wait_s: float) -> None:
        """Attach the file when it is free, check it and, for the first time, lock everything else."""
        _wait_for(con, self.path, wait_s)
        found = facts(con, "store", self.path)
        schema.check_format(found.format, self.path)
        trust.check_tables(con, "store", self.path)
        check_whole(self.path, found)
        if not self._made:
            for table in ("journal", "store_info"):
                con.execute(f"CREATE VIEW {table} AS SELECT * FROM store.main.{table}")
            self._made.update(("journal", "store_info"))
            con.execute("SET TimeZone = 'UTC'")
            con.execute("SET enable_external_access = false")
            con.execute("SET lock_configuration = true")

    def _execute(self, con: duckdb.DuckDBPyConnection, sql: str, params: Parameters) -> duckdb.DuckDBPyConnection:
        self._make(con, schema.definitions() if _ASKS_FOR_NAMES.search(sql) else _words(sql))
        try:
            return con.execute(sql, params)
        except duckdb.CatalogException:
            if not self._make(con, schema.definitions()):
                raise
            return con.execute(sql, params)  # a name written in another way, or a wrong one and what it may have meant

    def _make(self, con: duckdb.DuckDBPyConnection, names: Iterable[str]) -> bool:
        """Make those of our views and macros that are named and not there yet, with what they are made from."""
        is_any, known = False, {**_BOUNDED, **schema.definitions()}
        for name in known.keys() & set(names):
            if name in self._made:
                continue
            definition = known[name]
            self._made.add(name)
            self._make(con, _words(definition))
            con.execute(definition)
            is_any = True
        return is_any


def _frame(con: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """The answer with sums as whole numbers: DuckDB gives HUGEINT, which is what they are, as floating point."""
    places = [place for place, (_, kind, *_) in enumerate(con.description or ()) if str(kind) == "HUGEINT"]
    found = con.df()
    for place in places:
        column = found.iloc[:, place]
        if not (column.abs() > _EXACT_IN_FLOAT).any():
            found.isetitem(place, column.astype("Int64" if column.hasnans else "int64").array)
    return found


def _words(sql: str) -> set[str]:
    return set(re.findall(r"\w+", sql.lower()))


def _wait_for(con: duckdb.DuckDBPyConnection, path: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        files.look(path)  # or say that it is gone
        try:
            _attach(con, path)
        except duckdb.Error as error:
            trouble = troubles.translate(error, path)
            if not isinstance(trouble, troubles.HeldElsewhere):
                raise trouble from error
            if time.monotonic() > deadline:
                raise troubles.not_locked(path, trouble.holder, wait_s) from error
            time.sleep(0.05)
        else:
            return


def _limited(con: duckdb.DuckDBPyConnection, work: Callable[[], T], timeout_s: float) -> T:
    """Do the work in another thread: DuckDB on its own notices Ctrl-C only at times, and knows no time limit."""
    with ThreadPoolExecutor(1, thread_name_prefix="resumable_nb query") as pool:
        future, deadline = pool.submit(work), time.monotonic() + timeout_s
        try:
            # in short waits: a signal that another thread received wakes no longer one
            while not wait([future], timeout=0.05).done and time.monotonic() < deadline:
                pass
            if future.done():
                return future.result()
            raise QueryRefused(
                f"The query took longer than {timeout_s:g} s, and nobody can write to the store meanwhile. Ask for "
                "less (a LIMIT, one thread_id); in Python, `thread.sql(query, timeout_s=60)` gives it more time"
            )
        finally:
            while not future.done():  # again and again: it may not have begun yet
                con.interrupt()
                wait([future], timeout=0.05)
