"""Errors of several tasks at once: IPython prints an exception group as text, and front ends see no error at all."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from resumable_nb.errors import Paused, ResumableError, leaves, main_error

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_SHOWN = 5


def handle_groups(shell: InteractiveShell) -> bool:
    """Have IPython show groups as the errors that they hold. False if the person has a handler of their own."""
    set_handler: Any = shell.set_custom_exc
    if shell.custom_exceptions:
        return False
    # Ours, too: one that was taken out of a group still has it as its context, and IPython would print that.
    set_handler((BaseExceptionGroup, ResumableError, Paused), _show)
    return True


def leave_groups(shell: InteractiveShell) -> None:
    """Give the handler back, unless somebody else has set one meanwhile."""
    set_handler: Any = shell.set_custom_exc
    if BaseExceptionGroup in shell.custom_exceptions:
        set_handler((), None)


def _show(
    shell: InteractiveShell,
    _type: type[BaseException],
    error: BaseException,
    _traceback: TracebackType | None,
    tb_offset: int | None = None,  # noqa: ARG001 as IPython calls it
) -> None:
    found = [main_error(error)] if isinstance(main_error(error), Paused) else list(leaves(error))
    for leaf in found[:_SHOWN]:
        leaf.__context__ = None if _has_group(leaf.__context__) else leaf.__context__
        shell.showtraceback((type(leaf), leaf, leaf.__traceback__), running_compiled_code=True)
    if len(found) > _SHOWN:
        sys.stderr.write(f"… and {len(found) - _SHOWN} more errors of the same group\n")


def _has_group(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, BaseExceptionGroup):
        error = error.__context__
    return error is not None
