"""Small random cells, and an oracle: run one and see which names of the start its code really read."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle

from hypothesis import strategies as st

NAMES = ["a", "b", "c"]
FUNCTIONS = ["f", "g"]
OUTSIDE = {  # functions of cells above, which read names of the notebook
    "p": "def p(*_): return f(g)",
    "q": "def q(*_):\n    global b\n    if flag(): b = p()\n    return lambda *_: c",
    "r": "class r(V):\n    def __init__(self, *_): self.x = a\n    def __call__(self, *_): return p(b)",
}
EVERY = [*NAMES, *FUNCTIONS, *OUTSIDE]
TOOLS = ["flag", "v", "each", "guard", "now", "V"]


class Stop(Exception):
    """The program has run long enough."""


@dataclass
class Run:
    """What a program did: `read` are the names whose value of the start it read, `kept` those that still hold it."""

    read: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    ended: bool = False


class Value:
    """A value that can do everything."""

    def __call__(self, *_: object) -> Value:
        return self

    __add__ = __radd__ = __getitem__ = __gt__ = __lt__ = append = __call__


class Start(Value):
    """The value that a name has at the start."""

    def __init__(self, name: str, run: Run) -> None:
        self.name, self.run = name, run

    def __iadd__(self, _: object) -> Value:
        self.run.read.add(self.name)
        return Value()


class _Instrument(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in EVERY:
            return ast.Call(ast.Name("_read", ast.Load()), [node], [])
        return node

    def visit_Match(self, node: ast.Match) -> ast.Match:
        node.subject = self.visit(node.subject)
        for case in node.cases:
            case.guard = case.guard and self.visit(case.guard)
            case.body = [self.visit(statement) for statement in case.body]
        return node


def _instrumented(source: str) -> object:
    return compile(ast.fix_missing_locations(_Instrument().visit(ast.parse(source))), "<program>", "exec")


def execute(source: str, flags: list[bool]) -> Run:
    """Run a program in a namespace where every name is bound; `flags` answer its questions, over and over."""
    run, answers, steps = Run(), cycle(flags or [False]), iter(range(500))
    start: dict[str, object] = {name: Start(name, run) for name in EVERY}

    def flag() -> bool:
        if next(steps, None) is None:
            raise Stop
        return next(answers)

    def v(*_: object) -> Value:
        if flag() and flag() and flag():
            raise ValueError
        return Value()

    def each(*_: object) -> Iterator[Value]:
        while flag():
            yield Value()

    def now(function: Callable[[], object]) -> object:
        function()
        return function

    @contextlib.contextmanager
    def guard(*_: object) -> Iterator[Value]:
        with contextlib.suppress(ValueError):
            yield Value()

    def read(value: object) -> object:
        run.read.update(name for name, held in start.items() if held is value)
        return value

    tools = dict(zip(TOOLS, [flag, v, each, guard, now, Value], strict=True))
    namespace = {**start, **tools, "_read": read, "__name__": "__main__"}
    for name, definition in OUTSIDE.items():
        exec(_instrumented(definition), namespace)
        start[name] = namespace[name]
    run.read.clear()
    with contextlib.suppress(Exception):
        exec(_instrumented(source), namespace)
        run.ended = True
    run.kept = {name for name, value in start.items() if namespace.get(name) is value}
    return run


# ------------------------------------------------------------------ programs
_names = st.sampled_from(EVERY)
_targets = st.sampled_from([*NAMES, *FUNCTIONS])
_leaves = st.one_of(_names, st.just("v()"))


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    plain = inner.filter(lambda text: ":=" not in text)
    return st.one_of(
        st.builds("{}({})".format, _names, inner),
        st.builds("{}()".format, _names),
        st.builds("{}()".format, _names),
        st.builds("v().append({})".format, inner),
        st.builds("v()[{}]".format, inner),
        st.builds("({} + v())".format, inner),
        st.builds("(flag() and {})".format, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("(0 < flag() < v({}))".format, inner),
        st.builds("({} if flag() else {})".format, inner, inner),
        st.builds("({} := {})".format, _targets, inner),
        st.builds("(lambda *_: {})".format, inner),
        st.builds("(lambda *{}: {})".format, _targets, inner),
        st.builds("(lambda *_: {})()".format, inner),
        st.builds("v([{} for {} in each({})])".format, inner, _names, plain),
        st.builds("v({{0: {} for _ in each() if {}}})".format, inner, inner),
        st.builds("v(f'{{{}}}')".format, _names),
    )


expressions = st.recursive(_leaves, _compound, max_leaves=3)


def _indented(block: list[str]) -> str:
    return "\n".join("    " + line for statement in block for line in statement.splitlines())


_simple = st.one_of(
    st.builds("{} = {}".format, _targets, expressions),
    st.builds("{} = {} = {}".format, _targets, _targets, expressions),
    st.builds("{}, {} = {}, {}".format, _targets, _targets, expressions, expressions),
    st.builds("{} += v({})".format, _targets, expressions),
    st.builds("{}: {} = {}".format, _targets, expressions, expressions),
    st.builds("{} = lambda *_: {}".format, _targets, expressions),
    st.builds("{}()".format, _names),
    expressions,
    st.builds("from operator import add as {}".format, _targets),
    st.just("if flag(): raise ValueError"),
)
_signature = st.sampled_from(["*_", "a=1, *_", "*b"])
_prologue = st.sampled_from([[], [], ["global a"], ["global c, g"]])


def _blocks(statements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    block = st.lists(statements, min_size=1, max_size=3).map(_indented)
    jumps = st.sampled_from(["if flag(): break", "if flag(): continue"])
    loop = st.lists(st.one_of(statements, jumps), min_size=1, max_size=3).map(_indented)
    returns = st.builds("return {}".format, expressions)
    body = st.builds(
        lambda *parts: _indented([*parts[0], *parts[1], parts[2]]), _prologue, st.lists(statements, max_size=2), returns
    )
    function = st.builds("def {}({}):\n{}".format, st.sampled_from(FUNCTIONS), _signature, body)
    return st.one_of(
        function,
        function,
        st.builds("@{}\n{}".format, st.one_of(_names, st.just("now")), function),
        st.builds("if flag():\n{}\nelse:\n{}".format, block, block),
        st.builds("if v({}):\n{}".format, expressions, block),
        st.builds("for {} in each({}):\n{}\nelse:\n{}".format, _targets, expressions, loop, block),
        st.builds("for {} in [v(), 2]:\n{}".format, _targets, loop),
        st.builds("for {} in range(2):\n{}".format, _targets, block),
        st.builds("while flag():\n{}\nelse:\n{}".format, loop, block),
        st.builds("while True:\n{}\n    if flag(): break".format, loop),
        st.builds("try:\n{}\nexcept ValueError as {}:\n{}\nelse:\n{}\nfinally:\n{}".format,
                  block, _targets, block, block, block),
        st.builds("try:\n{}\nexcept Exception:\n{}".format, block, block),
        st.builds("try:\n{}\nfinally:\n{}".format, block, block),
        st.builds("with guard() as {}:\n{}".format, _targets, block),
        st.builds("with guard({}), guard({}) as {}:\n{}".format, expressions, expressions, _targets, block),
        st.builds("match [v(), v()] if flag() else v():\n    case [a, *b] if flag():\n{}\n    case {}:\n{}".format,
                  block, st.sampled_from(["_", "1 | 'x'", "[c, v]", "c", "{'k': c}"]), block),
        st.builds("class {}(V):\n{}\n    def __init__(self, *_):\n        {}".format, _targets, block, expressions),
    )  # fmt: skip


statements = st.recursive(_simple, _blocks, max_leaves=4)
programs = st.lists(statements, min_size=1, max_size=6).map("\n".join)

_anything = st.sampled_from([*EVERY, *EVERY, "v"])
_about_functions = st.one_of(
    st.builds("def {}(*_): return {}()".format, _targets, _anything),
    st.builds("@now\ndef {}(*_): return {}".format, _targets, _anything),
    st.builds(
        "def {}(*_):\n    def {}(*_): return {}()\n    return {}()".format, _targets, _targets, _anything, _anything
    ),
    st.builds("class {}(V):\n    def __call__(self, *_): return {}()".format, _targets, _anything),
    st.builds("{} = lambda *_: {}()".format, _targets, _anything),
    st.builds("{} = {}".format, _targets, _anything),
    st.builds("{} = {}()".format, _targets, _anything),
    st.builds("{}()".format, _anything),
)
_block = st.lists(_about_functions, min_size=1, max_size=4).map(_indented)
about_functions = st.lists(
    st.one_of(_about_functions, _about_functions, st.builds("while flag():\n{}".format, _block)), min_size=1, max_size=6
).map("\n".join)
