"""The stored form of a state at one moment: field → JSON text. Immutable, and cheap to derive from another."""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from resumable_nb.errors import StateError

_EMPTY_CHAIN = hashlib.sha256(b"list").digest()
_buffers = threading.Lock()
_decode = json.JSONDecoder().raw_decode
_quote = json.JSONEncoder(ensure_ascii=False).encode
_spaces = re.compile(r"[ \t\r\n]*").match


def common(one: Sequence[Any], other: Sequence[Any], same: Callable[[Any, Any], bool]) -> tuple[int, int]:
    """How many elements two sequences have in common at the beginning and, of the rest, at the end."""
    head = sum(itertools.takewhile(bool, map(same, one, other)))
    tail = sum(itertools.takewhile(bool, map(same, reversed(one), reversed(other))))
    return head, min(tail, min(len(one), len(other)) - head)


class Text:
    """A field that is no list: one JSON text."""

    __slots__ = ("_digest", "json")

    def __init__(self, text: str) -> None:
        self.json = text
        self._digest = b""

    @property
    def digest(self) -> bytes:
        """Of the text."""
        if not self._digest:
            self._digest = hashlib.sha256(b"value" + _bytes(self.json)).digest()
        return self._digest


class Items:
    """A list field: one JSON text per element, each a document of its own, under a hash chain.

    Lists that grow from each other share one buffer and know their own length: appending costs what is appended.
    """

    __slots__ = ("_buffer", "count", "digest")

    def __init__(self, texts: Iterable[str] = (), after: Items | None = None) -> None:
        texts = list(texts)
        if after is None:
            self._buffer, self.count = texts, len(texts)
        else:
            with _buffers:
                whole = after._buffer  # noqa: SLF001  # of the same class
                self._buffer = whole if len(whole) == after.count else whole[: after.count]
                self._buffer.extend(texts)
            self.count = after.count + len(texts)
        self.digest: bytes = _chain(after.digest if after else _EMPTY_CHAIN, texts)

    def extended(self, texts: list[str]) -> Items:
        """These elements and more."""
        return Items(texts, after=self)

    def texts(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The elements from `start` on, up to `stop`."""
        return self._buffer[start : self.count if stop is None else stop]

    def begins_with(self, older: Items) -> bool:
        """Whether the elements of `older` come first in this."""
        if older.count > self.count:
            return False
        return older._buffer is self._buffer or self._buffer[: older.count] == older.texts()

    def common(self, other: Items) -> tuple[int, int]:
        """How many elements two lists have in common at the beginning and, of the rest, at the end."""
        least = min(self.count, other.count)
        if other._buffer is self._buffer:
            return least, 0
        return common(self.texts(), other.texts(), operator.eq)

    @property
    def json(self) -> str:
        """The whole list as one JSON text."""
        return f"[{','.join(self.texts())}]"


Form = Text | Items


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _chain(link: bytes, texts: Iterable[str]) -> bytes:
    """Extend the chain. A link has a fixed length, so the border between it and a text is certain."""
    for text in texts:
        link = hashlib.sha256(link + _bytes(text)).digest()
    return link


def split(text: str) -> list[str]:
    """The texts of the elements of a JSON list."""
    return _Position(text).elements()


class Image:
    """The stored form of a state at one moment.

    Two images with the same fields, texts and version have the same digest, however each came about.

    Attributes:
        schema_version: of the class that the fields belong to.
        appends: the fields known to be append lists; only for them `changes_from` writes an `append`.
        blobs: sha256 → bytes of large values whose rows may not be in the store yet.
    """

    __slots__ = ("_digest", "_forms", "appends", "blobs", "schema_version")

    EMPTY: ClassVar[Image]

    def __init__(
        self,
        forms: Mapping[str, Form],
        *,
        schema_version: int = 1,
        appends: frozenset[str] = frozenset(),
        blobs: Mapping[str, bytes] | None = None,
    ) -> None:
        self._forms = dict(forms)
        self.schema_version, self.appends = schema_version, appends
        self.blobs = dict(blobs or {})
        self._digest = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the stored fields."""
        return tuple(self._forms)

    @property
    def forms(self) -> dict[str, Form]:
        """The stored fields, as a copy."""
        return dict(self._forms)

    def differing(self, other: Image) -> list[str]:
        """Fields that two images have not in common, or that differ in them; sorted."""

        def text(image: Image, name: str) -> str | None:
            return image.json(name) if name in image.fields else None

        return sorted(f for f in {*self.fields, *other.fields} if text(self, f) != text(other, f))

    def json(self, field: str) -> str:
        """The JSON text of a stored field. Raises KeyError for another."""
        return self._forms[field].json

    @property
    def digest(self) -> str:
        """sha256 (hex) over the stored fields, and over the version if it is not 1."""
        if not self._digest:
            whole = hashlib.sha256(b"" if self.schema_version == 1 else b"version %d" % self.schema_version)
            for name in sorted(self._forms):
                whole.update(hashlib.sha256(_bytes(name)).digest() + self._forms[name].digest)
            self._digest = whole.hexdigest()
        return self._digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Image) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Image {self.digest[:12]} of {', '.join(self._forms) or 'nothing'}>"

    def apply(self, changes: str) -> Image:
        """The image after one row's changes: `{"version": n, "set": {…}, "append": {…}, "drop": {…}}`.

        The texts of values and elements are taken over byte for byte.

        Raises:
            StateError: The text does not have this form.
        """
        try:
            parts = _read(changes)
        except (ValueError, IndexError, RecursionError) as error:
            why = "they are nested too deeply" if isinstance(error, RecursionError) else error
            raise StateError(f"Recorded changes of the state cannot be read ({why}): {changes[:80]!r}") from error
        forms = self._forms | parts.set
        for name, texts in parts.append.items():
            before = forms.get(name)
            if isinstance(before, Text):
                raise StateError(f"Recorded changes append to `{name}`, which is no list: {changes[:80]!r}")
            forms[name] = before.extended(texts) if before else Items(texts)
        for name in parts.drop:
            forms.pop(name, None)
        return Image(
            forms,
            schema_version=self.schema_version if parts.version is None else parts.version,
            appends=self.appends.union(parts.append),
            blobs=self.blobs,
        )

    def changes_from(self, older: Image) -> str | None:
        """The least changes that lead from `older` to this, as JSON text; None if there are none."""
        settings, appends = [], []
        for name, form in self._forms.items():
            before = older._forms.get(name)
            if before is form or (before is not None and before.digest == form.digest):
                continue
            if (
                name in self.appends
                and isinstance(form, Items)
                and isinstance(before, Items)
                and form.begins_with(before)
            ):
                appends.append(_member(name, f"[{','.join(form.texts(before.count))}]"))
            else:
                settings.append(_member(name, form.json))
        drops = [_member(name, "true") for name in older._forms if name not in self._forms]
        parts = [] if self.schema_version == older.schema_version else [f'"version":{self.schema_version}']
        for part, members in (("set", settings), ("append", appends), ("drop", drops)):
            if members:
                parts.append(f'"{part}":{{{",".join(members)}}}')
        return f"{{{','.join(parts)}}}" if parts else None


Image.EMPTY = Image({})


def _member(name: str, text: str) -> str:
    return f"{_quote(name)}:{text}"


class _Changes:
    """The parts of a row's changes. Values stay the texts that they are: only their ends are looked for."""

    def __init__(self) -> None:
        self.set: dict[str, Form] = {}
        self.append: dict[str, list[str]] = {}
        self.drop: list[str] = []
        self.version: int | None = None


def _read(text: str) -> _Changes:
    parts, at = _Changes(), _Position(text)
    for part in at.members():
        if part == "set":
            parts.set.update({name: at.form() for name in at.members()})
        elif part == "append":
            for name in at.members():
                parts.append.setdefault(name, []).extend(at.elements())
        elif part == "drop":
            parts.drop.extend(name for name in at.members() if at.value())
        elif part == "version":
            parts.version = at.number()
        else:
            raise ValueError(f"unknown part {part!r}")
    at.end()
    return parts


class _Position:
    """A place in a JSON text that moves on as parts of it are read."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self._skip()

    def _skip(self) -> str:
        """Move to the next character that is no space, and return it."""
        if self.text[self.at : self.at + 1] in " \t\r\n":
            self.at = _spaces(self.text, self.at).end()  # type: ignore[union-attr]  # matches always
        return self.text[self.at : self.at + 1]

    def _take(self, character: str) -> None:
        if self._skip() != character:
            raise ValueError(f"expected {character!r} at {self.at}")
        self.at += 1

    def value(self) -> object:
        """The value here."""
        self._skip()
        value, self.at = _decode(self.text, self.at)
        return value

    def number(self) -> int:
        """The whole number here."""
        value = self.value()
        if type(value) is not int:
            raise ValueError(f"expected a number before {self.at}")
        return value

    def _raw(self) -> str:
        self._skip()
        start = self.at
        _, self.at = _decode(self.text, start)
        return self.text[start : self.at]

    def form(self) -> Form:
        """The text here; a list by its elements."""
        return Items(self.elements()) if self._skip() == "[" else Text(self._raw())

    def elements(self) -> list[str]:
        """The texts of the elements of the list here."""
        return [self._raw() for _ in self._parts("[", "]")]

    def members(self) -> Iterator[str]:
        """The names in the object here; the value of each must be read before the next."""
        for _ in self._parts("{", "}"):
            if self._skip() != '"':
                raise ValueError(f"expected a name at {self.at}")
            name = str(self.value())
            self._take(":")
            yield name

    def _parts(self, opening: str, closing: str) -> Iterator[None]:
        self._take(opening)
        if self._skip() == closing:
            self.at += 1
            return
        while True:
            yield
            if self._skip() == closing:
                self.at += 1
                return
            self._take(",")

    def end(self) -> None:
        if self._skip():
            raise ValueError(f"more text at {self.at}")
