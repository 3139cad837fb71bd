"""Ctrl-C wakes an event loop that waits."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from resumable_nb.notebook.interrupts import Wakeup

WAIT_S = 200


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No test leaves a wakeup descriptor or a handler."""
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)
    assert signal.set_wakeup_fd(-1) == -1


def signal_this_thread() -> None:
    """A signal that interrupts no system call of the main thread, such as one that a kernel's IO thread gets."""
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)


def test_a_signal_wakes_the_loop() -> None:
    """A loop that waits for nothing else runs a signal's handler when the signal comes, every time."""

    async def main() -> list[str]:
        loop, woken, wakeup, seen = asyncio.get_running_loop(), asyncio.Event(), Wakeup(), list[str]()
        signal.signal(signal.SIGUSR1, lambda *_: loop.call_soon(woken.set))
        for _ in range(3):
            wakeup.start()
            other = loop.call_later(WAIT_S, seen.append, "the loop woke for something else")
            threading.Timer(0.2, signal_this_thread).start()
            await woken.wait()
            seen.append("woken")
            other.cancel()
            wakeup.stop()
            woken.clear()
        return seen

    assert asyncio.run(main()) == ["woken"] * 3


def test_another_arrangement_stays() -> None:
    """Where something else already watches signals, that stays, and nothing is left behind."""

    async def main() -> int:
        reader, writer = socket.socketpair()
        with reader, writer:
            writer.setblocking(False)
            signal.set_wakeup_fd(writer.fileno())
            wakeup = Wakeup()
            wakeup.start()
            wakeup.stop()
            return signal.set_wakeup_fd(-1) - writer.fileno()

    assert asyncio.run(main()) == 0


def test_outside_a_loop_or_the_main_thread_nothing_happens() -> None:
    """In a terminal's loop-less shell, or on another thread, there is nothing to arrange."""
    wakeup = Wakeup()
    wakeup.start()

    async def main() -> None:
        wakeup.start()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    thread.join()
    wakeup.stop()

    assert signal.set_wakeup_fd(-1) == -1
