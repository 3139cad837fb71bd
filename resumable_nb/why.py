"""Why a step runs although it ran before, and what could not be kept: lines for the person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from resumable_nb import fingerprint
from resumable_nb.cells import STATE
from resumable_nb.names import DEFINED, MODULE
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from resumable_nb.cells import Cell, Record
    from resumable_nb.fingerprint import Facts
    from resumable_nb.fold import Fold

Facts_ = Mapping[str, "Facts | None"]


def why_it_runs(fold: Fold, cell: Cell, before: Facts_, *, rebuilt: list[str], otherwise: list[str]) -> list[str]:
    """Why a step runs although it ran before; nothing for its first run.

    Args:
        fold: the journal.
        cell: the step.
        before: what it starts from.
        rebuilt: names of its finished run from there that could not be restored.
        otherwise: how names share their objects otherwise than in its finished run from there.
    """
    if rebuilt:
        return [f"runs again from its recorded answers to rebuild {', '.join(rebuilt)}, which cannot be stored"]
    lines = []
    last = fold.last_run(cell)
    if last is not None:
        other = [_fewer(before, last) if fold.stands(last) else "its earlier run was retired"]
        lines.append("runs again: " + "; ".join(otherwise or differences(cell, before, last) or other))
    answered = len(fold.answers(cell))
    if answered and any(row.cell_id == cell.cell_id for row in fold.latest_started()):
        was, they = ("was", "it is") if answered == 1 else ("were", "they are")
        lines.append(f"unfinished: {counted(answered, 'call')} {was} answered; asked in the same words, {they} free")
    return lines


def _fewer(before: Facts_, last: Record) -> str:
    gone = ", ".join(f"`{name.removeprefix(MODULE)}`" for name in sorted(last.before.keys() - before.keys()))
    return f"it does not read {gone} any more" if gone else "its earlier run started from what is not here now"


def differences(cell: Cell, before: Facts_, last: Record) -> list[str]:
    """What differs between a step now and its last finished run, as far as code, inputs and state tell."""
    found = []
    if last.cell.code.digest != cell.code.digest:
        found.append("its code changed")
    names = {n: f for n, f in before.items() if n != STATE}
    old = {n: f for n, f in last.before.items() if n in names}  # what it does not read any more did not change
    found += fingerprint.explain(old, names)
    state, was = before.get(STATE), last.before.get(STATE)
    if state and was and state.digest != was.digest:
        found.append("the state above it changed")
    return found


def notes(cells: Iterable[Cell]) -> list[str]:
    """Cells above that are not up to date and might change the state."""
    labels = ", ".join(dict.fromkeys(cell.label for cell in cells))
    return [f"note: {labels} above may change the state when it runs as it stands now"] if labels else []


def not_stored(lost: Mapping[str, str], kept: Facts_) -> list[str]:
    """Names of a step whose values are not in the store."""
    rebuilt = {n: why for n, why in lost.items() if (f := kept[n]) and f.kind not in DEFINED}
    if not rebuilt:
        return []
    names = "; ".join(f"`{n}` ({why})" for n, why in sorted(rebuilt.items()))
    return [f"not stored, rebuilt from recorded answers when another cell reads it: {names}"]


def left_out(names: list[str]) -> str:
    """The end of a skipped step's line: names that no other cell reads, and that cannot be stored."""
    return f"; not stored and not read by another cell: {', '.join(f'`{n}`' for n in names)}" if names else ""
