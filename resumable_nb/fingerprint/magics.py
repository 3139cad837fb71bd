"""Python and names inside the strings that IPython's own syntax becomes: `get_ipython().system('echo {x}')`."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

# Magics whose text is Python that runs in the notebook's namespace; `timeit` runs it in a function of its own.
RUNS_PYTHON = frozenset({"time", "capture", "prun", "memit"})
TIMES_PYTHON = frozenset({"timeit"})
# Cell magics that bind the first word of their line.
BINDS_A_NAME = frozenset({"capture", "resumable_sql"})
CALLS = frozenset({"system", "getoutput", "run_line_magic", "run_cell_magic"})

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_INTERPOLATED = re.compile(r"\{([^{}]*)\}|\$\$?([^\W\d]\w*)")
_OPTION = re.compile(r"\s*-\w+(?:\s*[\d.]+)?(?=\s|$)")


class Embedded(NamedTuple):
    """What one call of IPython's holds.

    Attributes:
        loads: names that its text mentions in `{…}` or as `$name`.
        python: the Python statements that it runs in the namespace, or None.
        timed: statements whose assignments stay local.
        binds: the name that the magic binds, or None.
    """

    loads: frozenset[str] = frozenset()
    python: ast.Module | None = None
    timed: ast.Module | None = None
    binds: str | None = None


def embedded(call: ast.Call) -> Embedded | None:
    """What stands in the strings of a `get_ipython().…('…')` call; None for any other call."""
    func = call.func
    if not (isinstance(func, ast.Attribute) and func.attr in CALLS and _is_shell(func.value)):
        return None
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if not func.attr.startswith("run_") or len(texts) < 2:
        return Embedded(interpolated(" ".join(texts)))
    magic, line, *body = texts
    if magic not in RUNS_PYTHON | TIMES_PYTHON:
        binds = _first_word(line) if body and magic in BINDS_A_NAME else None
        return Embedded(interpolated(" ".join(texts[1:])), binds=binds)
    return _python(magic, line, body)


def _python(magic: str, line: str, body: list[str]) -> Embedded:
    binds = _first_word(line) if body and magic in BINDS_A_NAME else None
    code = body[0] if body else _without_options(line)
    tree = _parse(code)
    if tree is None:  # IPython syntax inside, or a later Python's: any name in it may be read
        return Embedded(frozenset(_IDENTIFIER.findall(code)), binds=binds)
    loads = interpolated(line)
    if magic in TIMES_PYTHON:
        setup = _parse(_without_options(line)) if body else None
        tree.body[:0] = setup.body if setup else []
        return Embedded(loads, timed=tree)
    return Embedded(loads, python=tree, binds=binds)


def _is_shell(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "get_ipython"


def interpolated(text: str) -> frozenset[str]:
    """Names in `{…}` and `$name` of a text."""
    found: set[str] = set()
    for expression, name in _INTERPOLATED.findall(text):
        found.update([name] if name else _IDENTIFIER.findall(expression))
    return frozenset(found)


def _first_word(line: str) -> str | None:
    return next((word for word in line.split() if word.isidentifier()), None)


def _without_options(line: str) -> str:
    while match := _OPTION.match(line):
        line = line[match.end() :]
    return line.strip()


def _parse(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return None
