"""The IPython extension: `%%resumable`, where a cell stands, what it shows. Only this package speaks to IPython."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from resumable_nb.notebook.loading import Loader
from resumable_nb.notebook.source import ATTRIBUTE

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from resumable_nb.notebook.extension import Extension

__all__ = ["load_in_full", "load_ipython_extension", "unload_ipython_extension"]

_waiting: list[Loader] = []


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Give a shell `%resumable`, `%%resumable` and `%%resumable_sql`. Loading twice is loading once."""
    if not hasattr(shell, ATTRIBUTE):
        loader = Loader(shell)
        loader.load()
        _waiting.append(loader)


def load_in_full() -> None:
    """A name of the library is used: where it was loaded as an extension, import the rest of that as well."""
    for loader in _waiting:
        if loader.is_waiting:
            loader.extension()
    _waiting.clear()


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Close the open thread and take everything away again."""
    found = getattr(shell, ATTRIBUTE, None)
    if isinstance(found, Loader):
        found.unload()
    elif found is not None:
        extension = cast("Extension", found)
        extension.on_unload()
        extension.unload()
