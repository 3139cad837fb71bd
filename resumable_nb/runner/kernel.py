"""One kernel's way through a notebook: each cell is sent with the place where it stands."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.session import Session
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbclient.util import ensure_async

from resumable_nb.progress import GRACE_S
from resumable_nb.runner.ports import give_ports

if TYPE_CHECKING:
    from resumable_nb.document import Document

START_S = 180
"""How long a kernel may take to start. nbclient's minute is too short for a busy machine or a slow network home."""
SETTLE_S = 5
INTERRUPTED_S = GRACE_S + SETTLE_S
"""How long an interrupted cell may take to end: `map` waits for answers that are on their way."""

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # nbclient reports to it what `Run.message` says in plain words


class _PlacedSession(Session):
    """Sends with every execute request where its cell stands; nbclient alone sends not even the cell's id."""

    place: Mapping[str, object] = {}

    def msg(
        self,
        msg_type: str,
        content: dict[str, Any] | None = None,
        parent: dict[str, Any] | None = None,
        header: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        if msg_type == "execute_request":
            metadata = {**(metadata or {}), **self.place}
        return super().msg(msg_type, content, parent, header, metadata)


class _ThisPython(KernelSpecManager):
    """Kernels that are installed, by name; for `python3`, and for names that are not installed, this Python."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        if kernel_name != "python3":
            with contextlib.suppress(NoSuchKernel):
                return super().get_kernel_spec(kernel_name)
        try:  # what ipykernel says about itself, such as that it can encrypt
            spec = KernelSpec.from_resource_dir(str(Path(sys.prefix) / "share" / "jupyter" / "kernels" / "python3"))
        except OSError:
            spec = KernelSpec(display_name="Python", language="python")
        spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return spec


def _kernel_manager(name: str) -> AsyncKernelManager:
    manager = AsyncKernelManager(kernel_name=name, kernel_spec_manager=_ThisPython())
    if manager.has_trait("transport_encryption"):  # since jupyter_client 8.10; others on this machine can listen
        manager.set_trait("transport_encryption", "auto")
    give_ports(manager)
    return manager


class Client(NotebookClient):
    """One kernel's way through the notebook."""

    def __init__(
        self,
        document: Document,
        *,
        cell_timeout_s: float | None,
        on_signal: Callable[[], None],
        end: Literal["graceful", "immediate"] = "graceful",
    ) -> None:
        name = document.content.metadata.get("kernelspec", {}).get("name") or "python3"
        manager = _kernel_manager(name)
        manager.session = _PlacedSession(parent=manager)
        folder = {"metadata": {"path": str(document.source.parent)}}
        super().__init__(
            document.content,
            km=manager,
            resources=folder,
            timeout_func=lambda _: cell_timeout_s,
            startup_timeout=START_S,
            log=_log,
            shutdown_kernel=end,
        )
        self.on_cell_error = lambda cell, **_: document.failed.add(cell.id)
        self.owns_km = True  # the kernel ends with this client, although we made its manager
        self._document, self._on_signal = document, on_signal

    async def async_start_new_kernel(self, **options: Any) -> None:
        """Start the kernel, with our handlers of signals in place."""
        take_signals(self._on_signal)  # nbclient's own handlers would end the kernel under a running cell
        await super().async_start_new_kernel(**options)

    async def async_execute_cell(self, cell: Any, cell_index: int, *args: Any, **options: Any) -> Any:
        """Run a cell, and tell the kernel where it stands."""
        assert self.kc is not None  # this runs within `async_setup_kernel`
        self.kc.session.place = self._document.place(cell.id)
        return await super().async_execute_cell(cell, cell_index, *args, **options)

    async def interrupt(self) -> None:
        """Interrupt the running cell, as the stop button does."""
        if self.km is not None and self.km.has_kernel:
            await ensure_async(self.km.interrupt_kernel())

    async def settle(self) -> None:
        """Give the kernel a moment to write down how its cell ended."""
        if self.kc is not None:
            with contextlib.suppress(TimeoutError, DeadKernelError):
                await asyncio.wait_for(self.async_wait_for_reply(self.kc.kernel_info()), INTERRUPTED_S)

    @property
    def pid(self) -> int:
        """The kernel's process; 0 where it is not known, as for one on another machine."""
        return int(getattr(self.km and self.km.provisioner, "pid", 0) or 0)

    async def evaluate(self, expression: str) -> str:
        """What an expression gives in the kernel, as text; "" where it raises. No cell has run by this."""
        assert self.kc is not None  # this runs within `async_setup_kernel`
        asked = self.kc.execute("", silent=True, store_history=False, user_expressions={"found": expression})
        reply = await self.async_wait_for_reply(asked)
        found = (reply or {}).get("content", {}).get("user_expressions", {}).get("found", {})
        return str(found.get("data", {}).get("text/plain", ""))

    async def cause_of_death(self) -> str:
        """How the kernel's process ended, such as " by SIGKILL"; "" where the system does not say."""
        provisioner = self.km and self.km.provisioner
        code = await provisioner.poll() if provisioner else None
        return "" if code is None else f" by {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"

    def end_children(self) -> None:
        """End what a dead kernel left running, such as workers of a process pool: they would go on with its work."""
        group = getattr(self.km and self.km.provisioner, "pgid", None)
        if group and group == self.pid:  # the group that Jupyter made for the kernel, not one that others are in
            with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody, or a zombie, is left
                os.killpg(group, signal.SIGKILL)

    async def end(self) -> None:
        """End a kernel that was still being started: nbclient ends it only later."""
        if self.km is not None and self.km.has_kernel:
            await ensure_async(self.km.shutdown_kernel(now=True))
        atexit.unregister(self._cleanup_kernel)  # nbclient's, for a kernel that is still alive then


def take_signals(on_signal: Callable[[], None]) -> None:
    """Let Ctrl-C and SIGTERM call this, in place of what else would."""
    with contextlib.suppress(ValueError, RuntimeError):  # not the main thread: nobody presses Ctrl-C there
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, on_signal)
