"""Kernels for tests."""

from __future__ import annotations

from typing import Any

from jupyter_client.manager import KernelManager

from resumable_nb.runner.ports import give_ports

_READY_S = 180.0


def started(manager: KernelManager, **options: Any) -> Any:
    """A client of the manager's kernel, which is started, on ports that no other test's kernel takes, and is ready."""
    give_ports(manager)
    manager.start_kernel(**options)
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=_READY_S)
    return client
