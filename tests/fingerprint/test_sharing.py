"""Names that share something mutable."""

from __future__ import annotations

import gc

import pytest

from resumable_nb.fingerprint import shares, sharing
from resumable_nb.values import encode_names
from tests.fingerprint.notebooks import Notebook


@pytest.mark.parametrize(
    "source",
    [
        "x = []\ny = x",
        "x = []\ny = [1, x]",
        "x = []\ny = {'k': (1, [x])}",
        "z = []\nx, y = [z], (z,)",
        "x = {}\nclass A: pass\ny = A()\ny.field = x",
        "class A: __slots__ = ('f',)\nx = []\ny = A()\ny.f = x",
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    f: list\nx = []\ny = D(x)",
        "from pydantic import BaseModel\nclass M(BaseModel):\n    f: list\nx = M(f=[1])\ny = x.f",
        "import numpy as np\nx = np.zeros(4)\ny = x[1:]",
        "import numpy as np\nx = np.zeros(4)[1:]\ny = {'k': x.reshape(3, 1)}",
        "import pandas as pd\nx = []\ny = pd.DataFrame({'o': [x, 1]})",
        "import pandas as pd\nx = []\ny = pd.Series([x])",
        "import numpy as np\nx = []\ny = np.array([x, None], dtype=object)",
        "x = []\ny = x.append",
        "x = []\ndef y(a=x): pass",
        "def m():\n    a = []\n    return a, lambda: a\nx, y = m()",
        "import functools\nx = []\ny = functools.partial(print, x)",
        "from collections import deque, defaultdict\nx = []\ny = defaultdict(list, k=deque([x]))",
        "class A:\n    def m(self): pass\nx = A()\ny = x.m",
        "class L(list): pass\nx = []\ny = L([x])",
        "x = []\ny = [x]\nx.append(y)",
    ],
)
def test_who_shares(source):
    """A change through one name that can be seen through another is found, whichever of the two is asked about."""
    names = Notebook(source).names

    assert "y" in shares({"x"}, names)
    assert "x" in shares({"y"}, names)


@pytest.mark.parametrize(
    "source",
    [
        "x, y = [], []",
        "x = y = (1, 'a', 2.0)",
        "x = y = 'a' * 1000",
        "x, y = [1, None, True], [1, None, True]",
        "x = [int, len, list.append]\ny = [int, len, list.append]",
        "import json as x\ny = [1]",
        "import pandas as pd\nx = pd.DataFrame({'a': [1]})\ny = x.copy()",
        "class A: pass\nx, y = A(), A()",
        "def x(): pass\ndef y(): return x",
        "x = 1\ny = {}",
    ],
)
def test_who_does_not_share(source):
    """Equal values, immutable ones, modules, classes and builtins are nothing that two names share."""
    names = Notebook(source).names

    assert "y" not in shares({"x"}, names)


def test_unbound_names_share_nothing():
    """A name that is not bound is left out."""
    assert shares({"nothing"}, {"x": []}) == set()


def test_a_value_with_very_many_parts_counts_as_sharing():
    """Where a walk would take too long, the name is looked at again rather than missed."""
    names = {"x": [], "y": [[n] for n in range(200_000)]}

    assert shares({"x"}, names) == {"y"}


def test_a_list_of_a_million_numbers_is_told_apart():
    """Numbers and texts are not walked one by one, and are nothing to share."""
    names = {"x": [], "y": list(range(1_000_000)), "z": {str(n): n for n in range(100_000)}}

    assert shares({"x"}, names) == set()


@pytest.mark.parametrize(
    "source",
    [
        "import ipywidgets\nx, y = ipywidgets.Output(), ipywidgets.Output()",
        "import ipywidgets\nx = ipywidgets.HBox([ipywidgets.Button()])\nclass W(ipywidgets.VBox): pass\ny = W()",
        "import enum\nclass E(enum.Enum):\n    A = 1\nx, y = [E.A], {'k': E.A}",
        "import asyncio\nclass A: pass\nx, y = A(), A()\nx.loop = y.loop = asyncio.new_event_loop()\nx.loop.close()",
    ],
)
def test_what_a_process_has_one_of_is_not_shared(source):
    """Two widgets, or clients of one event loop, have nothing in common that a person could part."""
    names = Notebook(source).names

    assert "y" not in shares({"x"}, names)


def test_a_widget_shares_what_was_put_into_it():
    """A list that hangs on a widget is changed through it; a widget that a list holds is one and the same."""
    source = "import ipywidgets\nx = ipywidgets.Output()\ny = [x]\nz = ipywidgets.Output()\nz.about = w = []"
    names = Notebook(source).names

    assert shares({"x"}, names) == {"y"}
    assert shares({"w"}, names) == {"z"}


GONE = {
    "itself": "x = weakref.proxy(t)",
    "a field": "class H: pass\nx = H()\nx.p = weakref.proxy(t)",
    "an item": "x = [1, weakref.proxy(t)]",
    "one to be called": "def f(): pass\nx = {'k': weakref.proxy(f)}\ndel f",
    "in a closure": "def m():\n    p = weakref.proxy(t)\n    return lambda: p\nx = m()",
    "of a progress bar": "from tqdm.notebook import tqdm\nb = tqdm(range(2), display=False)\nx = b.container\ndel b",
}


@pytest.mark.parametrize("source", GONE.values(), ids=GONE)
def test_a_weak_proxy_whose_thing_is_gone_is_looked_at(source):
    """The box of a finished progress bar holds one: to ask such a proxy what it is raises ReferenceError."""
    notebook = Notebook(f"import weakref\nclass A: pass\nt = A()\n{source}\ndel t\ny = []")
    gc.collect()

    assert shares({"x"}, notebook.names) == set()
    assert sharing(notebook.names).shared() == set()
    assert notebook.facts("x").storable
    assert encode_names({"x": notebook.names["x"]}).failed
