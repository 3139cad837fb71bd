"""Code and inputs → what a cell depends on, and why that changed."""

from __future__ import annotations

from resumable_nb.fingerprint.code import Code, analyse, is_input, needs
from resumable_nb.fingerprint.facts import Facts, explain
from resumable_nb.fingerprint.inputs import fingerprint
from resumable_nb.fingerprint.modules import module_digest
from resumable_nb.fingerprint.sharing import Sharing, shares, sharing

__all__ = [
    "Code",
    "Facts",
    "Sharing",
    "analyse",
    "explain",
    "fingerprint",
    "is_input",
    "module_digest",
    "needs",
    "shares",
    "sharing",
]
