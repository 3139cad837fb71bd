"""What a field of the live state held when it was last looked at, and its stored form now."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from resumable_nb import values
from resumable_nb.errors import StateError, ValueNotLoadable, ValueNotStorable
from resumable_nb.state import schema
from resumable_nb.state.image import Form, Items, Text, common, split
from resumable_nb.state.watch import Watch
from resumable_nb.values.secrets import WHY, is_credential_item

CHUNK = 64
"""Elements that are watched together: when one of them changes, so many are encoded again."""
_REF = '"$ref":'


class Coder:
    """Values of fields to texts and back.

    Attributes:
        pending: sha256 → bytes of large values met since it was emptied.
    """

    def __init__(self, resolve: values.Resolve, blobs: values.Blobs) -> None:
        self.resolve, self.stored = resolve, blobs
        self.pending: dict[str, bytes] = {}

    def with_blobs(self, pending: Mapping[str, bytes]) -> Coder:
        """The same, with other large values at hand."""
        other = Coder(self.resolve, self.stored)
        other.pending = dict(pending)
        return other

    def blob(self, digest: str) -> bytes:
        """A large value, written or not yet written."""
        return self.pending[digest] if digest in self.pending else self.stored(digest)

    def text(self, name: str, value: object, path: str = "") -> str:
        """The stored form of one value. Raises ValueNotStorable with the field and the place in it."""
        path = path or f"state.{name}"
        if is_credential_item(name, value):
            raise ValueNotStorable(path, WHY)
        encoded = values.encode(value, path=path)
        self.pending.update(encoded.blobs)
        return encoded.text

    def texts(self, name: str, elements: Sequence[object], places: Sequence[int]) -> list[str]:
        """The stored forms of elements, each a document of its own; `places` are their indexes, for messages."""
        if len(elements) > 1:
            try:
                whole = self.text(name, list(elements))
            except ValueNotStorable:
                whole = _REF  # one by one, to name the one
            if _REF not in whole:
                return split(whole)
        return [self.text(name, e, f"state.{name}[{i}]") for e, i in zip(elements, places, strict=True)]

    def value(self, name: str, form: Form) -> object:
        """The value of a stored form, a new object. Raises ValueNotLoadable."""
        if isinstance(form, Items):
            return self.elements(name, form)
        return values.decode(form.json, self.blob, self.resolve, what=f"state.{name}")

    def elements(self, name: str, items: Items, start: int = 0, stop: int | None = None) -> list[object]:
        """The elements of a list from `start` up to `stop`, new objects. Raises ValueNotLoadable."""
        texts = items.texts(start, stop)
        whole = f"[{','.join(texts)}]"
        if _REF not in whole:
            try:
                decoded: Any = values.decode(whole, self.blob, self.resolve, what=f"state.{name}")
            except ValueNotLoadable:
                decoded = None  # one by one, to name the one
            if type(decoded) is list:
                return decoded
        place = f"state.{name}[%d]"
        return [values.decode(t, self.blob, self.resolve, what=place % i) for i, t in enumerate(texts, start)]

    def compared(self, name: str, value: object, path: str = "") -> str:
        """The stored form of a value for comparison only: its large values are not kept."""
        kept = self.pending.copy()
        try:
            return self.text(name, value, path)
        finally:
            self.pending = kept


class TextTrack:
    """A field whose value is no list.

    Attributes:
        form: the stored form of the value when it was last looked at.
        is_kept: whether it is still the object that was there at the last `mark`.
    """

    def __init__(self, field: schema.Field, coder: Coder) -> None:
        self._field, self._coder = field, coder
        self._value: object = self
        self._watch = Watch()
        self._own = ""
        self.form: Form = Text("")
        self.is_kept = False

    def look(self, value: object) -> Form:
        """The stored form of the value now. Raises ValueNotStorable, StateError."""
        watch = self._watch
        if value is self._value and not watch.is_opaque and watch.is_unchanged():
            return self.form
        watch = Watch([value])  # before it is encoded: what changes from now on is seen the next time
        text = self._coder.text(self._field.name, value)
        if text != self._own:
            check(self._field, value)
            self._own, self.form = text, Text(text)
        self.is_kept &= value is self._value
        self._value, self._watch = value, watch
        return self.form

    def mark(self) -> None:
        """Count what is there now as kept."""
        self.is_kept = True

    def settle(self, value: object, form: Form | None = None) -> None:
        """Take the value as what has this form: it was decoded from it. None: as what it is encoded to."""
        watch = Watch([value])
        form = form or Text(self._coder.text(self._field.name, value))
        # an opaque value is encoded to something else than it came from if its class has a new field
        own = self._coder.compared(self._field.name, value) if watch.is_opaque else form.json
        self._value, self._watch, self.form, self._own = value, watch, form, own
        self.mark()


class _Chunk:
    """Up to `CHUNK` elements that are watched together."""

    __slots__ = ("own", "watch")

    def __init__(self, elements: list[object]) -> None:
        self.watch = Watch(elements)
        self.own: dict[int, str] = {}  # index → text, of the elements that have to be encoded to know


class ItemsTrack:
    """A field whose value is a list.

    Attributes:
        form: the stored form of the list when it was last looked at.
    """

    form: Items

    def __init__(self, field: schema.Field, coder: Coder) -> None:
        self._field, self._coder = field, coder
        self._elements: list[object] = []
        self._chunks: list[_Chunk] = []
        self._marked, self._count = self._elements, 0
        self.form = Items()

    def look(self, value: list[object], *, is_ours: bool = False) -> Items:
        """The stored form of the list now. Raises ValueNotStorable, StateError.

        Args:
            value: the list.
            is_ours: nobody else has had the list or an element of it, so only `State.update` can have made it longer.
        """
        count = len(self._elements)
        if not (is_ours and len(value) >= count) and not self._only_grew(value):
            self._compare(value.copy())
        elif len(value) > count:
            self._append(value[count:], count)
        return self.form

    def _only_grew(self, value: list[object]) -> bool:
        is_longer = len(value) >= len(self._elements) and all(map(operator.is_, self._elements, value))
        return is_longer and all(self._is_unchanged(chunk) for chunk in self._chunks if chunk.watch)

    def settle(self, value: list[object], form: Items | None = None, head: int = 0) -> None:
        """Take the list as what has this form (None: as what it is encoded to). It was just looked at, or is new.

        Args:
            value: the list.
            form: of the list.
            head: so many elements at its beginning are those that were there at that look.
        """
        form = form or Items(self._coder.texts(self._field.name, value, range(len(value))))
        kept, old = head // CHUNK, self._chunks
        borders = range(kept * CHUNK, len(value), CHUNK)
        new = [self._chunk(value, at, [True] * len(old)) for at in borders]
        self._chunks = [*old[:kept], *new]
        for at, chunk, before in itertools.zip_longest(borders, new, old[kept : kept + len(new)]):
            if chunk is not before:
                chunk.own = {i: self._text(value[i], i) for i in _opaque(chunk.watch, value[at : at + CHUNK], at)}
        self._elements, self.form = value.copy(), form
        self.mark()

    def mark(self) -> None:
        """Count what is there now as kept."""
        self._marked, self._count = self._elements, len(self._elements)

    def only_grew(self) -> bool:
        """Whether all that came since the last `mark` are elements at the end that cannot be changed."""
        head, _ = self.kept()
        new = self._chunks[self._count // CHUNK :]
        return head == self._count and not any(chunk.watch or chunk.own for chunk in new)

    @property
    def is_kept(self) -> bool:
        """Whether the elements are the objects that were there at the last `mark`."""
        head, _ = self.kept()
        return head == len(self._elements) == self._count

    def kept(self) -> tuple[int, int]:
        """How many elements at the beginning and at the end are the objects that were there at the last `mark`."""
        if self._elements is self._marked:  # they were only added to
            return self._count, 0
        return common(self._elements, self._marked[: self._count], operator.is_)

    def _text(self, element: object, place: int) -> str:
        return self._coder.compared(self._field.name, element, f"state.{self._field.name}[{place}]")

    def _is_unchanged(self, chunk: _Chunk) -> bool:
        own = chunk.own.items()
        return chunk.watch.is_unchanged() and all(self._text(self._elements[i], i) == text for i, text in own)

    def _append(self, new: list[object], at: int) -> None:
        borders = [at, *range(at - at % CHUNK + CHUNK, at + len(new), CHUNK)]
        parts = [new[b - at : b - at + CHUNK - b % CHUNK] for b in borders]
        chunks = [_Chunk(part) for part in parts]  # watched before they are encoded
        check(self._field, new, at)
        texts = self._coder.texts(self._field.name, new, range(at, at + len(new)))
        for border, part, chunk in zip(borders, parts, chunks, strict=True):
            chunk.own = {i: texts[i - at] for i in _opaque(chunk.watch, part, border)}
            if border % CHUNK:
                self._chunks[-1].watch.absorb(chunk.watch)
                self._chunks[-1].own |= chunk.own
            else:
                self._chunks.append(chunk)
        self._elements += new
        self.form = self.form.extended(texts)

    def _compare(self, value: list[object]) -> None:
        """Encode what may have changed, and take over the texts of all other elements, wherever they stand now."""
        old = self.form.texts()
        sound = [chunk.watch.is_unchanged() for chunk in self._chunks]
        known, own = self._known(old, sound)
        chunks = [self._chunk(value, at, sound) for at in range(0, len(value), CHUNK)]
        places = [i for i, element in enumerate(value) if id(element) not in known]
        encoded = self._coder.texts(self._field.name, [value[i] for i in places], places)
        fresh = dict(zip(places, encoded, strict=True))
        texts = [known.get(id(element), "") for element in value]
        for i, text in fresh.items():
            before, stored = own.get(id(value[i]), ("", ""))
            texts[i] = stored if text == before else text
        for i in places:
            if i >= len(old) or texts[i] != old[i]:
                check(self._field, [value[i]], i)
        for at, chunk in zip(range(0, len(value), CHUNK), chunks, strict=True):
            chunk.own = {i: fresh[i] for i in _opaque(chunk.watch, value[at : at + CHUNK], at)}
        self._elements, self._chunks = value, chunks
        if texts != old:
            self.form = Items(texts)

    def _known(self, old: list[str], sound: list[bool]) -> tuple[dict[int, str], dict[int, tuple[str, str]]]:
        """By id: texts of elements that are certainly unchanged; what opaque ones were encoded to, and their texts."""
        known = {
            id(element): text
            for i, (element, text) in enumerate(zip(self._elements, old, strict=True))
            if sound[i // CHUNK] and i not in self._chunks[i // CHUNK].own
        }
        own = {id(self._elements[i]): (text, old[i]) for chunk in self._chunks for i, text in chunk.own.items()}
        return known, own

    def _chunk(self, value: list[object], at: int, sound: list[bool]) -> _Chunk:
        """The chunk for the elements from `at` on: the present one, if it has these and nothing in it changed."""
        now, before = value[at : at + CHUNK], self._elements[at : at + CHUNK]
        place = at // CHUNK
        if place < len(sound) and sound[place] and len(now) == len(before) and all(map(operator.is_, now, before)):
            return self._chunks[place]
        return _Chunk(now)


Track = TextTrack | ItemsTrack


def track(field: schema.Field, coder: Coder, value: object) -> Track:
    """A new track for a field that holds this value."""
    return ItemsTrack(field, coder) if type(value) is list else TextTrack(field, coder)


def _opaque(watch: Watch, part: list[object], at: int) -> list[int]:
    """The indexes of elements that have to be encoded to know whether they changed; `part` begins at index `at`."""
    return [i for i, element in enumerate(part, at) if Watch([element]).is_opaque] if watch.is_opaque else []


def check(field: schema.Field, value: object, at: int | None = None) -> None:
    """Refuse a value, or elements of a list from index `at` on, that loading would refuse.

    Raises:
        StateError: It is not what the field holds.
    """
    why = schema.misfit(field, value)
    if not why:
        return
    if at is not None and isinstance(value, list):
        at, value = next(((i, e) for i, e in enumerate(value, at) if schema.misfit(field, [e])), (at, value))
        why = schema.misfit(field, [value]).removeprefix("[0]: ")
    place = f"state.{field.name}" + ("" if at is None else f"[{at}]")
    raise StateError(
        f"{place} is {schema.short(value)}, and the field holds {field.expected}: {why}. It was put there in place; "
        "mend it, or widen the type of the field."
    )
