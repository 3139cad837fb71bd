"""Keep DuckDB from importing ipywidgets: in a kernel it does, for progress bars, and that takes 60 ms of each restart.

A connection made without it shows no bars, which a journal has no use for; others in the kernel keep theirs.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDGETS = "ipywidgets"


class _NotNow(MetaPathFinder):
    """Finds no ipywidgets for one thread."""

    def __init__(self) -> None:
        self._thread_id = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002 as Python calls it
        """Leave every other module, and every other thread, to the next finder."""
        if name == _WIDGETS and threading.get_ident() == self._thread_id:
            raise ModuleNotFoundError(f"{_WIDGETS} is not imported for progress bars", name=name)


@contextmanager
def without_bars() -> Iterator[None]:
    """Connections that this thread makes meanwhile have no progress bars, where ipywidgets is not there already."""
    finder = _NotNow()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
