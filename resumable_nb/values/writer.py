"""The walk from a value to a JSON tree: aliases, paths, blobs, limits.

A tree holds only None, bool, int, finite float, str, list and str-keyed dict. What a type looks like in it is said by
the codecs in `plain`, `classes`, `arrays` and `frames`.
"""

from __future__ import annotations

import base64
import hashlib
import math
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import NoneType
from typing import Any, is_typeddict

from resumable_nb.errors import ValueNotStorable
from resumable_nb.values import classes, plain
from resumable_nb.values.codec import Codec, Node, Path, at_index, containers, render
from resumable_nb.values.secrets import WHY, contains_secret, environment_secrets, is_credential_item

MAX_DEPTH = 100
"""Levels of containers and objects. A level takes up to six frames of Python, of which there are 1,000 by default; what
was stored must be loadable where the caller has used some hundred of them."""
DEFAULT_LIMIT_BYTES = 512 << 20
_CIRCLE = "a set, key or frame holds an object that contains it"
INLINE_BYTES = 256
"""Binary content from this size on goes to a blob."""
MAX_INT_BITS = 2048
"""Python reads no decimal beyond 4,300 digits (640, if so configured)."""

UNREADABLE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, OSError)
"""What an object may raise that is half made, closed, or of a newer version of its library."""
_LEAVES = {str, bool, NoneType, int, float}


class Shared:
    """What a writer remembers of one mutable object, so that it is written once."""

    __slots__ = ("index", "is_open", "node", "value")

    def __init__(self, value: object, node: Any, index: int) -> None:
        self.value = value  # held, or its id could be given to another object
        self.node, self.index, self.is_open = node, index, True


class Writer:
    """One document in the making.

    Args:
        other: asked for a stand-in for what is not storable.
        limit_bytes: the most that text and blobs may take.
        strict: look into every single text. Slower; done when the text as a whole showed that something is wrong.
    """

    def __init__(
        self,
        *,
        other: Callable[[object, str], object] | None = None,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        strict: bool = False,
    ) -> None:
        self.blobs: dict[str, bytes] = {}
        self.strict, self.limit_bytes = strict, limit_bytes
        self.shared: dict[int, Shared] = {}
        self.secrets = environment_secrets()
        self.size = 0
        self._other, self._depth = other, 0
        self._refs: list[tuple[dict[str, Any], Any]] = []
        self._sealed_from = 0
        self._outer: Writer | None = None
        self._codecs: dict[type, Codec | None] = {}
        self._memory: dict[int, tuple[object, list[tuple[Any, Path]]]] = {}

    def node(self, value: Any, path: Path) -> Node:
        """The tree of `value`."""
        kind = type(value)
        if kind in _LEAVES:
            return self._leaf(value, path)
        entry = self.shared.get(id(value))
        if entry is not None and entry.value is value:
            return self._ref(entry, path)
        if self._outer is not None and self._outer.is_open(value):
            raise ValueNotStorable(render(path), _CIRCLE)
        depth = self._depth
        if depth >= MAX_DEPTH:
            raise PastLimit(render(path), f"it is nested more than {MAX_DEPTH} levels deep")
        self._depth, known = depth + 1, len(self.shared)
        self.grow(16, path)
        try:
            return self._container(value, kind, path)
        except ValueNotStorable as error:
            reason = error
        except UNREADABLE as error:
            reason = ValueNotStorable(render(path), f"it cannot be read ({type(error).__name__})")
        finally:
            self._depth = depth
        while len(self.shared) > known:  # what was begun is in no tree: nothing may refer to it
            self.shared.popitem()
        return self._stand_in(value, path, reason)

    def _container(self, value: Any, kind: type, path: Path) -> Node:
        if kind is list:
            entry = self.share(value, value if self._is_leaves(value) else [])
            if entry.node is not value:
                entry.node.extend([self.node(item, at_index(path, i)) for i, item in enumerate(value)])
        elif kind is dict:
            entry = self.share(value, {})
            plain.write_dict(self, value, entry.node, path)
        else:
            codec = plain.CODECS.get(kind) or self._codec(kind)
            if codec is None:
                raise ValueNotStorable(render(path), f"{_describe(kind)} has no exact form without pickle")
            node: dict[str, Any] = {"$type": codec.tag}
            if not codec.shared:
                codec.write(self, value, node, path)
                return node
            entry = self.share(value, node)
            codec.write(self, value, node, path)
        entry.is_open = False
        return entry.node

    def _codec(self, kind: type) -> Codec | None:
        if kind not in self._codecs:
            self._codecs[kind] = _codec_of_library(kind) or classes.codec(kind)
        return self._codecs[kind]

    def _leaf(self, value: Any, path: Path) -> Node:
        kind = type(value)
        if kind is float:
            return value if math.isfinite(value) else {"$type": "float", "value": repr(value)}
        if kind is int and value.bit_length() > MAX_INT_BITS:
            self.grow(value.bit_length() // 4, path)
            return {"$type": "int", "value": hex(value)}
        if kind is str and self.strict:
            return self._checked(value, path)
        return value

    def _checked(self, text: str, path: Path) -> Node:
        encoded = text.encode("utf-8", "surrogatepass")
        if contains_secret(encoded, self.secrets):
            return self._stand_in(text, path, ValueNotStorable(render(path), WHY))
        try:
            text.encode()
        except UnicodeEncodeError:  # half a surrogate pair is no JSON
            return {"$type": "str"} | self.binary(encoded, path)
        return text

    def _is_leaves(self, value: list[Any]) -> bool:
        """Whether all items stand for themselves, so that the list can be dumped as it is."""
        if self.strict:
            return False
        for item in value:
            kind = type(item)
            if kind is str or item is None or kind is bool:
                continue
            if kind is int:
                if item.bit_length() > MAX_INT_BITS:
                    return False
            elif kind is not float or not math.isfinite(item):
                return False
        return True

    def share(self, value: object, node: Any) -> Shared:
        """Remember a mutable object before its parts are written, so that a cycle ends."""
        entry = self.shared[id(value)] = Shared(value, node, len(self.shared))
        return entry

    def _ref(self, entry: Shared, path: Path) -> Node:
        if entry.is_open and entry.index < self._sealed_from:
            raise ValueNotStorable(render(path), _CIRCLE)
        self._refs.append((ref := {"$ref": 0}, entry.node))
        return ref

    def sealed(self, value: Any, path: Path) -> Node:
        """The tree of a part that must be whole before its container can be made: set items, keys, frames."""
        with self.sealing():
            return self.node(value, path)

    @contextmanager
    def sealing(self) -> Iterator[None]:
        """While this is open, nothing may refer to the objects that are being written."""
        before, self._sealed_from = self._sealed_from, len(self.shared)
        try:
            yield
        finally:
            self._sealed_from = before

    def item(self, name: str, value: Any, path: Path) -> Node:
        """The tree of what stands under a text key or field, refused if its name says that it is a credential."""
        if is_credential_item(name, value):
            return self._stand_in(value, path, ValueNotStorable(render(path), WHY))
        return self.node(value, path)

    def scratch(self) -> Writer:
        """A writer for parts whose order is not known yet. It shares nothing with this one but blobs and limits."""
        other = Writer(other=self._other, limit_bytes=self.limit_bytes - self.size, strict=self.strict)
        other.blobs, other.secrets = self.blobs, self.secrets
        other._depth, other._outer = self._depth, self
        return other

    def is_open(self, value: object) -> bool:
        """Whether `value` is an object that is just being written, here or by the writer that this one drafts for."""
        entry = self.shared.get(id(value))
        if entry is not None and entry.value is value:
            return entry.is_open
        return self._outer is not None and self._outer.is_open(value)

    def items(self, values: list[Any], path: Path) -> list[Any]:
        """The trees of items that stand in a list of the codec's own making."""
        if self._is_leaves(values):
            return values
        return [self.node(item, at_index(path, i)) for i, item in enumerate(values)]

    def claim(self, owner: object, part: Any, path: Path, *, overlaps: Callable[[Any, Any], bool]) -> None:
        """Note that `part` shows the memory of `owner`, and refuse it if a part before shows the same bytes."""
        known = self._memory.setdefault(id(owner), (owner, []))[1]
        for other, other_path in known:
            if overlaps(part, other):
                self.overlap(path, other_path)
        known.append((part, path))

    def overlap(self, path: Path, earlier: Path) -> None:
        """Refuse an array that shows bytes which an array before shows as well: they would become two."""
        raise ValueNotStorable(
            render(path), f"it shares memory with {render(earlier)}, of which it would become a copy"
        )

    def binary(self, content: bytes, path: Path, *, may_be_text: bool = True) -> dict[str, Any]:
        """Fields that hold `content`: in place if it is small, else by its hash, the bytes going to `blobs`."""
        if may_be_text and contains_secret(content, self.secrets):
            raise ValueNotStorable(render(path), WHY)
        self.grow(len(content), path)
        if len(content) < INLINE_BYTES:
            return {"base64": base64.b64encode(content).decode("ascii")}
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"sha256": digest, "size": len(content)}

    def grow(self, size_bytes: int, path: Path) -> None:
        """Count what is about to be written, against the limit."""
        self.check_room(size_bytes, path)
        self.size += size_bytes

    def check_room(self, size_bytes: int, path: Path) -> None:
        """Raises ValueNotStorable if so much more would pass the limit."""
        if self.size + size_bytes > self.limit_bytes:
            raise PastLimit(render(path), too_large(self.size + size_bytes, self.limit_bytes))

    def _stand_in(self, value: object, path: Path, error: ValueNotStorable) -> Node:
        if self._other is None:
            raise error
        return {"$other": self._other(value, render(path))}

    def number_refs(self, tree: Node) -> None:
        """Fill in what the refs of a finished tree mean."""
        if self._refs:
            numbers = dict(zip(map(id, containers(tree)), count(), strict=False))
            for ref, target in self._refs:
                ref["$ref"] = numbers.get(id(target), -1)  # -1: the ref itself is in a part that was dropped


class PastLimit(Exception):
    """The value is too large or too deep. No stand-in can be given, as it would hide what differs; so this passes
    through the walk, and whoever began it raises ValueNotStorable.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path, self.why = path, why


TOO_DEEP = "it is nested more deeply than the stack allows"


def changed(error: RuntimeError) -> str:
    """Why a value is refused over which an iteration failed ("dictionary changed size during iteration")."""
    return f"it changed while it was being stored ({error})"


def too_large(size_bytes: int, limit_bytes: int) -> str:
    """Why a value of this size is refused."""
    return f"it takes {size_bytes / (1 << 20):,.1f} MiB or more, and the limit is {limit_bytes / (1 << 20):,.1f} MiB"


def _describe(kind: type) -> str:
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"a value of type {name}"


def has_no_form(kind: type) -> bool:
    """Whether no instance of a class, or of one derived from it, can be stored, as far as that is known beforehand."""
    if kind in _LEAVES | {list, dict, object, Any} or kind in plain.CODECS or isinstance(kind, ABCMeta):
        return False  # of abstract classes anything may be an instance
    if is_typeddict(kind) or _codec_of_library(kind) is not None:
        return False
    if classes.codec(kind) is not None:
        return "<locals>" in kind.__qualname__
    return all(map(has_no_form, type.__subclasses__(kind)))


def _codec_of_library(kind: type) -> Codec | None:
    """Look in the codecs of numpy and pandas, which are imported only once a value of theirs comes."""
    library = (kind.__module__ or "").partition(".")[0]
    if library == "numpy" and "numpy" in sys.modules:
        from resumable_nb.values import arrays  # imports numpy

        return arrays.codec(kind)
    if library == "pandas" and "pandas" in sys.modules:
        from resumable_nb.values import frames  # imports pandas

        return frames.codec(kind)
    return None
