"""Loops over many durable calls: with a bar that knows what is done already, and in parallel."""

from __future__ import annotations

import contextvars
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from functools import partial
from typing import Any, TypeVar

from resumable_nb.calls.function import FunctionCall, begun, is_durable
from resumable_nb.errors import UsageError
from resumable_nb.scope import Run, scope
from resumable_nb.state.model import State, deferred

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 8


def track(iterable: Iterable[T], *, desc: str | None = None, total: int | None = None) -> Iterator[T]:
    """Iterate with a progress bar that, when a step runs again after a crash, starts at what is done.

    Items whose calls are all answered from the journal count as done before: they are in the bar at once, and not in
    its speed and its estimate of the time that is left.

    Args:
        iterable: what to go through.
        desc: what stands before the bar.
        total: how many items there are, where `iterable` has no length.
    """
    from tqdm.auto import tqdm  # imports ipywidgets in a notebook

    known = len(iterable) if total is None and isinstance(iterable, Sized) else total
    run = scope()
    replaying = isinstance(run, Run) and run.began_before
    with tqdm(total=known, desc=desc) as bar:
        for item in iterable:
            head = run.thread.session.head if run is not None else 0
            yield item
            if replaying and run is not None and run.thread.session.head == head:  # nothing was written: all recorded
                bar.initial += 1
                bar.start_t = time.time()
            else:
                replaying = False
            bar.update(1)


def map(fn: Callable[[T], R], items: Iterable[T], *, executor: Executor | None = None) -> list[R]:  # noqa: A001
    """The results of `fn` for each item, made in parallel, in the order of the items.

    What `fn` asks, and its own result if it is `@durable`, is recorded as it comes: after a crash only what is missing
    runs again. `state.update` inside `fn` takes effect at the end, merged by the reducers in the order of the items;
    until then every call sees the state as it was when `map` began.

    Args:
        fn: a function of one item, not `async`.
        items: the items.
        executor: any of `concurrent.futures`; 8 threads by default. On one that is no `ThreadPoolExecutor`, `fn` runs
            elsewhere, where no thread of research is open: only its result comes back, and is recorded as if `fn` were
            `@durable`.

    Raises:
        Exception: What `fn` raised for the first of the items that failed, when all that had begun has ended. The
            results of the others are recorded, the state is not changed.
    """
    if inspect.iscoroutinefunction(fn):
        raise UsageError(f"map takes a function that is not `async`; for {fn!r} use `await asyncio.gather(…)`.")
    todo = list(items)
    if executor is not None:
        return _mapped(fn, todo, executor)
    pool = ThreadPoolExecutor(min(_THREADS, len(todo) or 1), thread_name_prefix="resumable-map")
    try:
        found = _mapped(fn, todo, pool)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return found


def _mapped(fn: Callable[[T], R], items: list[T], executor: Executor) -> list[R]:
    branches = [_Branch(fn, item, executor) for item in items]
    futures: dict[Future[Any], _Branch] = {}
    for branch in branches:
        branch.begin()
    for branch in branches:
        if not branch.ended:
            futures[branch.submit()] = branch
    try:
        for future in as_completed(futures):
            futures[future].end(future)
            if futures[future].error is not None:
                for other in futures:
                    other.cancel()
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    for branch in branches:
        if branch.error is not None:
            raise branch.error
    for branch in branches:
        for state, changes in branch.updates:
            state.update(**changes)
    return [branch.result for branch in branches]


class _Branch:
    """One item on its way."""

    def __init__(self, fn: Callable[..., Any], item: Any, executor: Executor) -> None:
        self._fn, self._item, self._executor = fn, item, executor
        self._is_local = isinstance(executor, ThreadPoolExecutor)
        self._call: FunctionCall | None = None
        self.updates: list[tuple[State, dict[str, Any]]] = []
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = False

    def begin(self) -> None:
        """Take its number, in the order of the items; and its result, if that is recorded."""
        if self._is_local and not is_durable(self._fn):
            return
        self._call = begun(inspect.unwrap(self._fn), (self._item,), {})
        if self._call is not None and self._call.is_recorded:
            self.result, self.ended = self._call.recorded(), True

    def submit(self) -> Future[Any]:
        """Let the executor run it."""
        if self._call is not None:
            self._call.start()
        if not self._is_local:
            return self._executor.submit(_elsewhere, self._fn, self._item)
        fn = inspect.unwrap(self._fn) if is_durable(self._fn) else self._fn
        return self._executor.submit(contextvars.copy_context().run, partial(self._run, fn))

    def _run(self, fn: Callable[..., Any]) -> Any:
        with deferred(self.updates):
            return fn(self._item)

    def end(self, future: Future[Any]) -> None:
        """It has ended: record its result."""
        self.ended = True
        try:
            result = future.result()
            self.result = result if self._call is None else self._call.done(result)
        except BaseException as error:  # noqa: BLE001 - raised by `map` when all have ended
            self.error = error
            if self._call is not None:
                self._call.fail(error)


def _elsewhere(fn: Callable[..., Any], item: Any) -> Any:
    """In a worker: a process that was forked has the scope of its parent, and must not write to its journal."""
    return inspect.unwrap(fn)(item)
