"""Ctrl-C while a cell awaits: without help it acts only when the event loop next wakes (ipykernel issue 881)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading


class Wakeup:
    """While it is on, a signal wakes the running event loop at once."""

    def __init__(self) -> None:
        self._on: tuple[asyncio.AbstractEventLoop, socket.socket, socket.socket] | None = None

    def start(self) -> None:
        """Have signals write to a socket that the loop watches. Does nothing where somebody else has arranged that."""
        if self._on is not None or threading.current_thread() is not threading.main_thread():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)  # noqa: FBT003 the standard library's signature
        try:
            loop.add_reader(reader, _drain, reader)
        except NotImplementedError:  # Windows' proactor loop; there Ctrl-C comes by another way
            reader.close()
            writer.close()
            return
        self._on = loop, reader, writer
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            self.stop()

    def stop(self) -> None:
        """Put everything back."""
        if self._on is None:
            return
        (loop, reader, writer), self._on = self._on, None
        now = signal.set_wakeup_fd(-1)
        if now not in (-1, writer.fileno()):
            signal.set_wakeup_fd(now)
        if not loop.is_closed():
            loop.remove_reader(reader)
        reader.close()
        writer.close()


def _drain(reader: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while reader.recv(4096):
            continue
