"""Help for a store that is damaged or not trusted: say what is the matter, copy what can be read into a clean store.

Nothing here changes or deletes a file of the store; `put_in_place` renames them, and only when a person has said so.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from resumable_nb.errors import StoreDamaged, StoreError, StoreTooNew, StoreUntrusted
from resumable_nb.journal import checking, files, reading, rows, schema, sealing, troubles, trust
from resumable_nb.journal.lease import Lease
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from resumable_nb.journal.rows import Row

_SIDES = ("", ".wal", ".seen")


class Report(NamedTuple):
    """What `examine` found.

    Attributes:
        rows: rows that can be read, by thread.
        troubles: what is the matter, one sentence each; empty if nothing is.
        needs: what helps: "" (nothing), "rebuild", or "rebuild without log".
    """

    rows: dict[str, int]
    troubles: list[str]
    needs: str


def examine(path: Path) -> Report:
    """Look at a store without changing it, and without the help of the code in it."""
    lease = Lease(path, idle_s=0, wait_s=5)
    told: list[str] = []
    with lease.closed():
        try:
            return _examine(path, told)
        except (StoreError, duckdb.Error) as error:
            told.append(_words(error, path))
        if not files.wal_path(path).exists():
            lease.withdraw()
            return Report({}, told, "")
        try:
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(shutil.copy(path, folder))
                return Report(_examine(copy, []).rows, told, "rebuild without log")
        except (StoreError, duckdb.Error):
            return Report({}, told, "")


class Inspected(NamedTuple):
    """A thread that was looked at row by row.

    Attributes:
        findings: what is wrong with its rows.
        rows: these, without requests, answers and bodies, but with what cells showed; empty where they cannot be read.
    """

    findings: list[checking.Finding]
    rows: list[Row]


def inspect(path: Path, thread_id: str) -> Inspected:
    """Look at every row of a thread without changing anything. Others may write in between two threads."""
    found: list[checking.Finding] = []
    with Lease(path, idle_s=0, wait_s=30).closed():
        try:
            with reading.attached(path) as con:
                con.execute("CREATE TEMP VIEW journal AS SELECT * FROM store.main.journal")
                found += list(checking.findings(con, thread_id))
                light, whole = (rows.select(bodies=bodies) for bodies in (False, True))
                sql = (
                    f"SELECT {light} FROM journal WHERE thread_id = $1 AND kind <> 'outputs' "
                    f"UNION ALL SELECT {whole} FROM journal WHERE thread_id = $1 AND kind = 'outputs' ORDER BY seq"
                )
                return Inspected(found, [rows.from_values(v) for v in con.execute(sql, [thread_id]).fetchall()])
        except (duckdb.Error, TypeError, OverflowError) as error:  # the latter two: a time that is none
            words = str(error).partition("\n")[0]
            return Inspected([*found, checking.Finding(f"Its rows cannot all be read: {words}")], [])


def leftovers(path: Path) -> list[Path]:
    """Files and folders beside a store that processes which were killed have left."""
    return sorted(path.parent.glob(f".{path.name}.*"))


def open_to_others(path: Path) -> list[Path]:
    """Those of a store's files that other users of the machine can read or write."""
    found = [path.with_name(path.name + suffix) for suffix in (*_SIDES, ".lock")]
    return [file for file in found if file.exists() and file.stat().st_mode & 0o077]


def _examine(path: Path, told: list[str]) -> Report:
    with reading.attached(path) as con:
        facts = reading.facts(con, "store", path)
        checks: tuple[Callable[[], object], ...] = (
            lambda: schema.check_format(facts.format, path),
            lambda: trust.check_all(con, "store", path, schema.FORMAT),
            lambda: reading.check_whole(path, facts),
        )
        errors: list[StoreError] = []
        for check in checks:
            try:
                check()
            except StoreError as error:
                errors.append(error)
        sql = "SELECT thread_id, count(*), max(seq) FROM store.main.journal GROUP BY thread_id ORDER BY thread_id"
        found = con.execute(sql).fetchall()
    is_newer = any(isinstance(error, StoreTooNew) for error in errors)
    needs = "rebuild" if errors and not is_newer else ""  # which brings no missing row back
    told += [str(error) for error in errors]
    told += [
        f"Thread {name!r} has {count} of {counted(newest, 'row')}" for name, count, newest in found if count != newest
    ]
    return Report({name: count for name, count, _ in found}, told, needs)


def _words(error: Exception, path: Path) -> str:
    return str(error if isinstance(error, StoreError) else troubles.translate(error, path))


def rebuild(path: Path, target: Path, *, with_log: bool = True) -> int:
    """Copy all rows that can be read into a new, clean store; gives their number. The old one stays as it is.

    Args:
        path: the store.
        target: where the new one is made; there must be no file.
        with_log: False reads the main file alone: what was in a damaged log is left out, and stays in that log.

    Raises:
        StoreDamaged: not even that can be read.
        StoreUntrusted: the journal is no table with our columns.
        StoreTooNew: a newer version made it, whose rows may say more than a store of this version can hold.
    """
    with ExitStack() as stack:
        stack.enter_context(Lease(path, idle_s=0, wait_s=5).closed())
        if not with_log:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=target.parent))
            path = Path(shutil.copy(path, folder))
        schema.create(target, sealing.key_of())
        try:
            return _copy(path, target)
        except BaseException as error:
            target.unlink()
            if isinstance(error, duckdb.Error):
                raise troubles.translate(error, path) from error
            raise


def _copy(path: Path, target: Path) -> int:
    with reading.attached(path) as con:
        with suppress(StoreDamaged, StoreUntrusted):  # what can be read is saved all the same
            schema.check_format(reading.facts(con, "store", path).format, path)
        _check_columns(con, path)
        sealing.attach(con, target, "target", key=sealing.key_of())
        con.execute("SET enable_external_access = false")
        columns = ", ".join(rows.COLUMNS)
        source = f"SELECT {columns} FROM store.main.journal ORDER BY thread_id, seq"
        con.execute(f"INSERT INTO target.main.journal ({columns}) {source}")
        (count,) = con.execute("SELECT count(*) FROM target.main.journal").fetchall()[0]
        con.execute("DETACH target")
    return int(count)


def _check_columns(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """The journal is a table that holds our columns itself, whatever else it may have."""
    sql = (
        "SELECT column_name, data_type, is_generated FROM duckdb_columns() c JOIN duckdb_tables() t "
        "USING (table_oid, database_name) "
        "WHERE database_name = ? AND c.schema_name = 'main' AND c.table_name = 'journal'"
    )
    found = {name: (kind, computed) for name, kind, computed in con.execute(sql, ["store"]).fetchall()}
    with duckdb.connect() as ours:
        ours.execute(schema.part("tables"))
        expected = {name: (kind, computed) for name, kind, computed in ours.execute(sql, ["memory"]).fetchall()}
    wrong = [name for name, what in expected.items() if found.get(name) != what]
    if wrong:
        raise StoreUntrusted(f"{path} cannot be rebuilt: its journal is no table with our columns ({', '.join(wrong)})")


def put_in_place(path: Path, rebuilt: Path) -> list[Path]:
    """Rename the store, its log and its side file, and put the rebuilt store in their place; gives the new names."""
    stamp, kept = time.strftime("%Y%m%d-%H%M%S"), []
    with Lease(path, idle_s=0, wait_s=5).closed():
        for suffix in _SIDES:
            old = path.with_name(path.name + suffix)
            if old.exists():
                kept.append(old.rename(old.with_name(f"{path.name}.{stamp}{suffix}")))
        os.rename(rebuilt, path)
    return kept
