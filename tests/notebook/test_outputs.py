"""What a cell shows: collected as it stands on screen, and shown again without what cannot live again."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumable_nb.notebook.outputs import WIDGET, Collector, StreamText, WidgetTexts, prepare

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()


def stream(text: str, name: str = "stdout") -> tuple[str, dict[str, Any]]:
    return "stream", {"name": name, "text": text}


def display(data: Any, display_id: str | None = None, kind: str = "display_data") -> tuple[str, dict[str, Any]]:
    data = data if isinstance(data, dict) else {"text/plain": data}
    return kind, {"data": data, "metadata": {}, "transient": {"display_id": display_id} if display_id else {}}


def clear(*, wait: bool = False) -> tuple[str, dict[str, Any]]:
    return "clear_output", {"wait": wait}


def collected(*messages: tuple[str, dict[str, Any]], widgets: WidgetTexts | None = None, **limits: int) -> list[Any]:
    collector = Collector(**limits)
    for message in messages:
        collector.add(*message)
    return collector.outputs(widgets)


def texts(outputs: list[Any]) -> list[str]:
    return [o.get("text") or o["data"].get("text/plain") for o in outputs]


@pytest.mark.parametrize(
    ("messages", "shown"),
    [
        ([stream("a"), stream("b\n"), stream("c", "stderr"), stream("d")], ["ab\n", "c", "d"]),
        ([display("a", "p"), display("b"), display("c", "p", "update_display_data")], ["c", "b"]),
        ([display("a"), display("c", "p", "update_display_data")], ["a"]),
        ([display("a", "p"), display("b", "p"), display("c", "p", "update_display_data")], ["c", "c"]),
        ([stream("a"), clear(), stream("b")], ["b"]),
        ([stream("a"), clear(wait=True)], ["a"]),
        ([stream("a"), clear(wait=True), stream("b"), stream("c")], ["bc"]),
        ([stream("a"), clear(wait=True), clear(), stream("b")], ["b"]),
        ([clear(wait=True), display("a", "p"), display("b", "p", "update_display_data")], ["b"]),
        ([m for i in range(50) for m in (clear(wait=True), stream(f"{i}\n"))], ["49\n"]),
        ([display("x", kind="execute_result")], ["x"]),
        ([("error", {"ename": "E"}), ("status", {}), ("execute_input", {})], []),
        ([], []),
    ],
)
def test_outputs_are_what_stands_on_screen(messages: list[Any], shown: list[str]) -> None:
    """Updates, clears and streams are followed as a front end follows them: what was left at the end is kept, once."""
    assert texts(collected(*messages)) == shown


def test_outputs_are_valid_in_a_notebook() -> None:
    """Collected outputs can stand in a notebook file as they are."""
    outputs = collected(
        stream("a"), display({"image/png": PNG, "text/plain": "f"}), display("1", kind="execute_result")
    )
    cell = nbformat.v4.new_code_cell("x", outputs=[nbformat.from_dict(o) for o in outputs])

    nbformat.validate(nbformat.v4.new_notebook(cells=[cell]))


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["10%\r", "20%\r", "100%\n"], "100%\n"),
        (["\r10%", "\r20%", "\r100%"], "100%"),
        (["done 100\rx\n"], "xone 100\n"),
        (["a\r\nb\r\n"], "a\nb\n"),
        (["a\r", "\nb"], "a\nb"),
        (["abc\b\bX"], "aXc"),
        (["\b\bX"], "X"),
        (["12%\b\b\b", "99%"], "99%"),
        (["a long line\r\x1b[Kshort"], "short"),
        (["a long line\r\x1b[2K"], ""),
        (["\x1b[31m10%\x1b[0m\r", "\x1b[31m20%\x1b[0m"], "\x1b[31m20%\x1b[0m"),
        (["one\ntwo\rTWO\nthree"], "one\nTWO\nthree"),
        (["", "\n", ""], "\n"),
    ],
)
def test_progress_text_is_kept_as_it_ends(pieces: list[str], shown: str) -> None:
    """Text that returns to the start of its line, or steps back, is kept as it last stood."""
    text = StreamText(1000)
    for piece in pieces:
        text.write(piece)

    assert str(text) == shown


@given(st.lists(st.text(st.sampled_from("ab\r\n\b")), max_size=8))
def test_progress_text_is_the_same_in_any_pieces(pieces: list[str]) -> None:
    """How text was cut into messages does not change what is kept."""
    whole, cut = StreamText(1000), StreamText(1000)
    whole.write("".join(pieces))
    for piece in pieces:
        cut.write(piece)

    assert str(cut) == str(whole)


def test_a_long_progress_bar_costs_one_line() -> None:
    """A bar that redraws itself many times stays far below the limit."""
    assert texts(collected(*[stream(f"\r{i:>5}%") for i in range(5000)], limit_bytes=100)) == [" 4999%"]


@pytest.mark.parametrize(
    ("messages", "kept", "named"),
    [
        ([stream("x" * 600 + "\n")] * 3, "x" * 600, "1,202 bytes of stdout"),
        ([stream("y" * 3000)], None, "3,000 bytes of stdout"),
        ([display({"text/plain": "small", "text/html": "<b>" * 1000})], "small", "text/html of 3,000 bytes"),
        ([display({"application/json": {"a": "b" * 2000}})], None, "application/json of 2,009 bytes"),
        (
            [display({"text/plain": "z" * 600}), display({"text/plain": "z" * 600})],
            "z" * 600,
            "text/plain of 600 bytes",
        ),
    ],
)
def test_what_goes_beyond_the_limit_is_named(messages: list[Any], kept: str | None, named: str) -> None:
    """A step keeps a limited amount of what it shows; what was left out is said in its place."""
    outputs = collected(*messages, limit_bytes=1000)

    assert named in texts(outputs)[-1]
    assert kept is None or kept in texts(outputs)[0]


# ---------------------------------------------------------------------------------------------------------- widgets
class Widget(SimpleNamespace):
    """As much of a widget as is looked at."""

    comm: Any = "open"

    def __repr__(self) -> str:
        return self.says() if hasattr(self, "says") else "Widget()"


def view(model_id: str, text: str = "before") -> tuple[str, dict[str, Any]]:
    return display({WIDGET: {"model_id": model_id}, "text/plain": text})


def dead_bar() -> str:
    raise ReferenceError("weakly-referenced object no longer exists")


def test_widgets_read_as_they_end() -> None:
    """A widget's text is that of the end; one without a text of its own reads as its labels; a closed one is gone."""
    children = (Widget(value="100%&nbsp;"), Widget(value=3), Widget(value="<b>3/3</b>\xa0[00:00]"))
    widgets = {
        "slider": Widget(says=lambda: "IntSlider(value=7)"),
        "bar": Widget(says=dead_bar, children=children),
        "closed": Widget(comm=None),
    }
    outputs = collected(*map(view, widgets), view("unknown"), widgets=WidgetTexts(widgets))

    assert texts(outputs) == ["IntSlider(value=7)", "100% 3/3 [00:00]"]


def test_what_an_output_widget_caught_stands_below_it() -> None:
    """Prints caught by an `Output` widget are kept where it stood; clearing it does not clear the cell."""
    collector = Collector()
    collector.add(*stream("above\n"))
    collector.add(*view("out"))
    collector.add(*stream("below\n"))
    for message in (stream("old\n"), clear(), stream("caught\n")):
        collector.add(*message, widget_id="out")
    collector.add(*stream("boxed\n"), widget_id="inside a box")

    assert texts(collector.outputs()) == ["above\n", "before", "caught\n", "below\n", "boxed\n"]


def test_what_was_caught_inside_a_box_stands_below_the_box() -> None:
    """Prints caught by an `Output` widget that a box holds are kept below the box."""
    inner = Widget(model_id="inner", says=lambda: "Output()")
    widgets = {"box": Widget(model_id="box", children=(Widget(model_id="tab", children=(inner,)),)), "inner": inner}
    widgets["tab"] = widgets["box"].children[0]
    collector = Collector()
    collector.add(*view("box"))
    collector.add(*stream("below\n"))
    collector.add(*stream("caught\n"), widget_id="inner")

    assert texts(collector.outputs(WidgetTexts(widgets))) == ["Widget()", "caught\n", "below\n"]


def test_the_widget_that_catches_is_found() -> None:
    """The `Output` widget that has the request's id is the one that its outputs go to."""
    widgets = WidgetTexts({"a": Widget(msg_id=""), "b": Widget(msg_id="now"), "c": Widget()})

    assert (widgets.catching("now"), widgets.catching("other")) == ("b", None)


# ---------------------------------------------------------------------------------------------------------- again
FORGED = '<img src=x onerror="alert(1)">'


def test_headless_nothing_is_missing_of_a_widget() -> None:
    """Where only its text was ever to be seen, no line says that the widget is gone."""
    bar = collected(display({WIDGET: {"model_id": "n"}, "text/plain": "100%"}))
    shown = prepare(bar, is_trusted=True, is_headless=True)

    assert ([o["data"] for o in shown.outputs], shown.lines) == ([{"text/plain": "100%"}], [])


def test_a_widget_is_shown_again_as_text() -> None:
    """A view without its model is not shown again: its text is, and a line says so."""
    shown = prepare(collected(view("m", "a slider"), display({WIDGET: {"model_id": "n"}})), is_trusted=True)

    assert [o["data"] for o in shown.outputs] == [{"text/plain": "a slider"}]
    assert "2 widgets could not be restored" in shown.lines[0]


def test_what_a_stranger_could_have_forged_is_not_shown() -> None:
    """Without this user's signature only plain text and bitmaps are shown, and a line says how to see the rest."""
    outputs = collected(
        stream("\x1b]0;title\x07text"),
        display({"text/html": FORGED, "text/plain": FORGED}),
        display({"text/markdown": "[x](javascript:alert(1))"}),
        display(
            {"image/svg+xml": "<svg onload='alert(1)'/>", "application/javascript": "alert(1)", "text/latex": "$$"}
        ),
        display({"image/png": PNG}),
    )
    shown = prepare(outputs, is_trusted=False)

    assert [o.get("data") or o["text"] for o in shown.outputs] == ["text", {"text/plain": FORGED}, {"image/png": PNG}]
    assert len(shown.lines) == 1
    assert shown.lines[0].startswith("4 outputs of this step did not come from you")
    assert "`%resumable trust` shows all" in shown.lines[0]


@pytest.mark.parametrize(
    "image", ['"><script>alert(1)</script>', PNG + '"', base64.b64encode(b"<svg/>").decode(), ["a"], {"a": 1}, "", 3]
)
def test_an_image_is_an_image(image: Any) -> None:
    """What is called a bitmap and is none is not shown: exporters put it into a page as it stands."""
    assert prepare(collected(display({"image/png": image})), is_trusted=False).outputs == []


def test_trusted_outputs_stay_as_they_are() -> None:
    """With this user's signature everything is shown as it was."""
    outputs = collected(stream("a\x1b[31m"), display({"text/html": FORGED}))

    assert prepare(outputs, is_trusted=True).outputs == outputs
    assert prepare(outputs, is_trusted=True).lines == []
