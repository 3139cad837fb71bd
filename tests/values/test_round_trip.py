"""What is stored comes back exactly, and its text says all and only what it is."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from itertools import combinations
from typing import Any

import pytest

from resumable_nb.values import decode, encode, resolver
from tests.values import models as m
from tests.values.samples import everything
from tests.values.strict import assert_same

SAMPLES = everything()


def round_trip(value: Any) -> Any:
    encoded = encode(value)
    again = decode(encoded.text, encoded.blobs.__getitem__, resolver({}))
    assert encode(again).text == encoded.text
    return again


@pytest.mark.parametrize("name", SAMPLES)
def test_every_kind_of_value_comes_back_as_it_was(name: str) -> None:
    """Type, content, dtype, unit, zone, fold, flags: nothing is bent, and the text is the same again."""
    value = SAMPLES[name]

    assert_same(value, round_trip(value))


def test_the_text_is_json_for_sql() -> None:
    """Fields stand under their names, in the order of the class."""
    text = encode([m.Finding("sun", 0.25, ["a"])]).text

    assert text == ('[{"$type":"Finding","$module":"tests.values.models","claim":"sun","score":0.25,"sources":["a"]}]')


def test_large_binary_content_goes_to_blobs_by_its_hash() -> None:
    """Equal content is stored once, whatever it is part of."""
    encoded = encode([b"x" * 300, {"again": b"x" * 300}, b"small"])

    assert encoded.blobs == {hashlib.sha256(b"x" * 300).hexdigest(): b"x" * 300}
    assert "eHh4" not in encoded.text


SCRIPT = """
import sys
from tests.values.samples import everything
from tests.values.strict import assert_same
from resumable_nb.values import decode, encode, resolver
import json, pathlib
folder = pathlib.Path(sys.argv[1])
texts = {}
for name, value in everything().items():
    encoded = encode(value)
    texts[name] = encoded.text
    for digest, content in encoded.blobs.items():
        (folder / digest).write_bytes(content)
if (folder / "texts.json").exists():
    stored = json.loads((folder / "texts.json").read_text("utf-8"))
    assert stored == texts, [name for name in texts if stored[name] != texts[name]]
    for name, value in everything().items():
        assert_same(value, decode(stored[name], lambda digest: (folder / digest).read_bytes(), resolver({})))
else:
    (folder / "texts.json").write_text(json.dumps(texts), "utf-8")
"""


def test_texts_are_the_same_under_any_hash_seed_and_zone(tmp_path: Any) -> None:
    """Three processes write the same texts, and each reads what the first has stored."""
    for seed, zone in [("1", "UTC"), ("2", "Asia/Tokyo"), ("3", "America/New_York")]:
        environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": zone}
        subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment, check=True, timeout=100)

    assert json.loads((tmp_path / "texts.json").read_text("utf-8")).keys() == SAMPLES.keys()


def test_importing_values_costs_no_library() -> None:
    """numpy, pandas and pydantic are not imported before a value of theirs comes."""
    code = (
        "import sys, resumable_nb.values as v; v.encode([1, {'a': (1, b'x')}]);"
        "assert not {'numpy', 'pandas', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def families() -> list[list[Any]]:
    import numpy as np
    import pandas as pd

    frame = pd.DataFrame({"x": [1, 2], "n": [1.0, np.nan]})
    changed = [frame.copy() for _ in range(8)]
    changed[0].index = pd.RangeIndex(0, 2, name="i")
    changed[1].attrs["a"] = 1
    changed[2] = changed[2].set_flags(allows_duplicate_labels=False)
    changed[3].index = pd.Index([0, 1])
    changed[4].columns = pd.Index(["x", "n"], dtype=object)
    changed[5]["n"] = pd.array([1.0, None], "Float64")
    changed[6]["x"] = changed[6]["x"].astype(object)
    changed[7]["n"] = frame["n"].astype("f4")
    shared: list[Any] = []
    return [
        [1, 1.0, True, "1", b"1", 1 + 0j, np.int64(1), np.float64(1), np.bool_(True), m.Level.LOW, "True", ...],
        [0.0, -0.0, 0, False, None, "", [], (), {}, set(), frozenset(), float("nan")],
        [(1, 2), [1, 2], {1, 2}, {1: 2}, range(1, 3), np.array([1, 2]), m.Point(1, 2), m.Pair(1, 2), (1, 2.0)],
        [(-1, -1), (-2, -2), (-1, -2)],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2.0}, {"a": 1}],
        [{1: "a"}, {"1": "a"}, {True: "a"}, {1.0: "a"}, {None: "a"}, {"null": "a"}],
        [[shared, shared], [[], []], [[], [], []]],
        [
            m.Finding("a"),
            m.Finding("b"),
            m.Base(name="a"),
            m.Base(name="a", tags=[]),
            m.Derived(name="a"),
            m.Slots("a"),
        ],
        [
            frame,
            frame.iloc[::-1].reset_index(drop=True),
            frame.astype({"x": "int32"}),
            frame.rename(columns={"n": "m"}),
            frame[["n", "x"]],
            frame.set_index("x"),
            frame.iloc[:1],
            *changed,
        ],
        [
            np.zeros(2),
            np.zeros(2, "f4"),
            np.zeros((2, 1)),
            np.zeros((1, 2)),
            -np.zeros(2),
            np.zeros(2, ">f8"),
            np.zeros(2, "i8"),
        ],
        [np.array([["a", "b"]]), np.array([["a", "b"]], object), np.array([["a", "b"]], "U2")],
    ]


@pytest.mark.parametrize("family", families(), ids=lambda family: repr(family[0])[:20])
def test_what_differs_has_another_text(family: list[Any]) -> None:
    """Values that compare equal, or look alike, are told apart by type and content."""
    for a, b in combinations(family, 2):
        assert encode(a).text != encode(b).text, (a, b)


def test_what_is_equal_has_the_same_text() -> None:
    """Where a value came from, and in which order a set was filled, does not count."""
    import numpy as np

    text = str(b"solar", "ascii")
    pairs = [
        ({"a", "b", text}, {text, "b", "a"}),
        ([text, text], ["solar", str(b"solar", "ascii")]),
        (float("nan"), -float("nan")),
        (np.array([np.nan, 1]), np.array([-np.nan, 1])),
        ((t := (1, 2), t), ((1, 2), (1, 2))),
        (np.arange(6)[::2], np.array([0, 2, 4])),
        ([m.Frozen(1)] * 2, [m.Frozen(1), m.Frozen(1)]),
        (m.Checked("c"), m.Checked("c")),
    ]

    for a, b in pairs:
        assert encode(a).text == encode(b).text, (a, b)
