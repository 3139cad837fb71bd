"""How a step is seen while it runs: a picture that is drawn anew, in a cell; or, where that cannot be, a few lines.

Whoever can draw says so by `draw_with`; `frame` is a place for one picture.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from resumable_nb import terminal
from resumable_nb.panel import BOX, CODE, QUIET, Panel, escape

LOG_LINES = 8
_BAR_WIDTH = 30
_BAR = "height:.5em;border-radius:.25em;margin:.5em 0;background:var(--jp-layout-color3,#ddd)"
_FILLED = "height:100%;border-radius:.25em;background:var(--jp-brand-color1,#1976d2)"
_LINE = f"{QUIET};font-family:var(--jp-code-font-family,monospace);font-size:12px;line-height:1.5"
_ONE_LINE = f"{_LINE};white-space:nowrap;overflow:hidden;text-overflow:ellipsis"
_BLOCK = f"{_LINE};white-space:pre-wrap;overflow-wrap:anywhere;overflow:hidden;height:7.5em;margin:.4em 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A step at one moment.

    Attributes:
        title: what runs.
        told: how far it is, in words.
        done: how many parts are done.
        total: of how many; 0: no bar.
        columns: of a table.
        rows: of the table.
        writing: what models are writing now: who, and the end of what they have written.
        log: what happened last.
        news: what is worth a line of its own where no picture can be drawn anew, from the start on.
        is_over: it is the last picture: without what only matters on the way.
    """

    title: str
    told: str = ""
    done: int = 0
    total: int = 0
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    writing: Sequence[tuple[str, str]] = ()
    log: Sequence[str] = ()
    news: Sequence[str] = ()
    is_over: bool = False

    @property
    def heading(self) -> str:
        """Title and words on one line."""
        return f"{self.title}: {self.told}" if self.told else self.title

    def text(self) -> str:
        """As plain text."""
        filled = _BAR_WIDTH * self.done // self.total if self.total else 0
        bar = [f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}]"] if self._has_bar else []
        lines = [] if self.is_over else [*(f"{who} writes {text}".strip() for who, text in self.writing), *self.log]
        return Panel(self.heading, [*bar, *lines], self.columns, self.rows).text()

    def html(self) -> str:
        """In the colours of the front end's theme. Everything that is not ours is escaped."""
        if self.is_over and not self.rows and not self._has_bar:
            return f'<div style="{QUIET};{CODE}">{escape(self.heading)}</div>'
        told = f' <span style="{QUIET}">{escape(self.told)}</span>' if self.told else ""
        parts = [f'<div style="{BOX}"><div><b>{escape(self.title)}</b>{told}</div>']
        if self._has_bar:
            share = 100 * self.done // self.total
            parts.append(f'<div style="{_BAR}"><div style="{_FILLED};width:{share}%"></div></div>')
        if self.rows:
            parts.append(Panel("", (), self.columns, self.rows).table_html())
        if not self.is_over:
            parts += self._on_the_way()
        return "".join([*parts, "</div>"])

    @property
    def _has_bar(self) -> bool:
        return self.total > 0 and not (self.is_over and self.done == self.total)

    def _on_the_way(self) -> list[str]:
        """What models write and the log: always as high, so that what is below the cell does not jump."""
        if not self.total:
            told = "".join(text for _, text in self.writing) or "".join(self.log[-1:])
            return [f'<div style="{_BLOCK}">{escape(told)}</div>'] if told else []
        lines = [f"{who} writes {text}" for who, text in self.writing]
        lines = [*lines, *[""] * (min(self.total, LOG_LINES) - len(lines))] if lines else lines
        log = [*self.log, *[""] * (LOG_LINES - len(self.log))]
        rule = '<div style="border-top:1px solid var(--jp-border-color2,#bbb);margin:.4em 0"></div>'
        return [rule, *(f'<div style="{_ONE_LINE}">{escape(line) or "&nbsp;"}</div>' for line in [*lines, *log])]

    def data(self) -> dict[str, str]:
        """Both, as the data of a display."""
        return {"text/plain": self.text(), "text/html": self.html()}


class Frame(Protocol):
    """A place for one picture."""

    def draw(self, picture: Picture) -> None:
        """Show it in place of the one before. The first and the last are drawn by the thread that runs the step."""


class FrontEnd(Protocol):
    """Who can draw."""

    def frame(self) -> Frame:
        """A new place, below what is shown already."""


class Lines:
    """Where no picture can be drawn anew: its news, line by line, on standard error."""

    def __init__(self) -> None:
        self._told = 0

    def draw(self, picture: Picture) -> None:
        """Print what is new."""
        lines = [f"{picture.title}: {line}" for line in picture.news[self._told :]]
        self._told = len(picture.news)
        if picture.is_over:
            lines.append(picture.heading)
        if sys.stderr is not None:
            for line in lines:
                print(terminal.one_line(line), file=sys.stderr, flush=True)  # noqa: T201, what it is for


_front_ends: list[FrontEnd] = []


def draw_with(front_end: FrontEnd) -> None:
    """Pictures are drawn there from now on."""
    _front_ends.append(front_end)


def draw_no_more_with(front_end: FrontEnd) -> None:
    """Undo `draw_with`."""
    if front_end in _front_ends:
        _front_ends.remove(front_end)


def frame() -> Frame:
    """A place for a picture."""
    return _front_ends[-1].frame() if _front_ends else Lines()
