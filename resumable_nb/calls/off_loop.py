"""Blocking work for async code: away from the event loop, and never torn by a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


async def off_loop(work: Callable[[], T]) -> T:
    """The result of `work`, which runs in a thread, in a copy of this context.

    A cancellation that comes meanwhile is raised when `work` has ended: a journal row is written whole, and who waits
    for it knows that it is. asyncio's own `Task.cancel` respects no shield of anyio, hence a task of its own.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio
        with anyio.CancelScope(shield=True):
            return await anyio.to_thread.run_sync(work)
    task = asyncio.ensure_future(_in_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():  # the loop itself shuts down
                raise
            cancelled = error
        except BaseException:  # noqa: BLE001, it is raised below, by `result`
            break
    if cancelled is not None:
        raise cancelled
    return task.result()


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work)
