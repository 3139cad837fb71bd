"""The IPython extension: `%%resumable`, where a cell stands, what it shows. Only this package speaks to IPython."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resumable_nb.notebook.extension import Extension
from resumable_nb.notebook.magics import register
from resumable_nb.notebook.source import ATTRIBUTE

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Give a shell `%resumable`, `%%resumable` and `%%resumable_sql`. Loading twice is loading once."""
    if not isinstance(getattr(shell, ATTRIBUTE, None), Extension):
        extension = Extension(shell)
        extension.load()
        extension.on_unload = register(extension)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Close the open thread and take everything away again."""
    extension = getattr(shell, ATTRIBUTE, None)
    if isinstance(extension, Extension):
        extension.on_unload()
        extension.unload()
