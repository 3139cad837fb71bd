"""DuckDB's errors, told as what happened to the store and what to do next."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

from resumable_nb.errors import (
    StoreDamaged,
    StoreError,
    StoreLocked,
    StoreReplaced,
    StoreTooNew,
    StoreUntrusted,
    StoreUnwritable,
)
from resumable_nb.journal import files, holders
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_HELD = re.compile(r"Could not set lock on file.*?(?:held in (?P<program>.+?) \(PID (?P<pid>\d+)\)|$)", re.DOTALL)
_DOCTOR = "`resumable-nb doctor --db {path}` says what can be saved; it changes nothing unless you tell it to"


FORGED = "Computed AES tag differs"
"""What DuckDB says of an encrypted block that is not as it was written."""


class HeldElsewhere(Exception):  # a step of waiting, not an error that anybody is shown
    """Another process has the file open in DuckDB at this moment."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


def translate(error: BaseException, path: Path) -> StoreError | HeldElsewhere:
    """What a DuckDB error on a store means. Raise the result `from` the error."""
    text = str(error)
    if held := _HELD.search(text):
        return HeldElsewhere(
            f"{held['program']} (PID {held['pid']})" if held["pid"] else "another process, which DuckDB does not name"
        )
    for phrases, told in _KINDS:
        if any(phrase in text for phrase in phrases):
            return told(path, text.partition("\n")[0])
    return StoreError(f"DuckDB reports on {path}: {text}")


def not_locked(path: Path, holder: str, waited_s: float) -> StoreLocked:
    """The store was held by somebody else for as long as we wait."""
    return StoreLocked(
        f"{path} is held by {holder}, and was not free within {waited_s:g} s. End that process or close its "
        "connection, then run this again; nothing that was answered is lost"
    )


def lock_holder(path: Path) -> str:
    """Who holds our own lock, as far as that can be seen."""
    pids = files.lock_holders(files.lock_path(path))
    return "process " + " and ".join(map(str, pids)) if pids else "another process that uses resumable_nb"


def no_side_file(path: Path, side: Path, error: OSError) -> StoreError:
    """A file beside the store could not be made or locked."""
    if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL):
        return StoreUnwritable(
            f"{path} is on a file system without file locks ({error.strerror}), where two notebooks would overwrite "
            "each other's work. Put it on a local disk: `%resumable open THREAD --db /local/path.duckdb`"
        )
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return StoreUntrusted(
            f"{side} is a symbolic link, which this library does not make. Remove it and run this again"
        )
    if error.errno == errno.ENOENT:
        return StoreReplaced(f"{path.parent} is gone, and {path.name} with it. Put the folder back and run this again")
    return _unwritable(path, f"{side.name}: {error.strerror or error}")


def _in_this_process(path: Path, text: str) -> StoreError:
    found = [f"`{one}`" for one in holders.in_this_process(path)]
    through = "another connection (duckdb.connect, JupySQL or the like)"
    closing = f"Run {' and '.join(found)}" if found else "Close that connection"
    return StoreLocked(
        f"{path} is open in this kernel through {through}, and DuckDB allows one kind at a time. {closing}, then run "
        "this again; what is in the store stays. `%%resumable_sql NAME` asks without keeping the file, and other tools "
        f"can go on with the DataFrame NAME. DuckDB: {text}"
    )


def _full(path: Path, text: str) -> StoreError:
    return StoreUnwritable(
        f"{path} cannot grow: the disk is full, or a quota or file size limit is reached. What was acknowledged before "
        f"is safe, this was not stored. Free some space and run the cell again. DuckDB: {text}"
    )


def _unwritable(path: Path, text: str) -> StoreError:
    return StoreUnwritable(
        f"{path} cannot be written: {text}. The file and its folder have to be writable for you (`chmod u+w`); reading "
        f"alone works with `resumable-nb sql`, or copy the file elsewhere and open the copy"
    )


def _newer(path: Path, text: str) -> StoreError:
    return StoreTooNew(f"{path} was written by a newer DuckDB: {text} Update with `pip install -U duckdb`")


def _wal(path: Path, text: str) -> StoreError:
    wal = files.wal_path(path)
    return StoreDamaged(
        f"{wal}, which holds the newest rows of {path.name}, is damaged or belongs to another file. Neither file was "
        f"changed. {_DOCTOR.format(path=path)}. DuckDB: {text}"
    )


def _broken(path: Path, text: str) -> StoreError:
    return StoreDamaged(
        f"{path} cannot be read: it is damaged, or no DuckDB file. It was not changed. Put a copy back if you have "
        f"one; {_DOCTOR.format(path=path)}. DuckDB: {text}"
    )


def cut_off(path: Path, expected: int) -> StoreDamaged:
    """The file is shorter than its own header says."""
    return StoreDamaged(
        f"{path} was cut off: it has {path.stat().st_size} bytes and must have {expected} at least. Perhaps it is "
        f"still being copied. It was not changed. Put a whole copy back; {_DOCTOR.format(path=path)}"
    )


def rows_missing(path: Path, found: int, expected: int) -> StoreDamaged:
    """The store has fewer rows than were once acknowledged."""
    wal = files.wal_path(path)
    what = f"{wal.name} was cut off" if wal.exists() else f"an older copy was put back, or {wal.name} was removed"
    return StoreDamaged(
        f"{path} has {counted(found, 'row')}, but {expected} were stored in it: {what}. Nothing was changed. Put the "
        f"newest copy (and its .wal) back; {_DOCTOR.format(path=path)}. To go on with the {counted(found, 'row')} on "
        f"purpose, copy both files aside and delete {files.witness_path(path).name}"
    )


_KINDS: tuple[tuple[tuple[str, ...], Callable[[Path, str], StoreError]], ...] = (
    (("different configuration", "Unique file handle conflict"), _in_this_process),
    (("No space left on device", "File too large", "Disk quota exceeded"), _full),
    (("Read-only file system", "Permission denied", "Operation not permitted", "read-only mode"), _unwritable),
    (("Trying to read a database file with",), _newer),
    (("replaying WAL", "Corrupt WAL", "WAL does not match"), _wal),
    (("not a valid DuckDB database file", "Corrupt database file", "Could not read enough bytes", "checksum"), _broken),
    ((FORGED,), _broken),
)
