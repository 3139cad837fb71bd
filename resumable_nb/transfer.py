"""Handing a thread on: one file that holds all of it, and taking such a file in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from resumable_nb.journal import Store
from resumable_nb.journal.transfer import unpacked

if TYPE_CHECKING:
    import os


def export_thread(
    thread_id: str, file: str | os.PathLike[str], *, db: str | os.PathLike[str] = "research.duckdb"
) -> Path:
    """Write a thread to a file: its rows as Parquet, exactly, in a zip with a manifest. Gives the file.

    The thread may be open; what its session is at is then in flight in the file. The file is not encrypted.

    Args:
        thread_id: the thread.
        file: a new file.
        db: the store.

    Raises:
        ThreadNotFound: There is no such thread.
        UsageError: The file is there already.
    """
    target = Path(file).expanduser().absolute()
    Store.open(db, create=False).export(thread_id, target)
    return target


def import_thread(
    file: str | os.PathLike[str], *, db: str | os.PathLike[str] = "research.duckdb", new_id: str | None = None
) -> str:
    """Take a thread from a file into a store, which is made if there is none. Gives its name.

    Nothing in the file is run. All or nothing of it comes in, and only if it is as it was written. Where the store has
    the thread itself, or a fork of it, this becomes a fork: no effect is done again, nothing is counted twice.

    Args:
        file: what `export_thread` wrote.
        db: the store.
        new_id: another name for the thread.

    Raises:
        UsageError: It is no such file, or the store has a thread of that name.
        TransferDamaged: It is not as it was written.
        StoreTooNew: A newer version wrote it.
    """
    with unpacked(Path(file).expanduser()) as checked:
        return Store.open(db).take_in(checked, new_id)
