"""What is recorded of a value, and what to say when it is another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["value", "function", "class", "module", "opaque"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is recorded of a value.

    Attributes:
        digest: of its type and content; the same in every process. Functions and classes by source, defaults, closure,
            partials and bound objects (not globals: these are in `reads`).
        reads: notebook names that it can read when it is used.
        storable: "" if it has a stored form, else why not.
        kind: `opaque` counts by its type and the code of the cell that made it.
        summary: what messages show of it; never a secret, at most 60 characters.
        parts: what can be said to differ: label → text to show, or a digest that begins with "#".
    """

    digest: str
    reads: frozenset[str] = frozenset()
    storable: str = ""
    kind: Kind = "value"
    summary: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON; what is usual is left out."""
        stored: dict[str, Any] = {"digest": self.digest, "kind": self.kind, "summary": self.summary}
        if self.reads:
            stored["reads"] = sorted(self.reads)
        if self.storable:
            stored["storable"] = self.storable
        if self.parts:
            stored["parts"] = dict(self.parts)
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Facts:
        """The facts of `to_json`."""
        return cls(
            digest=stored["digest"],
            reads=frozenset(stored.get("reads", ())),
            storable=stored.get("storable", ""),
            kind=stored.get("kind", "value"),
            summary=stored.get("summary", ""),
            parts=dict(stored.get("parts", {})),
        )


def explain(before: Mapping[str, Facts | None], after: Mapping[str, Facts | None]) -> list[str]:
    """One line for each name that holds something else, in alphabetical order.

    Args:
        before: name → facts of a recorded run; None, or no entry, for an unbound name.
        after: name → facts now.
    """
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if (old and old.digest) != (new and new.digest):
            lines.append(_line(_label(name, new or old), old, new))
    return lines


def _label(name: str, facts: Facts | None) -> str:
    if facts and facts.kind == "module":
        return f"the module `{name.removeprefix('module ')}`"
    return f"`{name}`"


def _line(label: str, old: Facts | None, new: Facts | None) -> str:
    if new is None:
        return f"{label} is no longer bound" + (f" (it was {old.summary})" if old and old.summary else "")
    if old is None:
        return f"{label} is new" + (f": {new.summary}" if new.summary and new.kind != "module" else "")
    if new.kind != old.kind or _type_of(new) != _type_of(old):
        return f"{label} changed: {old.summary} → {new.summary}"
    differing = _differing(old.parts, new.parts)
    match new.kind:
        case "module":
            return f"{label} changed"
        case "opaque":
            return f"{label} ({new.summary}) was made by other code"
        case "function" | "class":
            return f"{label} is a different {new.kind}" + (f": {differing}" if _tells(differing) else "")
        case "value":
            return f"{label} changed: {_change(old, new, differing)}"


def _tells(differing: str) -> bool:
    return bool(differing) and not differing.startswith("source")


def _change(old: Facts, new: Facts, differing: str) -> str:
    if differing and (old.summary == new.summary or _type_of(new) in _SHOW_PARTS):
        return differing
    if old.summary == new.summary:
        return f"{new.summary}, in what this short form does not show"
    return f"{old.summary} → {new.summary}"


_SHOW_PARTS = frozenset({"DataFrame", "Series", "ndarray"})


def _type_of(facts: Facts) -> str:
    return facts.parts.get("type", "")


def _differing(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """The first labels that differ: `dtype of x: int64 → int32`, `column order, values of n`."""
    found = []
    for label in [*new, *(label for label in old if label not in new)]:
        a, b = old.get(label), new.get(label)
        if a == b or (label.startswith("values of ") and _differ(old, new, "dtype of " + label[10:])):
            continue
        if a is None or b is None:
            if label[0] in "[.":  # a key or field; a column is named by "columns"
                found.append(f"{label} is {'new' if a is None else 'gone'}")
        elif label == "column order" and _differ(old, new, "columns"):
            continue
        elif a.startswith("#") or b.startswith("#"):
            found.append(label)
        else:
            found.append(f"{label}: {a} → {b}")
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return ", ".join(found[:3]) + more


def _differ(old: Mapping[str, str], new: Mapping[str, str], label: str) -> bool:
    return old.get(label) != new.get(label)
