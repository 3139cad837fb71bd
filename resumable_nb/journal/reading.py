"""Reading a store on behalf of a person, without trusting what is in the file.

The store is attached read-only to an in-memory database in which our own views are made and everything else is locked:
no other files, no extensions, no Python variables, no configuration, one SELECT or EXPLAIN, a time and a memory limit.
Views, macros and triggers that the file brings along are never looked at. Times are UTC, whatever `TZ` says.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import duckdb

from resumable_nb.errors import QueryRefused, StoreUntrusted
from resumable_nb.journal import files, schema, troubles, trust, witness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    Parameters = Sequence[object] | Mapping[str, object] | None

T = TypeVar("T")
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "allow_community_extensions": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": "1GB",
    "python_enable_replacements": False,
    "temp_directory": "",
}
_EXPLAIN = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*EXPLAIN\s*(?:ANALYZE\b|\([^)]*\))?", re.IGNORECASE | re.DOTALL)


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
    """An in-memory database with the store attached read-only, as `store`. DuckDB's errors pass."""
    con = duckdb.connect(config=_CONFIG)
    try:
        con.execute(f"ATTACH '{schema.quoted(path)}' AS store (TYPE duckdb, READ_ONLY)")
    except BaseException:
        con.close()
        raise
    return con


def rows(
    path: Path, sql: str, params: Parameters, *, timeout_s: float, wait_s: float
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names of the columns, and the rows."""

    def fetch(con: duckdb.DuckDBPyConnection) -> tuple[list[str], list[tuple[Any, ...]]]:
        return [str(column[0]) for column in con.description or ()], con.fetchall()

    return _answer(path, sql, params, fetch, timeout_s=timeout_s, wait_s=wait_s)


def frame(path: Path, sql: str, params: Parameters, *, timeout_s: float, wait_s: float) -> pd.DataFrame:
    """The answer as a pandas DataFrame; times have the zone UTC."""
    return _answer(path, sql, params, duckdb.DuckDBPyConnection.df, timeout_s=timeout_s, wait_s=wait_s)


def _answer(
    path: Path,
    sql: str,
    params: Parameters,
    fetch: Callable[[duckdb.DuckDBPyConnection], T],
    *,
    timeout_s: float,
    wait_s: float,
) -> T:
    try:
        with _wait_for(path, time.monotonic() + wait_s, wait_s) as con:
            check_statement(con, sql)
            prepare(con, path)
            return _limited(con, lambda: fetch(con.execute(sql, params)), timeout_s)
    except duckdb.Error as error:
        # a block with a wrong checksum raises the base class itself
        if isinstance(error, duckdb.IOException | duckdb.FatalException) or type(error) is duckdb.Error:
            raise troubles.translate(error, path) from error
        raise QueryRefused(f"DuckDB refuses the query: {error}") from error


def _wait_for(path: Path, deadline: float, wait_s: float) -> duckdb.DuckDBPyConnection:
    while True:
        files.look(path)  # or say that it is gone
        try:
            return attached(path)
        except duckdb.Error as error:
            trouble = troubles.translate(error, path)
            if not isinstance(trouble, troubles.HeldElsewhere):
                raise trouble from error
            if time.monotonic() > deadline:
                raise troubles.not_locked(path, trouble.holder, wait_s) from error
            time.sleep(0.05)


def prepare(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Check the attached store, make our views over it, and lock everything else."""
    found = facts(con, "store", path)
    schema.check_format(found.format, path)
    trust.check_tables(con, "store", path)
    check_whole(path, found)
    for table in ("journal", "store_info"):
        con.execute(f"CREATE VIEW {table} AS SELECT * FROM store.main.{table}")
    con.execute(schema.part("views"))
    con.execute("SET TimeZone = 'UTC'")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


def check_statement(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Exactly one SELECT, or one EXPLAIN of a SELECT.

    Raises:
        QueryRefused: it is something else.
    """
    try:
        statements = con.extract_statements(sql)
        kinds = [statement.type for statement in statements]
        if kinds == [duckdb.StatementType.EXPLAIN]:
            kinds = [statement.type for statement in con.extract_statements(_EXPLAIN.sub("", sql, count=1))]
    except duckdb.Error as error:
        raise QueryRefused(f"DuckDB does not understand the query: {error}") from error
    if kinds != [duckdb.StatementType.SELECT]:
        told = ", ".join(kind.name for kind in kinds) or "nothing"
        raise QueryRefused(
            f"Only one SELECT, or EXPLAIN of one, can be asked; this is {told}. The journal is never changed by SQL"
        )


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
                "less (a LIMIT, one thread_id), or give it more time with timeout_s"
            )
        finally:
            while not future.done():  # again and again: it may not have begun yet
                con.interrupt()
                wait([future], timeout=0.05)
