"""The editor of a payload, by its widgets: nothing is lost, and what is wrong stands at its field."""

from __future__ import annotations

import datetime as dt
import enum
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

import resumable_nb
from resumable_nb import approve, payloads, values
from resumable_nb.errors import Misfit, Paused
from resumable_nb.notebook import fields
from resumable_nb.notebook.editor import Form, Rows, editor_of
from resumable_nb.notebook.gate import GatePanel


class Size(enum.Enum):
    SMALL = "small"
    LARGE = 2


class Trip(BaseModel):
    place: str = Field(alias="to")
    people: int = Field(le=10)
    price: float = 1.5
    start: dt.date = dt.date(2024, 5, 1)
    size: Size = Size.SMALL
    class_: Literal["first", "second"] = "second"
    note: str | None = None
    is_paid: bool = False
    tags: list[str] = []


@dataclass
class Part:
    name: str
    hours: float


class Fit(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    label: str
    data: np.ndarray  # type: ignore[type-arg]


TRIP = Trip(to="Rome", people=2)
PAYLOADS = [
    ["bees", "", "a\nb"],
    [],
    [1, 2],
    [True],
    [Size.LARGE],
    TRIP,
    [TRIP, TRIP],
    [Part("a", 1.0), Part("b", 0.1)],
    [{"a": 1, "b": "x"}, {"a": 2, "b": ""}],
    [{"a": 1}, {"b": 2}],
    [Part("a", 1.0), TRIP],
    {"trip": TRIP, "parts": [Part("a", 1e300)], "deep": {"deeper": {"deepest": [1]}}},
    (1, 2),
    {"when": dt.timedelta(days=1), "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)},
    7,
    "long " * 100,
    None,
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("payload", PAYLOADS, ids=str)
def test_what_nobody_touches_comes_back_as_it_was(payload: Any) -> None:
    """Whatever its form, an editor in which nothing was changed has the payload that was asked about."""
    edited = editor_of(payload).read()

    assert edited == payloads.as_json(payload)
    assert payloads.conform(json.loads(json.dumps(edited)), payload) == payload


SHOWN = [
    ("# Report\n\nWell.", "# Report\n\nWell."),
    (["bees", "ants"], "1. bees\n2. ants"),
    (["a\nb"], '[\n  "a\\nb"\n]'),
    (
        {"part": Part("a", 1.0), "size": Size.LARGE, "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "both": (1, 2)},
        json.dumps(
            {"part": {"name": "a", "hours": 1.0}, "size": 2, "at": "2024-01-01T00:00:00+00:00", "both": [1, 2]},
            indent=2,
        ),
    ),
]


@pytest.mark.parametrize(("payload", "wanted"), SHOWN, ids=["text", "plan", "list", "objects"])
def test_a_payload_is_shown_for_people(payload: Any, wanted: str) -> None:
    """Text and plans as they are, without quotes and escapes; objects as JSON, without the marks of their storage."""
    shown = payloads.shown(json.loads(values.encode(payload).text))

    assert shown == wanted


@settings(max_examples=30, deadline=None)
@given(json_values)
def test_any_json_comes_back_as_it_was(payload: Any) -> None:
    """So for all plain values."""
    assert editor_of(payload).read() == payload


def type_in(part: Any, typed: Any) -> None:
    assert isinstance(part, fields.Field)
    part.widget.value = typed


def cell(row: Any, name: str | None = None) -> fields.Field:
    return row._fields[name]


def test_a_plan_is_edited_as_a_list() -> None:
    """Items are changed, added, moved and taken out; what was added and left empty is none."""
    rows = editor_of(["bees", "ants", "wasps"])
    assert isinstance(rows, Rows)
    type_in(cell(rows.rows[1]), "<b>ants</b>")
    rows.rows[2].up.click()
    rows.rows[0].down.click()
    rows.add.click()
    rows.add.click()
    type_in(cell(rows.rows[3]), "hornets")
    assert rows.read() == ["wasps", "bees", "<b>ants</b>", "hornets"]
    rows.rows[0].out.click()
    rows.rows[-1].up.click()

    assert rows.read() == ["bees", "<b>ants</b>", "hornets"]
    assert [(row.up.disabled, row.down.disabled) for row in rows.rows] == [
        (True, False),
        (False, False),
        (False, False),
        (False, True),
    ]


def test_what_a_class_cannot_make_of_json_stays_when_something_else_is_edited() -> None:
    """An array in a model is no field that can be filled in; the text beside it is."""
    payload = Fit(label="a", data=np.arange(3.0))
    form = editor_of(payload)
    assert isinstance(form, Form)
    type_in(form._parts["label"], "b")
    fitted = payloads.conform(json.loads(json.dumps(form.read())), payload)

    assert (fitted.label, type(fitted), fitted.data.tolist()) == ("b", Fit, [0.0, 1.0, 2.0])


def test_all_items_can_be_taken_out() -> None:
    """An empty plan is a plan."""
    rows = editor_of(["a", "b"])
    rows.rows[0].out.click()
    rows.rows[0].out.click()
    assert rows.read() == []
    rows.add.click()
    type_in(cell(rows.rows[0]), "c")
    assert rows.read() == ["c"]


def test_objects_alike_are_rows_of_fields() -> None:
    """A column for each field; items move with all of theirs."""
    payload = [Part("a", 1.0), Part("b", 2.5)]
    rows = editor_of(payload)
    assert list(rows.columns) == ["name", "hours"]
    type_in(cell(rows.rows[1], "hours"), " 3 ")
    rows.rows[1].up.click()
    rows.add.click()
    type_in(cell(rows.rows[2], "name"), "c")
    with pytest.raises(Misfit) as missing:
        payloads.conform(rows.read(), payload)
    type_in(cell(rows.rows[2], "hours"), "0.5")

    assert missing.value.path == (2, "hours")
    assert payloads.conform(rows.read(), payload) == [Part("b", 3.0), Part("a", 1.0), Part("c", 0.5)]


def test_a_model_is_a_form_by_the_types_of_its_fields() -> None:
    """Text, numbers, dates, choices, yes or no, lists: each as what it is, and back into the class."""
    form = editor_of(TRIP)
    assert isinstance(form, Form)
    parts: dict[str, Any] = form._parts
    kinds = {name: part.kind.name for name, part in parts.items() if name != "tags"}
    assert kinds == {
        "place": "text", "people": "whole number", "price": "number", "start": "text", "size": "choice",
        "class_": "choice", "note": "text", "is_paid": "yes or no",
    }  # fmt: skip
    assert isinstance(parts["tags"], Rows)
    typed = {"place": "Oslo", "people": "3", "price": "1e3", "start": "2025-01-31", "size": 1, "class_": 0, "note": "x"}
    for name, value in (typed | {"is_paid": True}).items():
        type_in(parts[name], value)
    parts["tags"].add.click()
    type_in(cell(parts["tags"].rows[0]), "north")
    wanted = Trip(
        to="Oslo", people=3, price=1000, start=dt.date(2025, 1, 31), size=Size.LARGE, class_="first", note="x"
    )
    assert payloads.conform(form.read(), TRIP) == wanted.model_copy(update={"is_paid": True, "tags": ["north"]})
    type_in(parts["note"], "")

    assert form.read()["note"] is None


WRONG = [
    ("people", "many", "a whole number must stand here"),
    ("people", "11", "less than or equal to 10"),
    ("price", "1,5", "a number must stand here"),
    ("price", "nan", "a number must stand here"),
    ("start", "tomorrow", "valid date"),
]


@pytest.mark.parametrize(("name", "typed", "why"), WRONG)
def test_what_is_wrong_stands_at_its_field_and_nothing_is_decided(
    tmp_path: Path, name: str, typed: str, why: str
) -> None:
    """The gate still waits, what was typed stands there, and after a correction the decision is taken."""
    with resumable_nb.open("t", db=tmp_path / "t.duckdb", query="q", say=lambda _: None) as thread:
        panel = paused_panel(thread, lambda: approve("Go?", TRIP).payload)
        panel.edit.click()
        part: Any = panel.editor._parts[name]
        panel.comment.value = "please"
        type_in(part, typed)
        panel.approve.click()

        assert "Nothing was decided" in panel.said.value
        assert why in part._wrong.value
        assert part._wrong.layout.display == ""
        assert (part.widget.value, panel.comment.value) == (typed, "please")
        assert thread.store.rows("SELECT phase FROM approvals")[1] == [("waiting",)]

        type_in(part, {"people": "4", "price": "2", "start": "2024-06-01"}[name])
        panel.approve.click()
        assert part._wrong.layout.display == "none"
        assert thread.store.rows("SELECT phase, comment FROM approvals")[1] == [("approved", "please")]
        assert part.widget.disabled


def paused_panel(thread: Any, body: Any, name: str = "s") -> GatePanel:
    with pytest.raises(Paused) as stopped:
        thread.step(name, body)
    question = stopped.value.question
    return GatePanel(question, question.gate(), goes_on=False, on_decided=lambda: None)


def test_an_edit_that_changes_nothing_is_a_plain_yes(tmp_path: Path) -> None:
    """Opening the editor is no edit; and closing it again leaves out what was typed."""
    with resumable_nb.open("t", db=tmp_path / "t.duckdb", query="q", say=lambda _: None) as thread:
        for name, typed, closes in (("a", None, False), ("b", "other", True)):
            panel = paused_panel(thread, lambda: approve("Go on?", ["one"]).payload, name)
            panel.edit.click()
            if typed:
                type_in(cell(panel.editor.rows[0]), typed)
            if closes:
                panel.edit.click()
            panel.approve.click()
            assert thread.step(name, lambda: approve("Go on?", ["one"]).payload) == ["one"]
        assert thread.store.rows("SELECT phase, approved_payload FROM approvals")[1] == [("approved", None)] * 2
