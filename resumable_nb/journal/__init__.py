"""The log: rows, the lease on the file, sessions, reading without trust. DuckDB is imported only here."""

from __future__ import annotations

from resumable_nb.journal.rows import Row
from resumable_nb.journal.session import Opener, Session
from resumable_nb.journal.store import Store

__all__ = ["Opener", "Row", "Session", "Store"]
