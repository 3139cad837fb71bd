"""The oracle's operations mean what their source means in Python."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.model import session
from tests.model.notebook import in_words
from tests.model.oracle import STATE, Cell, Names, digest, linear, visible
from tests.model.outside import Client


def notebook(seed: int) -> list[Cell]:
    """Random cells, as the person of `session.py` writes them."""
    person = session.Person.__new__(session.Person)
    person.choose, person.ids = random.Random(seed).choice, iter(range(1, 100))
    setup = Cell("c0", None, tuple(map(person.operation, session.SETUP)))
    return [setup, *(person.new_cell() for _ in range(6))]


def plain_run(cells: list[Cell]) -> tuple[Names, Cell | None]:
    """What Python makes of the source, with an `ask` and an `act` as in a clean run."""
    state = SimpleNamespace(query="", findings=[])
    names: dict[str, Any] = {STATE: state, "Client": Client, "act": "receipt {}".format}
    raised = None
    for cell in cells:
        asked, entry = list[object](), (state.query, list(state.findings))

        def ask(text: str, value: Any = None, cell: Cell = cell, asked: list[object] = asked) -> str:
            prompt = (text, value and tuple(value), state.query, tuple(state.findings))
            asked.append(prompt)
            return digest(prompt, asked.count(prompt) - 1)

        names["ask"] = ask
        try:
            exec(cell.source, names)
        except (ValueError, NameError):
            state.query, state.findings[:] = entry
            raised = cell
            break
    found: Names = {v: tuple(x) for v, x in names.items() if isinstance(x, list | Client)}
    return found | {STATE: (state.query, tuple(state.findings))}, raised


@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_operations_mean_what_their_source_means(first: int) -> None:
    """A clean run in the oracle and Python's own run of the source leave the same names and state."""
    for seed in range(first, first + 100):
        cells = notebook(seed)
        names, raised = linear(cells, lambda cell, prompt, nth: digest(prompt, nth))
        want = {v: x for v, x in in_words(visible(names)).items() if x and x[0] != "function"}

        assert plain_run(cells) == (want, raised), "\n\n".join(c.source for c in cells)
