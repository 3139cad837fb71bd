"""What Python itself makes of a notebook: the source of its cells, run from top to bottom in a new namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.model.notebook import execute, visible_names
from tests.model.oracle import START, STATE, Cell, Names, Prompt, Value, receipt_of, refused
from tests.model.outside import Client, deep


class PlainState:
    """A state that knows nothing of the library."""

    def __init__(self, query: str, findings: Iterable[str], receipts: Iterable[str] = ()) -> None:
        self.query, self.findings, self.receipts = query, list(findings), list(receipts)

    def update(self, findings: list[str]) -> None:
        """As the reducer of `findings` does."""
        self.findings = [*self.findings, *findings]


def clean_run(
    cells: Iterable[Cell], answer: Callable[[Cell, Prompt, int], str], *, start: Value = START
) -> tuple[Names, Cell | None]:
    """A clean run in a new thread, as `oracle.linear` gives it: what is visible at the end, and the cell that raised."""
    query, findings, receipts = start or ("", (), ())
    names: dict[str, Any] = {"__name__": "__main__", STATE: PlainState(query, findings, receipts)}
    names |= {"Client": Client, "dataclass": dataclass}
    for cell in cells:
        state = names[STATE]
        asked, entry = list[Prompt](), PlainState(state.query, state.findings, state.receipts)

        def ask(text: str, value: Any = None, cell: Cell = cell, asked: list[Prompt] = asked) -> str:
            now = names[STATE]
            prompt = (text, None if value is None else deep(list(value)), now.query, tuple(now.findings))
            asked.append(prompt)
            return answer(cell, prompt, asked.count(prompt) - 1)

        def act(effect_key: str, cell: Cell = cell) -> str:
            done = names[STATE].receipts
            done += [effect_key] * (effect_key not in done)
            return (receipt_of if cell.step else refused)(effect_key)

        names |= {"ask": ask, "act": act}
        try:
            execute(cell.source, names)
        except Exception:
            names[STATE] = entry
            return visible_names(names), cell
    return visible_names(names), None
