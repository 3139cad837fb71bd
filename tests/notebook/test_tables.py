"""Answers to `%%resumable_sql` as tables that a person can sort and search, and in which nothing lives."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from resumable_nb.notebook import tables
from resumable_nb.notebook.order import Request
from tests.notebook.screen import OPEN, Screen, screen
from tests.notebook.test_panels import HOSTILE

SCRIPT = "injectModule"
"""Stands in what makes tables work, which is a megabyte."""


class Tags(HTMLParser):
    """The tags of HTML in order, with their attributes; scripts are not looked into."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))


@pytest.fixture(scope="module")
def nb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screen]:
    with screen(tmp_path_factory.mktemp("tables"), open=OPEN, a="1", b="2") as found:
        found.run("open")
        assert SCRIPT in html_of(found.execute("%%resumable_sql\nSELECT 1 AS one", "a").outputs)
        yield found


def html_of(outputs: list[dict[str, Any]]) -> str:
    (shown,) = [o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {}) and not o["metadata"]]
    return str(shown)


def shown(frame: pd.DataFrame, **metadata: Any) -> str:
    tables.Tables(lambda: Request("", "a", metadata)).present(frame)
    return str(frame._repr_mimebundle_()["text/html"])  # type: ignore[operator]


def test_an_answer_is_a_table_and_a_frame(nb: Screen) -> None:
    """It is shown where it is asked, with a name or without; the value is an ordinary DataFrame."""
    unnamed = nb.execute("%%resumable_sql\nSELECT thread_id, last_seq FROM threads", "a")
    named = nb.execute("%%resumable_sql df\nSELECT thread_id, last_seq FROM threads", "b")

    assert "dt_args" in html_of(unnamed.outputs)
    assert "dt_args" in html_of(named.outputs)
    assert nb.value("(type(df).__name__, type(_).__name__, list(df.columns))") == (
        "DataFrame", "DataFrame", ["thread_id", "last_seq"],
    )  # fmt: skip
    assert "dt_args" not in html_of(nb.execute("df.head(1)", "c").outputs)


def test_a_frame_shows_what_is_in_it(nb: Screen) -> None:
    """Changed in place it shows the change; copied it is plain."""
    assert nb.execute("%%resumable_sql mine\nSELECT 1 AS one", "b").status == "ok"
    changed = html_of(nb.execute("mine['two'] = 'zwei'\nmine", "c").outputs)
    copied = html_of(nb.execute("mine.copy()", "c").outputs)

    assert "zwei" in changed
    assert "dt_args" in changed
    assert "dt_args" not in copied


def test_a_step_takes_it_as_any_frame(tmp_path: Path) -> None:
    """As an input and as a name that it keeps; after a restart it is there again."""
    cells = {"ask": "%%resumable_sql mine\nSELECT 1 AS one", "keep": "%%resumable keep\nkept = mine"}
    with screen(tmp_path, open=OPEN, **cells) as nb:
        assert nb.run("open", "ask", "keep").status == "ok"
    with screen(tmp_path, open=OPEN, **cells) as nb:
        skipped = nb.run("open", "ask", "keep")

        assert "restored" in skipped.said
        assert nb.value("(type(kept).__name__, kept.one.tolist())") == ("DataFrame", [1])


def test_the_line_magic_shows_one_too(nb: Screen) -> None:
    """`%resumable sql` gives the same."""
    assert "dt_args" in html_of(nb.execute("%resumable sql SELECT 1 AS one", "b").outputs)


def test_the_script_goes_with_one_cell(nb: Screen) -> None:
    """The first cell that shows a table brings the script along, each time that it runs; others do not."""
    ask = "%%resumable_sql\nSELECT 1 AS one"
    script = [SCRIPT in html_of(nb.execute(ask, cell).outputs) for cell in ("a", "b", "a", "d")]

    assert script == [True, False, True, False]


def test_ten_thousand_rows_do_not_swell_a_notebook(nb: Screen) -> None:
    """The beginning is shown, with how much there is; the DataFrame has it all."""
    asked = "%%resumable_sql big\nSELECT i, repeat('word ', 40) AS words FROM range(10000) r(i)"
    html = html_of(nb.execute(asked, "b").outputs)

    assert len(html) < 400_000
    assert "of 10,000 rows; the DataFrame has them all" in html
    assert nb.value("len(big)") == 10_000


def test_text_from_a_model_stays_text() -> None:
    """Tags in values, in JSON and in names of columns are shown as text: the page has the tags of a harmless one."""
    frames = [
        pd.DataFrame({name: [text, f'{{"a": ["</script>{text}"]}}', [text], None]})
        for name, text in (("column", "text"), (HOSTILE, HOSTILE))
    ]
    harmless, hostile = (shown(frame) for frame in frames)

    assert Tags(hostile).tags == Tags(harmless).tags
    assert "<img" not in hostile
    assert hostile.count("</script") == harmless.count("</script")
    assert "onerror=alert(1)" in hostile


def test_without_scripts_there_is_a_plain_table() -> None:
    """Viewers that run no script show the first rows; the headless runner writes nothing but them."""
    frame = pd.DataFrame({"n": range(30), "word": [f"word {i}" for i in range(30)]})
    live, headless = shown(frame), shown(frame, runner=True)

    for html in (live, headless):
        plain = html[: html.find("<script type=", html.find("</table></div>"))] if "dt_args" in html else html
        assert "<td" in plain
        assert "word 9</td>" in plain
    assert "<script" not in headless
    assert len(headless) < 10_000


def test_cells_are_readable() -> None:
    """Times are UTC to the second, long texts are cut with their length, bytes are counted, nothing is left empty."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    frame = pd.DataFrame(
        {
            "at": pd.Series([moment, None], dtype="datetime64[us, UTC]").dt.tz_convert("Asia/Tokyo"),
            "text": ["x" * 5000, "two\nlines\x1b[31m"],
            "body": [b"\x00\xff", None],
            "items": [[1, 2], None],
            "number": [1.5, None],
        }
    )
    found = tables.readable(frame)

    assert found["at"].tolist() == ["2026-01-02 03:04:05Z", ""]
    assert found["text"].tolist() == [f"{'x' * 2000}… (5,000 characters)", "two↵lines"]
    assert found["body"].tolist() == ["2 bytes", ""]
    assert found["items"].tolist() == ["[1, 2]", ""]
    assert found["number"].tolist()[0] == 1.5


@pytest.mark.parametrize(
    "number", [[1.5, None], pd.array([1, None], dtype="Int64"), pd.array([True, None], dtype="boolean")]
)
@pytest.mark.parametrize("metadata", [{}, {"runner": True}])
def test_a_missing_number_has_its_place(number: Any, metadata: dict[str, Any]) -> None:
    """A call that a crash lost has no duration and no tokens: its row is shown all the same."""
    assert "lost" in shown(pd.DataFrame({"number": number, "phase": ["done", "lost"]}), **metadata)


def test_an_empty_answer_is_an_empty_table() -> None:
    """No rows, or no names but one: a table with the names."""
    assert "thread_id" in shown(pd.DataFrame({"thread_id": pd.Series([], dtype=str)}))


def test_without_itables_it_is_a_plain_frame(tmp_path: Path) -> None:
    """Then pandas' own table is shown, and one line, once, says how to get the other."""
    with screen(tmp_path, open=f"import sys; sys.modules['itables'] = None\n{OPEN}") as nb:
        nb.run("open")
        first, second = (nb.execute("%%resumable_sql\nSELECT 1 AS one", cell) for cell in ("a", "b"))

        assert "pip install itables" in first.said
        assert second.said == ""
        assert "<td>1</td>" in html_of(first.own)
