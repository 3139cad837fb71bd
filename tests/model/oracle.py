"""A notebook in miniature, and what a clean run of it from top to bottom in a new thread gives: the oracle.

Pure Python: no DuckDB, no IPython; of the library it asks only what source reads. A cell is a list of operations on a few names and on the
state; `source` writes it as a person would type it, and the tests check that both mean the same.
"""

# ruff: noqa: E701 - one line for each operation

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from resumable_nb.fingerprint import analyse

# Values: ("x", "y"); ("client", setting, made by), which cannot be stored; ("function", *operation); None: unbound.
Value = tuple[Any, ...] | None
Names = dict[str, Value]  # the state is a name like others: "state"
Operation = tuple[str, ...]
Prompt = tuple[Any, ...]  # text, a value that code put into it, and the state as context
STATE = "state"
START: Value = ("", (), ())  # the state: query (assigned), findings (appended), keys of the receipts (the library's)

# Operations whose first argument is a name that they bind; that read the name at this argument; that use the state.
_BINDS = {"let", "maybe", "push", "copy", "del", "into", "len", "client", "def"}
_BINDS |= {"alias", "nest", "plus", "star", "inner", "lambda", "default", "closure", "defglobal", "defpush"}
_READS = {"maybe": 0, "push": 0, "del": 0, "call": 0, "addvar": 0, "copy": 1, "about": 1}
_STATE = {"ask", "about", "into", "act", "add", "addvar", "set", "init", "len", "maybe"}
_STATE |= {"update", "assign", "extend", "pop", "head", "rebind", "renew"}

_SOURCE = {
    "ask": "state.findings.append(ask({0!r}))",
    "about": "state.findings.append(ask({0!r}, {1}))",
    "into": "{0} = [ask({1!r})]",
    "act": "state.findings.append(act({0!r}))",
    "add": "state.findings.append({0!r})",
    "addvar": "state.findings.append(str(tuple({0})))",
    "set": "state.query = {0!r}",
    "init": "state.findings.clear()",
    "update": "state.update(findings=[{0!r}])",
    "assign": "state.findings = [{0!r}]",
    "extend": "state.findings += [{0!r}]",
    "pop": "if state.findings: state.findings.pop()",
    "head": "state.findings[:1] = [{0!r}]",
    "rebind": "state = type(state)(query={0!r}, findings=[{0!r}])",
    "len": "{0} = [str(len(state.findings))]",
    "let": "{0} = [{1!r}]",
    "maybe": "if state.findings: {0} = [{1!r}]",
    "push": "{0}.append({1!r})",
    "copy": "{0} = list({1})",
    "del": "del {0}",
    "client": "{0} = Client({1!r})",
    "call": "{0}()",
    "raise": "raise ValueError",
    "renew": "state = type(state)(query=state.query, findings=list(state.findings), receipts=list(state.receipts))",
    # Only Python knows what these do: see `by_python`.
    "alias": "{0} = {1}",
    "nest": "{0} = [{1}]",
    "plus": "{0} += [{1!r}]",
    "star": "{0} = [*{1}, {2!r}]",
    "swap": "v, w = w, v",
    "inner": "isinstance({0}[0], list) and {0}[0].append({1!r})",
    "lambda": "{0} = lambda: state.findings.append({1!r})",
    "default": "def {0}(a={1}): state.findings.append(str(a))",
    "closure": "{0} = (lambda a: lambda: state.findings.append(str(a)))({1})",
    "defglobal": "def {0}():\n    global {1}\n    {1} = [{2!r}]",
    "defpush": "def {0}(): {1}.append({2!r})",
    "class": "@dataclass\nclass P:\n    x: list\n    kind: str = {0!r}",
    "new": "p = P([{0!r}])",
    "hold": "p = P({0})",
    "touch": "p.x.append({0!r})",
    "tell": "state.findings.append(str(p.x) + p.kind)",
    "loop": "for w in [['x'], {0}]: state.findings.append(str(w))",
}
_WRITES = {
    "rebind": {STATE},
    "renew": {STATE},
    "swap": {"v", "w"},
    "class": {"P"},
    "new": {"p"},
    "hold": {"p"},
    "touch": {"p"},
    "loop": {"w"},
}


class Cell(NamedTuple):
    """A notebook cell; `step` is None for an ordinary one."""

    cell_id: str
    step: str | None
    code: tuple[Operation, ...]

    def needs(self, names: Mapping[str, Value]) -> set[str]:
        """Names whose value at the start can matter: read, or not surely bound; through functions too."""
        found = {STATE} if self.step else set[str]()
        bound, kept = Names(), set[str]()  # kept: bound in one case, and as it was in the other
        for op, *args in self.code:
            read = {args[_READS[op]]} if op in _READS else set()
            if op == "maybe":
                read, kept = set(), kept | (read - bound.keys())
            found |= read - bound.keys()
            found |= {STATE} if op in _STATE else set()
            if op == "call" and (function := bound.get(args[0], names.get(args[0]))):
                found |= Cell("", None, (function[1:],)).needs(names) - bound.keys()
            if op in _BINDS and op != "maybe":
                bound[args[0]] = ("function", *args[1:]) if op == "def" else None
            if op == "raise":
                return found
        return found | (kept - bound.keys())

    def writes(self) -> set[str]:
        """Names that its source binds; a step always leaves a state."""
        found = {op[1] for op in self.code if op[0] in _BINDS} | ({STATE} if self.step else set())
        return found.union(*(_WRITES.get(op[0], ()) for op in self.code))

    def reads(self) -> set[str]:
        """Names that its source reads somewhere before it surely binds them."""
        return set(analyse(self.source).loads)

    def touches(self) -> set[str]:
        """Names that functions of it read when they are called."""
        return set[str]().union(*analyse(self.source).defers.values())

    def makes(self, *kinds: str) -> bool:
        """Whether one of these operations is in it."""
        return any(op[0] in kinds for op in self.code)

    @property
    def source(self) -> str:
        """The cell as a person would type it, without the line of the magic."""
        return "\n".join(line(*op) for op in self.code)


def line(op: str, *args: str) -> str:
    """An operation as Python."""
    return f"def {args[0]}(): {line(*args[1:])}" if op == "def" else _SOURCE[op].format(*args)


class Raised(Exception):
    """The code of a cell raised."""


def digest(*parts: object) -> str:
    """A short text that stands for all of them: what the model answers."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:6]


def storable(value: Value) -> bool:
    """Whether the value can be kept over a restart."""
    return not value or value[0] != "client"


def shown(value: Value) -> Value:
    """What code can see of a value."""
    return value if storable(value) or not value else value[:2]


def visible(names: Mapping[str, Value]) -> Names:
    """What code can see of the bound names."""
    return {v: shown(x) for v, x in names.items() if x is not None}


def receipt_of(effect_key: str) -> str:
    """What an effect gives, the first time and ever after."""
    return f"receipt {effect_key}"


def refused(effect_key: str) -> str:
    """Outside of a step nothing would keep an effect from happening twice."""
    raise Raised(effect_key)


def execute(
    code: Iterable[Operation],
    names: Names,
    ask: Callable[[Prompt], str],
    act: Callable[[str], str],
    made_by: str = "",
) -> None:
    """Run code on names, in place; if it raises, the state stays. Every prompt holds the state as context."""
    query, found, done = names[STATE] or ()

    def read(name: str) -> tuple[Any, ...]:
        if (value := names.get(name)) is None:
            raise Raised(name)
        return value

    # fmt: off
    for op in code:
        match op:
            case "ask", x: found += (ask((x, None, query, found)),)
            case "about", x, v: found += (ask((x, shown(read(v)), query, found)),)
            case "into", v, x: names[v] = (ask((x, None, query, found)),)
            case "act", effect_key:
                found += (act(effect_key),)
                done = (*done, effect_key) if effect_key not in done else done
            case "add", x: found += (x,)
            case "addvar", v: found += (str(shown(read(v))),)
            case "set", x: query = x
            case ("init",): found = ()
            case ("update" | "extend"), x: found += (x,)
            case "assign", x: found = (x,)
            case ("pop",): found = found[:-1]
            case "head", x: found = (x, *found[1:])
            case "rebind", x: query, found, done = x, (x,), ()
            case "len", v: names[v] = (str(len(found)),)
            case "let", v, x: names[v] = (x,)
            case "maybe", v, x: names[v] = (x,) if found else names.get(v)
            case "push", v, x: names[v] = (*read(v), x)
            case "copy", v, w: names[v] = read(w)
            case "del", v: names[v] = read(v) and None
            case "client", v, x: names[v] = ("client", x, made_by)
            case "def", f, *operation: names[f] = ("function", *operation)
            case "call", f:
                inner = names | {STATE: (query, found, done)}
                execute((read(f)[1:],), inner, ask, act)
                query, found, done = inner[STATE] or ()
            case ("renew",): pass
            case ("raise",): raise Raised
    # fmt: on
    names[STATE] = query, found, done


def linear(
    cells: Iterable[Cell], answer: Callable[[Cell, Prompt, int], str], *, start: Value = START
) -> tuple[Names, Cell | None]:
    """A clean run in a new thread.

    Args:
        start: the state that the thread starts with.
        answer: what the model says: asked by which cell, the prompt, and how often that cell asked it before.

    Returns:
        Names and state at the end, and the cell that raised, if one did.
    """
    names: Names = {STATE: start}
    for cell in cells:
        asked: list[Prompt] = []

        def ask(prompt: Prompt, cell: Cell = cell, asked: list[Prompt] = asked) -> str:
            asked.append(prompt)
            return answer(cell, prompt, asked.count(prompt) - 1)

        try:
            execute(cell.code, names, ask, receipt_of if cell.step else refused)
        except Raised:
            return names, cell
    return names, None
