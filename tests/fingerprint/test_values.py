"""Inputs by value and type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resumable_nb.fingerprint import Facts, fingerprint
from tests.fingerprint.notebooks import Notebook, digest


def of(value: object, **options: object) -> Facts:
    return fingerprint(value, namespace={}, **options)


@pytest.mark.parametrize(
    "values",
    [
        [True, 1, 1.0, "1", b"1", 1 + 0j, [1], (1,), {1}, frozenset({1}), {1: 1}, {"1": 1}],
        [0.0, -0.0, 0, False, None, "", float("nan"), float("inf")],
        [(1, 2), [1, 2], (2, 1), (1.0, 2), [[1, 2]], [1, [2]]],
        [(-1, -1), (-2, -2), (-1, -2)],
        [{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 1}, {"a": 1, "b": 2, "c": None}],
        [np.int64(1), np.int32(1), 1, np.array(1), np.array([1]), np.array([[1]]), np.array([1.0])],
        [np.zeros((2, 3)), np.zeros((3, 2)), np.zeros(6), np.zeros((2, 3), "f4"), np.zeros((2, 3), order="F")],
        [pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-01", tz="UTC"), "2024-01-01", pd.NaT, pd.NA],
    ],
)
def test_values_that_compare_equal_are_told_apart(values):
    """Two values of different type or content never have one digest, whatever `==` and `hash` say of them."""
    digests = [of(value).digest for value in values]

    assert len(set(digests)) == len(values)


_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(_values)
def test_an_equal_value_has_an_equal_digest(value):
    """A value that was made again the same way has the same digest, a NaN in it or not; facts survive the journal."""
    facts = of(value)

    assert of(eval(repr(value), {"nan": float("nan"), "inf": float("inf")})) == facts
    assert Facts.from_json(json.loads(json.dumps(facts.to_json()))) == facts
    assert facts.storable == ""
    assert len(facts.summary) <= 60


# ------------------------------------------------------------------ frames
FRAME = "import pandas as pd\nx = pd.DataFrame({'x': [1, 2], 'n': [1.0, float('nan')]})"


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ("x = x[::-1].reset_index(drop=True)", "values of x, values of n"),
        ("x['x'] = x['x'].astype('int32')", "dtype of x: int64 → int32"),
        ("x = x.rename(columns={'n': 'm'})", "columns: n, x → m, x"),
        ("x.index.name = 'i'", "index name: None → i"),
        ("x = x[['n', 'x']]", "column order: x, n → n, x"),
        ("x = x.head(1)", "rows: 2 → 1, index, values of x"),
        ("x.loc[0, 'n'] = 2.0", "values of n"),
        ("x.index = ['a', 'b']", "index"),
        ("x.attrs['unit'] = 'm'", "attributes"),
        ("x = x.astype({'x': 'category'})", "dtype of x: int64 → category"),
    ],
)
def test_a_frame_that_changed_in_a_quiet_way(edit, says):
    """Row order, dtypes, column names and order, the index and its name count, and the message says which it was."""
    from resumable_nb.fingerprint import explain

    before, after = Notebook(FRAME).facts("x"), Notebook(FRAME, edit).facts("x")

    assert before.digest != after.digest
    assert explain({"x": before}, {"x": after})[0].startswith(f"`x` changed: {says}")


def test_a_frame_with_nan_equals_itself():
    """A frame that holds NaN has the same digest when it is made again."""
    assert digest(FRAME) == digest(FRAME)


# ------------------------------------------------------------------ across processes
SAME = """
import datetime, dataclasses, enum, functools, json, re, sys, threading
import pandas as pd
from pydantic import BaseModel
sys.path.insert(0, {root!r})
from tests.fingerprint.notebooks import Notebook
book = Notebook('''
import dataclasses, datetime, enum, functools, re, threading
import pandas as pd
from pydantic import BaseModel, Field
tags = {{"solar", "wind", "tidal", "heat"}}
cfg = {{"b": 1, "a": {{"z", "y"}}}}
@dataclasses.dataclass
class D:
    name: str
    lock: object = dataclasses.field(default_factory=threading.Lock)
    other: object = threading.Lock()
class M(BaseModel):
    names: set[str] = Field({{"p", "q"}}, description="d")
class E(enum.Flag):
    A = 1
    B = 2
class P:
    known = {{"a", "b", "c"}}
    def __init__(self): self.tags = tags
    def in_it(self, x): return x in {{"k", "l", "m"}}
inst, model, flags, plain = D("n", None), M(), E.A | E.B, P()
frame = pd.DataFrame({{"s": ["a", "b"], "t": pd.to_datetime(["2024-01-01"] * 2), "c": pd.Categorical(["u", "v"]),
                      "i": pd.array([1, None], dtype="Int64")}})
when = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
def f(x, *, y={{"d", "e"}}): return x in {{1, 2, "a"}} and plain
part, bound, cached = functools.partial(f, y=tags), plain.in_it, functools.lru_cache(maxsize=3)(f)
lock, pattern = threading.Lock(), re.compile("x")
''')
book.run("g = lambda x: x in {{'a', 'b', 'c'}}", at_hand=False)
print(json.dumps({{n: book.facts(n).to_json() for n in sorted(book.names) if n[0] != "_"}}, sort_keys=True))
"""


def test_digests_are_the_same_in_every_process():
    """Another hash seed, time zone or process changes no fact: not of sets, classes, functions or bytecode."""
    root = str(Path(__file__).parents[2])
    found = set()
    for seed, zone in [("1", "UTC"), ("2", "Asia/Tokyo"), ("3", "America/New_York")]:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone}
        code = SAME.format(root=root)
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, cwd=root
        )
        found.add(done.stdout)

    assert len(found) == 1
    assert "0x" not in found.pop()


# ------------------------------------------------------------------ what cannot be stored
def test_a_lock_does_not_hide_what_is_beside_it():
    """What cannot be compared counts by its type and the code that made it; the rest of the value counts as ever."""
    lock = threading.Lock()

    assert of([lock, 1], made_by="a").digest == of([threading.Lock(), 1], made_by="a").digest
    assert of([lock, 1], made_by="a").digest != of([lock, 2], made_by="a").digest
    assert of([lock, 1], made_by="a").digest != of([lock, 1], made_by="b").digest
    assert of([lock, 1]).digest != of([threading.Event(), 1]).digest
    assert of(lock).kind == "opaque"
    assert "lock" in of([lock, 1]).storable


def test_a_value_that_is_too_large_counts_by_its_maker():
    """Past the limit a value is not looked at: its type and the code that made it count, and the facts say so."""
    one, other = of("a" * 2000, made_by="x", limit_bytes=1000), of("b" * 2000, made_by="x", limit_bytes=1000)

    assert one.digest == other.digest
    assert one.kind == "opaque"
    assert "limit" in one.storable


def test_a_credential_is_neither_shown_nor_kept():
    """Nothing of a secret is in the facts, not even its digest; another secret at its place changes nothing."""
    secrets = ["sk-" + "a1B2" * 8, "sk-" + "c3D4" * 8]
    for name, values in [("x", secrets), ("api_key", ["hunter2hunter2", "hunter3hunter3"])]:
        one, other = (of(value, name=name, made_by="cell") for value in values)

        assert one == other
        assert one.summary == "(a credential)"
        assert one.storable


def test_a_credential_inside_a_value_is_not_shown():
    """A key in a dict or a text is left out of the summary and of the parts."""
    secret = "sk-" + "a1B2" * 8
    for value in (
        {"api_key": "hunter2hunter2", "n": 1},
        [secret, 1],
        {"url": f"https://u:{'p' * 30}@h/"},
        {secret: 1},
        {(secret, 1): 2},
        {secret},
        "x" * 1990 + secret,
        pd.DataFrame({secret: [1]}),
        pd.DataFrame({"a": [secret]}, index=pd.Index([1], name=secret)),
        pd.Series([1], name=secret),
    ):
        stored = json.dumps(of(value).to_json())

        assert "hunter" not in stored
        assert secret[:12] not in stored
        assert "pppp" not in stored


@pytest.mark.parametrize(
    ("make", "change"),
    [
        ("import tenacity\nx = [tenacity.stop_after_attempt(1)]", "x[0].max_attempt_number = 2"),
        ("from collections import UserDict\nx = UserDict(a=1)", "x['b'] = 2"),
        ("from collections import ChainMap\nx = ChainMap({'a': 1})", "x['b'] = 2"),
        ("from collections import Counter, deque\nx = [Counter('ab'), deque([1])]", "x[1].append(2)"),
        ("import argparse\nx = argparse.Namespace(a=1)", "x.a = 2"),
        ("import array\nx = array.array('i', [1])", "x.append(2)"),
        ("import io\nx = io.StringIO('a')\nx.read()", "x.write('b')"),
        ("import random\nx = random.Random(1)", "x.random()"),
        ("import numpy as np\nx = np.random.default_rng(1)", "x.random()"),
        ("import itertools\nx = itertools.count()", "next(x)"),
        ("import numpy as np\na = np.zeros(3)\nx = [a, a[1:]]", "a[1] = 1"),
        ("import types\na = {}\nx = types.MappingProxyType(a)", "a['b'] = 1"),
        ("class L(list): pass\nx = L([1])", "x.append(2)"),
        ("class L(list): pass\nx = L([1])", "x.name = 2"),
    ],
)
def test_a_change_in_place_is_seen(make, change):
    """What holds data counts by it, also an object of a package: a step that alters it leaves another value."""
    book = Notebook(make)
    before = book.facts("x")
    book.run(change)

    assert Notebook(make).facts("x").digest == before.digest
    assert book.facts("x").digest != before.digest


@pytest.mark.parametrize(
    "make",
    [
        "import httpx2\nx = httpx2.Client()",
        "from resumable_nb import OpenAI\nx = OpenAI(api_key='k', base_url='http://localhost')",
        "import threading\nx = threading.Thread()",
        "import logging\nx = logging.getLogger('x')",
        "import duckdb\nx = duckdb.connect()",
        "import sys\nx = sys.__stderr__",
        "x = (n for n in [1])",
        "import tenacity\nx = tenacity.Retrying()",
        "import weakref\nclass A: pass\na = A()\nx = weakref.ref(a)",
    ],
)
def test_a_client_counts_by_its_maker(make):
    """Handles, clients and the like have one digest in every process that makes them by the same code."""
    one, again, edited = Notebook(make), Notebook(make), Notebook(make + "\ny = 1")

    assert one.facts("x").digest == again.facts("x").digest != edited.facts("x").digest
    assert one.facts("x").kind == "opaque"
    assert one.facts("x").storable


class Hostile:
    """An object whose class fails at everything."""

    def __getattribute__(self, name):
        raise RuntimeError("do not touch")

    __repr__ = __str__ = __eq__ = __bool__ = __len__ = __iter__ = lambda self, *_: 1 / 0
    __hash__ = None


class HostileList(list):
    __len__ = __iter__ = __getitem__ = __repr__ = lambda self, *_: 1 / 0


class HostileDict(dict):
    keys = items = values = __iter__ = __len__ = __repr__ = lambda self, *_: 1 / 0


@pytest.mark.parametrize("make", [Hostile, HostileList, HostileDict])
def test_no_method_of_a_value_runs(make):
    """An object whose every method raises has a digest and a summary all the same."""
    value = make()
    facts = of([value])

    assert facts.digest
    assert "object" in of(value).summary or "class" in of(value).summary


@pytest.mark.parametrize("depth", [50, 5000])
def test_deep_and_circular_values(depth):
    """A list that holds itself, and one a thousand levels deep, end without a RecursionError."""
    deep: list[object] = []
    for _ in range(depth):
        deep = [deep]
    ring: list[object] = []
    ring.append(ring)

    assert of(deep).digest
    assert of(ring).digest != of([[]]).digest


def test_a_chain_of_objects():
    """Linked objects of a notebook's class count by content if they are few, by their maker if they are very many."""
    book = Notebook("class Node:\n    def __init__(self, n, next): self.n, self.next = n, next")
    for length in (10, 3000):
        book.run(f"x = None\nfor i in range({length}): x = Node(i, x)")

        assert book.facts("x").digest
    book.run("x = Node(1, None)\nx.next = x")
    assert book.facts("x").digest


# ------------------------------------------------------------------ summaries
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("3", "3"),
        ("'solar'", "'solar'"),
        ("'a' * 100", "'" + "a" * 56 + "…'"),
        ("[1, 'a', None]", "[1, 'a', None]"),
        ("(1,)", "(1,)"),
        ("{'a': [1, 2]}", "{'a': [1, 2]}"),
        ("{'b', 'a'}", "{'a', 'b'}"),
        ("set()", "set()"),
        ("list(range(1000))", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, … 1,000 in all]"),
        ("b'x' * 99", "bytes, 99 long"),
        ("pd.DataFrame({'a': [1]})", "DataFrame 1\u00d71"),
        ("np.zeros((2, 3))", "ndarray 2\u00d73 float64"),
        ("np.int64(3)", "int64(3)"),
        ("D('n', 2)", "D(name='n', n=2)"),
        ("M(q=1)", "M(q=1)"),
        ("E.R", "E.R"),
        ("D", "class D"),
        ("lambda: 1", "a lambda"),
        ("len", "function len"),
        ("pd", "module pandas"),
        ("threading.Lock()", "lock object"),
        ("datetime.date(2024, 1, 2)", "2024-01-02"),
        ("'a\\nb\\x1b[0m'", "'a\\nb\\x1b[0m'"),
    ],
)
def test_summaries(source, expected):
    """A message shows a value in a few characters, without an address and without its own repr."""
    book = Notebook(
        "import dataclasses, datetime, enum, threading\nimport numpy as np, pandas as pd\n"
        "from pydantic import BaseModel\n"
        "@dataclasses.dataclass\nclass D:\n    name: str\n    n: int\n"
        "class M(BaseModel):\n    q: int\nclass E(enum.Enum):\n    R = 1"
    )

    assert book.run(f"x = {source}").facts("x").summary == expected
