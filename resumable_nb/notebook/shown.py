"""A panel of widgets with what stands for it where there are none: in the saved file, a terminal, a dead kernel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from resumable_nb.notebook.outputs import OURS, WIDGET
from resumable_nb.panel import escape

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from resumable_nb.panel import Panel

BOX = {
    "border": "1px solid var(--jp-border-color2,#bbb)",
    "padding": ".5em .8em",
    "margin": ".4em 0 0",
    "max_width": "60em",
}
LINES = "line-height:1.5"  # that of a widget is the height of a button
TEXT = "font-family:var(--jp-code-font-family,monospace);white-space:pre-wrap;overflow-wrap:anywhere;max-height:24em;"
TEXT += "overflow:auto;line-height:1.4;margin:.3em 0;background:none;color:inherit"
_QUIET = "color:var(--jp-ui-font-color2,#777);font-size:90%;line-height:1.4"
WHEN_OLD = "After a restart of the kernel these buttons do nothing: run this cell again."


def old_note() -> Any:
    """The line that a panel carries for the day when its kernel is gone; a dead kernel can add none."""
    import ipywidgets as widgets

    return widgets.HTML(f'<div style="{_QUIET}">{escape(WHEN_OLD)}</div>')


class Shown:
    """A panel on screen.

    Args:
        shell: where it is shown.
        says: what it is, for the front end.
        panel: what stands for it.
        box: its widgets; None where nobody can click.
    """

    def __init__(self, shell: InteractiveShell, says: str, panel: Panel, box: Any | None) -> None:
        self._shell, self._says, self._box = shell, says, box
        self._place = f"resumable-nb-{os.urandom(8).hex()}"
        self._publish(panel)

    def stand_for(self, panel: Panel) -> None:
        """From now on this stands for it, where the widgets are not."""
        if getattr(self._shell, "kernel", None) is not None:  # a terminal would print it once more
            self._publish(panel, update=True)

    def _publish(self, panel: Panel, *, update: bool = False) -> None:
        data: dict[str, Any] = dict(panel.data())
        if self._box is not None:
            data[WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": self._box.model_id}
        where, what = {"display_id": self._place}, {OURS: {"says": self._says}}
        self._shell.display_pub.publish(data, metadata=what, transient=where, update=update)
