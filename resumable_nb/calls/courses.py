"""One course, two drivers: what a call does in order is written once, as a generator, for sync and async code."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from resumable_nb.calls.off_loop import off_loop


@dataclass(frozen=True)
class Asked:
    """What the course of an effect asks its driver to do: work of the library (blocking), or of the user."""

    work: Callable[[], Any]
    is_ours: bool = True


Course = Generator[Asked, Any, Any]


def driven(course: Course) -> Any:
    """Drive it to its end; gives what it returns."""
    try:
        asked = next(course)
        while True:
            try:
                result = asked.work()
            except BaseException as error:  # noqa: BLE001 - the course says what it means
                asked = course.throw(error)
            else:
                asked = course.send(result)
    except StopIteration as end:
        return end.value


async def driven_async(course: Course) -> Any:
    """The same on an event loop; what blocks is done off it."""
    try:
        asked = next(course)
        while True:
            try:
                result = await _done_async(asked)
            except BaseException as error:  # noqa: BLE001 - the course says what it means
                asked = course.throw(error)
            else:
                asked = course.send(result)
    except StopIteration as end:
        return end.value


async def _done_async(asked: Asked) -> Any:
    if asked.is_ours:
        return await off_loop(asked.work)
    work = asked.work.func if isinstance(asked.work, partial) else asked.work
    if not inspect.iscoroutinefunction(work):
        return await off_loop(asked.work)
    waiting: Awaitable[Any] = asked.work()
    return await waiting
