"""Putting names to what their place has and what a skipped step left: from the journal, or by its statements."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resumable_nb.cells import STATE
from resumable_nb.errors import ValueNotLoadable
from resumable_nb.holding import parted, shared_otherwise
from resumable_nb.names import DEFINED, made_by

if TYPE_CHECKING:
    from resumable_nb.cells import Cell, Record
    from resumable_nb.fingerprint import Facts
    from resumable_nb.names import Names
    from resumable_nb.place import Entry, Left, Places
    from resumable_nb.thread import Thread


@dataclass
class Binder:
    """Binds names of one notebook to values of one thread's journal."""

    thread: Thread
    names: Names
    places: Places

    def bind(self, cell: Cell, above: list[Cell], at: Entry) -> None:
        """R4: bind what is not as its place has it.

        Raises:
            RunFirst: A value could not be bound after all, such as one whose class is not defined here.
        """
        other = {n: x for n, x in at.placed.items() if n != STATE and x.digest != self.names.digest(n)}
        for name in [n for n, x in other.items() if self.names.kept(n, x.facts)]:
            self.names.put_back(name, other.pop(name).facts)
        by_run: dict[int, dict[str, Left]] = {}
        for name, left in other.items():
            if left.facts is not None and left.facts.kind in DEFINED:
                self._define(name, left)
            elif left.record is not None:
                by_run.setdefault(left.record.source_seq, {})[name] = left
        for lefts in by_run.values():
            with contextlib.suppress(ValueNotLoadable):
                self.restore(next(iter(lefts.values())).record, set(lefts))
        missing = {n: x for n, x in other.items() if x.digest != self.names.digest(n)}
        missing |= {n: at.everywhere[n] for n in parted(self.names, at.placed, at.everywhere, at.entangled)}
        if missing:
            self.places.stop(cell, above, missing)

    def _define(self, name: str, left: Left) -> None:
        """Execute the statement that defines it; it may need what is not there."""
        source = self.places.sources[left.writer.code.digest]
        with contextlib.suppress(Exception):
            self.names.define(source.code, {name})

    def restore(self, record: Record | None, only: set[str] | None = None) -> None:
        """Bind names to the stored values of a run."""
        text = self.thread.read(record.source_seq).response if record is not None else None
        if record is not None and text:
            self.names.restore(record, text, self.thread.blob, only)

    def not_at_hand(self, cell: Cell, found: Record, everywhere: Mapping[str, Left]) -> list[str]:
        """Names that a run left, that another cell reads or may read, and that only running it again can give."""
        read = self.places.read_elsewhere(cell)
        out = self.left_out(cell, found, everywhere)
        return [f"`{name}`" for name in out if name in read or not self.places.sees_all]

    def left_out(self, cell: Cell, found: Record, everywhere: Mapping[str, Left]) -> list[str]:
        """Names that a run left and that neither the store nor a statement of the cell can give."""
        kept = {n: f for n, f in found.kept.items() if n != STATE and f is not None}
        lost = {n for n, f in kept.items() if (f.storable or n in found.lost) and not self._is_defined(cell, n, f)}
        there = {n for n in lost if kept[n].digest == self.names.digest(n)}
        if there:  # an object that counts by its maker may hold one of an earlier run of a cell above
            there -= shared_otherwise(self.names, found, everywhere)
        return sorted(lost - there)

    @staticmethod
    def _is_defined(cell: Cell, name: str, facts: Facts) -> bool:
        """Whether an import, def or class statement of the cell makes it: `Literal` is no class, but imported."""
        return (facts.kind in DEFINED or bool(facts.storable)) and bool(cell.code.definitions({name}))

    def bring(self, cell: Cell, found: Record, everywhere: Mapping[str, Left]) -> list[str]:
        """Bind what a run left. Returns names that turned out not to be had without running it again."""
        was, out = self.names.identities(), set(self.left_out(cell, found, everywhere))
        differing = {n for n, f in found.kept.items() if n != STATE and (f and f.digest) != self.names.digest(n)}
        differing = (differing | shared_otherwise(self.names, found, everywhere)) - out
        gone = {n for n in differing if found.kept[n] is None}
        defined = {n for n in differing - gone if (f := found.kept[n]) and self._is_defined(cell, n, f)}
        why = ""
        try:
            if defined:
                self.names.made_by |= dict.fromkeys(defined, made_by(found.key))
                self.names.define(cell.code, defined)
            if differing - defined - gone:
                self.restore(found)
        except Exception as error:  # noqa: BLE001 - whatever the notebook's own import or class statement raises
            why = f" ({error})"
        for name in gone | out:
            self.names.unbind(name)
        wrong = {n for n in differing if (f := found.kept[n]) and f.digest != self.names.digest(n)}
        wrong |= shared_otherwise(self.names, found, everywhere)
        if wrong or why:
            self.names.rebind(was)  # it has to start from its inputs after all
            return [f"`{'`, `'.join(sorted(wrong or differing))}`{why}"]
        self.places.left_out |= out
        return []
