"""What a function's code says: a digest of its source, and the global names and modules that it uses."""

from __future__ import annotations
import __future__

import ast
import builtins
import dis
import hashlib
import linecache
from collections.abc import Container, Iterator
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

from resumable_nb.fingerprint.code import digest_of, is_input
from resumable_nb.fingerprint.magics import CALLS, interpolated
from resumable_nb.fingerprint.scopes import USES_STATE

_USES_GLOBAL = frozenset(
    {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "DELETE_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
)
_FUTURE = sum(getattr(__future__, name).compiler_flag for name in set(__future__.all_feature_names) - {"nested_scopes"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class _File(NamedTuple):
    """A source file: its functions by first line and name, and what was compiled from it, by first line and form."""

    nodes: dict[tuple[int, str], list[ast.AST]]
    forms: frozenset[tuple[int, str]]


def code_digest(code: CodeType) -> str:
    """A digest of a function's source: the same wherever it stands, whatever its layout.

    Of code whose source is not at hand, or is not what it was compiled from, the bytecode counts: it is the same in
    every process of one Python version.
    """
    return _code_digest(code, code.co_filename)


def globals_used(code: CodeType, namespace: Container[str]) -> frozenset[str]:
    """Names of the notebook that code may read or bind: in its namespace, or unbound and no builtin."""
    found = {name for name in _names(code) if name in namespace or not hasattr(builtins, name)}
    return frozenset(name for name in found if is_input(name))


@lru_cache(maxsize=4096)
def modules_used(code: CodeType) -> frozenset[str]:
    """Modules that code imports when it runs. Relative imports are left out: a notebook has none."""
    found: set[str] = set()
    base = ""
    for inner in _nested(code):
        for instruction in dis.get_instructions(inner):
            if instruction.opname == "IMPORT_NAME":
                found.add(base := instruction.argval)
            elif instruction.opname == "IMPORT_FROM":
                found.add(f"{base}.{instruction.argval}")
    return frozenset(found - {""})


@lru_cache(maxsize=4096)
def _names(code: CodeType) -> frozenset[str]:
    found: set[str] = set()
    for inner in _nested(code):
        found |= {i.argval for i in dis.get_instructions(inner) if i.opname in _USES_GLOBAL}
        if not USES_STATE.isdisjoint(inner.co_names):  # also as an attribute: resumable_nb.ask
            found.add("state")
        if "get_ipython" in inner.co_names and not CALLS.isdisjoint(inner.co_names):
            for text in inner.co_consts:
                found |= interpolated(text) if isinstance(text, str) else set()
    return frozenset(found)


def _nested(code: CodeType) -> Iterator[CodeType]:
    todo = [code]
    while todo:
        yield (inner := todo.pop())
        todo += [constant for constant in inner.co_consts if isinstance(constant, CodeType)]


@lru_cache(maxsize=4096)
def _code_digest(code: CodeType, filename: str) -> str:
    source = "".join(linecache.getlines(filename))
    node = _node(code, _file(source, code.co_flags & _FUTURE)) if source else None
    return f"code {_form(code)}" if node is None else digest_of(node)


@lru_cache(maxsize=256)
def _file(source: str, future: int) -> _File | None:
    flags = future | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        tree = compile(source, "<source>", "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        units = [compile(source, "<source>", "exec", flags, dont_inherit=True)]
        for statement in tree.body:  # IPython compiles one by one; what a name is imported from is then not known
            alone = ast.Module([statement], [])
            units.append(compile(alone, "<source>", "exec", flags, dont_inherit=True))
    except (SyntaxError, ValueError, RecursionError):
        return None
    nodes: dict[tuple[int, str], list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            nodes.setdefault((first, name), []).append(node)
    forms = frozenset((inner.co_firstlineno, _form(inner)) for unit in units for inner in _nested(unit))
    return _File(nodes, forms)


def _node(code: CodeType, file: _File | None) -> ast.AST | None:
    """The definition that a function was compiled from; None if the file holds no such code (any more)."""
    if file is None or (code.co_firstlineno, _form(code)) not in file.forms:
        return None
    nodes = file.nodes.get((code.co_firstlineno, code.co_name), [])
    if len(nodes) > 1:  # lambdas in one line: the innermost that holds all positions of the code
        spots = [p for p in code.co_positions() if p[2] != p[3]]
        nodes = [node for node in nodes if spots and all(_holds(node, spot) for spot in spots)]
        nodes = sorted(nodes, key=lambda node: (node.lineno, node.col_offset))[-1:]  # type: ignore[attr-defined]
    return nodes[0] if nodes else None


def _holds(node: ast.AST, spot: tuple[int | None, int | None, int | None, int | None]) -> bool:
    """Whether the body of a lambda holds a piece of source: (line, last line, column, last column)."""
    line, end_line, column, end_column = spot
    if line is None or end_line is None or column is None or end_column is None or not isinstance(node, ast.Lambda):
        return False  # python -X no_debug_ranges
    body = node.body
    last = (body.end_lineno or 0, body.end_col_offset or 0)
    return (body.lineno, body.col_offset) <= (line, column) and (end_line, end_column) <= last


@lru_cache(maxsize=4096)
def _form(code: CodeType) -> str:
    """A digest of bytecode without places: neither file nor lines."""
    parts = [
        code.co_name,
        code.co_code.hex(),
        code.co_exceptiontable.hex(),
        str((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & ~_FUTURE)),
        str((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)),
        *(_constant(constant) for constant in code.co_consts),
    ]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return _form(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    if isinstance(value, frozenset):  # the order of its repr depends on the hash seed
        return f"{{{', '.join(sorted(map(_constant, value)))}}}"
    return f"{type(value).__name__} {hex(value) if type(value) is int else value!r}"
