"""A side file that knows how many rows a store has to have, so that a lost tail is noticed.

DuckDB opens a store whose write-ahead log was cut off, or is gone, without a word: committed rows are missing then. So
after each commit the number of rows goes into a small file beside the store, in place and without fsync: a few
microseconds. It is written *after* the rows, so it may lag behind (killed in between, power lost), but never be ahead;
fewer rows than it says are a loss. A store that was moved without it, or put in another one's place, has none to obey.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_RECORD = re.compile(rb"([0-9a-f]{32}) +(\d+)\n")
_WIDTH = 20


def read(path: Path, store_id: str) -> int | None:
    """Number of rows that the store had at least; None if nothing is known of it."""
    try:
        with open(path, "rb") as file:
            found = _RECORD.fullmatch(file.read(100))
    except OSError:
        return None
    return int(found[2]) if found and found[1].decode() == store_id else None


def put(path: Path, store_id: str, rows: int) -> None:
    """Say that a store has this many rows, outside of a lease."""
    seen = Witness(path, store_id)
    try:
        seen.write(rows)
    finally:
        seen.close()


class Witness:
    """The side file, open for the length of a lease."""

    def __init__(self, path: Path, store_id: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        self._prefix = store_id.encode() + b" "
        self._fd = os.open(path, flags, 0o600)
        self._whole = os.fstat(self._fd).st_size == len(self._record(0))

    def _record(self, rows: int) -> bytes:
        return self._prefix + str(rows).rjust(_WIDTH).encode() + b"\n"

    def write(self, rows: int) -> None:
        """Say that the store has this many rows, all committed."""
        os.pwrite(self._fd, self._record(rows), 0)
        if not self._whole:
            os.ftruncate(self._fd, len(self._record(0)))
            self._whole = True

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)
