"""The log: rows, the lease on the file, sessions, reading without trust. DuckDB is imported only here."""

from __future__ import annotations

from resumable_nb.journal.rewriting import MARK as PRUNED
from resumable_nb.journal.rewriting import Change, Edit, Freed
from resumable_nb.journal.rows import Row
from resumable_nb.journal.session import Opener, Session
from resumable_nb.journal.store import QUERY_TIMEOUT_S, Store

__all__ = ["PRUNED", "QUERY_TIMEOUT_S", "Change", "Edit", "Freed", "Opener", "Row", "Session", "Store"]
