"""Names that hold the same objects: what the record of a run says of them, and whether it is so now.

A list that two names hold is changed through both. A step that did so, or that left an input in a new name, is done
only where the same names hold the same objects again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resumable_nb.cells import STATE

if TYPE_CHECKING:
    from resumable_nb.cells import Cell, Record
    from resumable_nb.fingerprint import Facts, Sharing
    from resumable_nb.names import Names
    from resumable_nb.place import Left

Everywhere = Mapping[str, "Left"]


def there(names: Names, candidates: Iterable[str], everywhere: Everywhere) -> set[str]:
    """Those of some names that hold what the cells above left in them; others may be left by cells below."""
    lefts = {n: everywhere[n] for n in candidates if n in everywhere}
    return {n for n, x in lefts.items() if not x.blame and x.facts is not None and x.digest == names.digest(n)}


@dataclass(frozen=True)
class Start:
    """Who held which objects when a cell started.

    Attributes:
        sharing: of all names.
        placed: the names among those that shared something which held what their place has.
    """

    sharing: Sharing
    placed: set[str]

    @classmethod
    def of(cls, names: Names, everywhere: Everywhere) -> Start:
        """As it is now."""
        sharing = names.sharing()
        return cls(sharing, there(names, sharing.shared(), everywhere))


def recorded(
    names: Names, start: Start, facts: Mapping[str, Facts | None], kept: set[str]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """`shared` and `passed` of the record of a run that has just ended.

    Args:
        names: as they are now.
        start: as it was at the start.
        facts: what names held at the start.
        kept: the names that it left bound.
    """
    sharing, before = names.sharing(), start.placed | facts.keys()
    shared = {n: sorted(sharing.partners(n) & (before | kept)) for n in sorted(kept)}
    living = start.sharing.holders({i for n in kept for i in sharing.held.get(n, ())}) & before
    passed = {}
    for name in sorted(living):
        was = facts.get(name)
        digest = was.digest if was else names.digest(name) or ""
        passed[name] = [digest, *sorted(start.sharing.partners(name) & start.placed - (kept - living))]
    return {n: others for n, others in shared.items() if others}, passed


def starts_otherwise(names: Names, found: Record, everywhere: Everywhere) -> list[str]:
    """How the objects that a run altered or passed on are not as they were, or not held by the same names.

    Args:
        names: as they are now.
        found: the run.
        everywhere: what the cells above left in each name.

    Returns:
        What to say, with what to do; nothing if the run is done from here.
    """
    if not found.passed:
        return []
    start, anew = Start.of(names, everywhere), found.kept.keys() - found.passed.keys()
    other, gone, new = set[str](), set[tuple[str, str]](), set[tuple[str, str]]()
    for name, (was, *then) in found.passed.items():
        now = start.sharing.partners(name) & start.placed - anew
        other |= {name} if was != (names.digest(name) or "") else set()
        gone |= {(min(name, x), max(name, x)) for x in set(then) - now}
        new |= {(min(name, x), max(name, x)) for x in now - set(then)}
    return [
        *(f"`{name}`, which holds an object that the step changes, held another value then" for name in sorted(other)),
        *(
            f"{_pair(pair)} held one object then, and hold none together now: make them share it again"
            for pair in sorted(gone)
        ),
        *(f"{_pair(pair)} hold one object now, and held none then: copy it for one of them" for pair in sorted(new)),
    ]


def _pair(names: tuple[str, str]) -> str:
    return f"`{names[0]}` and `{names[1]}`"


def together(everywhere: Everywhere, above: Iterable[Cell]) -> dict[str, dict[str, str]]:
    """For each name, those that hold an object of it at this place, as the runs that bound them recorded it.

    Returns:
        Name → other name → that of the two which was bound later: running its cell makes them hold one object.
    """
    order = {cell.cell_id: number for number, cell in enumerate(above)}
    places = {n: order.get(x.writer.cell_id, -1) for n, x in everywhere.items() if not x.blame}
    found: dict[str, dict[str, str]] = {}
    for name, place in places.items():
        record = everywhere[name].record
        for other in record.shared.get(name, ()) if record is not None else ():
            if places.get(other, place + 1) <= place:  # else it was bound anew below that
                found.setdefault(name, {})[other] = name
                found.setdefault(other, {})[name] = name
    return found


def parted(names: Names, placed: Iterable[str], at: Everywhere, entangled: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Names to be bound by their cells again, since they do not hold an object with the names that they should.

    Args:
        names: as they are now.
        placed: the names that count.
        at: what the cells above left in each name; one that holds something else by now is nobody's partner.
        entangled: what `together` gave.
    """
    pairs = [(n, other, later) for n in placed for other, later in entangled.get(n, {}).items()]
    if not pairs:
        return set()
    sharing = names.sharing()
    return {x for n, other, x in pairs if other not in sharing.partners(n) and at[other].digest == names.digest(other)}


def shared_otherwise(names: Names, found: Record, everywhere: Everywhere) -> set[str]:
    """Names that a run left and that do not share their objects with the names that they shared them with."""
    kept = {n for n, f in found.kept.items() if f is not None and n != STATE and n in names.namespace}
    if not kept:
        return set()
    sharing = names.sharing()
    partners = {n: sharing.partners(n) for n in kept}
    others = set().union(*partners.values(), *(found.shared.get(n, ()) for n in kept))
    placed = there(names, others - kept, everywhere) | kept
    return {n for n in kept if partners[n] & placed != set(found.shared.get(n, ())) & placed}
