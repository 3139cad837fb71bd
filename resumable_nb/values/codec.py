"""What the modules of this package share: trees, paths into a value, and the form of a codec."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from resumable_nb.values.secrets import redact_text

if TYPE_CHECKING:
    from resumable_nb.values.reader import Reader
    from resumable_nb.values.writer import Writer

Node = Any
"""A JSON tree: None, bool, int, finite float, str, list of trees, dict of str to trees."""
Path = tuple[Any, str, object]
"""Where in a value: (path of the container or None, how the last part is shown, the last part)."""
_dumps = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")).encode


class Codec(NamedTuple):
    """How the values of one type are written.

    Attributes:
        tag: the `$type` of the node.
        write: called with (writer, value, node, path); fills the node, which has its `$type` already.
        shared: the values are mutable, so two names for one of them must come back as one.
    """

    tag: str
    write: Callable[[Writer, Any, dict[str, Any], Path], None]
    shared: bool = False


Read = Callable[["Reader", dict[str, Any]], object]


def dump(tree: Node) -> str:
    """A tree as the text that is stored."""
    return _dumps(tree)


def containers(tree: Node) -> Iterator[Any]:
    """Every list and dict of a tree in the order of the text. `{"$ref": n}` means the n-th of them."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if type(node) is dict:
            yield node
            stack.extend(reversed(node.values()))
        elif type(node) is list:
            yield node
            stack.extend(reversed(node))


def root(name: str) -> Path:
    """The path of a whole value."""
    return (None, "%s", name)


def at_index(path: Path, index: int) -> Path:
    """The path of an item by its number."""
    return (path, "[%s]", index)


def at_key(path: Path, key: object) -> Path:
    """The path of an item by its key."""
    return (path, "[%s]", key)


def at_field(path: Path, name: str) -> Path:
    """The path of an attribute."""
    return (path, ".%s", name)


def first_key(path: Path) -> object:
    """The first key below the root."""
    container, _form, part = path
    return part if container is None or container[0] is None else first_key(container)


def _shown(form: str, part: object) -> object:
    if type(part) is str:
        return repr(part[:60]) if form == "[%s]" else part
    return part if part is None or type(part) in (int, float, bool) else f"<{type(part).__qualname__}>"


def render(path: Path) -> str:
    """A path as a person reads it, such as `names['cfg'][0].name`. A key that is a credential is not shown."""
    parts: list[str] = []
    step: Path | None = path
    while step is not None:
        step, form, part = step
        parts.append(form % (_shown(form, part),))
    if len(parts) > 12:
        parts[6:-6] = [" … "]
    return redact_text("".join(reversed(parts)))
