"""Functions of tests in processes of their own, which can be killed. A fork server imports the functions' modules once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
_MODULES: list[str] = []


def preload(module: str) -> None:
    """Let the fork server import this too, if it does not run yet."""
    _MODULES.append(module)
    CONTEXT.set_forkserver_preload(_MODULES)


def outcome(target: Callable[..., None], *args: Any) -> tuple[int | None, Any]:
    """The exit code of one process, and what it sent by the pipe that it gets as its last argument; None for nothing."""
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=target, args=(*args, sender))
    process.start()
    sender.close()
    process.join(200)
    process.kill()
    try:
        return process.exitcode, receiver.recv()
    except EOFError:
        return process.exitcode, None
