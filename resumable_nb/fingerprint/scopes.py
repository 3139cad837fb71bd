# ruff: noqa: N815 - the methods are those that ast.NodeVisitor looks for
"""Which global names the code of a function, lambda or comprehension touches, by Python's scoping rules."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from resumable_nb.fingerprint.magics import embedded

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
ComprehensionNode = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

# What the library offers under these names looks at the research state: its prompts hold the state as context,
# and a decision is bound to it. So whoever mentions them uses `state`, without naming it.
USES_STATE = frozenset({"ask", "context_message", "approve", "approval"})
LIBRARY = "resumable_nb"


@dataclass(slots=True)
class Touched:
    """Names of the enclosing or global scope that a piece of code can touch when it runs.

    Attributes:
        free: names read, or bound as `nonlocal`, that an enclosing function may hold; global if none does.
        globals: names that are global whatever encloses the code.
        global_writes: those that a `global` statement lets it bind or delete.
        leaked: names that a comprehension's `:=` binds in the scope around it.
        modules: modules that its import statements name.
    """

    free: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    global_writes: set[str] = field(default_factory=set)
    leaked: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)

    @property
    def names(self) -> frozenset[str]:
        """All global names that code at the top level of a cell touches."""
        return frozenset(self.free | self.globals)


def touched(node: FunctionNode | ComprehensionNode) -> Touched:
    """What the code of a function (when called) or of a comprehension (but for its first iterable) touches."""
    scope = _Scope()
    if isinstance(node, ComprehensionNode):
        scope.enter_comprehension(node)
    else:
        scope.stores.update(parameters(node.args), _type_parameters(node))
        scope.visit_all([node.body] if isinstance(node, ast.Lambda) else node.body)
    return scope.close()


def parameters(args: ast.arguments) -> Iterator[str]:
    """Names of the parameters of a function."""
    for arg in (*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg):
        if arg:
            yield arg.arg


def immediate(node: FunctionNode | ast.ClassDef, *, annotations: bool) -> Iterator[ast.expr]:
    """The expressions of a definition that are evaluated where it stands, in order."""
    if not isinstance(node, ast.Lambda):
        yield from node.decorator_list
    if isinstance(node, ast.ClassDef):
        yield from node.bases
        yield from (keyword.value for keyword in node.keywords)
        return
    yield from node.args.defaults
    yield from (default for default in node.args.kw_defaults if default)
    if annotations and not isinstance(node, ast.Lambda):
        every = (*node.args.posonlyargs, *node.args.args, node.args.vararg, *node.args.kwonlyargs, node.args.kwarg)
        yield from (arg.annotation for arg in every if arg and arg.annotation)
        if node.returns:
            yield node.returns


def imported(node: ast.Import | ast.ImportFrom) -> tuple[list[str], set[str]]:
    """The names that an import binds (`*` as it is), and the modules that it names."""
    if isinstance(node, ast.Import):
        names = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        return names, {alias.name for alias in node.names}
    base = "." * node.level + (node.module or "")
    dot = "" if base.endswith(".") else "."
    # `from a import b` may name the module a.b
    return [a.asname or a.name for a in node.names], {base} | {base + dot + a.name for a in node.names if a.name != "*"}


def imports_state_user(node: ast.Import | ast.ImportFrom) -> frozenset[str]:
    """Names bound by this import that use the research state without naming it."""
    if isinstance(node, ast.Import) or (node.module or "").partition(".")[0] != LIBRARY:
        return frozenset()
    return frozenset(alias.asname or alias.name for alias in node.names if alias.name in USES_STATE)


def _type_parameters(node: ast.AST) -> Iterator[str]:
    yield from (parameter.name for parameter in getattr(node, "type_params", ()))  # Python 3.12


class _Scope(ast.NodeVisitor):
    """One function scope (or class body or comprehension in it). Flow does not count: any read is a read."""

    def __init__(self, *, is_class: bool = False) -> None:
        self.is_class = is_class
        self.loads: set[str] = set()
        self.stores: set[str] = set()
        self.global_names: set[str] = set()
        self.nonlocal_names: set[str] = set()
        self.inner: list[Touched] = []
        self.out = Touched()

    def close(self) -> Touched:
        out = self.out
        out.free |= self.nonlocal_names
        for name in self.loads | self.stores:
            if name in self.global_names:
                out.globals.add(name)
        out.global_writes |= self.stores & self.global_names
        # A class body falls back on the global name where its own is unbound; its functions do not see its names.
        hidden = set() if self.is_class else self.stores - self.global_names - self.nonlocal_names
        out.free |= self.loads - hidden - self.global_names
        for child in self.inner:
            out.free |= child.free - hidden - self.global_names
            out.globals |= child.globals | (child.free & self.global_names)
            out.global_writes |= child.global_writes
            out.modules |= child.modules
        return out

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        (self.loads if isinstance(node.ctx, ast.Load) else self.stores).add(node.id)
        if isinstance(node.ctx, ast.Del):
            self.loads.add(node.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.loads.add(node.target.id)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in USES_STATE:
            self.out.globals.add("state")
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        if (magic := embedded(node)) is not None:
            self.loads |= magic.loads
            for tree in (magic.python, magic.timed):
                self.visit_all(tree.body if tree else ())
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.global_names.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.nonlocal_names.update(node.names)

    def _visit_import(self, node: ast.Import | ast.ImportFrom) -> None:
        names, modules = imported(node)
        self.stores.update(names)
        self.out.modules |= modules
        if imports_state_user(node):
            self.out.globals.add("state")

    visit_Import = visit_ImportFrom = _visit_import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._store_and_go_on(node, node.name)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._store_and_go_on(node, node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._store_and_go_on(node, node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._store_and_go_on(node, node.rest)

    def _store_and_go_on(self, node: ast.AST, name: str | None) -> None:
        self.stores |= {name} if name else set()
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.stores.add(node.target.id)

    def _visit_function(self, node: FunctionNode) -> None:
        if not isinstance(node, ast.Lambda):
            self.stores.add(node.name)
        self.visit_all(immediate(node, annotations=True))
        self.inner.append(touched(node))

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.stores.add(node.name)
        self.visit_all(immediate(node, annotations=True))
        body = _Scope(is_class=True)
        body.visit_all(node.body)
        self.inner.append(body.close())

    def _visit_comprehension(self, node: ComprehensionNode) -> None:
        self.visit(node.generators[0].iter)
        inner = touched(node)
        self.stores |= inner.leaked
        self.inner.append(inner)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def enter_comprehension(self, node: ComprehensionNode) -> None:
        """Take the parts of a comprehension that run in its own scope; its `:=` names go to the scope around it."""
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        targets = _Scope()
        for n, generator in enumerate(node.generators):
            targets.visit(generator.target)
            self.visit_all([generator.target, *([generator.iter] if n else []), *generator.ifs])
        self.visit_all(parts)
        self.out.leaked |= self.stores - targets.stores
        self.stores -= self.out.leaked
