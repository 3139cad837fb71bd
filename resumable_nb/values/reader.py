"""From a JSON tree back to the value. Nothing is imported or executed but what the codecs name."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from resumable_nb.errors import ResumableError, ValueNotLoadable
from resumable_nb.values import classes, plain
from resumable_nb.values.codec import containers
from resumable_nb.values.writer import Writer

if TYPE_CHECKING:
    from resumable_nb.values.codec import Read


_DIGEST = re.compile(r"[0-9a-f]{64}")


class Reader:
    """One document on its way back.

    Args:
        text: what a writer made.
        blobs: gives the bytes of a hash; KeyError if there are none.
        resolve: gives the class of (module, qualname), or None.
    """

    def __init__(
        self, text: str, blobs: Callable[[str], bytes], resolve: Callable[[str, str], type | None], *, what: str
    ) -> None:
        self.what, self._blobs, self.resolve = what, blobs, resolve
        self._from_store: Exception | None = None
        with self:
            self.tree: Any = json.loads(text, parse_constant=_refuse_constant)
        self.is_plain = '"$' not in text
        has_refs = '"$ref":' in text
        self._containers = list(containers(self.tree)) if has_refs else []
        self._shells: dict[int, object] | None = {} if has_refs else None
        self._open: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Turn whatever a damaged text leads to into one clear error; errors of ours and of the store pass."""
        if isinstance(error, RecursionError):
            raise ValueNotLoadable(f"{self.what} cannot be loaded: it is nested too deeply") from None
        if isinstance(error, Exception) and not isinstance(error, ResumableError) and error is not self._from_store:
            why = f"{type(error).__name__}: {error}"[:200]
            raise ValueNotLoadable(f"{self.what} cannot be loaded: what is stored is damaged ({why})") from error

    def load(self, node: Any) -> Any:
        """The value of a tree. Raises ValueNotLoadable."""
        if self.is_plain:
            return node
        with self:
            return self.value(node)

    def value(self, node: Any) -> Any:
        """The value of a part of the tree."""
        kind = type(node)
        if kind is list:
            return self._list(node)
        if kind is not dict:
            return node
        if "$ref" in node:
            return self._follow(node["$ref"])
        if self._shells is not None and id(node) in self._shells:
            return self._shells[id(node)]
        if "$other" in node:
            raise ValueError("it holds a stand-in for something that cannot be stored")
        if "$type" not in node:
            shell = self.built(node, {})
            shell.update({key: self.value(item) for key, item in node.items()})
            return shell
        return self._tagged(node)

    def _list(self, node: list[Any]) -> Any:
        if self._shells is None:
            return [self.value(item) for item in node]
        if id(node) in self._shells:
            return self._shells[id(node)]
        shell: list[Any] = self.built(node, [])
        shell.extend([self.value(item) for item in node])
        return shell

    def _tagged(self, node: dict[str, Any]) -> Any:
        if id(node) in self._open:
            raise ValueError("a value that has to be whole before it can be made refers to itself")
        self._open.add(id(node))
        try:
            read: Read = classes.read if "$module" in node else _reader_of(node["$type"])
            return self.built(node, read(self, node))
        finally:
            self._open.discard(id(node))

    def _follow(self, number: int) -> Any:
        target = self._containers[number]
        if self._shells is not None and id(target) in self._shells:
            return self._shells[id(target)]
        return self.value(target)

    def built(self, node: Any, shell: Any) -> Any:
        """Remember what a node has become, before its parts are read if they may refer to it."""
        if self._shells is not None:
            self._shells[id(node)] = shell
        return shell

    def binary(self, node: dict[str, Any]) -> bytes:
        """The bytes that a writer's `binary` put away."""
        if "base64" in node:
            return base64.b64decode(node["base64"], validate=True)
        digest = node["sha256"]
        if not _DIGEST.fullmatch(digest):  # before the store is asked for whatever a stranger wrote
            raise ValueError("a hash is none")
        try:
            content = self._blobs(digest)
        except KeyError:
            raise ValueNotLoadable(
                f"{self.what} cannot be loaded: its blob {digest[:12]}… is not in the store"
            ) from None
        except Exception as error:
            self._from_store = error
            raise
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueNotLoadable(f"{self.what} cannot be loaded: its blob {digest[:12]}… is damaged")
        return content

    def writer(self) -> Writer:
        """A writer, to compare what is stored with what is here."""
        return Writer()

    def fail(self, why: str) -> ValueNotLoadable:
        """The error that says what is missing; to be raised."""
        return ValueNotLoadable(f"{self.what} cannot be loaded: {why}")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _reader_of(tag: str) -> Read:
    """Builtins first; numpy and pandas are imported when a value of theirs comes."""
    if tag in plain.READERS:
        return plain.READERS[tag]
    from resumable_nb.values import arrays  # imports numpy

    if tag in arrays.READERS:
        return arrays.READERS[tag]
    from resumable_nb.values import frames  # imports pandas

    return frames.READERS[tag]
