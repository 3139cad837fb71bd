"""Functions, classes and their objects as inputs."""

from __future__ import annotations

import pytest

from resumable_nb.fingerprint import analyse, explain
from tests.fingerprint.notebooks import Notebook, digest

CHAIN = ["LIMIT = 3", "def b(s): return s[:LIMIT]", "def a(s): return 'Q1 ' + b(s)"]
CELL = "r = a('solar')"


@pytest.mark.parametrize(
    ("place", "edit", "says"),
    [
        (0, "LIMIT = 4", "`LIMIT` changed: 3 → 4"),
        (1, "def b(s): return s[1:LIMIT]", "`b` is a different function"),
        (2, "def a(s): return 'Q2 ' + b(s)", "`a` is a different function"),
    ],
)
def test_the_helper_of_a_helper(place, edit, says):
    """A global of a function that a function calls is an input of the cell, and the one that changed is named."""
    edited = [*CHAIN]
    edited[place] = edit
    before, after = Notebook(*CHAIN).inputs(CELL), Notebook(*edited).inputs(CELL)

    assert set(before) == {"LIMIT", "a", "b"}
    assert explain(before, after) == [says]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def x(): return 1", "# above\n\n\ny = 2\ndef x():\n    # inside\n    return (1)"),
        ("x = lambda a: a + 1", "y, x = lambda a: a, lambda a: a + 1"),
        ("x = lambda a: a + 1", "y, x = lambda a: (lambda: 1), lambda a: a + 1; z = lambda: 2"),
        ("@staticmethod\ndef x(): return 1", "y = 1\n@staticmethod  # why\ndef x(): return 1"),
        (
            "def make():\n    return lambda: 'a'\nx = make()",
            "def make():\n\n    return (lambda:\n        'a')\nx = make()",
        ),
        ("x = [lambda: 1]", "x = [\n    lambda: 1,\n]"),
        ("async def x(): await x", "async def x():\n    await (x)"),
    ],
)
def test_a_function_that_moved_is_the_same(one, other):
    """Lines above it, comments and layout do not change a function."""
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def x(): return 1", "def x(): return 2"),
        ("def x(a): return 1", "def x(b): return 1"),
        ("def x(a=1): return a", "def x(a=2): return a"),
        ("def x(*, a=1): return a", "def x(*, a=2): return a"),
        ("y = 1\ndef x(a=y): return a", "y = 2\ndef x(a=y): return a"),
        ("def x(): 'doc'", "def x(): 'other'"),
        ("def x(a: int): pass", "def x(a: str): pass"),
        ("x = lambda: 1", "x = lambda: 2"),
        ("x = lambda: 1", "x = lambda: True"),
        ("def m(n): return lambda: n\nx = m(1)", "def m(n): return lambda: n\nx = m(2)"),
        ("def x(): pass\nx.a = 1", "def x(): pass\nx.a = 2"),
        ("from functools import partial\nx = partial(max, 1)", "from functools import partial\nx = partial(max, 2)"),
        ("from functools import partial\nx = partial(max, 1)", "from functools import partial\nx = partial(min, 1)"),
        (
            "import functools\n@functools.cache\ndef x(): return 1",
            "import functools\n@functools.cache\ndef x(): return 2",
        ),
        ("x = [1].append", "x = [2].append"),
        ("x = len", "x = print"),
        ("x = str.upper", "x = str.lower"),
        ("import operator\nx = operator.itemgetter(1)", "import operator\nx = operator.itemgetter(2)"),
        ("import re\nx = re.compile('a')", "import re\nx = re.compile('b')"),
        ("import json\nx = json.dumps", "import json\nx = json.loads"),
        ("import json\nx = json", "import re as x"),
        ("class A:\n    n = 1\n    def m(self): pass\nx = A().m", "class A:\n    def m(self): return 2\nx = A().m"),
    ],
)
def test_a_function_that_means_something_else_is_another(one, other):
    """Source, defaults, closures, partials, bound objects and attributes all count."""
    assert digest(one) != digest(other)


DECORATORS = """
import functools, contextlib, tenacity
def plain(f):
    @functools.wraps(f)
    def wrapper(*a): return f(*a)
    return wrapper
def bare(f): return lambda *a: f(*a)
class Object:
    def __init__(self, f): self.f = f
    def __call__(self): return self.f()
"""


@pytest.mark.parametrize(
    "decorator",
    [
        "plain",
        "bare",
        "Object",
        "functools.cache",
        "functools.lru_cache(maxsize=2)",
        "functools.singledispatch",
        "contextlib.contextmanager",
        "tenacity.retry",
        "staticmethod",
        "lambda f: functools.partial(f, 1)",
        "lambda f: [f]",
        "lambda f: {'k': (f,)}",
    ],
)
def test_what_a_decorator_wraps_counts(decorator):
    """The function inside a wrapper, the notebook's or a package's, counts by source, with the names that it reads."""
    book = Notebook(DECORATORS, "LIMIT = 3", f"@{decorator}\ndef x(*a): return LIMIT")
    before = book.facts("x")
    book.run(f"# moved\n@{decorator}\ndef x(*a): return LIMIT")
    moved = book.facts("x")
    book.run(f"@{decorator}\ndef x(*a): return -LIMIT")

    assert moved.digest == before.digest
    assert book.facts("x").digest != before.digest
    assert "LIMIT" in before.reads


def test_reads_are_globals_and_no_attributes():
    """Names of attributes, locals and builtins are not read; unbound names and those inside inner code are."""
    book = Notebook("y = z = print = 1")
    book.run(
        "def x(p):\n    global w\n    w = p.y + len(p)\n"
        "    def inner(): return [z for q in print() if nothing]\n    return inner"
    )

    assert book.facts("x").reads == {"w", "z", "print", "nothing"}


def test_reads_of_functions_in_containers_and_objects():
    """A function counts wherever a value holds it: in a list, a dict, a field, a default or a closure."""
    holders = {
        "x": "x = [1, {'k': f}]",
        "y": "class A: pass\ny = A()\ny.g = f",
        "z": "def z(g=f): pass",
        "w": "def m(): \n    g = f\n    return lambda: g\nw = m()",
    }
    book = Notebook("LIMIT = 1\ndef f(): return LIMIT", *holders.values())

    for name in holders:
        assert "LIMIT" in book.facts(name).reads, name


def test_recursion_ends():
    """Functions that call each other, and a closure that holds itself, have facts."""
    book = Notebook("def f(): return g()\ndef g(): return f()\ndef m():\n    def h(): return h\n    return h\nx = m()")

    assert set(book.inputs("f()")) == {"f", "g"}
    assert (
        book.facts("x").digest == Notebook("def m():\n    def h(): return h\n    return h\nx = m()").facts("x").digest
    )


def test_shared_functions_cost_no_more():
    """A function that is reached on a million ways is looked at once."""
    book = Notebook("f = lambda: 1\nfor i in range(20):\n    f = (lambda a, b: lambda: (a, b))(f, f)")

    assert book.facts("f").digest


def test_definitions_make_the_same_functions_again():
    """What `definitions` gives, executed in another kernel, are the functions and classes that the cell made."""
    cell = (
        "import json\nLIMIT = 3\n@json.loads('1') and staticmethod\ndef f(a: int = 1):\n    # why\n    return (a)\n"
        "class A:\n    n: int = 1\n    def m(self): return f"
    )
    book, again = Notebook(cell), Notebook("from functools import *")
    again.run("\n" + analyse(cell).definitions({"json", "f", "A"}))

    for name in ("json", "f", "A"):
        assert again.facts(name) == book.facts(name)


def test_without_source_the_bytecode_counts():
    """A function without source has a digest, too: the same wherever it is made, another for other code."""
    one, moved, other = (
        "x = lambda a: a in {1, 'b'}",
        "\n\nx = (lambda a:\n  a in {1, 'b'})",
        "x = lambda a: a in {1, 'c'}",
    )
    found = [Notebook().run(source, at_hand=False).facts("x").digest for source in (one, moved, other)]

    assert found[0] == found[1] != found[2]


def test_a_file_that_is_not_what_ran_is_not_believed():
    """When the source at hand is not the one that was compiled, the bytecode counts."""
    import linecache

    book, other = Notebook("def x(): return 1"), Notebook("def x(): return 2")
    file = book.names["x"].__code__.co_filename
    text = "def x(): return 2"
    linecache.cache[file] = (len(text), None, [text], file)
    # the digest of the code is kept per function, so ask for one that is new
    changed = Notebook().run("def x(): return 1", at_hand=False)

    assert book.facts("x").digest != other.facts("x").digest
    assert changed.facts("x").digest != other.facts("x").digest


# ------------------------------------------------------------------ classes
CLASSES = {
    "plain": "class x:\n    n = 1\n    def m(self): return 1",
    "base": "class B:\n    def m(self): return 1\nclass x(B): pass",
    "property": "class x:\n    @property\n    def m(self): return 1",
    "class method": "class x:\n    @classmethod\n    def m(cls): return 1",
    "cached": "import functools\nclass x:\n    @functools.cached_property\n    def m(self): return 1",
    "inner": "class x:\n    class I:\n        n = 1",
    "dataclass": "import dataclasses\n@dataclasses.dataclass\nclass x:\n    n: int = 1",
    "factory": "from dataclasses import *\n@dataclass\nclass x:\n    n: int = field(default_factory=lambda: 1)",
    "model": "from pydantic import BaseModel\nclass x(BaseModel):\n    n: int = 1",
    "field": "from pydantic import BaseModel, Field\nclass x(BaseModel):\n    n: int = Field(5, ge=1)",
    "annotated": "from pydantic import BaseModel\nfrom typing import *\nclass x(BaseModel):\n    n: Annotated[int, 1]",
    "validator": "from pydantic import BaseModel, field_validator\nclass x(BaseModel):\n    n: int\n"
    "    @field_validator('n')\n    @classmethod\n    def v(cls, v): return 1",
    "private": "from pydantic import BaseModel\nclass x(BaseModel):\n    _n: int = 1",
    "enum": "import enum\nclass x(enum.Enum):\n    A = 1",
    "slots": "class x:\n    __slots__ = ('a',)\n    def m(self): return 1",
    "named tuple": "from typing import NamedTuple\nclass x(NamedTuple):\n    n: int = 1",
    "metaclass": "class M(type):\n    n = 1\nclass x(metaclass=M): pass",
    "closure": "def make(n):\n    class C:\n        def m(self): return n\n    return C\nx = make(1)",
    "super": "class x:\n    def __init__(self): super().__init__(); self.n = 1",
}


@pytest.mark.parametrize("source", CLASSES.values(), ids=CLASSES.keys())
def test_classes_count_by_what_their_statement_says(source):
    """The same class made again is the same; another value anywhere in it makes another class."""
    again = "# moved\n\n" + source.replace(" = 1", "  =  1")

    assert digest(source) == digest(again)
    assert digest(source) != digest(source.replace("1", "2"))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("field", "ge=1", "gt=1"),
        ("validator", "'n')", "'n', mode='before')"),
        ("model", "int", "str"),
        ("dataclass", "int", "str"),
        ("dataclass", "dataclass\n", "dataclass(frozen=True)\n"),
        ("plain", "class x", "class x(metaclass=type('M', (type,), {}))"),
        ("enum", "A = 1", "B = 1"),
        ("slots", "('a',)", "('a', 'b')"),
        ("base", "class x(B)", "class x"),
        ("property", "property", "staticmethod"),
    ],
)
def test_options_of_fields_and_classes_count(kind, one, other):
    """Constraints, validators' modes, types and class options are part of a class."""
    source = CLASSES[kind]

    assert digest(source.replace(one, other)) != digest(source)


def test_options_count_without_source():
    """Where only bytecode is at hand, the options of a validator are still part of its class."""
    source = CLASSES["validator"]
    one, same, other = (
        Notebook().run(text, at_hand=False).facts("x").digest
        for text in (source, "\n\n" + source, source.replace("'n')", "'n', mode='before')"))
    )

    assert one == same != other


def test_an_object_of_the_library_may_call_the_notebook():
    """What an effect or a resource calls counts: the names that it reads are inputs; an effect adds to the state."""
    book = Notebook("LIMIT = 3\ndef f(): return LIMIT")
    book.run("class Effect:\n    def __init__(self, call): self.call = call")
    book.names["Effect"].__module__ = "resumable_nb.calls.effect"
    before = book.run("x = Effect(f)").facts("x")
    book.run("def f(): return -LIMIT\nx.call = f")

    assert before.kind == "opaque"
    assert before.reads == {"LIMIT", "state"}
    assert book.facts("x").digest != before.digest


def test_half_made_functions_and_objects():
    """A closure that is not bound yet and a slot that was never filled are looked at all the same."""
    book = Notebook("def make():\n    def g(): return later\n    return g\n    later = 1\nx = make()")
    book.run("class A: __slots__ = ('a', 'b')\ny = A()\ny.a = 1")

    assert book.facts("x").digest
    assert book.facts("y").digest != book.run("y.b = 1").facts("y").digest


def test_modules_that_a_function_imports_are_told_by_their_full_name():
    """An import inside a function names its module, and what may be one below it."""
    from resumable_nb.fingerprint.sources import modules_used

    book = Notebook("def f():\n    import a.b as c\n    from d import e as g")

    assert {"a.b", "d", "d.e"} <= modules_used(book.names["f"].__code__)


def test_the_state_of_a_thread_is_a_class_like_others():
    """A subclass of the research state has one digest before and after it was used; its reducers count."""
    source = (
        "import operator\nfrom typing import Annotated\nfrom resumable_nb import ResearchState\n"
        "def longer(a, b): return max(a, b, key=len)\n"
        "class x(ResearchState):\n    n: Annotated[int, operator.add] = 10\n    s: Annotated[str, longer] = ''"
    )
    book = Notebook(source)
    before = book.facts("x")
    book.run("x(n=1).update(n=2)")

    assert book.facts("x") == before
    assert Notebook(source).facts("x").digest == before.digest
    assert digest(source.replace("operator.add", "operator.mul")) != before.digest
    assert digest(source.replace("key=len", "key=str")) != before.digest


OBJECTS = {
    "plain": "class A:\n    def __init__(self, n): self.n = n\n    def m(self): return LIMIT",
    "slots": "class A:\n    __slots__ = ('n',)\n    def __init__(self, n): self.n = n\n    def m(self): return LIMIT",
    "dataclass": "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int\n    def m(self): return LIMIT",
    "list": "class A(list):\n    def __init__(self, n): self.append(n)\n    def m(self): return LIMIT",
    "dict": "class A(dict):\n    def __init__(self, n): self['n'] = n\n    def m(self): return LIMIT",
    "error": "class A(Exception):\n    def m(self): return LIMIT",
    "text": "class A(str):\n    def m(self): return LIMIT",
    "enum": "import enum\nclass A(enum.Enum):\n    X = 1\n    Y = 2\n    def m(self): return LIMIT",
}


@pytest.mark.parametrize("source", OBJECTS.values(), ids=OBJECTS.keys())
def test_objects_count_by_fields_and_read_their_class(source):
    """An object's fields and content are its value; its class is an input of its own, with what its methods read."""
    book = Notebook("LIMIT = 3", source, "x, y, z = A(1), A(2), A(1)")
    facts = {name: book.facts(name) for name in "xyz"}

    assert facts["x"].digest == facts["z"].digest != facts["y"].digest
    assert set(book.inputs("x.m()")) == {"x", "A", "LIMIT"}


def test_an_object_of_a_class_that_was_replaced():
    """An object whose class is no longer what its name holds counts with the code of its own class."""
    book = Notebook("class A:\n    def m(self): return 1", "x = A()", "class A:\n    def m(self): return 2")
    old = book.facts("x")

    assert book.run("y = A()").facts("y").digest != old.digest


def test_annotations_name_classes_of_the_notebook():
    """A class that another one mentions in a type is read by it, also where the type is written as text."""
    book = Notebook(
        "from __future__ import annotations\nclass A: pass\nclass B:\n    a: list[A | None]\ndef f(a: A): pass"
    )

    assert book.facts("B").reads == {"A"}
    assert book.facts("f").reads == {"A"}


def test_who_asks_a_model_reads_the_state():
    """A function of a cell above that asks a model makes `state` an input of the cell that calls it."""
    book = Notebook(
        "import resumable_nb as rn\nfrom resumable_nb import ask\ndef f(): return ask('Q')\ndef g(): return rn.ask('Q')"
    )

    for call in ("f()", "g()", "ask('Q')", "rn.ask('Q')"):
        assert "state" in book.inputs(call), call
    assert "state" not in book.inputs("rn.durable")
