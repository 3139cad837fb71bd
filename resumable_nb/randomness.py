"""The state of `random` and of numpy's legacy generator, as bytes; numpy only if it is imported."""

from __future__ import annotations

import json
import random
import struct
import sys
from typing import Any


def state() -> bytes:
    """Where both generators stand now."""
    version, words, gauss = random.getstate()
    parts: dict[str, Any] = {"random": [version, gauss]}
    body = struct.pack(f"<{len(words)}I", *words)
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        name, keys, *rest = numpy.random.get_state()
        parts["numpy"] = [name, *rest]
        body += keys.astype("<u4").tobytes()
    head = json.dumps(parts).encode()
    return struct.pack("<II", len(head), len(words)) + head + body


def restore(stored: bytes) -> None:
    """Put both generators to a state that `state` gave."""
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
