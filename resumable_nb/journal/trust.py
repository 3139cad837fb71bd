"""Whether a store holds exactly what this library makes, and no code of a stranger.

A DuckDB file can carry triggers that run during *our* INSERT, views and macros that read files, and macros that take
the place of built-in functions, `duckdb_tables()` and `||` among them. So before a process writes to a file for the
first time, everything in its catalog is compared, as text, with what we would have made; and that is asked from a
database beside it, in which names mean what they should (`outside`).
"""

from __future__ import annotations

import functools
import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb

from resumable_nb.errors import StoreUntrusted
from resumable_nb.journal import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Entry = tuple[str, str, str, str, str]
"""Kind, schema, name, definition and comment of one thing in a catalog."""
Name = tuple[str, str, str]
"""Kind, schema and name."""

_CATALOG = {
    "table": "table_name, sql, comment, internal FROM duckdb_tables()",
    "column": "table_name || '.' || column_name, concat_ws('|', column_index, data_type, is_nullable, column_default, "
    "is_generated, generation_expression), comment, internal FROM duckdb_columns()",
    "constraint": "table_name, constraint_text, '', false FROM duckdb_constraints()",
    "view": "view_name, sql, comment, internal FROM duckdb_views()",
    "macro": "function_name, concat_ws('|', function_type, parameters, parameter_types, macro_definition), comment, "
    "internal FROM duckdb_functions()",
    "type": "type_name, concat_ws('|', logical_type, labels), comment, internal FROM duckdb_types()",
    "trigger": "trigger_name, sql, comment, false FROM duckdb_triggers()",
    "sequence": "sequence_name, sql, comment, false FROM duckdb_sequences()",
    "index": "index_name, sql, comment, false FROM duckdb_indexes()",
    "schema": "'', '', comment, internal FROM duckdb_schemas()",
}
_TABLES = ("table", "column")
_TABLE_NAMES = ("journal", "store_info")

KNOWN = {
    "2.0.1": {
        "3a1606adc27a93850e37f4c4776c351e7feff010cafed9d831d3812b1387058e",  # everything
        "74abbb17fe5ba3b5deeaea1aa5397aaa093b69a2422838e60e3a9f79d53aebee",  # the tables alone
    },
}
"""By DuckDB version, digests of what `_expected` gives: spares making our schema anew just to compare with it."""


def catalog(con: duckdb.DuckDBPyConnection, database: str, kinds: Iterable[str] = _CATALOG) -> list[Entry]:
    """Everything that a database holds besides rows, in a fixed order."""
    queries = (f"SELECT '{kind}', schema_name, {_CATALOG[kind]} WHERE database_name = $1" for kind in kinds)
    rows = con.execute(" UNION ALL ".join(queries), [database]).fetchall()
    return sorted(
        (kind, folder, name, sql or "", comment or "")
        for kind, folder, name, sql, comment, internal in rows
        if not internal
    )


@contextmanager
def outside(con: duckdb.DuckDBPyConnection, path: Path) -> Iterator[str]:
    """Stand in a database beside the file, whose macros then shadow nothing; gives the file's own database name."""
    beside = f"resumable_nb_{os.urandom(8).hex()}"
    con.execute(f"ATTACH ':memory:' AS {beside}")
    con.execute(f"USE {beside}")
    found = con.execute("SELECT database_name, path FROM duckdb_databases() WHERE path IS NOT NULL").fetchall()
    (database,) = [str(name) for name, where in found if os.path.realpath(where) == str(path)]
    try:
        yield database
    finally:
        con.execute(f"USE {quoted(database)}")
        con.execute(f"DETACH {beside}")


def quoted(name: str) -> str:
    """A name for use in SQL."""
    return '"' + name.replace('"', '""') + '"'


def check_all(con: duckdb.DuckDBPyConnection, database: str, path: Path, of_format: int) -> None:
    """Before the first write: the file holds exactly what we make, or made when its format was the newest.

    Raises:
        StoreUntrusted: it holds something else; all of it is named.
    """
    _compare(catalog(con, database), tuple(_CATALOG), path, of_format)


def check_tables(con: duckdb.DuckDBPyConnection, database: str, path: Path) -> None:
    """Before reading: the two tables are tables of ours. Whatever else the file holds is never looked at.

    Raises:
        StoreUntrusted: they are not.
    """
    _compare(_our_tables(catalog(con, database, _TABLES)), _TABLES, path, schema.FORMAT)


def digest(entries: list[Entry]) -> str:
    """A short form of a catalog, to compare."""
    return hashlib.sha256(repr(entries).encode()).hexdigest()


@functools.cache
def _expected(kinds: tuple[str, ...], of_format: int = schema.FORMAT) -> list[Entry]:
    with duckdb.connect() as con:
        con.execute("ATTACH ':memory:' AS expected")
        schema.fill(con, "expected", of_format)
        entries = catalog(con, "expected", kinds)
    return _our_tables(entries) if kinds == _TABLES else entries


def _our_tables(entries: list[Entry]) -> list[Entry]:
    """Those of our two tables, without comments."""
    ours = [e for e in entries if e[1] == "main" and e[2].partition(".")[0] in _TABLE_NAMES]
    return [(kind, folder, name, definition, "") for kind, folder, name, definition, _ in ours]


def _compare(found: list[Entry], kinds: tuple[str, ...], path: Path, of_format: int) -> None:
    if digest(found) in KNOWN.get(duckdb.__version__, ()):
        return
    expected = _expected(kinds, of_format)
    extra, missing = sorted(set(found) - set(expected)), sorted(set(expected) - set(found))
    if not extra and not missing and len(found) == len(expected):
        return
    theirs, ours = {e[:3] for e in extra}, {e[:3] for e in missing}
    told = [f"{_told(e)} is not as this library makes it" for e in sorted(theirs & ours)]
    told += [f"{_told(e)} is not ours" for e in _but_columns(theirs - ours)]
    told += [f"{_told(e)} is missing" for e in _but_columns(ours - theirs)]
    raise StoreUntrusted(
        f"{path} is not what this library makes: {'; '.join(told[:8])}{'; …' if len(told) > 8 else ''}. A DuckDB file "
        "can run code of whoever made it, so nothing is written to it. `resumable-nb doctor --rebuild` copies its rows "
        "into a clean store"
    )


def _but_columns(entries: set[Name]) -> list[Name]:
    """Without the columns and constraints of a table or view that is in the list itself."""
    whole = {(folder, name) for kind, folder, name in entries if kind in ("table", "view")}
    return sorted(e for e in entries if (e[1], e[2].partition(".")[0]) not in whole or e[0] in ("table", "view"))


def _told(entry: Name) -> str:
    kind, folder, name = entry
    return f"{kind} {folder}.{name}" if folder != "main" else f"{kind} {name}" if name else f"{kind} {folder}"
