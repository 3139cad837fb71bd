"""A notebook on screen with a real kernel behind it, driven as a front end drives it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

from tests.support.kernels import started

REPLY_S = 120.0
OPEN = "%load_ext resumable_nb\n%resumable open t --db t.duckdb --query q"


@dataclass
class Shown:
    """What came of one execution, as it stands on screen."""

    status: str
    outputs: list[dict[str, Any]] = field(default_factory=list)
    updated: dict[str, Any] = field(default_factory=dict)
    clears_next: bool = False
    error: str = ""

    def text(self, *forms: str) -> str:
        """All words on screen: streams, errors, and the given forms of displays (plain text)."""
        parts = []
        for output in self.outputs:
            parts.append(output.get("text") or "\n".join(output.get("traceback", [])))
            parts += [str(output["data"].get(form, "")) for form in forms or ("text/plain",) if "data" in output]
        return "\n".join(filter(None, parts))

    @property
    def results(self) -> list[str]:
        """Values of last expressions."""
        return [o["data"]["text/plain"] for o in self.outputs if o["output_type"] == "execute_result"]

    @property
    def own(self) -> list[dict[str, Any]]:
        """Outputs without the library's lines and panels."""
        return [o for o in self.outputs if "resumable_nb" not in o.get("metadata", {})]

    @property
    def said(self) -> str:
        """The library's lines and panels."""
        ours = [o for o in self.outputs if "resumable_nb" in o.get("metadata", {})]
        return "\n".join(o["data"]["text/plain"] for o in ours)


class Screen:
    """One notebook. Cells are texts by id; `save` writes the file, `run` executes cells in the kernel."""

    def __init__(self, folder: Path, **cells: str) -> None:
        self.folder, self.path, self.cells = folder, folder / "nb.ipynb", dict(cells)
        self.env = os.environ | {
            "JPY_SESSION_NAME": str(self.path),
            "RESUMABLE_NB_SECRET_DIR": str(folder / "secret"),
            "IPYTHONDIR": str(folder / "ipython"),
            "OPENAI_API_KEY": "",
        }
        self.save()

    def save(self) -> None:
        """Write the file."""
        cells = [
            {"cell_type": "code", "id": i, "source": s, "outputs": [], "metadata": {}, "execution_count": None}
            for i, s in self.cells.items()
        ]
        self.path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))

    # ------------------------------------------------------------------ the kernel
    def start(self) -> None:
        """A fresh kernel."""
        self.manager = KernelManager(kernel_name="python3")
        if self.manager.has_trait("transport_encryption"):  # since jupyter_client 8.10, which warns without it
            self.manager.set_trait("transport_encryption", "auto")
        self.client = started(self.manager, env=self.env, cwd=str(self.folder))

    def stop(self, *, kill: bool = True) -> None:
        """End the kernel; by SIGKILL, or as a front end's shutdown does."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=kill)

    def died(self) -> None:
        """Wait until the kernel is dead, by its own hand."""
        deadline = time.monotonic() + REPLY_S
        while self.manager.is_alive():
            assert time.monotonic() < deadline, "the kernel lives"
            time.sleep(0.05)

    def restart(self, *, kill: bool = True) -> None:
        """Kill the kernel and start a new one."""
        self.stop(kill=kill)
        self.start()

    def send(self, code: str, cell_id: str | None = None, **options: Any) -> str:
        """Send one request, and do not wait. `metadata`: more of it; the rest is of the request."""
        metadata = options.pop("metadata", {}) | ({"cellId": cell_id} if cell_id else {})
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = self.client.session.msg("execute_request", {**content, "stop_on_error": True, **options})
        message["metadata"] = metadata
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def result(self, msg_id: str) -> Shown:
        """What came of a request that was sent. Updates of displays by other requests are in `updated`."""
        shown, deadline = Shown(""), time.monotonic() + REPLY_S
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            _show(shown, kind, content)
        while True:
            reply = self.client.get_shell_msg(timeout=max(0.01, deadline - time.monotonic()))
            if reply["parent_header"].get("msg_id") == msg_id:
                break
        shown.status = reply["content"]["status"]
        shown.error = f"{reply['content'].get('ename', '')}: {reply['content'].get('evalue', '')}" * (
            shown.status == "error"
        )
        return shown

    def execute(self, code: str, cell_id: str | None = None, **options: Any) -> Shown:
        """Execute text, as a cell if it has an id."""
        return self.result(self.send(code, cell_id, **options))

    def run(self, *cell_ids: str) -> Shown:
        """Execute cells by id, one after the other; the last one's result. All must end well but the last."""
        for number, cell_id in enumerate(cell_ids, 1):
            shown = self.execute(self.cells[cell_id], cell_id)
            assert number == len(cell_ids) or shown.status == "ok", shown.text()
        return shown

    def run_all(self) -> dict[str, Shown]:
        """Execute all cells, up to the first that raises."""
        found = {}
        for cell_id in self.cells:
            found[cell_id] = self.run(cell_id)
            if found[cell_id].status != "ok":
                break
        return found

    def value(self, expression: str) -> Any:
        """The value of a literal, by a request that is no cell."""
        shown = self.execute(f"print(repr({expression}))", silent=False, store_history=False)
        assert shown.status == "ok", shown.text()
        return eval(shown.text())


def _show(shown: Shown, kind: str, content: dict[str, Any]) -> None:
    if kind == "clear_output":
        shown.clears_next = content["wait"]
    if (kind == "clear_output" and not content["wait"]) or (
        shown.clears_next and kind in ("stream", "display_data", "execute_result", "error")
    ):
        shown.clears_next = False
        shown.outputs.clear()
    if kind == "stream":
        last = shown.outputs[-1] if shown.outputs else {}
        if last.get("name") == content["name"]:
            last["text"] += content["text"]
        else:
            shown.outputs.append({"output_type": kind, **content})
    elif kind in ("display_data", "execute_result", "error"):
        shown.outputs.append({"output_type": kind, **content})
    elif kind == "update_display_data":
        shown.updated[content["transient"]["display_id"]] = content["data"]


@contextmanager
def screen(folder: Path, **cells: str) -> Iterator[Screen]:
    """A notebook with a kernel; both are gone at the end."""
    found = Screen(folder, **cells)
    found.start()
    try:
        yield found
    finally:
        found.stop()
