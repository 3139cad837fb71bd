"""Values as JSON text and blobs, exactly and without pickle.

The text is canonical: equal values (type and content) have equal text, in any process, under any hash seed and zone.
None, bool, int, finite float, str, list and str-keyed dict stand for themselves. An object of a dataclass, a pydantic
model, an enum or a named tuple is its fields, with its class in `$type` and `$module`. Everything else is
`{"$type": …, …}`. A mutable object that occurs again is `{"$ref": n}`: the n-th list or object of the text, from 0.
Dicts with other keys, or with keys that begin with "$", are `{"$type": "dict", "items": [[key, value], …]}`.

Not storable are: what has no exact form (functions, locks, files, generators, subclasses of builtins, extension types
that are not known here), numpy arrays that show one memory when both are to be stored, values past the size limit, and
what looks like a credential.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from resumable_nb.errors import ValueNotLoadable, ValueNotStorable
from resumable_nb.values.classes import resolver
from resumable_nb.values.codec import dump, root
from resumable_nb.values.names import write_names
from resumable_nb.values.reader import Reader
from resumable_nb.values.secrets import WHY, contains_secret, hidden, hidden_in, hold, is_credential_name, redact
from resumable_nb.values.writer import DEFAULT_LIMIT_BYTES, TOO_DEEP, PastLimit, Writer, changed, has_no_form, too_large

__all__ = [
    "Encoded",
    "EncodedNames",
    "decode",
    "decode_names",
    "encode",
    "encode_names",
    "has_no_form",
    "hidden",
    "hidden_in",
    "hold",
    "is_credential_name",
    "redact",
    "resolver",
]

Blobs = Callable[[str], bytes]
Resolve = Callable[[str, str], "type | None"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as it is stored.

    Attributes:
        text: canonical JSON.
        blobs: sha256 (hex) → bytes of the binary content that the text refers to.
    """

    text: str
    blobs: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class EncodedNames:
    """Names and their values as they are stored.

    Attributes:
        text: a JSON object of the names in alphabetical order.
        blobs: sha256 (hex) → bytes of the binary content that the text refers to.
        failed: the names that are not in the text → why.
    """

    text: str
    blobs: dict[str, bytes]
    failed: dict[str, str]


def encode(
    value: object,
    *,
    path: str = "value",
    other: Callable[[object, str], object] | None = None,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Encoded:
    """The stored form of one value.

    Args:
        value: what to store. It is only read; no method of its class runs.
        path: what messages call it.
        other: asked for a JSON-able stand-in for each part that is not storable, with the part and its path; it may
            raise. A text with stand-ins can be compared, not decoded.
        limit_bytes: the most that text and blobs may take together.

    Raises:
        ValueNotStorable: a part has no exact form, is a credential, too large or nested too deeply; it has the path.
    """
    try:
        for strict in (False, True):
            writer = Writer(other=other, limit_bytes=limit_bytes, strict=strict)
            tree = writer.node(value, root(path))
            writer.number_refs(tree)
            text = dump(tree)
            if (body := _utf8(text)) is not None and not contains_secret(body, writer.secrets):
                break
        else:
            raise ValueNotStorable(path, WHY)
    except PastLimit as error:
        raise ValueNotStorable(error.path, error.why) from None
    except RecursionError:
        raise ValueNotStorable(path, TOO_DEEP) from None
    except RuntimeError as error:
        raise ValueNotStorable(path, changed(error)) from error
    size = len(body) + sum(map(len, writer.blobs.values()))
    if size > limit_bytes:
        raise ValueNotStorable(path, too_large(size, limit_bytes))
    return Encoded(text, writer.blobs)


def _utf8(text: str) -> bytes | None:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def encode_names(names: Mapping[str, object], *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> EncodedNames:
    """The stored form of names that belong together: two names for one object come back as one.

    A name that cannot be stored is left out, and with it every name that shares a mutable object or the memory of an
    array with it; `failed` says why.

    Args:
        names: name → value.
        limit_bytes: the most that text and blobs of all names may take together.
    """
    return EncodedNames(*write_names(names, limit_bytes))


def decode(text: str, blobs: Blobs, resolve: Resolve, *, what: str = "a stored value") -> object:
    """The value of a stored text, a new object.

    Args:
        text: from `encode`. It may come from a stranger: nothing is imported, and no code but that of the codecs runs.
        blobs: gives the bytes of a sha256 (KeyError if there are none).
        resolve: gives the class of (module, qualname) or None, such as `resolver(namespace)`.
        what: what messages call it.

    Raises:
        ValueNotLoadable: a class or one of its fields is gone, a blob is missing, or the text is damaged.
    """
    reader = Reader(text, blobs, resolve, what=what)
    return reader.load(reader.tree)


def decode_names(text: str, blobs: Blobs, resolve: Resolve, only: Collection[str] | None = None) -> dict[str, object]:
    """The names of a stored text → new objects, in alphabetical order.

    Args:
        text: from `encode_names`.
        blobs: gives the bytes of a sha256 (KeyError if there are none).
        resolve: gives the class of (module, qualname) or None.
        only: the names that are wanted; what only others need is not looked at. Names that are not stored are left out.

    Raises:
        ValueNotLoadable: one of the wanted names cannot be loaded; the message says which and why.
    """
    reader = Reader(text, blobs, resolve, what="the stored names")
    if type(reader.tree) is not dict:
        raise ValueNotLoadable("the stored names cannot be loaded: the text is no JSON object")
    found: dict[str, object] = {}
    for name, node in reader.tree.items():
        if only is None or name in only:
            reader.what = f"the name {name!r}"
            found[name] = reader.load(node)
    return found
