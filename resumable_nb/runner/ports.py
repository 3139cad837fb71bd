"""Ports for a kernel that nobody else takes before it listens.

jupyter_client asks the system for free ports and lets go of them. Until the kernel listens there, half a second later
or more, the system may give them to others, such as the kernel of another run. Ours then dies at its start, or stays
and never answers (ipykernel 7.4, by trying). So ports are taken from below those that systems give away (Linux: from
32768, macOS and Windows: from 49152), each process begins to look at a place of its own, and on Linux a port is kept
for as long as the manager of its kernel is there: by a socket that does not listen, beside which only one with
`SO_REUSEADDR`, such as ZeroMQ's, can be bound.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import sys
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_client.manager import KernelManager

_FIRST, _END = 10_000, 32_768
_OWN = 50
"""How many ports of a process no other one looks at first: for ten kernels at once."""

_NAMES = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
_turns = itertools.count()
_dice = random.SystemRandom()  # a seed is the same in many processes


def give_ports(manager: KernelManager) -> None:
    """Set the ports on which the manager's kernel, which is not started yet, will listen."""
    manager.cache_ports = False  # it would choose others
    free = (port for port in _places() if _is_kept(manager, port))
    for name, port in zip(_NAMES, free, strict=False):
        setattr(manager, name, port)


def _places() -> Iterator[int]:
    for _ in range(_OWN):
        yield _FIRST + (os.getpid() * _OWN + next(_turns) % _OWN) % (_END - _FIRST)
    while True:
        yield _dice.randrange(_FIRST, _END)


def _is_kept(manager: KernelManager, port: int) -> bool:
    """Whether nobody had it; then it is kept for this manager."""
    with socket.socket() as keeper:
        try:
            keeper.bind((manager.ip, port))
        except OSError:
            return False
        if sys.platform == "linux":  # elsewhere nobody could listen there
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            weakref.finalize(manager, os.close, keeper.detach())
    return True
