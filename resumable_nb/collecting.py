"""Garbage is collected a little later, where much is made that stays."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collecting_later() -> Iterator[None]:
    """Imports, and the fold of a long thread, make much that stays: looking for garbage in it costs a tenth of a start.

    Collections of all threads wait meanwhile; who has switched them off keeps them off.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
