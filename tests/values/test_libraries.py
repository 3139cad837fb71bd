"""What numpy and pandas have that has no exact form, or is bent by other formats."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from resumable_nb.errors import ValueNotStorable
from resumable_nb.values import decode, encode, encode_names, resolver
from tests.values.strict import assert_same

holidays = pd.offsets.CustomBusinessDay(holidays=["2024-01-01"])


class Matrix(np.ndarray[Any, Any]):
    """A subclass of an array."""


class Table(pd.DataFrame):
    """A subclass of a frame."""


def masked_with_attributes() -> Any:
    array = np.ma.array([1, 2])
    array._optinfo["unit"] = "m"
    return array


NOT_STORABLE: dict[str, Any] = {
    "sparse": pd.array([0, 1], dtype=pd.SparseDtype(int)),
    "sparse column": pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}),
    "sparse dtype": pd.SparseDtype(int, 7),
    "long double": np.longdouble(1),
    "array of long doubles": np.zeros(2, "g"),
    "long double in fields": np.zeros(2, [("a", "g")]),
    "array of texts of any length": np.array(["a"], np.dtypes.StringDType()),
    "record array": np.rec.array([(1, 2)], dtype=[("a", int), ("b", int)]),
    "dtype of records": np.dtype((np.record, [("a", int)])),
    "dtype with metadata": np.dtype("i4", metadata={"unit": "m"}),
    "subclass of an array": np.zeros(2).view(Matrix),
    "subclass of a frame": Table({"a": [1]}),
    "masked with attributes": masked_with_attributes(),
    "frequency with holidays": pd.date_range("2024", periods=3, freq=holidays),
    "frequency": holidays,
    "offset of dates": pd.DateOffset(months=1),
    "zone of dateutil": pd.Timestamp("2024", tz="dateutil/Europe/Berlin"),
    "column in a zone of dateutil": pd.DataFrame({"t": pd.date_range("2024", periods=2, tz="dateutil/Europe/Berlin")}),
    "group": pd.DataFrame({"a": [1]}).groupby("a"),
    "generator of numbers": np.random.default_rng(),
    "function": np.sin,
    "cell that is not storable": pd.DataFrame({"a": [object()]}),
    "attrs that are not storable": pd.Series([1]),
    "name that is not storable": pd.Series([1], name=len),
    "level that is not storable": pd.Index([1], name=len),
}


def half_made() -> Any:
    return pd.DataFrame.__new__(pd.DataFrame)


NOT_STORABLE |= {
    "texts that are no text": np.frombuffer(b"\xff\xff\xff\x7f", "<U1").copy(),
    "half made": half_made(),
}
NOT_STORABLE["attrs that are not storable"].attrs["f"] = len


@pytest.mark.parametrize("name", NOT_STORABLE)
def test_what_has_no_exact_form_is_refused(name: str) -> None:
    """Never bent, never pickled."""
    with pytest.raises(ValueNotStorable) as caught:
        encode([NOT_STORABLE[name]])

    assert caught.value.path.startswith("value[0]")
    assert set(encode_names({"a": NOT_STORABLE[name], "b": 1}).failed) == {"a"}


def round_trip(value: Any) -> Any:
    encoded = encode(value)
    return decode(encoded.text, encoded.blobs.__getitem__, resolver({}))


def test_what_lies_under_a_missing_value_does_not_count() -> None:
    """Two nullable columns that show the same have one text."""
    mask = np.array([True, False])
    one = pd.arrays.IntegerArray(np.array([5, 1]), mask)
    other = pd.arrays.IntegerArray(np.array([7, 1]), mask)

    assert encode(one).text == encode(other).text


def test_what_lies_between_fields_does_not_count() -> None:
    """The padding of a structured array is noise."""
    dtype = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    one, other = np.zeros(3, dtype), np.frombuffer(b"\xff" * 48, dtype).copy()
    other["a"], other["b"] = 0, 0

    assert encode(one).text == encode(other).text
    assert_same(other, round_trip(other))


def test_a_loaded_array_can_be_changed() -> None:
    """Arrays and frames own their memory, and two loads share none."""
    encoded = encode({"a": np.arange(100), "f": pd.DataFrame({"x": np.arange(100)})})
    one: Any = decode(encoded.text, encoded.blobs.__getitem__, resolver({}))
    other: Any = decode(encoded.text, encoded.blobs.__getitem__, resolver({}))

    one["a"][0] = 7
    one["f"].loc[0, "x"] = 7

    assert other["a"][0] == 0
    assert other["f"].loc[0, "x"] == 0
    assert one["f"].loc[0, "x"] == 7


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_hour_of_a_year_comes_back_in_its_zone(unit: Any) -> None:
    """Also the hours that come twice, and the ones beside those that do not come."""
    index = pd.date_range("2024", periods=8784, freq="h", tz="UTC", unit=unit).tz_convert("America/New_York")
    series = pd.Series(index, index=index)

    again = round_trip([series, index, list(index[7400:7420])])

    assert_same([series, index, list(index[7400:7420])], again)
    assert [stamp.fold for stamp in again[0]] == [stamp.fold for stamp in index]


def test_times_of_python_keep_their_fold_in_frames() -> None:
    """A cell that is a datetime is no Timestamp."""
    from zoneinfo import ZoneInfo

    cells = np.empty(2, object)
    cells[:] = [dt.datetime(2024, 11, 3, 1, 30, fold=fold, tzinfo=ZoneInfo("America/New_York")) for fold in (0, 1)]
    frame = pd.DataFrame({"t": pd.Series(cells, dtype=object)})

    assert_same(frame, round_trip(frame))


ARROW = """
import pandas as pd, sys
from resumable_nb.values import decode, encode, resolver
from tests.values.strict import assert_same
frame = pd.DataFrame({"a": ["x", None], "b": pd.array(["y", None], "string")}, index=["p", "q"])
assert frame["a"].dtype.storage == "pyarrow", frame["a"].dtype
encoded = encode(frame)
assert_same(frame, decode(encoded.text, encoded.blobs.__getitem__, resolver({})))
"""


def test_texts_kept_by_arrow_come_back_in_its_storage() -> None:
    """Where pyarrow is installed, pandas keeps texts in it; the storage is part of the dtype."""
    pytest.importorskip("pyarrow")
    subprocess.run([sys.executable, "-c", ARROW], check=True, timeout=100, env=os.environ | {"PYTHONPATH": os.getcwd()})


def test_a_frame_can_be_read_with_sql() -> None:
    """Column names and texts stand in the JSON; numbers are exact bytes."""
    tree = json.loads(encode(pd.DataFrame({"city": ["Oslo"], "n": [1]})).text)

    assert tree["columns"]["values"]["items"] == ["city", "n"]
    assert tree["values"][0]["items"] == ["Oslo"]
