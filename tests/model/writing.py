"""What a person writes into cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from tests.model.oracle import Cell, Operation

Choose = Callable[[Sequence[Any]], Any]
"""Picks one of a sequence: at random, or as hypothesis draws."""


def _kinds(text: str) -> list[str]:
    return text.split("|")


STEP = _kinds("ask X|ask X|about X V|about X V|about X c|into V X|act K|act K|call F|call F|raise")
NAMES = _kinds("let V X|let V X|push V X|push V X|len V|copy V V|maybe V X|client c X|add X|add X|addvar V|del V")
STATE = _kinds("set X|init|update X|assign X|extend X|pop|head X|rebind X|renew")
DEFS = _kinds("def F about X V|def F addvar V|def F add X")
RICH = _kinds("alias V V|alias V V|nest V V|plus V X|star V V X|swap|inner V X|defglobal F V X|defpush F V X|class X")
RICH += _kinds("lambda F X|default F V|closure F V|new X|hold V|touch X|touch X|tell|tell|loop V")
ALIASES = _kinds(
    "alias V V|alias V V|alias V V|nest V V|swap|inner V X|push V X|push V X|plus V X|copy V V|hold V|touch X|tell"
)
ALIASES += _kinds("addvar V|addvar V|default F V|closure F V|defpush F V X|let V X|del V")
KINDS = {"plain": NAMES + STATE + DEFS, "rich": RICH + NAMES, "aliases": ALIASES}
SETUP = _kinds("let v X|let w X|client c X|def f about X V|def g addvar V")
WORDS = {"X": "xyz", "V": "vvw", "F": "fg", "K": ["j", "k", "l", "m", "q?", "r?"]}


class Writer:
    """Writes cells.

    Args:
        choose: picks what to write.
        prefix: of the ids of its cells.
        kind: of the cells: "plain" ones, that the model understands; "rich" ones; or many "aliases".
    """

    def __init__(self, choose: Choose, *, prefix: str = "c", kind: str = "plain") -> None:
        self.choose, self.prefix, self.kind, self._ids = choose, prefix, kind, count(1)

    def next_id(self) -> str:
        """An id that no cell had before."""
        return f"{self.prefix}{next(self._ids)}"

    def step_name(self, cell_id: str) -> str:
        """The name that a step of this id gets."""
        return f"{'s' if self.prefix == 'c' else self.prefix + 's'}{cell_id.removeprefix(self.prefix)}"

    def operation(self, text: str) -> Operation:
        """One operation, with its words chosen."""
        return tuple(self.choose(WORDS[word]) if word in WORDS else word for word in text.split())

    def code(self, *, step: bool) -> tuple[Operation, ...]:
        """One to three operations."""
        other = KINDS[self.kind]
        kinds = [STEP if step and self.choose(range(5)) < 3 else other for _ in range(self.choose(range(1, 4)))]
        code = tuple(self.operation(self.choose(kind)) for kind in kinds)
        code = tuple(
            op for n, op in enumerate(code) if op[0] not in ("rebind", "renew") or n == len(code) - 1
        )  # calls see the old one
        if self.choose(range(10)) > 6:
            return code or (("add", "x"),)
        return tuple(op for op in code if op[0] not in ("raise", "del")) or (("add", "x"),)

    def cell(self) -> Cell:
        """A new cell, a step more often than not."""
        cell_id, step = self.next_id(), self.choose(range(5)) < 3
        return Cell(cell_id, self.step_name(cell_id) if step else None, self.code(step=step))

    def notebook(self) -> list[Cell]:
        """A cell that binds the names that others use, and two to five more."""
        setup = SETUP + ["class X", "new X"] * (self.kind != "plain")
        first = Cell(self.next_id(), None, tuple(map(self.operation, setup)))
        return [first, *(self.cell() for _ in range(self.choose(range(2, 6))))]
