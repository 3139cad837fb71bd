"""Codecs of numpy. Imported only once a value of numpy comes; numpy must be there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from resumable_nb.errors import ValueNotStorable
from resumable_nb.values.codec import Codec, Node, Path, Read, at_field, at_index, render

if TYPE_CHECKING:
    from resumable_nb.values.reader import Reader
    from resumable_nb.values.writer import Writer

Array = np.ndarray[Any, Any]


def codec(kind: type) -> Codec | None:
    """How the values of one of numpy's types are written; None if there is no exact way."""
    if kind is np.ndarray:
        return Codec("ndarray", _write_array_value, shared=True)
    if issubclass(kind, np.generic):
        return Codec("numpy", _write_scalar)
    if issubclass(kind, np.dtype):
        return Codec("dtype", _write_dtype_value)
    if kind is np.ma.MaskedArray:
        return Codec("MaskedArray", _write_masked, shared=True)
    if kind is type(np.ma.masked):
        return Codec("masked", lambda _writer, _value, _node, _path: None)
    return None


# ---- dtypes


def write_dtype(dtype: np.dtype[Any], path: Path) -> Node:
    """A dtype as text such as `<f8`, or as its fields with their offsets."""
    if dtype.metadata:
        raise ValueNotStorable(render(path), f"the dtype {dtype} has metadata")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": write_dtype(base, path), "shape": list(shape)}
    if dtype.names is not None:
        return _write_fields_dtype(dtype, path)
    extended = dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16)
    if dtype.kind not in "biufcmMSUOV" or extended or dtype.isbuiltin == 2:
        raise ValueNotStorable(render(path), f"the dtype {dtype} has no exact form that every machine can read")
    # `longlong` and `long` are two types of one size, and both are `<i8`.
    return dtype.str if np.dtype(dtype.str).char == dtype.char else dtype.char


def _write_fields_dtype(dtype: np.dtype[Any], path: Path) -> Node:
    fields = [dtype.fields[name] for name in dtype.names or () if dtype.fields is not None]
    if dtype.type is not np.void or any(len(field) > 2 for field in fields):
        raise ValueNotStorable(render(path), "its dtype is a record, or has titles")
    return {
        "names": list(dtype.names or ()),
        "formats": [write_dtype(field[0], path) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }


def read_dtype(node: Node) -> np.dtype[Any]:
    """The dtype that `write_dtype` wrote."""
    if isinstance(node, str):
        return np.dtype(node)
    if "base" in node:
        return np.dtype((read_dtype(node["base"]), tuple(node["shape"])))
    description = {name: node[name] for name in ("names", "offsets", "itemsize")}
    return np.dtype(description | {"formats": [read_dtype(item) for item in node["formats"]]}, align=node["aligned"])


def _write_dtype_value(_writer: Writer, value: np.dtype[Any], node: dict[str, Any], path: Path) -> None:
    node["dtype"] = write_dtype(value, path)


# ---- arrays


def _write_array_value(writer: Writer, value: Array, node: dict[str, Any], path: Path) -> None:
    writer.claim_memory(owner_of(value), value, path)
    write_array(writer, value, node, path)


def owner_of(array: Array) -> object:
    """Whose memory an array shows: the last in the chain of bases."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner.obj if isinstance(owner, memoryview) else owner


def share_memory(one: Array, other: Array) -> bool:
    """Whether two arrays show the same bytes. If it is too hard to say: yes."""
    try:
        return np.shares_memory(one, other, max_work=10_000)
    except np.exceptions.TooHardError:
        return True


def write_array(writer: Writer, array: Array, node: dict[str, Any], path: Path) -> None:
    """Put dtype, shape, order and content of an array into a node."""
    node["dtype"] = write_dtype(array.dtype, path)
    node["shape"] = list(array.shape)
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        node["order"] = "F"
    if not array.flags.writeable:
        node["writeable"] = False
    _write_content(writer, array, node, path)


def _write_content(writer: Writer, array: Array, node: dict[str, Any], path: Path) -> None:
    kind = array.dtype.kind
    if array.dtype.names is not None:  # a field at a time: what lies between the fields is noise
        node["fields"] = fields = []
        for name in array.dtype.names:
            fields.append(content := {})
            _write_content(writer, array[name], content, at_field(path, name))
    elif kind == "O":
        node["items"] = [writer.node(item, at_index(path, i)) for i, item in enumerate(array.flat)]
    elif kind == "U":
        node["items"] = writer.items(array.ravel().tolist(), path)
    else:
        writer.grow(array.nbytes, path)
        writer.grow(-array.nbytes, path)  # asked before the copy is made; `binary` counts it
        text_like = array.dtype.itemsize == 1 or kind in "SV"
        node.update(writer.binary(_normal(array).tobytes(), path, may_be_text=text_like))


def _normal(array: Array) -> Array:
    """The same values with one bit pattern for each: NaN has many, and True may be any non-zero byte."""
    kind = array.dtype.kind
    if kind == "b":
        return array.view(np.uint8) != 0
    if kind == "f" and (missing := np.isnan(array)).any():
        return np.where(missing, np.array(np.nan, array.dtype), array)
    if kind == "c" and np.isnan(array).any():
        array = array.copy()
        for part in (array.real, array.imag):
            part[np.isnan(part)] = np.nan
    return array


def read_array(reader: Reader, node: dict[str, Any], *, register: bool = False) -> Array:
    """The array that `write_array` wrote. `register`: items may refer to the array itself."""
    array = _read_content(
        reader, node, read_dtype(node["dtype"]), tuple(node["shape"]), node.get("order", "C"), register
    )
    if not node.get("writeable", True):
        array.setflags(write=False)
    return array


def _read_content(
    reader: Reader,
    node: dict[str, Any],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    order: Any,
    register: bool = False,
) -> Array:
    if "fields" in node:
        return _read_structured(reader, node, dtype, shape, order)
    if "items" in node:
        items = node["items"]
        if np.prod(shape, dtype=object) != len(items) or dtype.kind not in "OU":
            raise ValueError(f"{len(items)} items for the shape {shape} and the dtype {dtype}")
        shell = np.empty(shape, dtype, order)
        if register:
            reader.built(node, shell)
        flat = np.empty(len(items), dtype)
        for i, item in enumerate(items):
            flat[i] = reader.value(item)
        shell[...] = flat.reshape(shape)
        return shell
    content = reader.binary(node)
    if len(content) != np.prod(shape, dtype=object) * dtype.itemsize or dtype.hasobject:
        raise ValueError(f"{len(content)} bytes for the shape {shape} and the dtype {dtype}")
    if not content:
        return np.empty(shape, dtype, order)
    return np.frombuffer(content, dtype).reshape(shape).copy(order)


def _read_structured(
    reader: Reader, node: dict[str, Any], dtype: np.dtype[Any], shape: tuple[int, ...], order: Any
) -> Array:
    if dtype.names is None or len(dtype.names) != len(node["fields"]):
        raise ValueError("the fields are not those of the dtype")
    whole = np.zeros(shape, dtype, order)
    for name, content in zip(dtype.names, node["fields"], strict=True):
        part = whole[name]
        part[...] = _read_content(reader, content, part.dtype, part.shape, "C")
    return whole


def _write_masked(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    if value.__dict__.get("_optinfo") or value._basedict.keys() - {"_basedict"}:
        raise ValueNotStorable(render(path), "this MaskedArray has attributes of its own")
    writer.claim_memory(owner_of(value.data), value.data, path)
    node["data"], mask = {}, value._mask
    write_array(writer, value.data, node["data"], path)
    if mask is not np.ma.nomask:
        writer.claim_memory(owner_of(mask), mask, path)
        node["mask"] = {}
        write_array(writer, mask, node["mask"], path)
    if value._fill_value is not None:
        node["fill_value"] = {}
        write_array(writer, np.asarray(value._fill_value), node["fill_value"], path)
    if value.hardmask:
        node["hard"] = True


def _read_masked(reader: Reader, node: dict[str, Any]) -> object:
    mask = read_array(reader, node["mask"]) if "mask" in node else np.ma.nomask
    data = read_array(reader, node["data"])
    array = np.ma.MaskedArray(data, mask=mask, hard_mask=node.get("hard", False))
    if "fill_value" in node:
        array.fill_value = read_array(reader, node["fill_value"])[()]
    return array


# ---- scalars


def _write_scalar(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    if isinstance(value, np.void) or value.dtype.kind in "mM":
        write_array(writer, np.asarray(value), node, path)
        return
    node["dtype"] = write_dtype(value.dtype, path)
    if isinstance(value, str | bytes):
        node["dtype"] = value.dtype.kind  # its length is that of the text, with trailing NULs
    node["value"] = writer.node(_python(value), path)


def _python(value: Any) -> object:
    for kind in (str, bytes):
        if isinstance(value, kind):
            return kind(value)
    return value.item()


def _read_scalar(reader: Reader, node: dict[str, Any]) -> object:
    if "shape" in node:
        return read_array(reader, node)[()]
    return np.dtype(node["dtype"]).type(reader.value(node["value"]))


READERS: dict[str, Read] = {
    "ndarray": lambda reader, node: read_array(reader, node, register=True),
    "numpy": _read_scalar,
    "dtype": lambda _reader, node: read_dtype(node["dtype"]),
    "MaskedArray": _read_masked,
    "masked": lambda _reader, _node: np.ma.masked,
}
