"""Images: folding rows of the journal, and the least changes between two of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumable_nb.errors import StateError
from resumable_nb.state import Image

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_names = st.sampled_from(["query", "findings", "plan", "größe"])


def _row(**parts: Any) -> str:
    return json.dumps(parts, ensure_ascii=False)


@given(st.lists(st.tuples(_names, _json), max_size=6), st.booleans(), st.booleans())
def test_rows_fold_to_the_texts_that_they_hold(rows: list[tuple[str, Any]], spaced: bool, ascii_only: bool) -> None:
    """Whatever JSON a row sets, and however it is laid out, the image holds it; lists are held by element."""
    image, model = Image.EMPTY, dict[str, Any]()
    for name, value in rows:
        model[name] = value
        separators = (" , ", " : ") if spaced else (",", ":")
        image = image.apply(json.dumps({"set": {name: value}}, separators=separators, ensure_ascii=ascii_only))

    assert {name: json.loads(image.json(name)) for name in image.fields} == model


def test_changes_are_folded_part_by_part() -> None:
    """Set, append, drop and version of a row all take effect, and texts are taken over byte for byte."""
    image = Image.EMPTY.apply(_row(set={"q": "a", "n": 1.50, "items": [1, {"k": 2}]}, version=2))
    image = image.apply('{"append":{"items":[ 1e5 ,"x"],"more":[]},"drop":{"n":true}}')

    assert image.fields == ("q", "items", "more")
    assert image.json("items") == '[1,{"k": 2},1e5,"x"]'
    assert image.json("more") == "[]"
    assert image.schema_version == 2
    assert Image.EMPTY.apply("{}") == Image.EMPTY


@pytest.mark.parametrize(
    "changes",
    [
        *("", "[]", "{", '{"set"}', '{"set":{"a":}}', '{"set":{"a":1}', '{"set":{"a":1}} 2', '{"set":{1:2}}', "null"),
        *('{"append":{"q":[1]}}', '{"append":{"items":1}}', '{"other":{}}', '{"version":"x"}', '{"version":true}'),
        '{"set":{"a":' + "[" * 100_000 + "]" * 100_000 + "}}",
    ],
)
def test_damaged_changes_are_an_error_with_the_text(changes: str) -> None:
    """What is no record of changes is refused in words, and says where it stands."""
    image = Image.EMPTY.apply('{"set":{"q":"text","items":[]}}')

    with pytest.raises(StateError, match="Recorded changes"):
        image.apply(changes)
    assert image.fields == ("q", "items")


def test_images_that_grow_from_one_do_not_see_each_other() -> None:
    """Two branches from one checkpoint, and the checkpoint itself, keep their own elements."""
    base = Image.EMPTY.apply('{"set":{"items":[0]}}')
    left = base.apply('{"append":{"items":[1]}}')
    right = base.apply('{"append":{"items":[2]}}')
    left = left.apply('{"append":{"items":[3]}}')

    assert [i.json("items") for i in (base, left, right)] == ["[0]", "[0,1,3]", "[0,2]"]
    assert right.changes_from(left) == '{"set":{"items":[0,2]}}'
    assert left.changes_from(base) == '{"append":{"items":[1,3]}}'


def test_only_append_fields_are_appended_to() -> None:
    """A list that no row appends to is set as a whole; so is a new append field, which may be empty."""
    base = Image.EMPTY.apply('{"set":{"plan":[1],"items":[1]}}')
    longer = base.apply('{"set":{"plan":[1,2],"new":[]},"append":{"items":[2]}}')

    assert longer.changes_from(base) == '{"set":{"plan":[1,2],"new":[]},"append":{"items":[2]}}'


_images = st.lists(
    st.dictionaries(st.sampled_from(["set", "append", "drop"]), st.dictionaries(_names, st.lists(_json, max_size=3))),
    max_size=5,
)


@given(_images, _images)
def test_changes_lead_from_any_image_to_any_other(one: list[Any], two: list[Any]) -> None:
    """What `changes_from` says, applied, gives the image; nothing is said exactly when the digests are equal."""
    start, end = Image.EMPTY, Image.EMPTY.apply('{"version":3}' if two else "{}")
    for row in one:
        start = start.apply(json.dumps(row))
    for row in two:
        end = end.apply(json.dumps(row))
    changes = end.changes_from(start)

    assert start.apply(changes or "{}") == end
    assert (changes is None) == (start.digest == end.digest)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ('{"set":{"a":[1,2]}}', '{"set":{"a":[12]}}'),
        ('{"set":{"a":["1,2"]}}', '{"set":{"a":["1","2"]}}'),
        ('{"set":{"a":1,"b":2}}', '{"set":{"a":2,"b":1}}'),
        ('{"set":{"ab":1}}', '{"set":{"a":1,"b":1}}'),
        ('{"set":{"a":[]}}', '{"set":{"a":null}}'),
        ('{"set":{"a":[[]]}}', '{"set":{"a":[]}}'),
        ('{"set":{"a":"[1]"}}', '{"set":{"a":[1]}}'),
        ('{"set":{"a":1}}', '{"set":{"a":1.0}}'),
        ('{"set":{"a":1}}', '{"set":{"a":1},"version":2}'),
        ("{}", '{"set":{"a":null}}'),
    ],
)
def test_different_states_have_different_digests(one: str, two: str) -> None:
    """Borders between elements, fields, kinds of values and versions count."""
    assert Image.EMPTY.apply(one) != Image.EMPTY.apply(two)
    assert Image.EMPTY.apply(one) == Image.EMPTY.apply(one)
