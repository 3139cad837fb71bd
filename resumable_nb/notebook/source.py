"""From what stands in a cell to what Python runs and what the rules look at.

A `%%resumable NAME` line becomes a marker call on the same line, so that line numbers stay right and the rest of the
cell is ordinary code (top-level `await`, `!cmd`, `expr;`). Nesting a run inside a cell magic can do none of that.
"""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from resumable_nb.errors import UsageError
from resumable_nb.terminal import plain

ATTRIBUTE = "resumable_nb"  # the extension is get_ipython().resumable_nb
USAGE = "usage: %%resumable NAME [--approve TEXT] [--fresh]   (a NAME with spaces stands in quotes)"
WRAPPERS = frozenset({"time", "timeit", "capture", "prun"})  # cell magics whose body is Python of the notebook
_STEP_LINE = re.compile(r"[ \t]*%%resumable(?=\s|$)(.*)", re.DOTALL)
_MAGIC_LINE = re.compile(r"[ \t]*%%(\w+)")
_MARKER = re.compile(rf"^get_ipython\(\)\.{ATTRIBUTE}\.step\((.*)\)$", re.MULTILINE)


# ------------------------------------------------------------------------------------------ the %%resumable line
@dataclass(frozen=True, slots=True)
class StepLine:
    """What the `%%resumable` line of a cell says."""

    name: str
    approve: str | None = None
    fresh: bool = False


def words(line: str, usage: str) -> list[str]:
    """Split a magic's line at spaces; quotes keep spaces, and a backslash is an ordinary character (paths)."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        return list(lexer)
    except ValueError:
        raise UsageError(f"a quote is not closed in {line!r}\n{usage}") from None


def check_name(name: str, usage: str = USAGE) -> str:
    """The name of a step: any text but control characters. Raises UsageError."""
    if not name.strip():
        raise UsageError(f"a step needs a name\n{usage}")
    if plain(name) != name or len(name.splitlines()) > 1 or "\t" in name:
        raise UsageError(f"the name {name!r} holds a control character\n{usage}")
    return name


def parse_step_line(line: str) -> StepLine:
    """Read what follows `%%resumable`. Raises UsageError with the usage line."""
    names: list[str] = []
    approve, fresh = None, False
    rest = iter(words(line, USAGE))
    for word in rest:
        if word == "--fresh":
            fresh = True
        elif word == "--approve" or word.startswith("--approve="):
            approve = word.partition("=")[2] if "=" in word else next(rest, None)
            if not approve:
                raise UsageError(f"--approve needs the question to ask, in quotes\n{USAGE}")
        elif word in ("--help", "-h"):
            raise UsageError(f"{USAGE}\n`%resumable?` explains it")
        elif word.startswith("-"):
            raise UsageError(f"{word!r} is no option of %%resumable\n{USAGE}")
        else:
            names.append(word)
    if len(names) > 1:
        raise UsageError(f"{' '.join(names)!r} is more than one word\n{USAGE}")
    return StepLine(check_name("".join(names)), approve, fresh)


# ------------------------------------------------------------------------------------------ rewriting the text
def _is_blank(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _find_step_line(lines: Sequence[str]) -> int | None:
    """Where the `%%resumable` line stands: first, or below comments, blank lines and wrappers such as `%%time`."""
    for number, line in enumerate(lines):
        if _STEP_LINE.match(line):
            return number
        magic = _MAGIC_LINE.match(line)
        if not (_is_blank(line) or (magic and magic[1] in WRAPPERS)):
            return None
    return None


def has_step_line(lines: Sequence[str]) -> bool:
    """Whether a cell is a step."""
    return _find_step_line(lines) is not None


def _cell_magic(lines: list[str]) -> list[str]:
    """The lines of a cell magic as IPython's call of it; other lines as they are."""
    from IPython.core.inputtransformer2 import cell_magic

    return list(cell_magic(lines))  # type: ignore[no-untyped-call]  # it has no hints


class Rewrite:
    """The input transformer. It is pure: IPython calls it for completion and checks, too."""

    # IPython then leaves it out when it asks whether input is complete, so that a terminal waits for the body.
    has_side_effects = True

    def __call__(self, lines: list[str]) -> list[str]:
        """Turn the `%%resumable` line into the marker, and a cell magic around or below it into its call."""
        number = _find_step_line(lines)
        if number is None:
            return lines
        above, below = list(lines[:number]), list(lines[number + 1 :])
        step_line = _STEP_LINE.match(lines[number])
        assert step_line
        marker = f"get_ipython().{ATTRIBUTE}.step({step_line[1].strip()!r})\n"
        if any(_MAGIC_LINE.match(line) for line in above):
            wrappers = [line for line in above if _MAGIC_LINE.match(line)]
            return [marker, *_cell_magic([*wrappers, *below])]
        blank = next((k for k, line in enumerate(below) if not _is_blank(line)), len(below))
        if blank < len(below) and _MAGIC_LINE.match(below[blank]):
            return [*above, marker, *below[:blank], *_cell_magic(below[blank:])]
        return [*above, marker, *below]


def marker_line(statement: ast.stmt) -> str | None:
    """What stood behind `%%resumable`, if this statement is the marker."""
    match statement:
        case ast.Expr(
            ast.Call(
                ast.Attribute(ast.Attribute(ast.Call(ast.Name("get_ipython")), attr=attribute), attr="step"),
                [ast.Constant(str(line))],
            )
        ) if attribute == ATTRIBUTE:
            return line
    return None


# ------------------------------------------------------------------------------------------ what the rules look at
@dataclass(frozen=True, slots=True)
class Parsed:
    """One cell's text, understood. `error` says why it is no step although it wants to be one."""

    step_line: StepLine | None
    source: str
    error: UsageError | None = None

    @property
    def step(self) -> str | None:
        """The step's name, or None for an ordinary cell."""
        return self.step_line.name if self.step_line else None


class Parser:
    """Reads the raw text of cells; each text once."""

    def __init__(self, transform: Callable[[str], str]) -> None:
        """`transform`: IPython's `transform_cell`, with `Rewrite` among its cleanup transforms."""
        self._transform = transform
        self.parse = functools.lru_cache(maxsize=2000)(self._parse)

    def _parse(self, raw: str) -> Parsed:
        """The cell's name and Python. A cell that is no Python gives an empty source: it cannot have run."""
        try:
            text = self._transform(raw)
        except (SyntaxError, ValueError):
            return Parsed(None, "")
        step_line, error = None, None
        if marker := _MARKER.search(text):
            text = text[: marker.start()] + text[marker.end() :]
            try:
                step_line = parse_step_line(ast.literal_eval(marker[1]))
            except UsageError as problem:
                error = problem
        return Parsed(step_line, text if _is_python(text) else "", error)


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


# ------------------------------------------------------------------------------------------ what Python runs
def call(method: str, *arguments: ast.expr, at: ast.AST) -> ast.Expr:
    """The statement `get_ipython().resumable_nb.method(…)`, on the line of another node."""
    extension = ast.Attribute(ast.Call(ast.Name("get_ipython", ast.Load()), [], []), ATTRIBUTE, ast.Load())
    statement = ast.Expr(ast.Call(ast.Attribute(extension, method, ast.Load()), list(arguments), []))
    for node in ast.walk(statement):
        if not hasattr(node, "lineno"):
            ast.copy_location(node, at)
    return statement


def with_commit(body: list[ast.stmt], *, interactivity: str) -> list[ast.stmt]:
    """The body, with the commit as its last act: around its last expression, so that `Out[n]` and `expr;` stay.

    Args:
        body: statements; not empty.
        interactivity: IPython's `ast_node_interactivity`.
    """
    last = body[-1]
    if interactivity == "last_expr_or_assign" and (name := _assigned_name(last)):
        last = ast.copy_location(ast.Expr(ast.copy_location(ast.Name(name, ast.Load()), last)), last)
        body = [*body, last]
    if isinstance(last, ast.Expr):
        commit = call("commit", last.value, at=last)
        return [*body[:-1], ast.copy_location(commit, last)]
    return [*body, call("commit", at=last)]


def _assigned_name(statement: ast.stmt) -> str | None:
    match statement:
        case ast.Assign([ast.Name(name)]) | ast.AugAssign(ast.Name(name)) | ast.AnnAssign(ast.Name(name)):
            return name
    return None


def is_cell_magic(body: list[ast.stmt]) -> bool:
    """Whether the cell is one cell magic such as `%%time`, which may show an error and go on."""
    match body:
        case [ast.Expr(ast.Call(ast.Attribute(ast.Call(ast.Name("get_ipython")), attr="run_cell_magic")))]:
            return True
    return False
