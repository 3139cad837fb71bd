"""Where steps are seen while they run: an output of the cell that is updated, and is one of the step's when it ends."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from resumable_nb.pictures import Picture


class Canvas:
    """Draws pictures in one shell's front end.

    Args:
        shell: of a kernel. A terminal could not draw anew.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def frame(self) -> _Output:
        """A new output of the running cell."""
        return _Output(self._shell)


class _Output:
    """One output. It has no mark of the library's: a skip shows again what it was in the end."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._place = {"display_id": f"resumable-nb-{os.urandom(8).hex()}"}
        self._is_new = True

    def draw(self, picture: Picture) -> None:
        """Show or update it."""
        update, self._is_new = not self._is_new, False
        self._shell.display_pub.publish(picture.data(), metadata={}, transient=self._place, update=update)
