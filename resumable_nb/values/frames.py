"""Codecs of pandas. Imported only once a value of pandas comes.

Frames are taken apart into columns and columns into the exact arrays that pandas keeps them in, and are put together
from those: no parser, no inference, no file format in between that bends types.
"""

# ruff: noqa: TID253  # see above

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray
from pandas.api.types import pandas_dtype
from pandas.tseries.frequencies import to_offset

from resumable_nb.errors import ValueNotStorable
from resumable_nb.values import arrays
from resumable_nb.values.codec import Codec, Node, Path, Read, at_field, at_key, render
from resumable_nb.values.plain import read_zone, write_zone

if TYPE_CHECKING:
    from resumable_nb.values.reader import Reader
    from resumable_nb.values.writer import Writer


_COPIES_ON_WRITE = int(pd.__version__.partition(".")[0]) >= 3


def codec(kind: type) -> Codec | None:
    """How the values of one of pandas' types are written; None if there is no exact way."""
    if kind in CODECS:
        return CODECS[kind]
    if issubclass(kind, ExtensionArray):
        return Codec("pandas.array", _write_array_value, shared=True)
    if issubclass(kind, pd.api.extensions.ExtensionDtype):
        return Codec("pandas.dtype", _write_dtype_value)
    if issubclass(kind, pd.tseries.offsets.BaseOffset):
        return Codec("offset", _write_offset)
    return None


# ---- arrays: one column, or what an index consists of


def write_values(writer: Writer, values: Any, path: Path) -> Node:
    """The tree of a numpy array or of an extension array of pandas."""
    node: dict[str, Any] = {}
    if type(values) is pd.arrays.NumpyExtensionArray:  # an array of texts is a subclass
        values = values.to_numpy()
    if isinstance(values, np.ndarray):
        arrays.write_array(writer, values, node, path)
        node.pop("writeable", None)  # under copy-on-write pandas hands out what it keeps as read-only
        return node
    write = _ARRAYS.get(type(values))
    if write is None:
        raise ValueNotStorable(render(path), f"the extension dtype {values.dtype} is not known here")
    node["kind"] = type(values).__name__
    write(writer, values, node, path)
    return node


def _claim_memory(writer: Writer, values: Any, path: Path, *, is_column: bool) -> None:
    """Note which memory a mutable array shows; an index cannot be changed."""
    if type(values) is pd.arrays.NumpyExtensionArray:
        values = values.to_numpy()
    elif isinstance(values, pd.Categorical):
        values = values.codes
    elif hasattr(values, "asi8"):
        values = values.asi8
    else:
        values = getattr(
            values, "_data", values
        )  # of a nullable array; the public ways copy where something is missing
    if isinstance(values, np.ndarray):
        arrays.claim_memory(writer, values, path, is_column=is_column)


def _write_masked(writer: Writer, values: Any, node: dict[str, Any], path: Path) -> None:
    mask = np.asarray(values.isna(), bool)
    content = values.to_numpy(values.dtype.numpy_dtype, na_value=values.dtype.type(0), copy=True)
    if values.dtype.kind == "f" and (np.isnan(content).any() or values.isna().any()):  # a Float64 may hold NaN and NA
        mask = np.array([item is pd.NA for item in values], bool)
        content = np.array([0.0 if item is pd.NA else item for item in values], values.dtype.numpy_dtype)
    node["values"], node["mask"] = {}, {}
    arrays.write_array(writer, content, node["values"], path)
    arrays.write_array(writer, mask, node["mask"], path)


def _read_masked(kind: Callable[..., Any]) -> Callable[[Reader, dict[str, Any]], Any]:
    return lambda reader, node: kind(arrays.read_array(reader, node["values"]), arrays.read_array(reader, node["mask"]))


def _write_string(writer: Writer, values: Any, node: dict[str, Any], path: Path) -> None:
    node["dtype"] = _string_dtype(values.dtype)
    items = [item if isinstance(item, str) else None for item in values]
    node["items"] = writer.items(items, path)


def _string_dtype(dtype: Any) -> Node:
    return {"storage": dtype.storage, "missing": "NA" if dtype.na_value is pd.NA else "nan"}


def _read_string_dtype(node: Node) -> Any:
    missing: Any = {"NA": pd.NA, "nan": np.nan}[node["missing"]]
    return pd.StringDtype(node["storage"], na_value=missing)


def _read_string(reader: Reader, node: dict[str, Any]) -> Any:
    items = [reader.value(item) for item in node["items"]]
    if not all(item is None or type(item) is str for item in items):
        raise ValueError("an item of a column of texts is no text")
    return pd.array(np.array(items, object), dtype=_read_string_dtype(node["dtype"]))


def _write_times(writer: Writer, values: Any, node: dict[str, Any], path: Path) -> None:
    """Datetimes and timedeltas: the integers of their unit, and the zone."""
    node["unit"] = values.unit
    if isinstance(values, pd.arrays.DatetimeArray):
        write_zone(values.tz, node, path)
    node["values"] = {}
    arrays.write_array(writer, np.array(values.asi8, np.int64), node["values"], path)


def _read_times(reader: Reader, node: dict[str, Any]) -> Any:
    is_datetime = node["kind"] == "DatetimeArray"
    content = arrays.read_array(reader, node["values"]).view(f"{'M8' if is_datetime else 'm8'}[{node['unit']}]")
    index: Any = (pd.DatetimeIndex if is_datetime else pd.TimedeltaIndex)(content, copy=False)
    if (zone := read_zone(node)) is not None:
        index = index.tz_localize("UTC").tz_convert(zone)
    return index.array


def _write_period(writer: Writer, values: Any, node: dict[str, Any], path: Path) -> None:
    node["dtype"] = _dtype_text(values.dtype, path)
    node["values"] = {}
    arrays.write_array(writer, np.array(values.asi8, np.int64), node["values"], path)


def _read_period(reader: Reader, node: dict[str, Any]) -> Any:
    dtype: Any = pandas_dtype(node["dtype"])
    return pd.arrays.PeriodArray(arrays.read_array(reader, node["values"]), dtype=dtype)


def _write_interval(writer: Writer, values: Any, node: dict[str, Any], path: Path) -> None:
    node["closed"] = values.closed
    for side in ("left", "right"):
        node[side] = writer.sealed(getattr(values, side), at_field(path, side))


def _read_interval(reader: Reader, node: dict[str, Any]) -> Any:
    left, right = _index(reader, node["left"]), _index(reader, node["right"])
    return pd.arrays.IntervalArray.from_arrays(left, right, closed=node["closed"])


def _write_categorical(writer: Writer, values: Any, node: dict[str, Any], path: Path) -> None:
    node["ordered"] = values.ordered
    node["categories"] = writer.sealed(values.categories, at_field(path, "categories"))
    node["codes"] = {}
    arrays.write_array(writer, np.asarray(values.codes).copy(), node["codes"], path)


def _read_categorical(reader: Reader, node: dict[str, Any]) -> Any:
    dtype = pd.CategoricalDtype(_index(reader, node["categories"]), ordered=node["ordered"])
    return pd.Categorical.from_codes(arrays.read_array(reader, node["codes"]), dtype=dtype)


_Write = Callable[["Writer", Any, dict[str, Any], Path], None]
_ARRAYS: dict[type, _Write] = {
    pd.arrays.IntegerArray: _write_masked,
    pd.arrays.FloatingArray: _write_masked,
    pd.arrays.BooleanArray: _write_masked,
    pd.arrays.StringArray: _write_string,
    pd.arrays.ArrowStringArray: _write_string,
    pd.arrays.DatetimeArray: _write_times,
    pd.arrays.TimedeltaArray: _write_times,
    pd.arrays.PeriodArray: _write_period,
    pd.arrays.IntervalArray: _write_interval,
    pd.Categorical: _write_categorical,
}
_ARRAY_READERS: dict[str, Callable[[Reader, dict[str, Any]], Any]] = {
    "IntegerArray": _read_masked(pd.arrays.IntegerArray),
    "FloatingArray": _read_masked(pd.arrays.FloatingArray),
    "BooleanArray": _read_masked(pd.arrays.BooleanArray),
    "StringArray": _read_string,
    "ArrowStringArray": _read_string,
    "DatetimeArray": _read_times,
    "TimedeltaArray": _read_times,
    "PeriodArray": _read_period,
    "IntervalArray": _read_interval,
    "Categorical": _read_categorical,
}


def read_values(reader: Reader, node: dict[str, Any]) -> Any:
    """The array that `write_values` wrote."""
    return _ARRAY_READERS[node["kind"]](reader, node) if "kind" in node else arrays.read_array(reader, node)


def _write_array_value(writer: Writer, values: Any, node: dict[str, Any], path: Path) -> None:
    if (
        type(values) in (pd.arrays.DatetimeArray, pd.arrays.TimedeltaArray)
        and getattr(values, "freq", None) is not None
    ):
        raise ValueNotStorable(render(path), "this array has a frequency of its own (before pandas 3.1)")
    _claim_memory(writer, values, path, is_column=False)
    node["values"] = write_values(writer, values, path)


def _read_array_value(reader: Reader, node: dict[str, Any]) -> object:
    values = read_values(reader, node["values"])
    return pd.arrays.NumpyExtensionArray(values) if isinstance(values, np.ndarray) else values


# ---- dtypes and frequencies


def _dtype_text(dtype: Any, path: Path) -> str:
    text = str(dtype)
    try:
        same = bool(pandas_dtype(text) == dtype)
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ValueNotStorable(render(path), f"the extension dtype {text} is not known here")
    return text


def _write_dtype_value(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    if isinstance(value, pd.CategoricalDtype):
        node["ordered"] = value.ordered
        node["categories"] = writer.sealed(value.categories, at_field(path, "categories"))
    elif isinstance(value, pd.StringDtype):
        node["string"] = _string_dtype(value)
    elif isinstance(value, pd.DatetimeTZDtype):
        node["unit"] = value.unit
        write_zone(value.tz, node, path)
    else:
        node["dtype"] = _dtype_text(value, path)


def _read_dtype_value(reader: Reader, node: dict[str, Any]) -> object:
    if "categories" in node:
        return pd.CategoricalDtype(reader.value(node["categories"]), ordered=node["ordered"])
    if "string" in node:
        return _read_string_dtype(node["string"])
    return pd.DatetimeTZDtype(node["unit"], read_zone(node)) if "unit" in node else pandas_dtype(node["dtype"])


def _freq_text(freq: Any, path: Path) -> str:
    text: str = freq.freqstr
    try:
        again = to_offset(text)
    except ValueError:
        again = None
    if type(again) is not type(freq) or again != freq:
        raise ValueNotStorable(render(path), f"the frequency {text} has settings of its own")
    return text


def _write_offset(_writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    node["freq"] = _freq_text(value, path)


# ---- indexes


def _write_index(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    if value.name is not None:
        node["name"] = writer.sealed(value.name, at_field(path, "name"))
    if isinstance(value, pd.DatetimeIndex | pd.TimedeltaIndex) and value.freq is not None:
        node["freq"] = _freq_text(value.freq, path)
    with writer.sealing():
        node["values"] = write_values(writer, value.array, path)


def _read_index(reader: Reader, node: dict[str, Any]) -> object:
    values, name = read_values(reader, node["values"]), reader.value(node.get("name"))
    kind: Any = _INDEXES[node["$type"]]
    index: Any
    if kind is not pd.Index:
        index = kind(values, name=name, copy=False)
        if "freq" in node:
            index.freq = to_offset(node["freq"])
        return index
    index = pd.Index(values, dtype=values.dtype, name=name, copy=False, tupleize_cols=False)
    if type(index) is not pd.Index:
        raise ValueError(f"an index of {values.dtype} is a {type(index).__name__}")
    return index


def _write_range(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    if value.name is not None:
        node["name"] = writer.sealed(value.name, at_field(path, "name"))
    node.update(start=value.start, stop=value.stop, step=value.step)


def _read_range(reader: Reader, node: dict[str, Any]) -> object:
    return pd.RangeIndex(node["start"], node["stop"], node["step"], name=reader.value(node.get("name")))


def _write_multi(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    node["names"] = [writer.sealed(name, at_field(path, "names")) for name in value.names]
    node["levels"] = [writer.sealed(level.rename(None), at_field(path, "levels")) for level in value.levels]
    node["codes"] = []
    for codes in value.codes:
        node["codes"].append({})
        arrays.write_array(writer, np.array(codes), node["codes"][-1], path)
    if value.sortorder is not None:
        node["sortorder"] = int(value.sortorder)


def _read_multi(reader: Reader, node: dict[str, Any]) -> object:
    levels = [_index(reader, level) for level in node["levels"]]
    codes: Any = [arrays.read_array(reader, content) for content in node["codes"]]
    if len({len(content) for content in codes}) != 1 or len(levels) != len(codes):
        raise ValueError("the levels of the index have different lengths")
    for level, content in zip(levels, codes, strict=True):
        if len(content) and not -1 <= content.min() <= content.max() < len(level):
            raise ValueError("a code of the index is outside of its level")
    names = [reader.value(name) for name in node["names"]]
    return pd.MultiIndex(levels, codes, names=names, sortorder=node.get("sortorder"), verify_integrity=False)


def _index(reader: Reader, node: Node) -> Any:
    index = reader.value(node)
    if not isinstance(index, pd.Index):
        raise TypeError("what should be an index is none")
    return index


# ---- series and frames


def _write_extras(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    if value.attrs:
        node["attrs"] = writer.sealed(value.attrs, at_field(path, "attrs"))
    if not value.flags.allows_duplicate_labels:
        node["allows_duplicate_labels"] = False


def _read_extras(reader: Reader, node: dict[str, Any], value: Any) -> Any:
    if "attrs" in node:
        value.attrs = reader.value(node["attrs"])
    if not node.get("allows_duplicate_labels", True):
        value.flags.allows_duplicate_labels = False
    return value


def _write_column(writer: Writer, column: Any, path: Path) -> Node:
    _claim_memory(writer, column.array, path, is_column=_COPIES_ON_WRITE)
    return write_values(writer, column.array, path)


def _write_series(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    if value.name is not None:
        node["name"] = writer.sealed(value.name, at_field(path, "name"))
    node["index"] = writer.sealed(value.index, at_field(path, "index"))
    with writer.sealing():
        node["values"] = _write_column(writer, value, path)
    _write_extras(writer, value, node, path)


def _series(values: Any, index: Any, name: Any = None) -> Any:
    dtype = values.dtype  # said, or texts in an object array would become a column of texts
    return pd.Series(values, index=index, dtype=dtype, name=name, copy=False)


def _read_series(reader: Reader, node: dict[str, Any]) -> object:
    index, name = _index(reader, node["index"]), reader.value(node.get("name"))
    return _read_extras(reader, node, _series(read_values(reader, node["values"]), index, name))


def _write_frame(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    node["columns"] = writer.sealed(value.columns, at_field(path, "columns"))
    node["index"] = writer.sealed(value.index, at_field(path, "index"))
    with writer.sealing():
        node["values"] = [
            _write_column(writer, value.iloc[:, i], at_key(path, name)) for i, name in enumerate(value.columns)
        ]
    _write_extras(writer, value, node, path)


def _read_frame(reader: Reader, node: dict[str, Any]) -> object:
    index, columns = _index(reader, node["index"]), _index(reader, node["columns"])
    series = {i: _series(read_values(reader, item), index) for i, item in enumerate(node["values"])}
    frame = pd.DataFrame(series, index=index, columns=pd.RangeIndex(len(series)), copy=False)
    frame.columns = columns
    return _read_extras(reader, node, frame)


# ---- scalars


def _write_moment(_writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    """A Timestamp or Timedelta: text to read, and the integer of its unit, which is exact."""
    node["value"] = value.isoformat()
    node["unit"] = value.unit
    node["count"] = int(value.asm8.view(np.int64))
    if isinstance(value, pd.Timestamp):
        write_zone(value.tz, node, path)
        if value.fold:
            node["fold"] = value.fold


def _read_timestamp(_reader: Reader, node: dict[str, Any]) -> object:
    value = pd.Timestamp(np.datetime64(node["count"], node["unit"]))
    if (zone := read_zone(node)) is not None:
        value = value.tz_localize("UTC").tz_convert(zone)
    if value.fold != node.get("fold", 0):
        value = value.replace(fold=node.get("fold", 0))
    if value.asm8.view(np.int64) != node["count"] or value.unit != node["unit"]:
        raise ValueError("the time is not the one that was stored")
    return value


def _write_period_scalar(_writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    node.update(value=str(value), ordinal=value.ordinal, dtype=_dtype_text(pd.PeriodDtype(value.freq), path))


def _read_period_scalar(_reader: Reader, node: dict[str, Any]) -> object:
    dtype: Any = pandas_dtype(node["dtype"])
    return pd.Period(ordinal=node["ordinal"], freq=dtype.freq)


def _write_interval_scalar(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    node.update({side: writer.node(getattr(value, side), at_field(path, side)) for side in ("left", "right")})
    node["closed"] = value.closed


def _read_interval_scalar(reader: Reader, node: dict[str, Any]) -> object:
    return pd.Interval(reader.value(node["left"]), reader.value(node["right"]), node["closed"])


def _write_nothing(_writer: Writer, _value: object, _node: dict[str, Any], _path: Path) -> None:
    """The tag says it all."""


_INDEXES: dict[str, type] = {
    kind.__name__: kind
    for kind in (pd.Index, pd.DatetimeIndex, pd.TimedeltaIndex, pd.PeriodIndex, pd.IntervalIndex, pd.CategoricalIndex)
}
CODECS: dict[type, Codec] = {
    **{kind: Codec(tag, _write_index) for tag, kind in _INDEXES.items()},
    pd.RangeIndex: Codec("RangeIndex", _write_range),
    pd.MultiIndex: Codec("MultiIndex", _write_multi),
    pd.Series: Codec("Series", _write_series, shared=True),
    pd.DataFrame: Codec("DataFrame", _write_frame, shared=True),
    pd.Timestamp: Codec("Timestamp", _write_moment),
    pd.Timedelta: Codec("Timedelta", _write_moment),
    pd.Period: Codec("Period", _write_period_scalar),
    pd.Interval: Codec("Interval", _write_interval_scalar),
    type(pd.NaT): Codec("NaT", _write_nothing),
    type(pd.NA): Codec("NA", _write_nothing),
}
READERS: dict[str, Read] = {
    **dict.fromkeys(_INDEXES, _read_index),
    "RangeIndex": _read_range,
    "MultiIndex": _read_multi,
    "Series": _read_series,
    "DataFrame": _read_frame,
    "Timestamp": _read_timestamp,
    "Timedelta": lambda _reader, node: pd.Timedelta(np.timedelta64(node["count"], node["unit"])),
    "Period": _read_period_scalar,
    "Interval": _read_interval_scalar,
    "NaT": lambda _reader, _node: pd.NaT,
    "NA": lambda _reader, _node: pd.NA,
    "pandas.array": _read_array_value,
    "pandas.dtype": _read_dtype_value,
    "offset": lambda _reader, node: to_offset(node["freq"]),
}
