"""What the source of a cell says about it."""

from __future__ import annotations

import ast
import io
import json
import tokenize

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from resumable_nb.fingerprint import Code, analyse, needs
from tests.fingerprint.programs import programs


def loads(source: str) -> dict[str, set[str]]:
    return {name: set(bound) for name, bound in analyse(source).loads.items()}


def names(source: str) -> set[str]:
    return set(analyse(source).loads)


def ask_cell(line: str) -> str:
    return f"get_ipython().{line}\n"


# ------------------------------------------------------------------ the digest
def _parses(source: str) -> bool:
    try:
        compile(source, "<program>", "exec")
    except SyntaxError:
        return False
    return True


def _with_comments(source: str) -> str:
    """The same tokens, and a comment at the end of each line."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source + "\n").readline):
        if token.type == tokenize.NEWLINE:
            lines[token.start[0] - 1] += "   # why"
    return "\n\n".join(lines) + "\n# the end\n"


@settings(max_examples=60, deadline=None)
@given(programs)
def test_a_digest_does_not_see_layout(source):
    """Line breaks, quotes, parentheses, blank lines and comments change no digest."""
    assume(_parses(source))
    digest = analyse(source).digest

    assert analyse(ast.unparse(ast.parse(source))).digest == digest
    assert analyse(_with_comments(source)).digest == digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 'a'", 'x = "a"'),
        ("x = 'a'", "x = u'a'"),
        ("x = 'ab'", "x = ('a'\n     'b')"),
        ("f(a, b)", "f(\n    a,\n    b,\n)"),
        ("x = 16", "x = 0x10"),
        ("x = (1)", "x = 1;"),
        ("if a:\n    b", "if a: b"),
        ("x = f'{a}'", 'x = f"{a}"'),
        ("from a import b", "from a import (\n    b,\n)"),
        ("x = [\n    1,  # one\n    2,\n]", "x = [1, 2]"),
        (ask_cell("run_cell_magic('time', '', 'x = 1\\n')"), ask_cell("run_cell_magic('time', '', 'x = 1  # one')")),
    ],
)
def test_edits_that_mean_nothing(one, other):
    """Two ways to write the same have one digest."""
    assert analyse(one).digest == analyse(other).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = 1", "x = '1'"),
        ("x = None", "x = 'None'"),
        ("x = 'a'", "x = b'a'"),
        ("x = 0.0", "x = -0.0"),
        ("f(a)", "f(*a)"),
        ("f(a, b)", "f((a, b))"),
        ("x = a", "x = a,"),
        ("a - (b - c)", "a - b - c"),
        ("await f()", "f()"),
        ("def f(): 'doc'", "def f(): 'Doc'"),
        ("f'{a}'", "f'{a!r}'"),
        ("f'{a:x}'", "f'{a:y}'"),
        ("x = {**a}", "x = {a}"),
        ("from a import b", "from .a import b"),
        ("x = 1", "x = 1\n_ = 1"),
        (ask_cell("system('a')"), ask_cell("system('b')")),
    ],
)
def test_edits_that_mean_something(one, other):
    """What Python tells apart has two digests."""
    assert analyse(one).digest != analyse(other).digest


@settings(max_examples=60, deadline=None)
@given(programs, st.integers(0, 50), st.data())
def test_a_changed_constant_changes_the_digest(source, number, data):
    """Whatever constant of a cell is changed, its digest is another one."""
    assume(_parses(source))
    tree = ast.parse(source)
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assume(constants)
    node = data.draw(st.sampled_from(constants))
    assume(node.value != number and not isinstance(node.value, str))  # a text may be part of an f-string
    node.value = number

    assert analyse(ast.unparse(tree)).digest != analyse(source).digest


def test_the_digest_is_fixed():
    """A digest is the same in every version: stored ones would not fit any more."""
    source = (
        "import a.b as c\n@d(1)\nasync def f(x: int = 2, *y, z=None) -> None:\n"
        "    'doc'\n    return [i async for i in x if i]\nf'{c!r:>{w}}'"
    )

    assert analyse(source).digest == "8da3cd85d3628ea66c06aec2c03173887d2250788b713d8d7bbc5ea5a6fa85db"


# ------------------------------------------------------------------ what a cell reads
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x", {"x"}),
        ("x = 1\nx", set()),
        ("x.append(1)", {"x"}),
        ("x[0] = 1", {"x"}),
        ("x.a = 1", {"x"}),
        ("x += 1", {"x"}),
        ("del x", {"x"}),
        ("x: int", {"int"}),
        ("x: int = 1\nx", {"int"}),
        ("from __future__ import annotations\nx: T = 1\ndef f(a: T): pass", set()),
        ("a = b = c", {"c"}),
        ("(a, [b, *c]), d.e, f[g] = h", {"d", "f", "g", "h"}),
        ("print(x := 1, x)", {"print"}),
        ("import a.b\na\nimport c.d as e\ne\nfrom f import g as h\nh", set()),
        ("from a import *\nx", {"x"}),
        ("f'{x}{y!r:>{z}}'", {"x", "y", "z"}),
        ("[x for x in y if x > z]", {"y", "z"}),
        ("{k: v for k, v in x for w in k}", {"x"}),
        ("[[i for i in r] for r in rows]", {"rows"}),
        ("(lambda x, *y, z=d, **k: x + y + z + k + w)", {"d", "w"}),
        ("def f(x: T = d) -> R: return x + y", {"T", "d", "R"}),
        ("def f(): return y\nf()", {"y"}),
        ("def f(): return y\ny = 1\nf()", set()),
        ("def f(): return g()\ndef g(): return y\nf()", {"y"}),
        ("f = lambda: y\nh = f", {"y"}),
        ("f = lambda: y", set()),
        ("map(lambda x: x + y, z)", {"map", "y", "z"}),
        ("def f():\n    def g(): return x + y\n    x = 1\n    return g\nf", {"y"}),
        ("def f():\n    global x\n    x = 1", {"x"}),
        ("def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = y\n    return g\nf", {"y"}),
        ("def f():\n    import m\n    for i in a: pass\n    with b as c: pass\n    return m, i, c\nf", {"a", "b"}),
        ("@d\ndef f(): return y", {"d", "y"}),
        ("import functools\n@functools.cache\ndef f(): return y", set()),
        ("class A(B, metaclass=M):\n    x = y\n    z = x\n    def m(self): return w", {"B", "M", "y"}),
        ("class A:\n    def m(self): return w\nA()", {"w"}),
        ("class A:\n    x = 1\n    def m(self): return x\nA", {"x"}),
        ("class A:\n    class B:\n        def m(self): return w\nA", {"w"}),
        (
            "match v:\n    case {'k': q, **r} if q > s: pass\n    case C(a=b) | [b, _]: pass",
            {"v", "s", "C", "q", "r", "b"},
        ),
        ("try:\n    a\nexcept E as e:\n    e", {"a", "E", "e"}),
        ("async with a as b:\n    async for c in b: await c", {"a", "c"}),
        ("assert x, y", {"x", "y"}),
        ("globals", {"globals"}),
        ("raise x\ny", {"x"}),
    ],
)
def test_loads(source, expected):
    """The names whose old value can matter are listed, and no others."""
    assert names(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "if a: x = 1",
        "for i in a: x = 1",
        "while a: x = 1",
        "try:\n    x = a\nexcept a: pass",
        "with suppress(a): x = 1",
        "with a as b: x = 1",
        "a and (x := 1)",
        "[x := i for i in a]",
        "match a:\n    case 1: x = 2",
        "for i in [a]:\n    if a: break\n    x = 1",
        "if a: import b as x",
        "if a:\n    def x(): pass",
        "if a: del x",
    ],
)
def test_a_name_that_may_stay_as_it_was_is_read(source):
    """What a cell binds on some ways only is an input: the old value may live on."""
    assert "x" in names(source)


@pytest.mark.parametrize(
    "source",
    [
        "if a: x = 1\nelse: x = 2",
        "if a: x = 1\nelse: raise a",
        "for i in [1, 2]: x = i",
        "for i in range(3): x = i",
        "while True:\n    x = 1\n    if a: break",
        "try: x = 1\nexcept a: x = 2",
        "try: a\nfinally: x = 1",
        "try: a\nexcept a: raise\nelse: x = 1",
        "with open(a) as b: x = b.read()",
        "with open(a) as x: pass",
        "match a:\n    case 1: x = 2\n    case x: pass",
        "x = 1 if a else 2",
    ],
)
def test_a_name_that_is_bound_on_every_way_is_not_read(source):
    """What a cell surely binds is no input, neither at its end nor when it reads it."""
    assert "x" not in names(source + "\nx")


def test_loads_say_what_was_bound_before():
    """Each name comes with what was surely bound before its first use, so that a function's reads can be told apart."""
    found = loads("a = 1\nf(a)\nb = 2\nf(b)\nif c: d = 1\ng()")

    assert found == {"f": {"a"}, "c": {"a", "b"}, "g": {"a", "b"}, "d": {"a", "b"}}


def test_writes_and_modules():
    """Every name that a cell binds or deletes is listed, and every module that it names."""
    code = analyse(
        "import a.b\nfrom c import d as e\nfrom f import *\nx: int\ndel y\nfor z in w: pass\n"
        "def g():\n    global h\n    import i.j\n    h = k = 1\n(lambda: (l := 1))\n[m := 1 for n in o]"
    )

    assert code.writes == {"a", "e", "y", "z", "g", "h", "m"}
    assert code.modules == {"a.b", "c", "c.d", "f", "i.j"}
    assert code.stars == {"f"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x.append(1)", {"x"}),
        ("x.y[0].z.append(1)", {"x"}),
        ("y = x.pop()", {"x"}),
        ("x[0] = y.a = 1", {"x", "y"}),
        ("del x[0], y.a", {"x", "y"}),
        ("x[0] += 1", {"x"}),
        ("for x[0] in y: pass", {"x"}),
        ("print(x); x.a; x[0]; x.upper()", set()),
        ("state.findings.append(1); state.query = 'q'", set()),
        ("class A:\n    x = []\n    x.append(1)", set()),
    ],
)
def test_what_a_cell_alters(source, expected):
    """Changes in place that a cell's own statements make are known before it runs; the state is left to the engine."""
    assert analyse(source).alters == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ask_cell("system('echo {x} $y {z[0] + w}')"), {"x", "y", "z", "w"}),
        ("v = get_ipython().getoutput('ls {x}')\nv", {"x"}),
        (ask_cell("run_line_magic('time', 'v = f(x)')") + "v", {"f", "x"}),
        (ask_cell("run_line_magic('timeit', '-n 3 v = f(x)')") + "v", {"f", "x", "v"}),
        (ask_cell("run_cell_magic('time', '', 'v = f(x)\\n')") + "v", {"f", "x"}),
        (ask_cell("run_cell_magic('capture', 'out', 'v = f(x)\\n')") + "v, out", {"f", "x"}),
        (ask_cell("run_cell_magic('time', '', '!ls {x}\\n')"), {"ls", "x"}),
        (ask_cell("run_cell_magic('html', '', 'costs $5')"), set()),
        (ask_cell("run_cell_magic('resumable_sql', 'df', 'select 1')") + "df", set()),
        ("def f():\n    get_ipython().system('echo {x}')\nf()", {"x"}),
    ],
)
def test_names_in_the_strings_of_magics(source, expected):
    """Names in `{…}` and `$name`, and the Python that a magic runs, count as code of the cell."""
    assert names(source) - {"get_ipython"} == expected


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("from resumable_nb import ask\nask('Q')", True),
        ("from resumable_nb import ask as question\ndef f(): return question('Q')\nf()", True),
        ("import resumable_nb as rn\nrn.ask('Q')", True),
        ("def f():\n    from resumable_nb import context_message\nf()", True),
        ("from resumable_nb import effect\n@effect(key=k)\ndef f(): pass\nf()", True),
        ("from resumable_nb import effect\n@effect(key=k)\ndef f(): pass", False),
        ("from resumable_nb import ask", False),
        ("from resumable_nb import durable\n@durable\ndef f(): pass\nf()", False),
    ],
)
def test_who_asks_a_model_uses_the_state(source, uses):
    """Prompts hold the state as context, and effects add receipts to it: who uses them depends on `state`."""
    assert ("state" in names(source)) is uses


def test_a_long_expression_is_analysed():
    """A sum of a thousand terms is no RecursionError; whatever it names may be read."""
    code = analyse("x = " + " + ".join(f"a{n}" for n in range(900)))

    assert {f"a{n}" for n in range(900)} <= set(code.loads)
    assert "x" in code.writes


@pytest.mark.parametrize("source", ["x = ", "x = 1\n  y = 2", "a\0b", "!ls"])
def test_what_is_no_python_is_a_syntax_error(source):
    """Source that does not parse raises SyntaxError, whatever is wrong with it."""
    with pytest.raises(SyntaxError):
        analyse(source)


@settings(max_examples=50, deadline=None)
@given(programs)
def test_the_journal_gives_code_back(source):
    """What is needed later comes back from JSON as it was."""
    assume(_parses(source))
    code = analyse(source)

    assert Code.from_json(json.loads(json.dumps(code.to_json()))) == code


def test_the_record_of_a_long_cell_is_small():
    """200 lines that bind a name each are stored in a few kilobytes, not in their square."""
    code = analyse("\n".join(f"x{n} = f{n}(x{n - 1})" for n in range(200)))

    assert len(json.dumps(code.to_json())) < 20_000


# ------------------------------------------------------------------ definitions
CELL = '''
import json, os.path
from a import (b as c,
               d)
try:
    import fast as impl
except ImportError:
    impl = None
if c:
    import later
for i in d:
    import looped
@cache  # why
def f(x=1):
    """Doc."""
    return x
class A(Base):
    y = 1
async def g(): pass
h = lambda: 1
try:
    import connected
    connected.connect()
except ImportError: pass
'''


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"json"}, "import json, os.path\n"),
        ({"os"}, "import json, os.path\n"),
        ({"b", "a"}, ""),
        ({"c"}, "from a import b as c, d\n"),
        ({"impl"}, "try:\n    import fast as impl\nexcept ImportError:\n    impl = None\n"),
        ({"later"}, "if c:\n    import later\n"),
        ({"looped", "h", "i", "connected"}, ""),
        ({"g", "f"}, '@cache\ndef f(x=1):\n    """Doc."""\n    return x\nasync def g():\n    pass\n'),
        ({"A"}, "class A(Base):\n    y = 1\n"),
    ],
)
def test_definitions(wanted, expected):
    """The statements that bind wanted names by import, def or class, and nothing that does more."""
    assert analyse(CELL).definitions(wanted) == expected


def test_a_cell_from_the_journal_has_no_definitions():
    """Source in a journal may be a stranger's: it is not kept, and asking for it is an error."""
    code = Code.from_json(analyse("def f(): pass").to_json())

    with pytest.raises(ValueError, match="journal"):
        code.definitions({"f"})


# ------------------------------------------------------------------ needs
class Held:
    def __init__(self, *reads: str) -> None:
        self.reads = frozenset(reads)


def needed(source: str, **held: Held) -> set[str]:
    return set(needs(analyse(source), held.get))


def test_needs_go_through_functions_of_functions():
    """What the helper of a helper reads is an input of the cell that calls the first."""
    assert needed("a('x')", a=Held("b"), b=Held("LIMIT", "a"), LIMIT=Held()) == {"a", "b", "LIMIT"}


def test_needs_leave_out_what_the_cell_has_bound_by_then():
    """A function that is called after the cell has bound what it reads does not read the old value."""
    assert needed("LIMIT = 1\na()", a=Held("LIMIT")) == {"a"}
    assert needed("a()\nLIMIT = 1", a=Held("LIMIT")) == {"a", "LIMIT"}
    assert needed("def b(): return x\na()", a=Held("b")) == {"a", "x"}


def test_builtins_are_needed_only_if_the_notebook_binds_them():
    """`print` is no input, unless some cell has put something else there; an unbound name is."""
    assert needed("print(input, nothing)", input=Held()) == {"input", "nothing"}


def test_names_of_ipython_are_never_needed():
    """IPython's history and helpers change with each run: they are no inputs. `state` and `thread` are the engine's."""
    cell = "_, __, _1, _i, _i2, _ii, In, Out, get_ipython, __name__, display(state, thread, _x)"

    assert needed(cell, display=Held()) == {"state", "thread", "_x"}
