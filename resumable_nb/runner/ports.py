"""Ports for a kernel that nobody else takes before it listens.

jupyter_client asks the system for free ports and lets go of them. Until the kernel listens there, half a second later
or more, the system may give them to others, such as the kernel of another run. Ours then dies at its start, or stays
and never answers (ipykernel 7.4, by trying). So ports are taken from below those that systems give away (Linux: from
32768, macOS and Windows: from 49152), and each process begins to look at a place of its own.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_client.manager import KernelManager

_FIRST, _END = 10_000, 32_768
_OWN = 50
"""How many ports of a process no other one looks at first: for ten kernels at once."""

_NAMES = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
_turns = itertools.count()


def give_ports(manager: KernelManager) -> None:
    """Set the ports on which the manager's kernel, which is not started yet, will listen."""
    manager.cache_ports = False  # it would choose others
    free = (port for port in _places() if _is_free(manager.ip, port))
    for name, port in zip(_NAMES, free, strict=False):
        setattr(manager, name, port)


def _places() -> Iterator[int]:
    for _ in range(_OWN):
        yield _FIRST + (os.getpid() * _OWN + next(_turns) % _OWN) % (_END - _FIRST)
    while True:
        yield random.randrange(_FIRST, _END)  # noqa: S311, no secret


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as tried:
        if os.name == "posix":  # as ZeroMQ does it: a port whose last kernel has just ended is free
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address, port))
        except OSError:
            return False
        return True
