"""A panel: a title, lines, and perhaps a table, as plain text and as HTML. Text from anywhere is only text."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from resumable_nb import terminal

if TYPE_CHECKING:
    from resumable_nb.comparison import Line

_WORDS_CHARS = 300

BOX = (
    "border:1px solid var(--jp-border-color2,#bbb);border-radius:3px;padding:.5em .8em;max-width:60em;"
    "color:var(--jp-content-font-color1,inherit);font-family:var(--jp-ui-font-family,sans-serif);"
    "font-size:var(--jp-ui-font-size1,13px);line-height:1.5"
)
QUIET = "color:var(--jp-ui-font-color2,#777);font-size:var(--jp-ui-font-size1,13px)"
_CELL = "text-align:left;padding:.1em 1em .1em 0;vertical-align:top;white-space:pre-wrap"
_MARKED = {"+": "background:rgba(46,160,67,.2)", "-": "background:rgba(248,81,73,.2)"}
CODE = "font-family:var(--jp-code-font-family,monospace);white-space:pre-wrap;overflow-wrap:anywhere"


@dataclass(frozen=True, slots=True)
class Panel:
    """A title, lines, and perhaps a table; as plain text and as HTML in the colours of the front end's theme."""

    title: str
    lines: Sequence[str | Line] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = field(default=())

    def text(self) -> str:
        """For terminals, consoles and files."""
        parts = [terminal.plain(self.title), *(_indented(line) for line in self.lines)]
        if self.rows:
            parts.append(terminal.table(self.columns, self.rows, width=_WORDS_CHARS))
        return "\n".join(parts)

    def html(self) -> str:
        """For notebooks. Everything that is not ours is escaped."""
        parts = [f'<div style="{BOX}"><div><b>{escape(self.title)}</b></div>']
        parts += [_div(line) for line in self.lines]
        if self.rows:
            parts.append(self.table_html())
        return "".join([*parts, "</div>"])

    def table_html(self) -> str:
        """Its table alone."""
        heads = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in self.columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
        return f'<table style="border-collapse:collapse;margin:.4em 0 0"><tr>{heads}</tr>{body}</table>'

    def data(self) -> dict[str, str]:
        """Both, as the data of a display."""
        return {"text/plain": self.text(), "text/html": self.html()}


def escape(text: str) -> str:
    """Text as HTML that shows it and does nothing."""
    return html.escape(terminal.plain(text), quote=True)


def _indented(line: str | Line) -> str:
    text, hanging = (line, 2) if isinstance(line, str) else (line.text, 4 if line.mark else 2)
    return "  " + terminal.plain(text).replace("\n", "\n" + " " * hanging)


def _div(line: str | Line) -> str:
    if isinstance(line, str):
        return f'<div style="{CODE}">{escape(line)}</div>'
    if line.mark == "":
        return f'<div style="{CODE};margin-top:.4em"><b>{escape(line.text)}</b></div>'
    shown = {"+": '<ins style="{}">{}</ins>', "-": '<del style="{}">{}</del>'}
    inside = line.mark == "~"  # a line that is added or removed as a whole needs no line through it
    parts = [
        shown[mark].format(_MARKED[mark], escape(text)) if inside and mark in shown else escape(text)
        for mark, text in line.parts
    ]
    style = f"{CODE};padding-left:2em;text-indent:-1em;{'' if inside else _MARKED.get(line.mark, '')}"
    return f'<div style="{style}">{escape(line.mark)} {"".join(parts)}</div>'


def _cell(value: object) -> str:
    return f'<td style="{_CELL}">{escape(terminal.one_line(value, _WORDS_CHARS))}</td>'


def line(text: str) -> dict[str, str]:
    """One quiet line below or above what a cell shows, as the data of a display."""
    return {"text/plain": terminal.plain(text), "text/html": f'<div style="{QUIET};{CODE}">{escape(text)}</div>'}
