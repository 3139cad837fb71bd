"""Who else in this process has a store open in DuckDB, by name, so that a person knows what to close."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def in_this_process(path: Path) -> list[str]:
    """What has it open, each as what a person runs to let go of it; empty if that is nothing that has a name.

    Looked at are the variables of the notebook or script, JupySQL's connections, and DuckDB's default one.
    """
    found = (_letting_go(name, closing, held, path) for name, closing, held in _connections())
    return [ending for ending in found if ending]


def _connections() -> Iterator[tuple[str, str, duckdb.DuckDBPyConnection]]:
    """A name of each, what closes it, and itself."""
    seen: set[int] = set()
    for name, value in list(vars(sys.modules["__main__"]).items()):
        if isinstance(value, duckdb.DuckDBPyConnection) and not name.startswith("_") and id(value) not in seen:
            seen.add(id(value))
            yield name, f"{name}.close()", value
    manager: Any = getattr(sys.modules.get("sql.connection"), "ConnectionManager", None)
    for name, value in list(getattr(manager, "connections", {}).items()):
        held = getattr(value, "_connection", None)
        if isinstance(held, duckdb.DuckDBPyConnection) and id(held) not in seen:
            yield "", f"%sql --close {name}", held
    yield "duckdb", "duckdb.default_connection().close()", duckdb.default_connection()


def _letting_go(name: str, closing: str, held: duckdb.DuckDBPyConnection, path: Path) -> str:
    """What lets go of the file, if it has that: detaching it, where the connection holds another database as well."""
    sql = "SELECT database_name, path FROM duckdb_databases() WHERE NOT internal"
    try:  # on a cursor: what the connection itself is reading stays
        found = {str(database): where for database, where in held.cursor().execute(sql).fetchall()}
    except duckdb.Error:  # closed, or broken
        return ""
    ours = [database for database, where in found.items() if where and os.path.realpath(where) == str(path)]
    if not ours:
        return ""
    return f"{name}.execute('DETACH {ours[0]}')" if name and len(found) > 1 else closing
