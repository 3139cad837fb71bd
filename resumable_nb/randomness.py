"""Where `random` and numpy's legacy generator stand, as bytes, and back; numpy only if it is imported."""

from __future__ import annotations

import json
import random
import struct
import sys
from typing import Any

Snapshot = tuple[Any, ...]


def snapshot() -> Snapshot:
    """Where both generators stand now, to be compared with `==`."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "random"):
        return (random.getstate(),)
    name, keys, *rest = numpy.random.get_state()
    return random.getstate(), (name, keys.astype("<u4").tobytes(), *rest)


def pack(taken: Snapshot) -> bytes:
    """A snapshot as it is stored."""
    version, words, gauss = taken[0]
    parts: dict[str, Any] = {"random": [version, gauss]}
    body = struct.pack(f"<{len(words)}I", *words)
    if len(taken) > 1:
        name, keys, *rest = taken[1]
        parts["numpy"] = [name, *rest]
        body += keys
    head = json.dumps(parts).encode()
    return struct.pack("<II", len(head), len(words)) + head + body


def restore(stored: bytes) -> None:
    """Put both generators to where a stored snapshot was taken."""
    size, count = struct.unpack_from("<II", stored)
    parts = json.loads(stored[8 : 8 + size])
    body = stored[8 + size :]
    words = struct.unpack_from(f"<{count}I", body)
    version, gauss = parts["random"]
    random.setstate((version, words, gauss))
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in parts:
        name, *rest = parts["numpy"]
        keys = numpy.frombuffer(body[4 * count :], dtype="<u4").astype(numpy.uint32)
        numpy.random.set_state((name, keys, *rest))
