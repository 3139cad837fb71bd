"""Kernels for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jupyter_client.manager import KernelManager

_TRIES = 3
_READY_S = 60.0


def started(make: Callable[[], KernelManager], **options: Any) -> tuple[KernelManager, Any]:
    """A manager and a client of a kernel that is ready.

    jupyter_client looks for free ports and lets go of them before the kernel takes them: where another process, such
    as a kernel of another test, was faster, the kernel dies at its start or hangs, and another one is started.
    """
    for left in reversed(range(_TRIES)):
        manager = make()
        manager.start_kernel(**options)
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=_READY_S)
        except RuntimeError:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
            if not left:
                raise
        else:
            break
    return manager, client
