"""Short texts for messages. No code of the value's class runs, and no credential is shown."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from resumable_nb.fingerprint.instances import state_of
from resumable_nb.values import secrets

LIMIT = 60
_TIMES = "\N{MULTIPLICATION SIGN}"
CREDENTIAL = "(a credential)"
_SHOWN_AS_IT_IS = frozenset({int, float, complex, bool, type(None), type(...), type(NotImplemented), range, slice})
_BRACKETS: dict[type, Sequence[str]] = {list: "[]", tuple: "()", set: "{}", frozenset: ("frozenset({", "})")}


def summary(value: object, name: str = "") -> str:
    """What a message shows of a value, at most 60 characters: `3`, `[1, 2]`, `DataFrame 2x2`, `lock object`."""
    if secrets.is_credential_item(name, value):
        return CREDENTIAL
    try:
        text = _short(value, LIMIT)
    except Exception:  # noqa: BLE001  # a type that lies about itself must not break a message
        text = f"{type(value).__name__} object"
    return cut(text)


def cut(text: str, limit: int = LIMIT) -> str:
    """The beginning of a text in one line, with an ellipsis if it is longer."""
    text = "".join(c if c.isprintable() else " " for c in text[: 4 * limit])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _short(value: Any, room: int) -> str:
    kind = type(value)
    if kind in weakref.ProxyTypes:  # what it stands for may be gone
        return f"{kind.__name__} object"
    if kind in _SHOWN_AS_IT_IS:
        return repr(value) if kind is not int or value.bit_length() < 512 else f"int of {value.bit_length()} bits"
    if kind is str:
        return _text(value, room)
    if kind in (bytes, bytearray):
        return f"{kind.__name__}, {len(value):,} long" if len(value) > 20 else _text(value, room)
    if kind is dict:
        return "{" + _joined((_pair(k, v, room) for k, v in value.items()), len(value), room) + "}"
    if kind in _BRACKETS:
        return _sequence(value, room)
    return _code(value, room) or _object(value, room)


def _code(value: Any, room: int) -> str:
    if isinstance(value, type):
        return f"class {value.__qualname__}"
    if isinstance(value, FunctionType | BuiltinFunctionType | MethodType):
        return "a lambda" if value.__name__ == "<lambda>" else f"function {value.__qualname__}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, functools.partial):
        return f"partial of {_short(value.func, room)}"
    return ""


def _text(value: Any, room: int) -> str:
    start = value[:2000]
    if isinstance(start, str):
        if (shown := secrets.redact_text(start)) != start:
            return CREDENTIAL
        return cut(repr(shown[:room]), room - 1) if len(value) <= room else repr(shown[: room - 4])[:-1] + "…'"
    return CREDENTIAL if secrets.contains_secret(bytes(start)) else repr(value)


def _sequence(value: Any, room: int) -> str:
    opening, closing = _BRACKETS[type(value)]
    if not value and isinstance(value, set | frozenset):
        return f"{type(value).__name__}()"
    parts: Iterator[str] = (_short(item, room // 2) for item in value)
    if isinstance(value, set | frozenset):  # its own order depends on the hash seed
        parts = iter(sorted(parts)) if len(value) <= 1000 else iter([f"{len(value):,} elements"])
    comma = "," if type(value) is tuple and len(value) == 1 else ""
    return opening + _joined(parts, len(value), room) + comma + closing


def _pair(key: object, value: object, room: int) -> str:
    hidden = secrets.is_credential_item(key if isinstance(key, str) else "", value)
    return f"{_short(key, room // 3)}: {CREDENTIAL if hidden else _short(value, room // 2)}"


def _joined(parts: Iterable[str], count: int, room: int) -> str:
    more = f"… {count:,} in all"
    shown: list[str] = []
    for part in itertools.islice(parts, 20):
        if sum(map(len, shown)) + 2 * len(shown) + len(part) + len(more) + 4 > room and count > 1:
            break
        shown.append(part)
    if len(shown) < count and not (shown and shown[-1].endswith(" elements")):
        shown.append(more if shown else f"{count:,} elements")
    return ", ".join(shown)


def _object(value: Any, room: int) -> str:
    kind = type(value)
    if (shape := _shape(value)) is not None:
        return shape
    name = kind.__name__
    library = (kind.__module__ or "").partition(".")[0]
    if library in ("datetime", "decimal", "fractions", "uuid", "pathlib", "zoneinfo"):
        return _text(str(value), room)[1:-1]
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return _fields(name, dict(zip(kind._fields, value, strict=False)), room)
    if is_dataclass(value):
        state = state_of(value)
        return _fields(name, {f.name: state[f.name] for f in fields(value) if f.name in state}, room)
    if hasattr(kind, "model_fields"):
        return _fields(name, state_of(value), room)
    if hasattr(kind, "__members__"):
        return f"{name}.{value._name_}"
    return f"{name} object"


def _fields(name: str, values: Mapping[str, object], room: int) -> str:
    def shown() -> Iterable[str]:
        for field, value in values.items():
            hidden = secrets.is_credential_item(field, value)
            yield f"{field}={CREDENTIAL if hidden else _short(value, room // 2)}"

    named = {field: value for field, value in values.items() if not field.startswith("__")}
    values = named
    return f"{name}({_joined(shown(), len(named), room - len(name))})"


def _shape(value: Any) -> str | None:
    kind = type(value)
    library = (kind.__module__ or "").partition(".")[0]
    if library == "pandas":
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            return f"{kind.__name__} {_TIMES.join(map(str, shape))}"
        return cut(str(value))
    if library == "numpy":
        if hasattr(value, "shape") and value.shape != ():
            return f"{kind.__name__} {_TIMES.join(map(str, value.shape))} {value.dtype}"
        return f"{value.dtype}({value})" if hasattr(value, "dtype") else cut(str(value))
    return None
