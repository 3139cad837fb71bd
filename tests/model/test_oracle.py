"""The oracle's operations mean what their source means in Python."""

from __future__ import annotations

import random

import pytest

from tests.model import session
from tests.model.by_python import clean_run
from tests.model.notebook import in_words
from tests.model.oracle import Cell, Prompt, digest, linear, visible


def notebook(seed: int) -> list[Cell]:
    """Random cells, as the person of `session.py` writes them."""
    person = session.Person.__new__(session.Person)
    person.choose, person.ids = random.Random(seed).choice, iter(range(1, 100))
    setup = Cell("c0", None, tuple(map(person.operation, session.SETUP)))
    return [setup, *(person.new_cell() for _ in range(6))]


def answer(cell: Cell, prompt: Prompt, nth: int) -> str:
    """A model that always says the same."""
    return digest(prompt, nth)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_operations_mean_what_their_source_means(first: int) -> None:
    """A clean run in the oracle and Python's own run of the source leave the same names and state."""
    for seed in range(first, first + 100):
        cells = notebook(seed)
        names, raised = linear(cells, answer)

        assert clean_run(cells, answer) == (in_words(visible(names)), raised), "\n\n".join(c.source for c in cells)
