"""What differs between two requests, in sentences for a person; and which recorded one is nearest to a new one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

AT_MOST = 5
_WIDTH = 40
_AROUND = 12
_LONG_TEXT = 60
_MISSING = object()
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
_PLAIN_NAME = re.compile(r"[A-Za-z_$][\w$-]*")


def describe_difference(recorded: str, new: str) -> list[str]:
    """What differs from a recorded request to a new one, both as canonical JSON texts.

    Returns:
        Up to `AT_MOST` sentences such as `num_ctx 2048 → 8192`, and one that counts the rest. Empty: they are equal.
    """
    sentences = [_sentence(path, old, value) for path, old, value in _leaves(json.loads(recorded), json.loads(new), "")]
    if len(sentences) > AT_MOST:
        more = len(sentences) - AT_MOST
        return [*sentences[:AT_MOST], f"and {more} more difference{'s' if more > 1 else ''}"]
    return sentences


def nearest(new: str, candidates: Sequence[str]) -> int | None:
    """The place of the recorded request that a new one is most like, the first among equals; None: no candidate."""
    value = json.loads(new)
    scores = [_likeness(json.loads(candidate), value) for candidate in candidates]
    return scores.index(max(scores)) if scores else None


def _likeness(old: Any, new: Any) -> float:
    """Method and path first; then how much of the leaves is equal, texts by what they begin and end with."""
    same_target: int = sum(old.get(name) == new.get(name) for name in ("method", "path"))
    lost = sum(1 - _text_likeness(a, b) for _, a, b in _leaves(old, new, ""))
    return 1e6 * same_target - lost


def _text_likeness(old: Any, new: Any) -> float:
    if not isinstance(old, str) or not isinstance(new, str):
        return 0.0
    start, end = _common(old, new)
    return (start + end) / max(len(old), len(new), 1)


def _common(old: str, new: str) -> tuple[int, int]:
    """Lengths of the common start and of the common end that is left after it."""
    shortest = min(len(old), len(new))
    start = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    end = next((i for i in range(shortest - start) if old[-1 - i] != new[-1 - i]), shortest - start)
    return start, end


def _leaves(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Every place where two JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from _leaves(old.get(name, _MISSING), new.get(name, _MISSING), _below(path, name))
    elif isinstance(old, list) and isinstance(new, list):
        for place, (one, other) in enumerate(zip_longest(old, new, fillvalue=_MISSING)):
            yield from _leaves(one, other, f"{path}[{place}]")
    elif type(old) is not type(new) or old != new:
        yield path, old, new


def _below(path: str, name: str) -> str:
    if not path:
        return "" if name == "body" else name  # the body is what people wrote: its fields go by their own names
    return f"{path}.{name}" if _PLAIN_NAME.fullmatch(name) else f"{path}[{_shown(name)}]"


def _sentence(path: str, old: Any, new: Any) -> str:
    where = _CONTROL.sub(" ", path) or "the body"
    if old is _MISSING:
        return f"{where} is new: {_shown(new)}"
    if new is _MISSING:
        return f"{where} is gone, it was {_shown(old)}"
    if isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) > _LONG_TEXT:
        start, end = _common(old, new)
        return f"{where} differs at character {start}: {_part(old, start, end)} → {_part(new, start, end)}"
    return f"{where} {_shown(old)} → {_shown(new)}"


def _part(text: str, start: int, end: int) -> str:
    """The differing part of a long text, with a little around it."""
    first, last = max(start - _AROUND, 0), min(len(text) - end + _AROUND, len(text))
    cut = min(last, first + _AROUND + _WIDTH)
    return f"{'…' if first else ''}'{_clean(text[first:cut])}'{'…' if cut < len(text) else ''}"


def _shown(value: Any) -> str:
    text = f"'{_clean(value)}'" if isinstance(value, str) else _clean(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text)
