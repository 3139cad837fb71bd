"""A state as Markdown for a model. A function of the values alone: no hash order, no addresses, no time zone."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from resumable_nb import values
from resumable_nb.errors import ResumableError, StateError

CHARACTERS_PER_TOKEN = 4
_FIRST = ("query", "plan", "receipts", "decisions", "findings")
_SHRINKING = ("decisions", "receipts", "findings")
"""Lists that lose their oldest items when there is not enough room; the last one first."""
_TITLES = ("task", "title", "step", "question", "text", "description", "name", "content")
_DONE = ("done", "complete", "completed", "finished")
_OPEN = ("", "open", "todo", "pending", "not started", "planned")
_MAX_DEPTH = 6
_MAX_UNKNOWN = 200

_SPACES = (
    " \t\x1f\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u200b\u202f\u205f\u3000\ufeff"
)
_MARKERS = _SPACES + ">*+.)0123456789-"
_opens = re.compile(r"#{1,6}(?:\s|$)|`{3}|~{3}").match


def render(fields: Mapping[str, Any], max_tokens: int | None) -> str:
    """The sections of all fields that hold something.

    Args:
        fields: name → value, in the order of the class.
        max_tokens: about how long the text may be; None: everything.

    Raises:
        StateError: `max_tokens` is no positive whole number.
    """
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise StateError(f"max_tokens={max_tokens!r}: give a whole number of tokens from 1 on, or None for everything.")
    order = [name for name in _FIRST if name in fields] + [name for name in fields if name not in _FIRST]
    sections = {name: _Section(name, fields[name]) for name in order if not _is_empty(fields[name])}
    if max_tokens is None:
        return "\n\n".join(section.whole() for section in sections.values())
    room = max_tokens * CHARACTERS_PER_TOKEN
    texts = {name: section.whole() for name, section in sections.items() if name not in _SHRINKING}
    shrinking = [sections[name] for name in _SHRINKING if name in sections]
    for place, section in enumerate(shrinking):
        used = sum(len(text) + 2 for text in texts.values())
        reserved = sum(len(later.least()) + 2 for later in shrinking[place + 1 :])
        texts[section.name] = section.newest(room - used - reserved)
    return _cut("\n\n".join(texts[name] for name in sections), room)


class _Section:
    """One field: a heading, and a text or a list."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self._value = name, value
        self._heading = f"## {_heading(name)}"
        self._is_plan = name == "plan" and isinstance(value, list | tuple)
        self._width = len(str(len(value))) + 2 if isinstance(value, list | tuple) else 0

    def whole(self) -> str:
        """The section."""
        if self._is_plan:
            items, progress = _plan(self._value)
            return "\n".join([self._heading + progress, *items])
        if self._width:
            return "\n".join([self._heading, *map(self._item, range(len(self._value)))])
        return f"{self._heading}\n{block(self._value)}"

    def newest(self, room: int) -> str:
        """The section with as many of its newest items as fit into `room` characters, and how many are left out."""
        if not self._width:
            return self.whole()
        items: list[str] = []
        left, size = len(self._value), len(self._heading)
        while left and size + len(item := self._item(left - 1)) < room:
            items.append(item)
            left, size = left - 1, size + len(item) + 1
        while left and items and size + len(_left_out(left)) >= room:
            left, size = left + 1, size - len(items.pop()) - 1
        return "\n".join([self._heading, *([_left_out(left)] if left else []), *reversed(items)])

    def least(self) -> str:
        """The section when there is no room: the heading and how much is left out, or the whole if it is no longer."""
        if not self._width:
            return self.whole()
        return self.newest(len(self._heading) + 1 + len(_left_out(len(self._value))))

    def _item(self, index: int) -> str:
        return _item(f"{index + 1}. ".ljust(self._width), block(self._value[index]))


def _cut(text: str, room: int) -> str:
    """The last resort, when all that remains is too long."""
    if len(text) <= room:
        return text
    note = "\n(cut here: too long)"
    return text[: max(room - len(note), 0)] + note if room > len(note) else text[:room]


def _left_out(count: int) -> str:
    return f"({count} earlier left out)"


def _heading(name: str) -> str:
    return name.replace("_", " ").strip().capitalize()


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | bytes | list | tuple | dict | set | frozenset) and not value)


def _item(marker: str, text: str) -> str:
    return marker + text.replace("\n", "\n" + " " * len(marker))


# ---------------------------------------------------------------------- plan
def _plan(plan: Iterable[Any]) -> tuple[list[str], str]:
    """Items with a box each, and how far the plan is."""
    entries = [_entry(item) for item in plan]
    known = [done for done, _ in entries if done is not None]
    boxes = {True: "- [x] ", False: "- [ ] ", None: "- "}
    progress = f" ({sum(known)} of {len(entries)} done)" if known else ""
    return [_item(boxes[done], text) for done, text in entries], progress


def _entry(item: Any) -> tuple[bool | None, str]:
    """Whether an item of the plan is done (None: it does not say), and its text."""
    parts = _fields(item)
    if parts is None:
        return None, block(item)
    parts = dict(parts)
    done, note = None, ""
    if isinstance(parts.get("done"), bool):
        done = parts.pop("done")
    status = parts.get("status")
    if isinstance(status, str | enum.Enum):
        del parts["status"]
        word = inline(status).lower().replace("_", " ")
        done = word in _DONE if done is None else done
        note = "" if word in _DONE or word in _OPEN else f" ({escape(inline(status))})"
    title = next((key for key in _TITLES if isinstance(parts.get(key), str) and parts[key]), None)
    if title is None:
        return done, block(parts) + note if parts else note.strip() or "(empty)"
    text = block(parts.pop(title)) + note
    rest = {key: value for key, value in parts.items() if not _is_empty(value)}
    return done, f"{text}\n{block(rest)}" if rest else text


# ---------------------------------------------------------------------- values
def block(value: Any) -> str:
    """A value as lines of Markdown: text is itself, but for what looks like a heading or a fence; fields are lines."""
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return escape(str.__str__(value))
    parts = _fields(value)
    if parts:
        return "\n".join(_item(f"{escape(inline(key))}: ", _line(part)) for key, part in parts.items())
    if isinstance(value, list | tuple) and value:
        return "\n".join(_item("- ", block(part)) for part in value)
    return escape(inline(value))


def _line(value: Any) -> str:
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return escape(str.__str__(value))
    return escape(inline(value))


def escape(text: str) -> str:
    """`text` with a backslash before what would be a heading or open a fence, without blank lines around it.

    All line breaks become newlines. A first line that is empty would make a heading of the line above: `- ` underlines.
    """
    lines = text.splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    return "\n".join(map(_escape_line, lines[first:])) or "(empty)"


def _escape_line(line: str) -> str:
    rest = line.lstrip(_MARKERS)
    bare = line.strip(_SPACES + ">")
    if rest and _opens(rest):
        at = len(line) - len(rest)
    elif bare and not (bare.strip("=") and bare.strip("-")):  # would make a heading of the line above
        at = line.index(bare[0])
    else:
        return line
    return f"{line[:at]}\\{line[at:]}"


def _fields(value: Any) -> dict[Any, Any] | None:
    """What a dict, model or dataclass holds, by field; None for anything else."""
    if isinstance(value, dict):
        return value
    if isinstance(value, BaseModel):
        own = value.__dict__
        return {name: own[name] for name in type(value).model_fields if name in own} | (value.__pydantic_extra__ or {})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: getattr(value, field.name) for field in dataclasses.fields(value) if hasattr(value, field.name)
        }
    return None


def inline(value: Any, depth: int = 0) -> str:
    """A value in one line. The same in every process."""
    if depth > _MAX_DEPTH:
        return "…"
    for kinds, form in _FORMS:
        if isinstance(value, kinds):
            return form(value, depth)
    parts = _fields(value)
    if parts is not None:
        return _mapping(parts, depth)
    return _unknown(value)


def _sequence(value: Iterable[Any], depth: int) -> str:
    return f"[{', '.join(inline(part, depth + 1) for part in value)}]"


def _set(value: Iterable[Any], depth: int) -> str:
    return f"{{{', '.join(sorted(inline(part, depth + 1) for part in value))}}}"


def _mapping(value: Mapping[Any, Any], depth: int) -> str:
    return f"{{{', '.join(f'{inline(key, depth + 1)}: {inline(part, depth + 1)}' for key, part in value.items())}}}"


def _enum(value: enum.Enum, depth: int) -> str:
    return inline(value.value, depth) if isinstance(value.value, str | int | float) else value.name


def _unknown(value: Any) -> str:
    """A value of another library: its size, or its stored form, which is canonical. Its repr may hold an address."""
    kind, shape = type(value), getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and all(isinstance(size, int) for size in shape):
        return f"{kind.__name__} of {' x '.join(map(str, shape))}"
    if kind.__module__ == "numpy" and hasattr(value, "item") and not isinstance(item := value.item(), kind):
        return inline(item, _MAX_DEPTH)
    try:
        text = values.encode(value).text
    except ResumableError:
        return kind.__name__
    return f"{kind.__name__} {text if len(text) <= _MAX_UNKNOWN else text[: _MAX_UNKNOWN - 1] + '…'}"


_FORMS: tuple[tuple[Any, Callable[[Any, int], str]], ...] = (
    (enum.Enum, _enum),
    (bool, lambda value, _: "yes" if value else "no"),
    (str, lambda value, _: str.__str__(value)),
    (int, lambda value, _: int.__repr__(value)),
    (float, lambda value, _: float.__repr__(value)),
    (type(None), lambda _value, _depth: "none"),
    ((bytes, bytearray), lambda value, _: f"{len(value)} bytes"),
    ((dt.datetime, dt.date, dt.time), lambda value, _: value.isoformat()),
    (dt.timedelta, lambda value, _: str(value)),
    ((set, frozenset), _set),
    ((list, tuple, deque), _sequence),
    ((Decimal, Fraction, UUID, PurePath, range, complex), lambda value, _: str(value)),
)
