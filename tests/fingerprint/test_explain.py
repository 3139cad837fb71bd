"""What is said of an input that changed."""

from __future__ import annotations

import json

import pytest

from resumable_nb.fingerprint import Facts, explain
from tests.fingerprint.notebooks import Notebook

CLASSES = """
import dataclasses, threading
import numpy as np, pandas as pd
@dataclasses.dataclass
class D:
    n: int
    s: str = 'a'
"""


def says(before: str, after: str) -> list[str]:
    """The lines for `x`, from facts as the journal has them."""
    found = []
    for source in (before, after):
        book = Notebook(CLASSES + source)
        facts = book.facts("x") if "x" in book.names else None
        found.append({"x": facts and Facts.from_json(json.loads(json.dumps(facts.to_json())))})
    return explain(*found)


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("x = 3", "x = 4", "`x` changed: 3 → 4"),
        ("x = True", "x = 1", "`x` changed: True → 1"),
        ("x = 1", "x = 1.0", "`x` changed: 1 → 1.0"),
        ("x = 0.0", "x = -0.0", "`x` changed: 0.0 → -0.0"),
        ("x = (1, 2)", "x = [1, 2]", "`x` changed: (1, 2) → [1, 2]"),
        ("x = 'a'", "x = 'b'", "`x` changed: 'a' → 'b'"),
        ("x = 'a' * 999 + 'b'", "x = 'a' * 999 + 'c'", "in what this short form does not show"),
        ("x = 'a' * 999", "x = 'a' * 998", "`x` changed: length: 999 → 998"),
        ("x = list(range(99))", "x = list(range(99)); x[50] = 7", "`x` changed: [50]: 50 → 7"),
        ("x = {'a' * 40: 1, 'b': [1] * 99}", "x = {'a' * 40: 1, 'b': [1] * 98 + [2]}", "`x` changed: ['b']"),
        ("x = {'a': 1}", "x = {'a': 1, 'b': 2}", "`x` changed: {'a': 1} → {'a': 1, 'b': 2}"),
        ("x = D(1)", "x = D(2)", "`x` changed: D(n=1, s='a') → D(n=2, s='a')"),
        ("x = D(1, 'a' * 90)", "x = D(1, 'a' * 89 + 'b')", ".s"),
        ("x = np.zeros(3)", "x = np.zeros((3, 1))", "`x` changed: shape: (3,) → (3, 1), values"),
        ("x = pd.Series([1], name='a')", "x = pd.Series([1], name='b')", "`x` changed: name: a → b"),
        ("def x(): return 1", "def x(): return 2", "`x` is a different function"),
        ("n = 1\ndef x(a=n): pass", "n = 2\ndef x(a=n): pass", "`x` is a different function: defaults"),
        ("class x:\n    def m(self): pass", "class x:\n    def m(self): return 1", "`x` is a different class: m"),
        ("x = threading.Lock()", "x = threading.Lock()\ny = 1", "`x` (lock object) was made by other code"),
        ("def x(): pass", "x = 3", "`x` changed: function x → 3"),
        ("y = 1", "x = 3", "`x` is new: 3"),
        ("x = 3", "y = 1", "`x` is no longer bound (it was 3)"),
        ("x = [threading.Lock(), 1]", "x = [threading.Lock(), 2]", "`x` changed: [lock object, 1] → [lock object, 2]"),
    ],
)  # fmt: skip
def test_what_changed_is_named(before, after, line):
    """One line names the input and what differs, from what the journal holds of it."""
    (found,) = says(before, after)

    assert found.startswith(line) if line.startswith("`x`") else found.endswith(line)


def test_what_did_not_change_is_not_named():
    """Names with equal facts, and names that were unbound and are, give no line."""
    facts = Notebook("x = 1").facts("x")

    assert explain({"x": facts, "y": None}, {"x": facts, "z": None}) == []


def test_lines_come_in_the_order_of_the_names():
    """Several changes are told in alphabetical order; a module is called one."""
    one, two = Facts(digest="1", summary="1"), Facts(digest="2", summary="2")
    module, edited = (Facts(digest=n, kind="module", summary="module helpers") for n in "34")

    assert explain({"b": one, "a": one, "module helpers": module}, {"a": two, "b": two, "module helpers": edited}) == [
        "`a` changed: 1 → 2",
        "`b` changed: 1 → 2",
        "the module `helpers` changed",
    ]


def test_a_line_stays_short():
    """A line about a frame of many columns names a few of them and says how many more there are."""
    frame = "x = pd.DataFrame({{f'column {{n}}': [{0}] for n in range(30)}})"
    (line,) = says(frame.format(1), frame.format(2))

    assert "values of column 0" in line
    assert "more" in line
    assert len(line) < 150


def test_facts_are_small():
    """What is recorded of a large value takes a few kilobytes in the journal."""
    book = Notebook(
        "import pandas as pd\nx = {f'k{n}': list(range(100)) for n in range(5000)}\n"
        "y = pd.DataFrame({f'c{n}': range(1000) for n in range(200)})\nz = 'a' * 10**6"
    )

    assert all(len(json.dumps(book.facts(name).to_json())) < 6000 for name in "xyz")
