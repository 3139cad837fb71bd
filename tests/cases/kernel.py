"""A real kernel in which a test runs cells one by one, as a person does."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.manager import KernelManager

from tests.support.kernels import started


class Kernel:
    """Runs cells in a kernel; each call waits for its cell's end."""

    def __init__(self, manager: KernelManager, client: Any) -> None:
        self.manager, self.client = manager, client
        self._order: list[str] = []

    def run(self, source: str, cell_id: str | None = None, *, timeout_s: float = 120) -> str:
        """Everything that the cell shows, as text."""
        return self.wait(self.send(source, cell_id), timeout_s=timeout_s)

    def send(self, source: str, cell_id: str | None = None) -> str:
        """Start a cell; its message id."""
        content = {"code": source, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = self.client.session.msg("execute_request", content | {"stop_on_error": True})
        if cell_id is not None:
            message["metadata"] = {"cellId": cell_id}
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def wait(self, msg_id: str, *, timeout_s: float = 120, until: str | None = None) -> str:
        """Until the cell has ended, or has shown these words; what it showed, as text."""
        shown, deadline = [], time.monotonic() + timeout_s
        while until is None or until not in "\n".join(shown):
            message = self.client.get_iopub_msg(timeout=max(deadline - time.monotonic(), 0.01))
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                shown.append(content["text"])
            elif kind in ("display_data", "execute_result"):
                shown.append(content["data"].get("text/plain", ""))
            elif kind == "error":
                shown.append("\n".join([content["ename"], content["evalue"], *content["traceback"]]))
            elif kind == "status" and content["execution_state"] == "idle":
                assert until is None, f"it ended without: {until}"
                return "\n".join(shown)
        return "\n".join(shown)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.manager.interrupt_kernel()

    def wait_until_let_go(self, path: Path) -> None:
        """Until the kernel has closed a file, as it does some time after it has used a store."""
        process, deadline = psutil.Process(self.manager.provisioner.process.pid), time.monotonic() + 120
        while str(path) in (file.path for file in process.open_files()):
            assert time.monotonic() < deadline
            time.sleep(0.05)


@contextlib.contextmanager
def kernel(folder: Path, env: dict[str, str]) -> Iterator[Kernel]:
    """A fresh kernel in a folder; it ends with the block."""
    manager = KernelManager(kernel_name="python3")
    client = started(manager, cwd=str(folder), env=os.environ | env)
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
