"""`%load_ext` costs next to nothing: what stands for the extension until something of it is used.

Most of the library (the journal with DuckDB, the state with pydantic) is imported when a cell first uses a magic or a
name of it. The extension is then as it would be if it had been loaded from the start: it is told of the cell that is
running.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from resumable_nb.collecting import collecting_later
from resumable_nb.notebook.source import ATTRIBUTE, Rewrite, has_step_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell

    from resumable_nb.notebook.extension import Extension

MAGICS = (("line", "resumable"), ("cell", "resumable"), ("cell", "resumable_sql"))
COMPLETED = ("%resumable", "%%resumable")


class Loader(Rewrite):
    """Holds the places of the extension in one shell: its magics, their completion, its look at the text of cells."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell, self._thread_id = shell, threading.get_ident()
        self._running: list[ExecutionInfo] = []

    def __call__(self, lines: list[str]) -> list[str]:
        """The input transformer: the first cell that is a step needs the extension before it runs."""
        if has_step_line(lines):
            self.extension()
        return super().__call__(lines)

    def __getattr__(self, name: str) -> Any:
        """Cells and the headless runner reach the extension as `get_ipython().resumable_nb`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.extension(), name)

    # ------------------------------------------------------------------ on and off
    def load(self) -> None:
        """Take the places."""
        shell = self._shell
        setattr(shell, ATTRIBUTE, self)
        shell.input_transformers_cleanup.append(self)
        shell.events.register("pre_run_cell", self._begun)
        shell.events.register("post_run_cell", self._ended)
        for kind, name in MAGICS:
            shell.register_magic_function(self._magic(kind, name), kind, name)
        set_hook: Callable[..., None] = shell.set_hook
        for key in COMPLETED:
            set_hook("complete_command", self._completion(key), str_key=key)

    def unload(self) -> None:
        """Leave the shell as it was."""
        shell = self._shell
        for key in COMPLETED:
            shell.strdispatchers["complete_command"].strs.pop(key, None)
        for kind, name in MAGICS:
            shell.magics_manager.magics[kind].pop(name, None)
        shell.events.unregister("pre_run_cell", self._begun)
        shell.events.unregister("post_run_cell", self._ended)
        shell.input_transformers_cleanup.remove(self)
        delattr(shell, ATTRIBUTE)

    @property
    def is_waiting(self) -> bool:
        """Whether the places are still its own."""
        return getattr(self._shell, ATTRIBUTE, None) is self

    def extension(self) -> Extension:
        """Load it, and give it the places."""
        with collecting_later():
            from resumable_nb.notebook.extension import Extension
            from resumable_nb.notebook.magics import register
        extension = Extension(self._shell, thread_id=self._thread_id)
        self.unload()
        extension.load()
        extension.on_unload = register(extension)
        for info in self._running:
            extension.pre_run_cell(info)
        return extension

    # ------------------------------------------------------------------ called by IPython
    def _begun(self, info: ExecutionInfo) -> None:
        self._running.append(info)

    def _ended(self, result: ExecutionResult | None) -> None:
        if result is None or result.info not in self._running:
            self._running.clear()
        else:
            del self._running[self._running.index(result.info) :]

    def _magic(self, kind: str, name: str) -> Any:
        from IPython.core.magic import no_var_expand

        def load() -> Callable[..., object]:
            self.extension()
            return self._shell.magics_manager.magics[kind][name]  # type: ignore[no-any-return]

        @no_var_expand
        def first(*arguments: str) -> object:
            return load()(*arguments)

        first.getdoc = lambda: load().__doc__  # type: ignore[attr-defined]  # how IPython's `?` asks
        return first

    def _completion(self, key: str) -> Callable[[object, object], object]:
        def complete(_: object, event: object) -> object:
            self.extension()
            return next(self._shell.strdispatchers["complete_command"].s_matches(key))(event)

        return complete
