"""The answer to a question as a table to sort, search and page through, without network and in any theme.

By `itables`, where that is installed (extra `lab`). Its script, a megabyte, goes along with the first table of a
kernel, not with each. Where no script runs (GitHub, nbconvert, a notebook that is not trusted) the first rows are shown
as a plain table. Text from anywhere is only text.
"""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING, Any

from resumable_nb import terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from resumable_nb.notebook.order import Request

PLAIN = "For a table to sort and search: `pip install itables`, and run this again."
CELL_CHARS = 2_000
MOST_CHARS = 256_000
"""Of all that one table shows: it is kept in the notebook, which is not to grow by megabytes."""
LINE_END = "↵"
_CLASS = "resumable-nb-answer"
_CSS = (
    f"div.dt-container:has(table.{_CLASS}) {{background: transparent}} "
    f"table.{_CLASS} td {{max-width: 30em; overflow: hidden; text-overflow: ellipsis; vertical-align: top}} "
    f"table.{_CLASS} :is(td, th):not(.dt-type-numeric) {{text-align: left !important}} "
    f"table.{_CLASS} td.resumable-nb-whole {{max-width: 60em; white-space: pre-wrap; overflow-wrap: anywhere}}"
)
_STYLE = "table-layout:auto;width:auto;margin:0;caption-side:bottom"
# follows the theme of the page from then on
_THEME = '<script type="module">(await window.{name}).set_or_remove_dark_class();</script>'
# A click shows the whole text of a cell, JSON laid out, and hides it again; a selection of text is no click. Only
# `textContent` is ever set, so text stays text.
_CREATED = (
    "function (td) { const line = td.textContent; let whole = line.replaceAll('↵', '\\n'); "
    "try { const value = JSON.parse(line); "
    "if (value && typeof value === 'object') whole = JSON.stringify(value, null, 2); } catch {} "
    "td.title = whole; td.addEventListener('click', () => { if (String(window.getSelection())) return; "
    "td.textContent = td.classList.toggle('resumable-nb-whole') ? whole : line; }); }"
)


class Tables:
    """Makes frames show themselves as such tables, in one kernel."""

    def __init__(self, request: Callable[[], Request]) -> None:
        self._request = request
        self._is_said = False
        self._carrier: str | None = None  # the cell whose output has the script

    def present(self, frame: pd.DataFrame) -> str:
        """Let this very frame, not what is made from it, show itself as a table. Gives what is to be said."""
        if importlib.util.find_spec("itables") is None:
            was_said, self._is_said = self._is_said, True
            return "" if was_said else PLAIN
        # on the instance: the type stays that of any frame, and what is copied, stored or computed from it is plain
        object.__setattr__(frame, "_repr_mimebundle_", lambda **_: self._shown(frame))
        return ""

    def _shown(self, frame: pd.DataFrame) -> dict[str, str]:
        """As it is now: it may have been changed in place since."""
        request = self._request()
        is_live = not request.metadata.get("runner")  # else nobody looks on, and what it writes is not trusted
        script = self._script(request.cell_id or "") if is_live else ""
        return {"text/plain": repr(frame), "text/html": script + _html(frame, is_live=is_live)}

    def _script(self, cell_id: str) -> str:
        """What tables need on a page: in the first cell that shows one, whenever that runs again."""
        import itables
        from itables import javascript, options

        if self._carrier is not None and self._carrier != (cell_id or None):
            return ""
        self._carrier = cell_id
        name = "_itables_" + re.sub(r"\W", "_", itables.__version__)  # as its own scripts spell it
        return javascript.generate_init_offline_itables_html(options.dt_bundle) + _THEME.format(name=name)


def _html(frame: pd.DataFrame, *, is_live: bool) -> str:
    from itables.javascript import to_html_datatable, to_html_static_preview
    from itables.typing import JavascriptFunction

    shown = _beginning(readable(frame))
    options: dict[str, Any] = {"maxBytes": 0, "allow_html": False, "display_logo_when_loading": False}
    if len(shown) < len(frame):
        options["caption"] = f"The first {len(shown):,} of {len(frame):,} rows; the DataFrame has them all."
    if not is_live:
        return str(to_html_static_preview(shown, **options))
    options |= {"css": _CSS, "classes": f"display nowrap compact {_CLASS}", "style": _STYLE, "connected": False}
    created = {"targets": "_all", "createdCell": JavascriptFunction(_CREATED)}
    return str(to_html_datatable(shown, columnDefs=[created], **options))


# ------------------------------------------------------------------ what stands in the cells
def _beginning(shown: pd.DataFrame) -> pd.DataFrame:
    """The rows from the first on that a notebook can bear."""
    cells = shown.astype(object)  # as texts, pandas keeps a missing number missing, and that has no length
    sizes = cells.map(lambda cell: len(str(cell))).sum(axis=1) + 10 * shown.shape[1]
    return shown.head(max(1, int((sizes.cumsum() <= MOST_CHARS).sum())))


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of numbers and texts: times in UTC, long texts cut, bytes counted."""
    import pandas as pd

    columns = {place: _column(frame.iloc[:, place]) for place in range(frame.shape[1])}
    shown = pd.DataFrame(columns, index=frame.index)
    shown.columns = [terminal.one_line(str(name), 200) for name in frame.columns]
    return shown


def _column(column: pd.Series[Any]) -> pd.Series[Any]:
    import pandas as pd

    kind = column.dtype
    if pd.api.types.is_bool_dtype(kind) or pd.api.types.is_numeric_dtype(kind):
        return column
    if isinstance(kind, pd.DatetimeTZDtype):
        texts: pd.Series[Any] = column.dt.tz_convert("UTC").dt.strftime("%Y-%m-%d %H:%M:%SZ").astype(object)
    else:
        texts = column.astype(object).map(_text, na_action="ignore")
    return texts.where(column.notna(), "")


def _text(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return terminal.counted(len(value), "byte")
    text = terminal.plain(str(value)).replace("\n", LINE_END)
    return text if len(text) <= CELL_CHARS else f"{text[:CELL_CHARS]}… ({len(text):,} characters)"
