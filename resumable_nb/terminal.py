"""Text for a terminal: without control characters, in columns."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

# CSI and OSC sequences (ECMA-48): colours, cursor moves, window titles
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_CELL_WIDTH = 60


def plain(text: str) -> str:
    """The text without escape sequences, control characters and marks that turn the direction of writing.

    Text from a model or a file must not move the cursor, set the title or hide what follows. Line ends and tabs stay.
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return "".join(c for c in text if c in "\n\t" or (unicodedata.category(c) not in ("Cc", "Cs") and c not in _BIDI))


def one_line(value: object, width: int | None = None) -> str:
    """A value as text on one line, cut to `width` columns with an ellipsis."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if not isinstance(value, str | list | dict):
        text = str(value)
    text = " ".join(plain(text).split())
    return _cut(text, width) if width else text


def when(moment: datetime | None) -> str:
    """A moment to the second, in this machine's time zone, which is named: `… 14:03:07 +02:00`, or `… UTC`."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S} {zone(moment)}" if moment else ""


def zone(moment: datetime) -> str:
    """What this machine's clocks are ahead of UTC at that moment, as `+02:00`; or `UTC`."""
    ahead = moment.astimezone().isoformat(timespec="seconds")[19:]
    return "UTC" if ahead == "+00:00" else ahead


def counted(number: int, what: str) -> str:
    """`1 call`, `2 calls`, `1,200 calls`."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, width: int | None = _CELL_WIDTH) -> str:
    """Rows as an aligned table with a line under the names; numbers stand to the right.

    Args:
        columns: the names.
        rows: values of any type; None is shown as nothing.
        width: columns that one value may take; None: as many as it needs.
    """
    rows = [list(row) for row in rows]
    texts = [[one_line(value, width) for value in row] for row in rows]
    names = [one_line(name, width) for name in columns]
    widths = [max([_width(name), *(_width(row[i]) for row in texts)]) for i, name in enumerate(names)]
    right = [
        bool(rows) and all(row[i] is None or isinstance(row[i], int | float) for row in rows) for i in range(len(names))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = [_pad(text, size, to_right=r) for text, size, r in zip(cells, widths, right, strict=True)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(names), "  ".join("-" * size for size in widths), *(line(row) for row in texts)])


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _width(text: str) -> int:
    return sum(map(_char_width, text))


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += _char_width(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept) + "…"


def _pad(text: str, size: int, *, to_right: bool) -> str:
    space = " " * (size - _width(text))
    return space + text if to_right else text + space
