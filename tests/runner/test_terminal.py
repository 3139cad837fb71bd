"""Text that a model or a file wrote, on a terminal."""

from __future__ import annotations

import time
import unicodedata
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumable_nb.terminal import one_line, plain, table, when


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("UTC", "2024-05-01 22:30:05 UTC"),
        ("BST-1", "2024-05-01 23:30:05 +01:00"),
        ("IST-5:30", "2024-05-02 04:00:05 +05:30"),
        ("NDT2:30", "2024-05-01 20:00:05 -02:30"),
    ],
)
def test_a_moment_names_its_zone(zone, said, monkeypatch):
    """Times that people read are of their machine's zone, and say which that is."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert when(datetime(2024, 5, 1, 22, 30, 5, 700, tzinfo=UTC)) == said
        assert when(None) == ""
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.text())
def test_nothing_that_a_terminal_obeys_gets_through(text):
    """Whatever the text holds, no control character and no mark that turns the writing direction is left."""
    shown = plain(text)

    assert all(c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") for c in shown)
    assert not set(shown) & set("\u202e\u2066\u200f")


def test_escape_sequences_go_whole():
    """Colours, cursor moves and window titles leave no remains such as `[31m`."""
    assert plain("\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jgone\r\nnext") == "red gone\nnext"


def test_plain_text_in_any_script_stays():
    """Letters of all scripts, and combining marks, are left as they are."""
    text = "naïve café, 日本語, مرحبا, e\u0301, 🙂"

    assert plain(text) == text


@given(
    st.lists(st.lists(st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers())), min_size=2, max_size=2))
)
def test_every_row_is_one_line(rows):
    """A table has one line per row, whatever the values hold."""
    assert len(table(["a", "b"], rows).split("\n")) == len(rows) + 2


def test_columns_are_aligned_also_with_wide_letters():
    """Letters that take two columns count as two; numbers stand to the right."""
    shown = table(["name", "n"], [["日本", 5], ["Oslo", 12], [None, None]])

    assert shown.split("\n") == ["name   n", "----  --", "日本   5", "Oslo  12", ""]


def test_a_long_value_is_cut_and_says_so():
    """A value that is too wide ends with an ellipsis."""
    assert one_line("x" * 100, 10) == "x" * 9 + "…"
    assert one_line({"a": [1, "é"]}) == '{"a": [1, "é"]}'
