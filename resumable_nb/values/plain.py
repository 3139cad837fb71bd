"""Codecs of the builtin types and of the standard library's value types."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import EllipsisType, NotImplementedType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

from resumable_nb.errors import ValueNotStorable
from resumable_nb.values.codec import Codec, at_field, at_index, at_key, dump, render
from resumable_nb.values.secrets import contains_secret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from resumable_nb.values import codec
    from resumable_nb.values.reader import Reader
    from resumable_nb.values.writer import Writer

_BUILTIN_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, object),
        *(deque, Counter, OrderedDict, defaultdict, SimpleNamespace, Decimal, Fraction, UUID, Path),
        *(dt.datetime, dt.date, dt.time, dt.timedelta, type(None), range, slice),
    )
}
"""Types that may stand as values themselves, such as the factory of a defaultdict."""


# ---- containers


def write_dict(writer: Writer, value: dict[Any, Any], node: dict[str, Any], path: codec.Path) -> None:
    """A dict is itself if its keys allow it, else a list of pairs under a tag."""
    if all(type(key) is str and key[:1] != "$" for key in value) and not (writer.strict and _has_odd_key(value)):
        for key, item in value.items():
            node[key] = writer.item(key, item, at_key(path, key))
    else:
        node["$type"] = "dict"
        node["items"] = _pairs(writer, value, path)


def _has_odd_key(value: dict[str, Any]) -> bool:
    """Whether a key is half a surrogate pair, or may be a credential: then `node` looks at each."""
    encoded = [key.encode("utf-8", "surrogatepass") for key in value]
    return any(contains_secret(key) for key in encoded) or not all(_is_unicode(key) for key in value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pairs(writer: Writer, value: dict[Any, Any], path: codec.Path) -> list[list[Any]]:
    return [
        [
            writer.sealed(key, at_field(path, "keys()")),
            writer.item(key, item, at_key(path, key)) if type(key) is str else writer.node(item, at_key(path, key)),
        ]
        for key, item in value.items()
    ]


def _read_dict(reader: Reader, node: dict[str, Any]) -> object:
    return _fill(reader, node, {})


def _fill(reader: Reader, node: dict[str, Any], shell: Any) -> Any:
    reader.built(node, shell)
    for key, item in node["items"]:
        dict.__setitem__(shell, reader.value(key), reader.value(item))
    return shell


def _write_mapping(writer: Writer, value: Any, node: dict[str, Any], path: codec.Path) -> None:
    _refuse_attributes(value, path)
    if type(value) is defaultdict:
        node["factory"] = writer.node(value.default_factory, at_field(path, "default_factory"))
    node["items"] = _pairs(writer, value, path)


def _refuse_attributes(value: Any, path: codec.Path) -> None:
    if getattr(value, "__dict__", None):
        raise ValueNotStorable(render(path), f"this {type(value).__name__} has attributes of its own")


def _read_defaultdict(reader: Reader, node: dict[str, Any]) -> object:
    factory = reader.value(node["factory"])
    if not (factory is None or isinstance(factory, type)):
        raise ValueError("the factory is no type")
    return _fill(reader, node, defaultdict(factory))


def _read_ordered(reader: Reader, node: dict[str, Any]) -> object:
    shell: OrderedDict[Any, Any] = OrderedDict()
    reader.built(node, shell)
    for key, item in node["items"]:
        shell[reader.value(key)] = reader.value(item)  # dict.__setitem__ would pass its order by
    return shell


def _write_items(writer: Writer, value: Iterable[Any], node: dict[str, Any], path: codec.Path) -> None:
    node["items"] = [writer.node(item, at_index(path, i)) for i, item in enumerate(value)]


def _write_deque(writer: Writer, value: deque[Any], node: dict[str, Any], path: codec.Path) -> None:
    node["maxlen"] = value.maxlen
    _write_items(writer, value, node, path)


def _read_deque(reader: Reader, node: dict[str, Any]) -> object:
    shell: deque[Any] = deque(maxlen=node["maxlen"])
    reader.built(node, shell)
    shell.extend([reader.value(item) for item in node["items"]])
    return shell


def _write_set(writer: Writer, value: Any, node: dict[str, Any], path: codec.Path) -> None:
    """Items sorted by their text. Items that are objects with an identity are written again in that order."""
    where = at_field(path, "items")
    scratch = writer.scratch()
    drafts = sorted(
        ((dump(tree := scratch.node(item, where)), tree, item) for item in value), key=lambda draft: draft[0]
    )
    writer.grow(scratch.size, path)
    if scratch.shared:
        node["items"] = [writer.sealed(item, where) for _text, _tree, item in drafts]
    else:
        node["items"] = [tree for _text, tree, _item in drafts]


def _read_set(reader: Reader, node: dict[str, Any]) -> object:
    shell: set[Any] = set()
    reader.built(node, shell)
    shell.update([reader.value(item) for item in node["items"]])
    return shell


def _write_namespace(writer: Writer, value: SimpleNamespace, node: dict[str, Any], path: codec.Path) -> None:
    node["attributes"] = {}
    write_dict(writer, vars(value), node["attributes"], path)


def _read_namespace(reader: Reader, node: dict[str, Any]) -> object:
    shell = SimpleNamespace()
    reader.built(node, shell)
    vars(shell).update(reader.value(node["attributes"]))
    return shell


def _write_slice(writer: Writer, value: Any, node: dict[str, Any], path: codec.Path) -> None:
    for name in ("start", "stop", "step"):
        node[name] = writer.node(getattr(value, name), at_field(path, name))


def _read_slice(reader: Reader, node: dict[str, Any]) -> object:
    kind = {"range": range, "slice": slice}[node["$type"]]
    return kind(*(reader.value(node[name]) for name in ("start", "stop", "step")))


# ---- leaves


def _write_binary(writer: Writer, value: bytes, node: dict[str, Any], path: codec.Path) -> None:
    node.update(writer.binary(value, path))


def _write_bytearray(writer: Writer, value: bytearray, node: dict[str, Any], path: codec.Path) -> None:
    writer.claim(value, None, path, overlaps=lambda _one, _other: True)  # an array may show these bytes
    node.update(writer.binary(bytes(value), path))


def _write_text(_writer: Writer, value: object, node: dict[str, Any], _path: codec.Path) -> None:
    node["value"] = str(value)


def _write_number(writer: Writer, value: Any, node: dict[str, Any], path: codec.Path) -> None:
    for name in ("real", "imag") if type(value) is complex else ("numerator", "denominator"):
        node[name] = writer.node(getattr(value, name), path)


def _read_fraction(reader: Reader, node: dict[str, Any]) -> object:
    return Fraction(reader.value(node["numerator"]), reader.value(node["denominator"]))


def _write_uuid(_writer: Writer, value: UUID, node: dict[str, Any], _path: codec.Path) -> None:
    node["value"] = str(value)
    if value.is_safe is not SafeUUID.unknown:
        node["is_safe"] = value.is_safe.name


def _read_uuid(_reader: Reader, node: dict[str, Any]) -> object:
    return UUID(node["value"], is_safe=SafeUUID[node.get("is_safe", "unknown")])


def _write_path(writer: Writer, value: Any, node: dict[str, Any], path: codec.Path) -> None:
    node["value"] = writer.node(str(value), path)


def _write_type(_writer: Writer, value: type, node: dict[str, Any], path: codec.Path) -> None:
    if _BUILTIN_TYPES.get(value.__name__) is not value:
        raise ValueNotStorable(render(path), f"the class {value.__qualname__} is code, not a value")
    node["name"] = value.__name__


def _write_nothing(_writer: Writer, _value: object, _node: dict[str, Any], _path: codec.Path) -> None:
    """The tag says it all."""


def write_zone(zone: dt.tzinfo | None, node: dict[str, Any], path: codec.Path) -> None:
    """Put a time zone into the node of a time: `zone` (a key) or `offset_s`, and `name` if it was given one."""
    if zone is None:
        return
    if type(zone) is ZoneInfo and zone.key is not None:
        node["zone"] = zone.key
    elif type(zone) is dt.timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # what pickle and copy use
        node["offset_us"] = offset // dt.timedelta(microseconds=1)
        if name:
            node["name"] = name[0]
    else:
        raise ValueNotStorable(render(path), f"its time zone is a {type(zone).__module__}.{type(zone).__qualname__}")


def read_zone(node: dict[str, Any]) -> dt.tzinfo | None:
    """The time zone that `write_zone` put into a node."""
    if "zone" in node:
        try:
            return ZoneInfo(node["zone"])
        except OSError as error:  # "America" is a folder
            raise ValueError(f"there is no time zone {node['zone']!r}") from error
    if "offset_us" in node:
        name = (node["name"],) if "name" in node else ()
        return dt.timezone(dt.timedelta(microseconds=node["offset_us"]), *name)
    return None


def _write_time(_writer: Writer, value: Any, node: dict[str, Any], path: codec.Path) -> None:
    node["value"] = value.replace(tzinfo=None).isoformat()
    write_zone(value.tzinfo, node, path)
    if value.fold:
        node["fold"] = value.fold


def _read_time(_reader: Reader, node: dict[str, Any]) -> object:
    kind: Any = {"datetime": dt.datetime, "time": dt.time}[node["$type"]]
    return kind.fromisoformat(node["value"]).replace(tzinfo=read_zone(node), fold=node.get("fold", 0))


def _write_timedelta(_writer: Writer, value: dt.timedelta, node: dict[str, Any], _path: codec.Path) -> None:
    node.update(days=value.days, seconds=value.seconds, microseconds=value.microseconds)


def _write_zone(_writer: Writer, value: dt.tzinfo, node: dict[str, Any], path: codec.Path) -> None:
    write_zone(value, node, path)


def _read_timezone(_reader: Reader, node: dict[str, Any]) -> object:
    if (zone := read_zone(node)) is None:
        raise ValueError("a time zone without a key")
    return zone


def _read_float(_reader: Reader, node: dict[str, Any]) -> float:
    value = float(node["value"])
    if math.isfinite(value):
        raise ValueError("a finite number stands for itself")
    return value


CODECS: dict[type, Codec] = {
    tuple: Codec("tuple", _write_items),
    set: Codec("set", _write_set, shared=True),
    frozenset: Codec("frozenset", _write_set),
    deque: Codec("deque", _write_deque, shared=True),
    OrderedDict: Codec("OrderedDict", _write_mapping, shared=True),
    defaultdict: Codec("defaultdict", _write_mapping, shared=True),
    Counter: Codec("Counter", _write_mapping, shared=True),
    SimpleNamespace: Codec("SimpleNamespace", _write_namespace, shared=True),
    bytes: Codec("bytes", _write_binary),
    bytearray: Codec("bytearray", _write_bytearray, shared=True),
    complex: Codec("complex", _write_number),
    Fraction: Codec("Fraction", _write_number),
    Decimal: Codec("Decimal", _write_text),
    UUID: Codec("UUID", _write_uuid),
    range: Codec("range", _write_slice),
    slice: Codec("slice", _write_slice),
    EllipsisType: Codec("Ellipsis", _write_nothing),
    NotImplementedType: Codec("NotImplemented", _write_nothing),
    type: Codec("type", _write_type),
    dt.datetime: Codec("datetime", _write_time),
    dt.time: Codec("time", _write_time),
    dt.date: Codec("date", _write_text),
    dt.timedelta: Codec("timedelta", _write_timedelta),
    dt.timezone: Codec("timezone", _write_zone),
    ZoneInfo: Codec("ZoneInfo", _write_zone),
} | {kind: Codec(kind.__name__, _write_path) for kind in (PosixPath, WindowsPath, PurePosixPath, PureWindowsPath)}

READERS: dict[str, codec.Read] = {
    "dict": _read_dict,
    "tuple": lambda reader, node: tuple([reader.value(item) for item in node["items"]]),
    "set": _read_set,
    "frozenset": lambda reader, node: frozenset([reader.value(item) for item in node["items"]]),
    "deque": _read_deque,
    "OrderedDict": _read_ordered,
    "defaultdict": _read_defaultdict,
    "Counter": lambda reader, node: _fill(reader, node, Counter()),
    "SimpleNamespace": _read_namespace,
    "int": lambda _reader, node: int(node["value"], 16),
    "float": _read_float,
    "str": lambda reader, node: reader.binary(node).decode("utf-8", "surrogatepass"),
    "bytes": lambda reader, node: reader.binary(node),
    "bytearray": lambda reader, node: bytearray(reader.binary(node)),
    "complex": lambda reader, node: complex(reader.value(node["real"]), reader.value(node["imag"])),
    "Fraction": _read_fraction,
    "Decimal": lambda _reader, node: Decimal(node["value"]),
    "UUID": _read_uuid,
    "range": _read_slice,
    "slice": _read_slice,
    "Ellipsis": lambda _reader, _node: ...,
    "NotImplemented": lambda _reader, _node: NotImplemented,
    "type": lambda _reader, node: _BUILTIN_TYPES[node["name"]],
    "datetime": _read_time,
    "time": _read_time,
    "date": lambda _reader, node: dt.date.fromisoformat(node["value"]),
    "timedelta": lambda _reader, node: dt.timedelta(node["days"], node["seconds"], node["microseconds"]),
    "timezone": _read_timezone,
    "ZoneInfo": _read_timezone,
} | {
    kind.__name__: lambda reader, node, kind=kind: kind(reader.value(node["value"]))
    for kind in (PosixPath, WindowsPath, PurePosixPath, PureWindowsPath)
}
