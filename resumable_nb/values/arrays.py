"""Codecs of numpy. Imported only once a value of numpy comes."""

# ruff: noqa: TID253  # see above

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

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
    titles = [field[2] if len(field) > 2 else None for field in fields]
    if dtype.type is not np.void or not all(title is None or type(title) is str for title in titles):
        raise ValueNotStorable(render(path), f"the dtype {dtype} is one of a record array")
    node: dict[str, Any] = {
        "names": list(dtype.names or ()),
        "formats": [write_dtype(field[0], path) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }
    return node | {"titles": titles} if any(titles) else node


def read_dtype(node: Node) -> np.dtype[Any]:
    """The dtype that `write_dtype` wrote."""
    if isinstance(node, str):
        return np.dtype(node)
    if "base" in node:
        return np.dtype((read_dtype(node["base"]), tuple(node["shape"])))
    description: Any = {name: node[name] for name in ("names", "offsets", "itemsize", "titles") if name in node}
    description["formats"] = [read_dtype(item) for item in node["formats"]]
    dtype: np.dtype[Any] = np.dtype(description, align=bool(node["aligned"]))
    return dtype


def _write_dtype_value(_writer: Writer, value: np.dtype[Any], node: dict[str, Any], path: Path) -> None:
    node["dtype"] = write_dtype(value, path)


# ---- arrays


def _write_array_value(writer: Writer, value: Array, node: dict[str, Any], path: Path) -> None:
    claim_memory(writer, value, path)
    write_array(writer, value, node, path)


def owner_of(array: Array) -> object:
    """Whose memory an array shows: the last in the chain of bases."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner.obj if isinstance(owner, memoryview) else owner


def claim_memory(writer: Writer, array: Array, path: Path, *, is_column: bool = False) -> None:
    """Note whose memory an array shows. Two arrays over the same bytes would be split, so the second is refused.

    Columns of frames are compared with arrays only: between frames, pandas copies on write.
    """
    writer.claim(owner_of(array), (array, is_column), path, overlaps=_overlap)


def _overlap(one: tuple[Array, bool] | None, other: tuple[Array, bool] | None) -> bool:
    """Whether two arrays show the same bytes, and it matters. If it is too hard to say: yes."""
    if one is None or other is None:  # a bytearray as a whole
        return True
    (one_array, one_is_column), (other_array, other_is_column) = one, other
    if one_is_column and other_is_column:
        return False
    try:
        return np.shares_memory(one_array, other_array, max_work=10_000)  # type: ignore[arg-type]  # any number, see its documentation
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
        fields: list[dict[str, Any]] = []
        node["fields"] = fields
        for name in array.dtype.names:
            fields.append({})
            with writer.sealing():
                _write_content(writer, array[name], fields[-1], at_field(path, name))
    elif kind == "O":
        node["items"] = [writer.node(item, at_index(path, i)) for i, item in enumerate(array.flat)]
    elif kind == "U":
        if not _are_characters(array.ravel()):
            raise ValueNotStorable(render(path), "its texts hold numbers that are no characters")
        node["items"] = writer.items(array.ravel().tolist(), path)
    else:
        writer.check_room(array.nbytes, path)  # before the copy is made; `binary` counts it
        text_like = array.dtype.itemsize == 1 or kind in "SV"
        node.update(writer.binary(_normal(array).tobytes(), path, may_be_text=text_like))


def _are_characters(texts: Array) -> bool:
    """Whether Python can make texts of these; memory that was no text crashes numpy."""
    return texts.nbytes == 0 or bool(texts.view(f"{texts.dtype.str[0]}u4").max() <= sys.maxunicode)


def _normal(array: Array) -> Array:
    """The same values with one bit pattern for each: NaN has many, and True may be any non-zero byte."""
    kind = array.dtype.kind
    if kind == "b":
        return np.not_equal(array.view(np.uint8), 0)
    if kind in "fc" and np.isnan(array).any():
        array = array.copy()
        parts: tuple[Array, ...] = (array.real, array.imag) if kind == "c" else (array,)
        for part in parts:
            part[np.isnan(part)] = np.nan
    return array


class _Form(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Any

    def empty(self) -> Array:
        return np.empty(self.shape, self.dtype, self.order)

    def check(self, *, is_whole: bool) -> None:
        """Before any memory is taken: a text from a stranger can name any shape."""
        if not is_whole:
            raise ValueError(f"the content does not fill the shape {self.shape} with the dtype {self.dtype}")


def read_array(reader: Reader, node: dict[str, Any]) -> Array:
    """The array that `write_array` wrote."""
    form = _Form(read_dtype(node["dtype"]), tuple(node["shape"]), node.get("order", "C"))
    array = _read_content(reader, node, form)
    if not node.get("writeable", True):
        array.setflags(write=False)
    return array


def _read_content(reader: Reader, node: dict[str, Any], form: _Form) -> Array:
    dtype, shape, order = form
    count = np.prod(shape, dtype=object)
    if "fields" in node:
        return _read_structured(reader, node, form)
    if "items" in node:
        items = node["items"]
        form.check(is_whole=count == len(items) and dtype.kind in "OU")
        shell, flat = reader.built(node, form.empty()), np.empty(len(items), dtype)
        for i, item in enumerate(items):  # items may refer to the array itself
            flat[i] = reader.value(item)
        shell[...] = flat.reshape(shape)
        return shell  # type: ignore[no-any-return]  # `built` returns what it is given
    content = reader.binary(node)
    form.check(is_whole=len(content) == count * dtype.itemsize and not dtype.hasobject and dtype.names is None)
    return np.frombuffer(content, dtype).reshape(shape).copy(order) if content else form.empty()


def _read_structured(reader: Reader, node: dict[str, Any], form: _Form) -> Array:
    names, fields = form.dtype.names or (), node["fields"]
    form.check(is_whole=len(names) == len(fields))
    parts = []
    for name, content in zip(names, fields, strict=True):
        part = form.dtype[name]
        parts.append(_read_content(reader, content, _Form(part.base, form.shape + part.shape, "C")))
    whole = np.zeros(form.shape, form.dtype, form.order)
    for name, content in zip(names, parts, strict=True):
        whole[name][...] = content
    return whole


_MASKED_STATE = {"_fill_value", "_hardmask", "_sharedmask", "_isfield", "_baseclass", "_optinfo", "_basedict", "_mask"}


def _write_masked(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    own: dict[str, Any] = vars(value)  # the public `mask` and `fill_value` make what is not there
    if own.keys() - _MASKED_STATE or own["_optinfo"] or own["_basedict"]:
        raise ValueNotStorable(render(path), "this MaskedArray has attributes of its own")
    claim_memory(writer, value.data, path)
    node["data"], mask, fill_value = {}, own["_mask"], own["_fill_value"]
    with writer.sealing():
        write_array(writer, value.data, node["data"], path)
    if mask is not np.ma.nomask:
        claim_memory(writer, mask, path)
        node["mask"] = {}
        write_array(writer, mask, node["mask"], path)
    if fill_value is not None:
        node["fill_value"] = {}
        write_array(writer, np.asarray(fill_value), node["fill_value"], path)
    if value.hardmask:
        node["hard"] = True


def _read_masked(reader: Reader, node: dict[str, Any]) -> object:
    mask = read_array(reader, node["mask"]) if "mask" in node else np.ma.nomask
    data = read_array(reader, node["data"])
    array: Any = np.ma.MaskedArray(data, mask=mask, hard_mask=node.get("hard", False))
    if "fill_value" in node:
        array.fill_value = read_array(reader, node["fill_value"])[()]
    return array


# ---- scalars


def _write_scalar(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    kind = value.dtype.kind
    if kind in "VmM":
        write_array(writer, np.asarray(value), node, path)
        return
    # Trailing NULs belong to a text; `item()` and numpy's own `str()` cut them off.
    node["dtype"] = kind if kind in "US" else write_dtype(value.dtype, path)
    take: Any = {"U": str.__str__, "S": bytes}.get(kind, np.generic.item)
    node["value"] = writer.node(take(value), path)


def _read_scalar(reader: Reader, node: dict[str, Any]) -> object:
    if "shape" in node:
        return read_array(reader, node)[()]
    return np.dtype(node["dtype"]).type(reader.value(node["value"]))


READERS: dict[str, Read] = {
    "ndarray": read_array,
    "numpy": _read_scalar,
    "dtype": lambda _reader, node: read_dtype(node["dtype"]),
    "MaskedArray": _read_masked,
    "masked": lambda _reader, _node: np.ma.masked,
}
