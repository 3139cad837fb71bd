"""Cells in a new kernel, timed."""

from __future__ import annotations

import os
import time
from typing import Any

from jupyter_client.manager import start_new_kernel


def in_new_kernel(*cells: str) -> list[tuple[float, str]]:
    """For each cell, seconds from its request to its end, and what it printed. The kernel is gone on return."""
    found = []
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    manager, client = start_new_kernel(env=compiled)  # as an installed package is; the first one may compile
    try:
        for cell in cells:
            said: list[str] = []

            def hear(message: dict[str, Any], said: list[str] = said) -> None:
                if message["msg_type"] == "stream":
                    said.append(message["content"]["text"])

            began = time.perf_counter()
            reply = client.execute_interactive(cell, output_hook=hear, timeout=300)
            found.append((time.perf_counter() - began, "".join(said)))
            if reply["content"]["status"] != "ok":
                raise RuntimeError(f"{reply['content']['ename']}: {reply['content']['evalue']}")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return found
