"""Code and inputs → what a cell depends on, and why that changed."""

from __future__ import annotations

from resumable_nb.fingerprint.code import Code, analyse, is_input, needs

__all__ = ["Code", "analyse", "is_input", "needs"]
