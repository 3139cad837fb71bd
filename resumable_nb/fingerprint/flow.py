# ruff: noqa: D102, N815 - the methods are those that ast.NodeVisitor looks for
"""Which global names a cell reads before it surely binds them: one walk over its statements in order.

The walk knows one thing of each point: the names that were surely written (bound or deleted) on every way to it. This
set only grows along a way, so a use counts with the smallest set that any way to it can have. Functions and lambdas
that are held by a name count where that name is mentioned; from there on they may run at any later moment, so what they
call counts where it is defined, if later.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from resumable_nb.fingerprint.magics import embedded
from resumable_nb.fingerprint.scopes import (
    USES_STATE,
    ComprehensionNode,
    FunctionNode,
    immediate,
    imported,
    imports_state_user,
    touched,
)

Names = frozenset[str]

# Decorators that call nothing when they decorate: the function counts where its name is mentioned.
_DECORATES = """
    property setter getter deleter staticmethod classmethod abstractmethod override final overload cache lru_cache
    cached_property wraps contextmanager asynccontextmanager singledispatch total_ordering dataclass retry
    field_validator model_validator field_serializer model_serializer computed_field durable effect migration
"""
CALLS_NOTHING = frozenset(_DECORATES.split())
# Context managers that never swallow an exception: what their body binds is bound afterwards.
_PASSES_ON = """
    open urlopen connect cursor closing aclosing nullcontext redirect_stdout redirect_stderr catch_warnings localcontext
    TemporaryDirectory NamedTemporaryFile TemporaryFile ThreadPoolExecutor ProcessPoolExecutor Pool TaskGroup timeout
    ZipFile Client AsyncClient Session ClientSession option_context errstate Lock RLock tqdm
"""
SWALLOWS_NOTHING = frozenset(_PASSES_ON.split())
# Methods that change a list, set, dict or deque in place.
_ALTERS = """
    append extend insert remove pop clear sort reverse add discard update setdefault popitem appendleft popleft
    extendleft rotate intersection_update difference_update symmetric_difference_update
"""
ALTERS = frozenset(_ALTERS.split())


def join(a: Names | None, b: Names | None) -> Names | None:
    """What is sure on both ways; None is a way that is never taken."""
    if a is None or b is None:
        return b if a is None else a
    return a & b


class Flow(ast.NodeVisitor):
    """Walks a cell and collects what `Code` holds. Names of class bodies are kept apart as `1.name`."""

    def __init__(self) -> None:
        self.loads: dict[str, Names] = {}
        self.writes: set[str] = set()
        self.alters: set[str] = set()
        self.modules: set[str] = set()
        self.stars: set[str] = set()
        self.deferred: dict[str, Names] = {}  # name → global names that the functions it may hold touch
        self._bound: Names | None = frozenset()  # surely written; None where the flow never comes
        self._live: set[str] = set()  # touched by a function that may run from now on
        self._breaks: list[Names | None] = []
        self._continues: list[Names | None] = []
        self._owner = ""  # of the class body that is walked: "1."
        self._owners = 0
        self._class_globals: set[str] = set()
        self._type_parameters: set[str] = set()
        self._annotations = True

    def finish(self) -> None:
        """A name that the cell may have left as it was counts as read: its old value lives on."""
        if self._bound is not None:
            for name in self.writes:
                self._count(name, self._bound)

    # ------------------------------------------------------------------ names
    def _key(self, name: str) -> str:
        return name if not self._owner or name in self._class_globals else self._owner + name

    def _bind(self, name: str, touches: Names = frozenset()) -> None:
        key = self._key(name)
        if "." not in key:
            self.writes.add(key)
        if self._bound is not None:
            self._bound |= {key}
        if touches:
            self.deferred[key] = self.deferred.get(key, frozenset()) | touches
            if key in self._live:
                self._touch(touches)

    def _load(self, name: str) -> None:
        if self._bound is None or name in self._type_parameters:
            return
        if (local := self._key(name)) != name:
            self._touch(self.deferred.get(local, frozenset()))
            if local in self._bound:
                return
        self._touch({name}, live=False)

    def _count(self, name: str, bound: Names) -> None:
        if name not in bound:
            self.loads[name] = self.loads.get(name, bound) & bound

    def _touch(self, names: Iterable[str], *, live: bool = True) -> None:
        """Count names, and what the functions that they may hold touch."""
        if self._bound is None:
            return
        todo, seen = list(names), set[str]()
        self._live |= set(todo) if live else set()
        while todo:
            if (name := todo.pop()) in seen:
                continue
            seen.add(name)
            self._count(name, self._bound)
            further = self.deferred.get(name, frozenset())
            self._live |= further
            todo.extend(further)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load | ast.Del):
            self._load(node.id)
        if isinstance(node.ctx, ast.Store | ast.Del):
            self._bind(node.id)

    def visit_Global(self, node: ast.Global) -> None:
        self._class_globals.update(node.names)

    # ------------------------------------------------------------------ expressions
    def _all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    @contextmanager
    def _perhaps(self) -> Iterator[None]:
        """What is bound inside is not sure afterwards."""
        before = self._bound
        yield
        self._bound = before

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        with self._perhaps():
            self._all(node.values[1:])

    def visit_Compare(self, node: ast.Compare) -> None:
        self._all([node.left, node.comparators[0]])
        with self._perhaps():
            self._all(node.comparators[1:])

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self._fork(lambda: self.visit(node.body), lambda: self.visit(node.orelse))

    def _fork(self, *ways: Callable[[], object]) -> None:
        before, after = self._bound, None
        for way in ways:
            self._bound = before
            way()
            after = join(after, self._bound)
        self._bound = after

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._touch(self._function(node))

    def _comprehension(self, node: ComprehensionNode) -> None:
        self.visit(node.generators[0].iter)
        inner = touched(node)
        with self._perhaps():
            self._all(ast.Name(name, ast.Store()) for name in inner.leaked)
        self.modules |= inner.modules
        self.writes |= inner.global_writes
        self._touch(inner.names)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._alter(node)
        self.visit(node.value)
        if node.attr in USES_STATE:
            self._touch(["state"], live=False)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._alter(node)
        self.generic_visit(node)

    def _alter(self, node: ast.Attribute | ast.Subscript) -> None:
        """Note whose content is changed by `x.a = …`, `del x[…]` and `x.y.append(…)`."""
        if isinstance(node.ctx, ast.Load) and not (isinstance(node, ast.Attribute) and node.attr in ALTERS):
            return
        root: ast.expr = node
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        if isinstance(root, ast.Name) and "." not in self._key(root.id):
            self.alters.add(root.id)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if (magic := embedded(node)) is None:
            return
        for name in sorted(magic.loads):
            self._load(name)
        if magic.timed:
            nothing = ast.arguments([], [], None, [], [], None, [])
            self._touch(touched(ast.FunctionDef("timed", nothing, magic.timed.body, [])).names)
        self._all(magic.python.body if magic.python else ())
        if magic.binds:
            self._bind(magic.binds)

    # ------------------------------------------------------------------ definitions
    def _function(self, node: FunctionNode) -> Names:
        """Evaluate what a definition evaluates where it stands; what its body touches when it is called."""
        self._all(immediate(node, annotations=self._annotations))
        body = touched(node)
        self.modules |= body.modules
        self.writes |= body.global_writes
        return body.names

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        with self._with_type_parameters(node):
            touches = self._function(node)
        names = [_last_name(decorator) for decorator in node.decorator_list]
        if "effect" in names:  # its receipt goes into the state
            touches |= {"state"}
        if not CALLS_NOTHING.issuperset(names):
            self._touch(touches)
        self._bind(node.name, touches)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        with self._with_type_parameters(node):
            self._all(immediate(node, annotations=True))
            outside = self._owner, self._class_globals
            self._owners += 1
            self._owner, self._class_globals = f"{self._owners}.", set()
            owner, before = self._owner, self._bound
            self._all(node.body)
            self._owner, self._class_globals = outside
        if self._bound is not None and before is not None:
            self._bound = frozenset(name for name in self._bound if name in before or "." not in name)
        methods = [names for key, names in self.deferred.items() if key.startswith(owner)]
        self._bind(node.name, frozenset().union(*methods))

    @contextmanager
    def _with_type_parameters(self, node: ast.AST) -> Iterator[None]:
        before = self._type_parameters
        self._type_parameters = before | {parameter.name for parameter in getattr(node, "type_params", ())}
        yield
        self._type_parameters = before

    def visit_TypeAlias(self, node: ast.AST) -> None:  # Python 3.12
        with self._with_type_parameters(node):
            self._all(ast.iter_child_nodes(node))

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        names, modules = imported(node)
        self.modules |= modules
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            self._annotations = self._annotations and "annotations" not in names
        users = imports_state_user(node)
        for name in names:
            if name == "*":
                self.stars |= modules
            else:
                self._bind(name, frozenset({"state"} if name in users else ()))

    visit_Import = visit_ImportFrom = _import

    # ------------------------------------------------------------------ assignments
    def _assign(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        if isinstance(value, ast.Lambda) and all(isinstance(target, ast.Name) for target in targets):
            touches = self._function(value)
            for target in targets:
                self._bind(target.id, touches)  # type: ignore[attr-defined]  # a Name: see above
            return
        self._all([value, *targets])

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assign(node.targets, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._assign([node.target], node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self._assign([node.target], node.value)
        elif not isinstance(node.target, ast.Name):
            self.visit(node.target)
        if self._annotations:
            self.visit(node.annotation)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._load(node.target.id)
        self._all([node.value, node.target])

    # ------------------------------------------------------------------ control flow
    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._fork(lambda: self._all(node.body), lambda: self._all(node.orelse))

    def visit_Assert(self, node: ast.Assert) -> None:
        with self._perhaps():  # python -O leaves it out
            self._all([node.test, *([node.msg] if node.msg else [])])

    def visit_Raise(self, node: ast.Raise) -> None:
        self.generic_visit(node)
        self._bound = None

    def visit_Break(self, _: ast.Break) -> None:
        self._breaks[-1] = join(self._breaks[-1], self._bound)
        self._bound = None

    def visit_Continue(self, _: ast.Continue) -> None:
        self._continues[-1] = join(self._continues[-1], self._bound)
        self._bound = None

    def _loop(self, body: Callable[[], object], orelse: list[ast.stmt], *, entered: bool, ends: bool = True) -> None:
        """A loop. `entered`: its body surely begins; `ends`: it can end without `break`."""
        before, known = self._bound, dict(self.deferred)
        self._breaks.append(None)
        self._continues.append(None)
        body()
        if self.deferred != known:  # in a second round, what the first one defined may be called
            once = self._bound
            self._bound = before
            body()
            self._bound = join(self._bound, once)
        after = join(self._bound, self._continues.pop())
        self._bound = (after if entered else join(before, after)) if ends else None
        self._all(orelse)
        self._bound = join(self._bound, self._breaks.pop())

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._loop(lambda: self._all([node.target, *node.body]), node.orelse, entered=_surely_not_empty(node.iter))

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
        self._loop(lambda: self._all([*node.body, node.test]), node.orelse, entered=forever, ends=not forever)

    def visit_Try(self, node: ast.Try) -> None:
        before = self._bound
        self._all(node.body)
        body = self._bound
        after: Names | None = None
        for handler in node.handlers:
            self._bound = before
            self.visit(handler)
            after = join(after, self._bound)
        self._bound = body
        self._all(node.orelse)
        after = join(after, self._bound)
        if node.finalbody:
            self._bound = before
            self._all(node.finalbody)
        self._bound = after
        self._all(node.finalbody)

    visit_TryStar = visit_Try  # type: ignore[assignment]  # has the same fields

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type:
            self.visit(node.type)
        if node.name:
            self._bind(node.name)
        self._all(node.body)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        swallows, sure = False, self._bound
        for item in node.items:
            self.visit(item.context_expr)
            target = item.optional_vars
            if isinstance(target, ast.Name):  # it cannot fail
                self.visit(target)
            if not swallows and _last_name(item.context_expr) not in SWALLOWS_NOTHING:
                swallows, sure = True, self._bound
            if target and not isinstance(target, ast.Name):
                self.visit(target)
        self._all(node.body)
        self._bound = sure if swallows else self._bound

    visit_AsyncWith = visit_With

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        before = self._bound
        after: Names | None = None
        for case in node.cases:
            self._bound = before
            self._all([case.pattern, *([case.guard] if case.guard else []), *case.body])
            after = join(after, self._bound)
        irrefutable = any(_catches_all(case) for case in node.cases)
        self._bound = after if irrefutable else join(before, after)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.pattern:
            self.visit(node.pattern)
        if node.name:
            self._bind(node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self._bind(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.generic_visit(node)
        if node.rest:
            self._bind(node.rest)

    def visit_MatchOr(self, node: ast.MatchOr) -> None:
        self._fork(*(partial(self.visit, pattern) for pattern in node.patterns))


def _last_name(node: ast.expr) -> str:
    """`c` of `c`, `a.b.c` and `a.b.c(…)`."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _catches_all(case: ast.match_case) -> bool:
    pattern = case.pattern
    while isinstance(pattern, ast.MatchAs) and pattern.pattern:
        pattern = pattern.pattern
    return case.guard is None and isinstance(pattern, ast.MatchAs)


def _surely_not_empty(node: ast.expr) -> bool:
    """Whether a loop over it surely has a first round: a literal with elements, `range(3)` (taken for the builtin)."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return any(not isinstance(element, ast.Starred) for element in node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        numbers = [a.value for a in node.args if isinstance(a, ast.Constant) and type(a.value) is int]
        if node.func.id == "range" and 0 < len(numbers) == len(node.args) < 4 and 0 not in numbers[2:]:
            return len(range(*numbers)) > 0
        return node.func.id == "enumerate" and len(node.args) == 1 and _surely_not_empty(node.args[0])
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and bool(node.value)
