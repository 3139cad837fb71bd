r"""Values from the command line for a notebook's `parameters` cell.

What a value of `-p NAME VALUE` becomes:

    ==============================  =======================================================
    JSON (RFC 8259)                 that value: `3`, `0.5`, `true`, `null`, `"text"`, `[1, 2]`, `{"a": 1}`
    `True`, `False`, `None`         Python's
    anything else                   the text as it is: `007`, `2024-01-01`, `NaN`, `C:\new`
    ==============================  =======================================================

A text that looks like one of the others is written as JSON: `-p code '"3"'`. The values go into a cell of their own as
Python literals, so that nothing in them is ever executed.
"""

from __future__ import annotations

import difflib
import json
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from resumable_nb.errors import UsageError

TAG, INJECTED = "parameters", "injected-parameters"
_WORDS = {"True": True, "False": False, "None": None}


def parse(pairs: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Names and values as given on the command line.

    Raises:
        UsageError: a name that cannot be a Python variable, or one that is given twice.
    """
    values: dict[str, object] = {}
    for name, text in pairs:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise UsageError(f"-p {name!r}: this cannot be the name of a Python variable.")
        if name in values:
            raise UsageError(f"-p {name} is given twice: {values[name]!r} and {text!r}.")
        values[name] = parse_value(text)
    return values


def for_threads(
    threads: Iterable[str], common: Iterable[tuple[str, str]], own: Iterable[tuple[str, str, str]]
) -> dict[str, dict[str, object]]:
    """By thread, its values: those of all, and its own, which come first.

    Args:
        threads: the threads, in order; those that only `own` names come after them.
        common: names and values for all.
        own: thread, name and value.

    Raises:
        UsageError: as `parse`.
    """
    own, shared = list(own), parse(common)
    names = dict.fromkeys([*threads, *(thread for thread, _, _ in own)])
    return {name: shared | parse((key, text) for thread, key, text in own if thread == name) for name in names}


def parse_value(text: str) -> object:
    """One value, by the table above."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)  # NaN and Infinity are no JSON


def inject(notebook: Any, values: Mapping[str, object], say: Callable[[str], None]) -> None:
    """Put the values into a cell after the one tagged `parameters`, in place of one that an earlier run put there.

    Without a tagged cell, the values come first in the notebook, and that is said.

    Raises:
        UsageError: a cell is tagged, and no cell with code has a name that is given: it is misspelt.
    """
    cells = [cell for cell in notebook.cells if not _tagged(cell, INJECTED)]
    tagged = [index for index, cell in enumerate(cells) if _tagged(cell, TAG)]
    if not tagged:
        say("no cell is tagged `parameters`: the values of -p come first in the notebook")
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    for name in values:
        if not re.search(rf"\b{re.escape(name)}\b", code):
            told = f"-p {name}: no cell of the notebook has that name"
            if tagged:
                raise UsageError(f"{told}. {_instead(name, cells[tagged[0]].source)}")
            say(told)
    lines = ["# Parameters", *(f"{name} = {value!r}" for name, value in values.items())]
    injected = type(notebook)(
        id=INJECTED,  # the same in every run: the thread knows the cell by it
        cell_type="code",
        metadata=type(notebook)(tags=[INJECTED]),
        source="\n".join(lines),
        outputs=[],
        execution_count=None,
    )
    cells.insert(tagged[0] + 1 if tagged else 0, injected)
    notebook.cells = cells


def _instead(name: str, source: str) -> str:
    """The parameters that the tagged cell sets, and the one of them that was probably meant."""
    known = list(dict.fromkeys(re.findall(r"(?:^|;[ \t]*)(\w+)[ \t]*(?::[^=\n;]*)?=(?!=)", source, re.MULTILINE)))
    near = difflib.get_close_matches(name, known, n=1) or [k for k in known if k.lower() == name.lower()]
    meant = f"Did you mean {near[0]}? " if near else ""
    return f"{meant}The cell tagged `{TAG}` sets {', '.join(known) or 'nothing'}."


def _tagged(cell: Any, tag: str) -> bool:
    return tag in cell.metadata.get("tags", [])
