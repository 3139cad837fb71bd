"""The oracle's operations mean what their source means in Python."""

from __future__ import annotations

import random

import pytest

from tests.model.by_python import clean_run
from tests.model.notebook import in_words
from tests.model.oracle import Cell, Prompt, digest, linear, visible
from tests.model.writing import Writer


def answer(cell: Cell, prompt: Prompt, nth: int) -> str:
    """A model that always says the same."""
    return digest(prompt, nth)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_operations_mean_what_their_source_means(first: int) -> None:
    """A clean run in the oracle and Python's own run of the source leave the same names and state."""
    for seed in range(first, first + 100):
        writer = Writer(random.Random(seed).choice)
        cells = [*writer.notebook(), *(writer.cell() for _ in range(3))]
        names, raised = linear(cells, answer)

        assert clean_run(cells, answer) == (in_words(visible(names)), raised), "\n\n".join(c.source for c in cells)
