"""Many names in one document: aliases across names are kept, and what cannot be stored is left out with the reason."""

from __future__ import annotations

import gc
import types
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from types import NoneType
from typing import TYPE_CHECKING, Any

from resumable_nb.values.codec import Node, Path, at_key, dump, first_key, render, root
from resumable_nb.values.secrets import WHY, contains_secret, is_credential_name
from resumable_nb.values.writer import DEFAULT_LIMIT_BYTES, TOO_DEEP, PastLimit, Shared, Writer, changed, too_large

if TYPE_CHECKING:
    from resumable_nb.errors import ValueNotStorable

_MAX_REACH = 100_000
"""Objects looked at behind something that cannot be stored, to find what it shares with other names."""


class NamesWriter(Writer):
    """A writer that goes on after a failure, so that all that a name reaches is known."""

    def __init__(self, *, limit_bytes: int = DEFAULT_LIMIT_BYTES, strict: bool = False) -> None:
        super().__init__(limit_bytes=limit_bytes, strict=strict)
        self.failed: dict[str, str] = {}
        self.reached: dict[str, set[int]] = {}
        self._held: list[object] = []
        self._name = ""

    def name(self, name: str, value: object) -> Node:
        """The tree of what `name` stands for; if it cannot be stored, `failed` has the reason."""
        self._name, size = name, self.size
        self.reached[name] = set()
        path = at_key(root("names"), name)
        if type(value) not in (NoneType, bool, int, float) and not is_empty(value) and is_credential_name(name):
            self.failed[name] = WHY
        try:
            return self.node(value, path)
        except PastLimit as error:
            self._fail(error.path, error.why)
        except RecursionError:
            self._fail(render(path), TOO_DEEP)
        except RuntimeError as error:
            self._fail(render(path), changed(error))
        self._depth, self.size = 0, size
        self._reach(value)
        return None

    def share(self, value: object, node: Any) -> Shared:
        """Remember a mutable object, and that this name reaches it."""
        self.reached[self._name].add(id(value))
        return super().share(value, node)

    def _ref(self, entry: Shared, path: Path) -> Node:
        self.reached[self._name].add(id(entry.value))
        return super()._ref(entry, path)

    def _stand_in(self, value: object, _path: Path, error: ValueNotStorable) -> Node:
        self._fail(error.path, error.why)
        self._reach(value)
        return None

    def overlap(self, path: Path, earlier: Path) -> None:
        """Both names fail: were one restored and the other rebuilt, they would be split."""
        other = str(first_key(earlier))
        if other != self._name:
            self.failed.setdefault(other, f"it shares memory with {self._name!r}, of which it would become a copy")
        super().overlap(path, earlier)

    def _fail(self, path: str, why: str) -> None:
        where = path.removeprefix(f"names[{self._name!r}]")
        self.failed.setdefault(self._name, f"{where}: {why}" if where else why)

    def _reach(self, value: object) -> None:
        for item in islice(reach(value), _MAX_REACH):
            self._held.append(item)
            self.reached[self._name].add(id(item))


def is_empty(value: object) -> bool:
    """Whether this is a text or a container of the builtin kinds without content."""
    return type(value) in (str, bytes, list, tuple, dict, set) and not value


def reach(value: object) -> Iterator[object]:
    """`value` and all that it holds, however deep: items, attributes, what a function has closed over, what an iterator
    goes through. Not: classes, modules, and the notebook's own namespace. No code of the user runs.
    """
    seen, queue = {id(value)}, deque([value])
    while queue:
        item = queue.popleft()
        yield item
        for part in _parts(item):
            if id(part) not in seen and not issubclass(type(part), _NOT_FOLLOWED) and not _is_namespace(part):
                seen.add(id(part))
                queue.append(part)


_NOT_FOLLOWED: tuple[type, ...] = (
    str,
    int,
    float,
    bytes,
    type(None),
    type,
    types.ModuleType,
    types.CodeType,
    *weakref.ProxyTypes,
)
"""By their own type: what a weak proxy says that it is, it asks of a thing that may be gone."""


def _parts(item: object) -> Iterator[object]:
    if type(item) is types.FunctionType:  # its globals are the notebook, or a module
        yield from item.__defaults__ or ()
        yield from (item.__kwdefaults__ or {}).values()
        yield from item.__closure__ or ()
    else:
        yield from gc.get_referents(item)


def _is_namespace(part: object) -> bool:
    return type(part) is dict and ("__builtins__" in part or "__spec__" in part)


def write_names(names: Mapping[str, object], limit_bytes: int) -> tuple[str, dict[str, bytes], dict[str, str]]:
    """Text, blobs, and the names that are left out with the reason."""
    failed: dict[str, str] = {}
    strict = False
    while True:
        writer = NamesWriter(limit_bytes=limit_bytes, strict=strict)
        tree = {name: writer.name(name, names[name]) for name in sorted(names) if name not in failed}
        new = writer.failed
        if not new:
            writer.number_refs(tree)
            texts = {name: dump(node) for name, node in tree.items()}
            if not strict and any(_is_suspect(text, writer.secrets) for text in texts.values()):
                strict = True
                continue
            new = _text_failures(texts, writer, limit_bytes)
            if not new:
                return (
                    "{" + ",".join(f"{dump(name)}:{text}" for name, text in texts.items()) + "}",
                    writer.blobs,
                    failed,
                )
        failed.update(new)
        failed.update(_linked(writer.reached, failed))


def _is_suspect(text: str, secrets: list[bytes]) -> bool:
    try:
        return contains_secret(text.encode(), secrets)
    except UnicodeEncodeError:
        return True


def _text_failures(texts: dict[str, str], writer: NamesWriter, limit_bytes: int) -> dict[str, str]:
    """What only the finished texts show: a credential that spans several parts (lines of a key file), and the size."""
    failed = {name: WHY for name, text in texts.items() if _is_suspect(text, writer.secrets)}
    size = sum(map(len, writer.blobs.values()))
    for name, text in texts.items():
        size += len(text.encode())
        if size > limit_bytes:
            failed[name] = too_large(size, limit_bytes)
            size -= len(text.encode())
    return failed


def _linked(reached: dict[str, set[int]], failed: Mapping[str, str]) -> dict[str, str]:
    """Names that share an object with one that failed: restored without it, they would be two objects."""
    owners = {item: name for name in reached if name in failed for item in reached[name]}
    linked: dict[str, str] = {}
    queue = [name for name in reached if name not in failed]
    found = True
    while found:
        found = False
        for name in queue:
            if name in linked:
                continue
            source = next((owners[item] for item in reached[name] if item in owners), None)
            if source is not None:
                linked[name] = f"it shares an object with {source!r}, which cannot be stored"
                owners.update(dict.fromkeys(reached[name], name))
                found = True
    return linked
