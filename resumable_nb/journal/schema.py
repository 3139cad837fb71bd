"""The tables, views and macros of a store: making a new one, and lifting an old one to the format of this version."""

from __future__ import annotations

import functools
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from resumable_nb.errors import StoreDamaged, StoreTooNew, StoreUnwritable
from resumable_nb.journal import files, sealing
from resumable_nb.journal.bars import without_bars
from resumable_nb.journal.processes import writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckdb import DuckDBPyConnection

FORMAT = 1
MIGRATIONS: Mapping[int, str] = {}
"""SQL that lifts a store of format n to n + 1. Each released format has a golden file in the tests; and its schema.sql
is kept as schema_<n>.sql, for a store is compared with what made it before it is lifted."""


@functools.cache
def part(name: str, of_format: int = FORMAT) -> str:
    """One part of the schema of a format: `tables`, `views` or `comments`."""
    file = "schema.sql" if of_format == FORMAT else f"schema_{of_format}.sql"
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    parts = re.split(r"^-- \[(\w+)\]$", text, flags=re.MULTILINE)
    return parts[parts.index(name) + 1]


@functools.cache
def definitions() -> Mapping[str, str]:
    """The views and macros by name, each as the statement that makes it."""
    found = re.finditer(r"^CREATE (?:VIEW|MACRO) (\w+).*?;$", part("views"), re.MULTILINE | re.DOTALL)
    return {one[1]: one[0] for one in found}


@without_bars()
def create(path: Path, key: sealing.Key | None) -> None:
    """Make an empty store, whole or not at all, for its user only. Call it with the store's lock held.

    It is made under another name in a private folder beside it and linked into place, so that nobody ever sees half of
    it, and an existing file is never overwritten. With a key, it is encrypted.

    Raises:
        StoreUnwritable: the folder does not exist or cannot be written; or DuckDB cannot encrypt here.
        FileExistsError: there is a file already.
    """
    advice = "Name a folder that exists and that you can write to"
    with files.folder_beside(path, cannot="made", advice=advice) as folder:
        made = folder / "new.duckdb"
        try:
            _make(made, key)
        except duckdb.Error as error:
            raise StoreUnwritable(f"{path} cannot be made: {error}") from error
        os.chmod(made, 0o600)
        files.put_new(made, path)


def _make(made: Path, key: sealing.Key | None) -> None:
    with duckdb.connect(config=sealing.CONFIG) as con:
        # Each close writes the rows since the last large merge anew before it frees their old place, so a store of
        # 2,000 steps is twice its content; half-empty blocks of 256 KiB, the default, would make that three times.
        # In blocks so small, FSST leaves texts of 4 KiB as they are; the schema asks for zstd, which does not mind.
        sealing.attach(con, made, "made", "BLOCK_SIZE 16384", "STORAGE_VERSION 'v2.0.0'", key=key)
        fill(con, "made")
        con.execute("DETACH made")


def fill(con: DuckDBPyConnection, database: str, of_format: int = FORMAT) -> None:
    """Make our tables, views and macros in an attached, empty database."""
    con.execute(f"USE {database}")
    con.execute("BEGIN")
    for name in ("tables", "views", "comments"):
        con.execute(part(name, of_format))
    con.execute("INSERT INTO store_info VALUES ('format', ?)", [str(of_format)])
    con.execute("INSERT INTO store_info VALUES ('store_id', ?)", [os.urandom(16).hex()])
    con.execute("INSERT INTO store_info VALUES ('created_at', ?)", [datetime.now(UTC).isoformat()])
    con.execute("INSERT INTO store_info VALUES ('created_by', ?)", [writer()])
    con.execute("COMMIT")
    con.execute("USE memory")


def check_format(found: str | None, path: Path) -> int:
    """The format of a store, if this version knows it.

    Raises:
        StoreTooNew: a newer version of this library made it.
        StoreDamaged: it says nothing that makes sense.
    """
    if found is None or not found.isdecimal() or not 1 <= int(found) <= max(int(found), FORMAT):
        raise StoreDamaged(f"{path} says that its format is {found!r}: it is no store of this library, or damaged")
    if int(found) > FORMAT:
        raise StoreTooNew(
            f"{path} has format {found}, and this version of resumable_nb knows formats up to {FORMAT}. "
            "Update with `pip install -U resumable-nb`; nothing was changed"
        )
    return int(found)


def migrate(con: DuckDBPyConnection, found: int, migrations: Mapping[int, str] = MIGRATIONS) -> None:
    """Lift a store to the newest format, one format and one transaction at a time."""
    while found in migrations:
        con.execute("BEGIN")
        try:
            con.execute(migrations[found])
            con.execute("UPDATE store_info SET value = ? WHERE name = 'format'", [str(found + 1)])
            con.execute("COMMIT")
        except BaseException:
            con.execute("ROLLBACK")
            raise
        found += 1
