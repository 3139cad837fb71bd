"""What can be said to differ between two values, kept small: columns, keys, fields and lengths, without the content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from resumable_nb.fingerprint.summaries import cut
from resumable_nb.values import secrets

_LONG_TEXT = 1 << 20
_SHOWN = 30


def short_hash(text: str) -> str:
    """What stands for content that is not shown."""
    return "#" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def parts_of(value: Any, text: str) -> dict[str, str]:
    """Label → short text, or a hash that begins with "#", of a value and its encoded text."""
    if isinstance(value, str | bytes | bytearray | list | tuple | set | frozenset | dict):
        found = {"length": str(len(value))}
    else:
        found = {}
    if len(text) > _LONG_TEXT or text[:1] not in "[{":
        return found
    return found | dict(_parts(value, json.loads(text)))


def _parts(value: Any, tree: Any) -> Iterator[tuple[str, str]]:
    if isinstance(tree, list):
        yield from ((f"[{n}]", _shown(node)) for n, node in enumerate(tree[:64]))
        return
    match tree.get("$type"):
        case "DataFrame" | "Series" if secrets.contains_secret(_names(value).encode("utf-8", "surrogatepass")):
            return
        case "DataFrame":
            yield from _frame(value, tree)
        case "Series":
            yield "name", cut(str(value.name), _SHOWN)
            yield "dtype", str(value.dtype)
            yield "index", _shown(tree.get("index"))
            yield "values", _shown(tree.get("values"))
        case "ndarray":
            yield "dtype", str(value.dtype)
            yield "shape", str(value.shape)
            yield "values", _shown(tree)
        case None:
            yield from ((f"[{cut(key, _SHOWN)!r}]", _shown(node)) for key, node in tree.items())
        case "tuple" | "set" | "frozenset" | "deque" if isinstance(tree.get("items"), list):
            labels = ("[{}]" if isinstance(value, tuple) else "element {}").format
            yield from ((labels(n), _shown(node)) for n, node in enumerate(tree["items"][:64]))
        case _:
            yield from ((f".{name}", _shown(node)) for name, node in tree.items() if not name.startswith("$"))


def _names(value: Any) -> str:
    """The names in a frame or series, which are shown."""
    columns = list(getattr(value, "columns", ())) + list(getattr(value, "columns", value.index).names)
    return "\n".join(str(name) for name in [*columns, *value.index.names, getattr(value, "name", None)])


def _frame(frame: Any, tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    names = [str(name) for name in frame.columns]
    yield "columns", cut(", ".join(sorted(names)))
    yield "column order", cut(", ".join(names))
    yield "rows", str(len(frame))
    index = dict(tree["index"])
    yield "index name", ", ".join(str(name) for name in frame.index.names)
    yield "index", _shown({key: node for key, node in index.items() if key not in ("name", "names")})
    yield "names of the columns' levels", ", ".join(str(name) for name in frame.columns.names)
    columns = tree.get("values")
    for n, dtype in enumerate(frame.dtypes[:24]):
        label = names[n] if names.count(names[n]) == 1 else f"column {n}"
        yield f"dtype of {label}", str(dtype)
        if isinstance(columns, list) and n < len(columns):
            yield f"values of {label}", _shown(columns[n])
    yield "attributes", _shown(tree.get("attrs"))


def _shown(node: Any) -> str:
    """A number or short text as it is; a hash of all else."""
    text = json.dumps(node, ensure_ascii=False)
    if node is None or isinstance(node, bool | int | float) or (isinstance(node, str) and len(text) <= _SHOWN):
        return text if len(text) <= _SHOWN and not text.startswith("#") else short_hash(text)
    return short_hash(text)
