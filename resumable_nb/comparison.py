"""What differs between two states, as JSON has them: place by place for programs, and in lines that a person reads.

Pure functions of JSON values, as the store keeps them: an object with `$type` is a value of a class (see `values`).
Text is only text here; who shows it escapes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

VALUE_CHARS = 2000
"""Characters of one value that are shown."""
LINES_OF_FIELD = 50
"""Lines of one field that are shown."""
_PAIRS = 1_000_000  # comparisons that one list or text may take; beyond that its middle counts as replaced
_CONTEXT = 40  # characters of a text that are shown beside what changed in it
_ALIKE = 0.4  # texts that have less in common are shown one below the other
_MISSING: Any = object()
_UNSEEN = '["$fields_set"]'  # which parts of a model were given by name: pydantic's own account, nothing of a person's
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")

Kind = Literal["added", "removed", "changed", "moved"]
Mark = Literal["", " ", "+", "-", "~"]
Part = tuple[Literal[" ", "+", "-"], str]


@dataclass(frozen=True, slots=True)
class Change:
    """One place where two states differ.

    Attributes:
        path: such as `findings[2].claim`; of what is removed, where it stood before.
        kind: `moved` is a list item that stands elsewhere: `before` and `after` are the places then.
        before: the value as JSON; None where it is added.
        after: the value as JSON; None where it is removed.
    """

    path: str
    kind: Kind
    before: Any = None
    after: Any = None

    @property
    def field(self) -> str:
        """The field of the state that it is in."""
        return _split(self.path)[0]

    def as_row(self) -> dict[str, Any]:
        """As a row of a table: path, kind, before, after."""
        return asdict(self)


class Line(NamedTuple):
    """One line for a person.

    Attributes:
        mark: `""` a heading, `" "` unchanged, `+`, `-`, or `~`: changed inside, as the marks of the parts say.
        parts: its text in pieces.
    """

    mark: Mark
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """For a terminal: what a changed line lost and gained stands as `[-lost-]{+gained+}`."""
        if self.mark != "~":
            words = "".join(text for _, text in self.parts)
            return words if self.mark == "" else f"{self.mark} {words}"
        shown = {" ": "{}", "-": "[-{}-]", "+": "{{+{}+}}"}
        return "~ " + "".join(shown[mark].format(text) for mark, text in self.parts)


# ------------------------------------------------------------------------------------------ for programs
def changes(before: Any, after: Any, path: str = "") -> list[Change]:
    """Every place where two JSON values differ: per field, per item of a list, per part of a model or object."""
    return list(_changes(before, after, path))


def _changes(before: Any, after: Any, path: str) -> Iterator[Change]:
    if isinstance(before, Mapping) and isinstance(after, Mapping) and _same_class(before, after):
        parts = [
            change
            for name in dict.fromkeys([*before, *after])
            for change in _changes(before.get(name, _MISSING), after.get(name, _MISSING), _below(path, name))
        ]
        if path and not parts and list(before) != list(after):
            parts.append(Change(path, "changed", before, after))  # the same parts in another order
        yield from parts
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_changes(before, after, path)
    elif before is _MISSING:
        yield Change(path, "added", None, after)
    elif after is _MISSING:
        yield Change(path, "removed", before, None)
    elif type(before) is not type(after) or before != after:
        yield Change(path, "changed", before, after)


def _same_class(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether their parts can be compared one by one: plain objects, or two of one class that has named parts."""
    kinds = one.get("$type"), one.get("$module")
    if kinds != (other.get("$type"), other.get("$module")):
        return False
    return kinds[0] is None or kinds[1] is not None or "items" in one


def _list_changes(before: list[Any], after: list[Any], path: str) -> Iterator[Change]:
    old, new = [_key(x) for x in before], [_key(x) for x in after]
    removed: dict[int, str] = {}
    added: dict[int, str] = {}
    inside: dict[int, int] = {}
    for tag, i, i_end, j, j_end in _opcodes(old, new):
        if tag == "equal":
            continue
        pairs = {a: b for a, b in zip(range(i, i_end), range(j, j_end), strict=False) if _akin(before[a], after[b])}
        inside |= pairs
        partners = {*pairs.values()}
        removed |= {a: old[a] for a in range(i, i_end) if a not in pairs}
        added |= {b: new[b] for b in range(j, j_end) if b not in partners}
    places: dict[str, list[int]] = {}
    for a, key in removed.items():
        places.setdefault(key, []).append(a)
    moved = {b: places[key].pop(0) for b, key in added.items() if places.get(key)}
    left = removed.keys() - moved.values()
    ends = [(a, -1, Change(f"{path}[{a}]", "removed", before[a])) for a in left]
    ends += [(b, 1, Change(f"{path}[{b}]", "added", None, after[b])) for b in added if b not in moved]
    ends += [(b, 0, Change(f"{path}[{b}]", "moved", a, b)) for b, a in moved.items()]
    found = [(b, 0, change) for a, b in inside.items() for change in _changes(before[a], after[b], f"{path}[{b}]")]
    yield from (change for *_, change in sorted([*ends, *found], key=lambda x: x[:2]))


def _akin(one: Any, other: Any) -> bool:
    """Whether an item in the place of another is that one changed, not something else."""
    if isinstance(one, str) and isinstance(other, str):
        return _likeness(one, other) >= _ALIKE
    if not (isinstance(one, dict) and isinstance(other, dict) and _same_class(one, other)):
        return isinstance(one, list) and isinstance(other, list)
    names = [name for name in {*one, *other} if not name.startswith("$")]
    alike = sum(name in one and name in other and _nearly(one[name], other[name]) for name in names)
    return 2 * alike >= len(names)


def _nearly(one: Any, other: Any) -> bool:
    return bool(one == other) or (isinstance(one, str) and isinstance(other, str) and _akin(one, other))


def _likeness(one: str, other: str) -> float:
    if len(one) * len(other) > _PAIRS:
        return 1.0  # too long to tell; shown as changed in its middle
    old, new = ([word for word in _WORDS.findall(text) if not word.isspace()] for text in (one, other))
    return SequenceMatcher(None, old, new, autojunk=False).ratio()


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """What difflib says of two sequences; where that would take long, what stands between equal ends is replaced."""
    head = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    most = min(len(old), len(new)) - head
    tail = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    found = [("equal", 0, head, 0, head)] if head else []
    if len(middle_old) * len(middle_new) > _PAIRS:
        found.append(("replace", head, len(old) - tail, head, len(new) - tail))
    else:
        inner = SequenceMatcher(None, middle_old, middle_new, autojunk=False).get_opcodes()
        found += [(tag, i + head, i_end + head, j + head, j_end + head) for tag, i, i_end, j, j_end in inner]
    if tail:
        found.append(("equal", len(old) - tail, len(old), len(new) - tail, len(new)))
    return found


def _key(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _below(path: str, name: str) -> str:
    if not path:
        return name  # a field of the state
    return f"{path}.{name}" if _PLAIN_NAME.fullmatch(name) else f"{path}[{json.dumps(name, ensure_ascii=False)}]"


def _split(path: str) -> tuple[str, str]:
    """The field, and where in it."""
    end = next((i for i, char in enumerate(path) if i and char in ".["), len(path))
    return path[:end], path[end:].removeprefix(".")


# ------------------------------------------------------------------------------------------ for people
def lines(found: Iterable[Change]) -> list[Line]:
    """The same for a person: a heading per field that says how much, and below it what; long values cut."""
    fields: dict[str, list[Change]] = {}
    for change in found:
        if _UNSEEN not in change.path:
            fields.setdefault(change.field, []).append(change)
    return [line for name, of_field in fields.items() for line in _field_lines(name, of_field)]


def _field_lines(name: str, found: list[Change]) -> Iterator[Line]:
    counts = {kind: sum(c.kind == kind for c in found) for kind in ("added", "removed", "changed", "moved")}
    told = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    whole = len(found) == 1 and found[0].path == name
    yield Line("", ((" ", f"{name}: {found[0].kind if whole else told}"),))
    shown = [line for change in found[:LINES_OF_FIELD] for line in _change_lines(change)]
    yield from shown[:LINES_OF_FIELD]
    left = max(len(shown) - LINES_OF_FIELD, 0) + max(len(found) - LINES_OF_FIELD, 0)
    if left:
        yield Line(" ", ((" ", f"… {left:,} more"),))


def _change_lines(change: Change) -> list[Line]:
    where = _split(change.path)[1]
    place = f"{where} " if where else ""
    before, after = change.before, change.after
    if change.kind == "moved":
        return [Line(" ", ((" ", f"{place}stood at [{before}] before"),))]
    if change.kind == "changed" and isinstance(before, str) and isinstance(after, str):
        return _text_lines(before, after, place)
    found = []
    if change.kind != "added":
        found.append(Line("-", (("-", place + shown(before)),)))
    if change.kind != "removed":
        found.append(Line("+", (("+", place + shown(after)),)))
    return found


def _text_lines(before: str, after: str, place: str) -> list[Line]:
    if "\n" in before or "\n" in after:
        heading = [Line(" ", ((" ", place.strip()),))] if place else []
        return heading + _by_lines(before.split("\n"), after.split("\n"))
    return _by_words(before, after, place)


def _by_lines(old: list[str], new: list[str]) -> list[Line]:
    found: list[Line] = []
    for tag, i, i_end, j, j_end in _opcodes(old, new):
        if tag == "equal":
            kept = old[i:i_end]
            around = (
                kept if len(kept) <= 2 else [*([kept[0]] if i else []), "…", *([kept[-1]] if i_end < len(old) else [])]
            )
            found += [Line(" ", ((" ", _cut(text)),)) for text in around]
        elif tag == "replace" and i_end - i == j_end - j:
            found += [line for a, b in zip(old[i:i_end], new[j:j_end], strict=True) for line in _by_words(a, b, "")]
        else:
            found += [Line("-", (("-", _cut(text)),)) for text in old[i:i_end]]
            found += [Line("+", (("+", _cut(text)),)) for text in new[j:j_end]]
    return found


def _by_words(before: str, after: str, place: str) -> list[Line]:
    if _likeness(before, after) < _ALIKE:
        return [Line("-", (("-", place + _cut(before)),)), Line("+", (("+", place + _cut(after)),))]
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    parts: list[Part] = [(" ", place)] if place else []
    for tag, i, i_end, j, j_end in _opcodes(old, new):
        if tag == "equal":
            parts.append((" ", _around("".join(old[i:i_end]), first=i == 0, last=i_end == len(old))))
            continue
        parts += [("-", _cut("".join(old[i:i_end])))] if i_end > i else []
        parts += [("+", _cut("".join(new[j:j_end])))] if j_end > j else []
    return [Line("~", tuple(parts))]


def _around(text: str, *, first: bool, last: bool) -> str:
    """Of a long unchanged part, what stands beside the changes."""
    if len(text) <= 2 * _CONTEXT + 3:
        return text
    return f"{'' if first else text[:_CONTEXT]}…{'' if last else text[-_CONTEXT:]}"


def shown(value: Any) -> str:
    """A value of a state for a person, such as `Finding(claim='…')`; long ones are cut, and their length is said."""
    return _cut(value if isinstance(value, str) else _form(value))


def _form(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_form, value))}]"
    if not isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    kind = value.get("$type")
    if kind is None:
        return f"{{{', '.join(f'{json.dumps(n, ensure_ascii=False)}: {_form(x)}' for n, x in value.items())}}}"
    parts = {name: x for name, x in value.items() if not name.startswith("$")}
    if "$module" in value:
        return f"{kind}({', '.join(f'{name}={_form(x)}' for name, x in parts.items())})"
    alone = isinstance(parts.get("value"), str) and len(parts) == 1
    return str(parts["value"]) if alone else f"{kind}({', '.join(map(_form, parts.values()))})"


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}… ({len(text):,} characters)"
