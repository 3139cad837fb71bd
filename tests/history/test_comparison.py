"""What differs between two states: every place, and lines that a person reads."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumable_nb.comparison import LINES_OF_FIELD, VALUE_CHARS, changes, lines
from resumable_nb.history import Diff

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab \n", max_size=6)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)
)
STATES = st.dictionaries(st.sampled_from(["query", "plan", "findings"]), VALUES)


def model(**fields: Any) -> dict[str, Any]:
    return {"$type": "Finding", "$module": "__main__", **fields}


def told(before: Any, after: Any) -> list[str]:
    return [line.text for line in lines(changes({"f": before}, {"f": after}))]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (["a"], ["a", "b", "c"], ["f: 2 added", "+ [1] b", "+ [2] c"]),
        (["a", "b"], ["a"], ["f: 1 removed", "- [1] b"]),
        (["a", "b", "c"], ["c", "a"], ["f: 1 removed, 1 moved", "  [0] stood at [2] before", "- [1] b"]),
        ("Why do bees dance?", "Why do bees sleep?", ["f: changed", "~ Why do bees [-dance-]{+sleep+}?"]),
        ("old", "new", ["f: changed", "- old", "+ new"]),
        (
            ["Read von Frisch"],
            ["Write the report"],
            ["f: 1 added, 1 removed", "- [0] Read von Frisch", "+ [0] Write the report"],
        ),
        ("a\nb\nc", "a\nx\nc", ["f: changed", "  a", "- b", "+ x", "  c"]),
        (None, {"a": "日本"}, ["f: changed", "- null", '+ {"a": "日本"}']),
        ({"n": 1, "m": 2}, {"n": 1, "m": 3}, ["f: 1 changed", "- m 2", "+ m 3"]),
        (1, 1.0, ["f: changed", "- 1", "+ 1.0"]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ["f: changed", '- {"a": 1, "b": 2}', '+ {"b": 2, "a": 1}']),
    ],
)
def test_a_difference_says_what_came_and_went(before: Any, after: Any, shown: list[str]) -> None:
    """Of lists the items, of texts the words or lines, of objects the parts, not both whole values."""
    assert told(before, after) == shown


def test_a_nested_model_is_compared_part_by_part() -> None:
    """The path leads to the part that changed; a new model is shown as Python would."""
    before = [model(claim="Bees dance to tell", n=1)]
    after = [model(claim="Bees dance to tell others", n=1), model(claim="X", n=2)]

    assert [c.path for c in changes({"findings": before}, {"findings": after})] == ["findings[0].claim", "findings[1]"]
    assert told(before, after)[1:] == ["~ [0].claim Bees dance to tell{+ others+}", '+ [1] Finding(claim="X", n=2)']


def test_what_pydantic_notes_for_itself_is_not_shown() -> None:
    """Which parts were given by name differs once a default is set; a person sees the part that changed, no more."""
    before = [model(claim="Bees dance", n=1) | {"$fields_set": ["claim"]}]

    assert told(before, [model(claim="Bees dance", n=2)])[1:] == ["- [0].n 1", "+ [0].n 2"]
    assert told(before, [model(claim="Bees dance", n=1)]) == []


def test_fields_that_come_and_go_are_said_so() -> None:
    """A field that only one of the states has is added or removed as a whole."""
    found = changes({"old": [1]}, {"new": {"$type": "date", "value": "2024-05-01"}})

    assert [(c.path, c.kind) for c in found] == [("old", "removed"), ("new", "added")]
    assert [line.text for line in lines(found)] == ["old: removed", "- [1]", "new: added", "+ 2024-05-01"]


@given(STATES, STATES)
def test_a_difference_is_said_if_and_only_if_there_is_one(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Equal states differ nowhere; others do, in fields that differ, and each such field is there."""
    found = changes(before, after)
    fields = {name for name in {*before, *after} if repr(before.get(name, ...)) != repr(after.get(name, ...))}

    assert not changes(before, copy.deepcopy(before))
    assert {change.field for change in found} == fields
    assert {row["field"] for row in Diff("", before, after)} == fields


@pytest.mark.parametrize("after", ["x" * 10**6, ["x"] * 10**5, {"a": "x" * 10**6}, "y z " * 10**5])
@pytest.mark.parametrize("before", [[], "a b " * 10**5, ["y"] * 10**5])
def test_a_difference_of_large_values_stays_short(before: Any, after: Any) -> None:
    """Large values are cut, and it is said how large they are."""
    text = repr(Diff("From 1 to 2", {"f": before}, {"f": after}))

    assert len(text) < 3 * VALUE_CHARS
    assert len(text.split("\n")) <= LINES_OF_FIELD + 3
    assert "characters)" in text or "more" in text


def test_equal_states_have_no_difference() -> None:
    """Where nothing differs, that is said."""
    assert repr(Diff("From 1 to 2", {"a": 1}, {"a": 1})) == "From 1 to 2: the states are the same"
