"""What a cell's source says: a digest of its meaning, the names that it reads and writes, its imports."""

from __future__ import annotations

import ast
import builtins
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from resumable_nb.fingerprint.flow import Flow
from resumable_nb.fingerprint.magics import embedded
from resumable_nb.fingerprint.scopes import imported

# Fields of a node that say how it was written, not what it means.
_NO_MEANING = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_BUILTINS = frozenset(dir(builtins))
_OF_IPYTHON = frozenset(
    {"get_ipython", "In", "Out", "exit", "quit", "display", "open_in_editor", "_dh", "_oh", "_ih", "_sh"}
)


class Reads(Protocol):
    """What `needs` wants to know of a value: the notebook names that it can read when it is used."""

    @property
    def reads(self) -> frozenset[str]:
        """Names."""
        ...


@dataclass(frozen=True, slots=True)
class Code:
    """What the source of a cell says about it.

    Attributes:
        digest: of the syntax tree: layout, comments, quotes, parentheses and line breaks do not count.
        loads: global names whose value at the start can matter (read, or not surely bound) → names that are surely
            bound before the first use.
        writes: global names that it binds or deletes anywhere at top level, also by `global x` in a function.
        alters: global names whose content its own statements change in place, as `x.append(1)` and `x[0] = 1` do.
            What the functions that it calls change is not seen.
        modules: modules that its import statements name, also inside functions; `from a import b` names a and a.b.
        stars: modules of which it imports `*`: it binds names that are not in `writes`.
        defers: names that it binds to functions or classes → global names that these touch when they are used.
        source: the source; empty if this comes from the journal.
    """

    digest: str
    loads: Mapping[str, frozenset[str]]
    writes: frozenset[str]
    modules: frozenset[str] = frozenset()
    alters: frozenset[str] = frozenset()
    stars: frozenset[str] = frozenset()
    defers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    source: str = field(default="", repr=False, compare=False)

    def definitions(self, unbound: set[str]) -> str:
        """Source of its import, def and class statements at top level that bind one of these names, in order.

        An import inside `if` or `try` comes with the whole statement, if that does nothing but import.

        Raises:
            ValueError: it was read from the journal, which does not keep the source.
        """
        if not self.source and self.writes:
            raise ValueError("the source of a cell that was read from the journal is not known: analyse its source")
        found = [s for s in _parse(self.source).body if _is_definition(s) and not unbound.isdisjoint(_defined(s))]
        return "".join(ast.unparse(statement) + "\n" for statement in found)

    def to_json(self) -> dict[str, Any]:
        """All but the source, as JSON; each set of bound names as what it adds to the one before."""
        sets = sorted(set(self.loads.values()), key=lambda names: (len(names), sorted(names)))
        bound: list[list[Any]] = []
        for n, names in enumerate(sets):
            grows = n > 0 and sets[n - 1] <= names
            bound.append([int(grows), *sorted(names - sets[n - 1] if grows else names)])
        return {
            "digest": self.digest,
            "loads": {name: sets.index(self.loads[name]) for name in sorted(self.loads)},
            "bound": bound,
            "writes": sorted(self.writes),
            "alters": sorted(self.alters),
            "modules": sorted(self.modules),
            "stars": sorted(self.stars),
            "defers": {name: sorted(self.defers[name]) for name in sorted(self.defers)},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Code:
        """The code of `to_json`, without its source."""
        sets: list[frozenset[str]] = []
        for grows, *names in stored["bound"]:
            sets.append(frozenset(names) | (sets[-1] if grows else frozenset()))
        return cls(
            digest=stored["digest"],
            loads={name: sets[n] for name, n in stored["loads"].items()},
            writes=frozenset(stored["writes"]),
            alters=frozenset(stored.get("alters", ())),
            modules=frozenset(stored["modules"]),
            stars=frozenset(stored["stars"]),
            defers={name: frozenset(names) for name, names in stored["defers"].items()},
        )


@lru_cache(maxsize=512)
def analyse(source: str) -> Code:
    """What the Python source of a cell says about it; IPython's own syntax must be transformed already.

    Raises:
        SyntaxError: it is no Python.
    """
    tree = _parse(source)
    flow = Flow()
    try:
        flow.visit(tree)
        flow.finish()
    except RecursionError:  # an expression of a thousand terms: whatever it names may be read
        return _anything(tree, source)
    return Code(
        digest=digest_of(tree),
        loads=flow.loads,
        writes=frozenset(flow.writes),
        alters=frozenset(flow.alters - {"state", "thread"}),
        modules=frozenset(flow.modules),
        stars=frozenset(flow.stars),
        defers={name: names for name, names in flow.deferred.items() if "." not in name},
        source=source,
    )


def needs(code: Code, lookup: Callable[[str], Reads | None]) -> frozenset[str]:
    """Names whose value at the start can matter to this code, through functions and classes of the notebook too.

    Args:
        code: of the cell.
        lookup: what a name holds before the cell runs; None if it is unbound.

    Returns:
        The names; a builtin is left out unless the notebook binds its name. IPython's own names are never inputs.
    """
    found: set[str] = set()
    todo = [(name, bound, False) for name, bound in code.loads.items()]
    seen = set(todo)
    while todo:
        name, bound, from_above = todo.pop()
        # A function from above that calls a function by its name gets the one that this cell defines.
        further: set[str] = set(code.defers.get(name, ()) if from_above else ())
        if name not in bound:
            held = lookup(name)
            further |= held.reads if held else set()
            if held or name not in _BUILTINS:
                found.add(name)
        new = {(other, bound, True) for other in further} - seen
        seen |= new
        todo.extend(new)
    return frozenset(name for name in found if is_input(name))


def is_input(name: str) -> bool:
    """Whether a name can be an input: not one of IPython's, nor one that Python itself keeps in each namespace."""
    return not (
        name in _OF_IPYTHON
        or (name.startswith("__") and name.endswith("__"))
        or not name.strip("_")
        or (name[0] == "_" and (name.lstrip("_i").isdigit() or name in {"_i", "_ii", "_iii"}))
    )


def digest_of(tree: ast.AST) -> str:
    """SHA-256 of what a syntax tree means: without positions, and the same for every Python that can parse it."""
    return hashlib.sha256(_canonical(tree).encode("utf-8", "surrogatepass")).hexdigest()


def _canonical(tree: ast.AST) -> str:
    """Text of a tree; without recursion, since a long sum is a deep tree."""
    out: list[str] = []
    stack: list[Any] = [tree]
    while stack:
        item = stack.pop()
        kind = item.__class__
        if kind is str:
            out.append(item)
        elif kind is ast.Constant:
            value = item.value
            out.append(f"<{type(value).__name__} {hex(value) if type(value) is int else repr(value)}>")
        elif kind is list:
            out.append("[")
            stack.append("]")
            for element in reversed(item):
                stack += (",", element)
        elif isinstance(item, ast.AST):
            out.append(f"{kind.__name__}(")
            stack.append(")")
            stack += reversed(_fields(item))
        else:
            out.append(repr(item))
    return "".join(out)


def _fields(node: ast.AST) -> list[Any]:
    """What a node is made of, in order: labels, nodes, lists and plain values."""
    if isinstance(node, ast.Call) and (magic := embedded(node)) and (body := magic.python or magic.timed):
        return [node.func, [*node.args[:2]], body]
    if isinstance(node, ast.JoinedStr):  # Python 3.12 puts empty texts between the fields
        return [[part for part in node.values if not (isinstance(part, ast.Constant) and part.value == "")]]
    found: list[Any] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if value is not None and value != [] and name not in _NO_MEANING:
            found += (name + "=", json.dumps(value) if value.__class__ is str else value)
    return found


@lru_cache(maxsize=64)
def _parse(source: str) -> ast.Module:
    try:
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(source, "<cell>", "exec", flags, dont_inherit=True)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(f"the cell cannot be parsed: {error}") from error
    assert isinstance(tree, ast.Module)
    return tree


def _is_definition(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return True
        case ast.If() | ast.Try():
            nodes = list(ast.walk(statement))
            imports = any(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes)
            return imports and not any(isinstance(node, _DOES_SOMETHING) for node in nodes)
    return False


_DOES_SOMETHING = (ast.Call, ast.Await, ast.Raise, ast.AugAssign, ast.Delete, ast.FunctionDef, ast.ClassDef, ast.With)


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {name for node in nodes for name in imported(node)[0]}


def _anything(tree: ast.Module, source: str) -> Code:
    names = {node.id: node for node in ast.walk(tree) if isinstance(node, ast.Name)}
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    imports = [imported(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    defined = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    bound = {name for found, _ in imports for name in found} | defined | stored
    return Code(
        digest=digest_of(tree),
        loads={name: frozenset() for name in {*names, *bound, "state"}},
        writes=frozenset(bound - {"*"}),
        modules=frozenset(module for _, modules in imports for module in modules),
        source=source,
    )
