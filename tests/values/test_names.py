"""Names that are stored together."""

from __future__ import annotations

import threading

from resumable_nb.values import decode_names, encode_names, resolver


def test_two_names_for_one_list_come_back_as_one() -> None:
    """Aliases across names and cycles survive."""
    a: list[object] = []
    c: list[object] = []
    c.append(c)

    names = decode_names(encode_names({"a": a, "b": a, "c": c}).text, {}.__getitem__, resolver({}))

    assert names["a"] is names["b"]
    assert names["c"][0] is names["c"]  # type: ignore[index]


def test_a_name_that_shares_with_one_that_fails_is_left_out_too() -> None:
    """What is restored is never split from what is rebuilt."""
    shared = [1]
    encoded = encode_names({"x": [threading.Lock(), shared], "y": shared, "z": 1})

    assert encoded.text == '{"z":1}'
    assert set(encoded.failed) == {"x", "y"}
    assert "lock" in encoded.failed["x"]
    assert "'x'" in encoded.failed["y"]
