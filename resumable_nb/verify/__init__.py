"""Proof that a notebook resumes: it is killed at its durable boundaries, and judged from outside."""

from resumable_nb.calls.rehearsal import Ledger, ledger

__all__ = ["Ledger", "ledger"]
