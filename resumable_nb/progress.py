"""Loops over many durable calls: with a bar that knows what is done already, and in parallel."""

from __future__ import annotations

import contextvars
import hashlib
import inspect
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, as_completed, wait
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from resumable_nb import values
from resumable_nb.calls.function import FunctionCall, begun, is_durable
from resumable_nb.errors import UsageError, ValueNotStorable, show_as_one_line
from resumable_nb.scope import Run, scope
from resumable_nb.scope import branch as branch_name
from resumable_nb.state.model import State, deferred
from resumable_nb.stops import stopped_by
from resumable_nb.terminal import counted

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 8
_MAX_ITEM_BYTES = 1 << 20
GRACE_S = 10.0
"""How long Ctrl-C waits for answers that are on their way: they are paid."""

_SHOWN_EACH = 200  # items that are shown one by one; more would take long, and the bar shows the others as it does


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
                bar.update(1)
                if bar.n <= _SHOWN_EACH:  # the next item may be a long one: the bar says before it what is done
                    bar.refresh()
            else:
                replaying = False
                bar.update(1)


def map(fn: Callable[[T], R], items: Iterable[T], *, executor: Executor | None = None) -> list[R]:  # noqa: A001
    """The results of `fn` for each item, made in parallel, in the order of the items.

    What `fn` asks, and its own result if it is `@durable`, is recorded as it comes: after a crash only what is missing
    runs again. `state.update` inside `fn` takes effect at the end, merged by the reducers in the order of the items;
    until then every call sees the state as it was when `map` began.

    After Ctrl-C no branch begins another call. Answers that are on their way are waited for, 10 seconds at the longest:
    they are kept, and the next run goes on from them. A second Ctrl-C does not wait.

    Args:
        fn: a function of one item, not `async`.
        items: the items.
        executor: any of `concurrent.futures`; 8 threads by default. On one that is no `ThreadPoolExecutor`, `fn` may
            run where no thread of research is open: its result and what it puts into the state come back, and are
            recorded as if `fn` were `@durable`; what it asks there is not.

    Raises:
        Exception: What `fn` raised for the first of the items that failed, when all that had begun has ended. The
            results of the others are recorded, the state is not changed.
    """
    if inspect.iscoroutinefunction(fn):
        raise UsageError(f"map takes a function that is not `async`; for {fn!r} use `await asyncio.gather(…)`.")
    todo = list(items)
    if executor is not None:
        return _mapped(fn, todo, executor)
    pool = _Threads(min(_THREADS, len(todo) or 1))
    try:
        return _mapped(fn, todo, pool)
    except KeyboardInterrupt as error:
        show_as_one_line(error, "stopped. What was answered is kept: run this again to go on.")
        raise
    finally:
        pool.shutdown()


class _Threads(Executor):
    """Threads that do not hold up the end of the process, as those of `ThreadPoolExecutor` do.

    After Ctrl-C one of them may wait for an answer that never comes.
    """

    def __init__(self, count: int) -> None:
        self._todo: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._count = count
        for number in range(count):
            threading.Thread(target=self._work, name=f"resumable-map_{number}", daemon=True).start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have it done."""
        future: Future[Any] = Future()
        self._todo.put((future, partial(fn, *args, **kwargs)))
        return future

    def _work(self) -> None:
        while (task := self._todo.get()) is not None:
            future, work = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001 - `map` raises it
                    future.set_exception(error)
            del future, work, task  # or an idle thread would keep what they hold

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """They end when they have done what they were given; nobody waits for that."""
        for _ in range(self._count):
            self._todo.put(None)


def _mapped(fn: Callable[[T], R], items: list[T], executor: Executor) -> list[R]:
    stop = threading.Event()
    names = _names(items)
    branches = [_Branch(fn, item, executor, stop, name) for item, name in zip(items, names, strict=True)]
    for branch in branches:
        branch.begin()
    futures: dict[Future[Any], _Branch] = {}
    try:
        for branch in branches:
            if not branch.ended:
                futures[branch.submit()] = branch
        for future in as_completed(futures):
            futures[future].end(future)
            if futures[future].error is not None:
                _cancel(futures)
    except BaseException:
        stop.set()
        _cancel(futures)
        _wind_down(futures)
        raise
    errors = [branch.error for branch in branches if branch.error is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, CancelledError)):  # those that this one stopped
        raise error
    for branch in branches:
        for state, changes in branch.updates:
            (state or _live_state(fn)).update(**changes)
    return [branch.result for branch in branches]


def _names(items: list[Any]) -> list[str]:
    """A name for each branch, the same in every run: by its item, wherever it stands, and which of equal ones it is."""
    run = scope()
    if not isinstance(run, Run):
        return [""] * len(items)
    seen: Counter[str] = Counter()
    names = []
    for item in items:
        try:
            text = values.encode(item, limit_bytes=_MAX_ITEM_BYTES).text
        except ValueNotStorable:  # the order of such items has to do
            text = ""
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        names.append(f"{branch_name.get()}/{digest}.{seen[digest]}")
        seen[digest] += 1
    run.branch_out(names)
    return names


def _cancel(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.cancel()


def _wind_down(futures: Mapping[Future[Any], _Branch]) -> None:
    """Wait a little for the calls that are on their way, and keep what comes. Another Ctrl-C ends the waiting."""
    running = [future for future in futures if not future.done()]
    if running and (run := scope()) is not None:
        on_way = counted(len(running), "answer")
        run.say(f"stopping. {on_way} on the way: kept if within {GRACE_S:.0f} s. Interrupt again to stop at once")
    for future in wait(running, GRACE_S).done:
        futures[future].end(future)


def _live_state(fn: Callable[..., Any]) -> State:
    if (run := scope()) is None:
        raise UsageError(f"{fn!r} changes the state in another process, and no thread is open that could take it over.")
    return run.thread.live.state


class _Branch:
    """One item on its way."""

    def __init__(self, fn: Callable[..., Any], item: Any, executor: Executor, stop: threading.Event, name: str) -> None:
        self._fn, self._item, self._executor = inspect.unwrap(fn) if is_durable(fn) else fn, item, executor
        self._stop, self._name = stop, name
        self._is_local = isinstance(executor, ThreadPoolExecutor | _Threads)
        self._is_recorded = is_durable(fn) or not self._is_local
        self._call: FunctionCall | None = None
        self.updates: list[tuple[State | None, dict[str, Any]]] = []
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = False

    def begin(self) -> None:
        """Take its number, in the order of the items; and its result, if that is recorded."""
        self._call = begun(self._fn, (self._item,), {}) if self._is_recorded else None
        if self._call is not None and self._call.is_recorded:
            self.result, self.ended = self._call.recorded(), True
            self.updates = [(None, changes) for changes in self._call.recorded_updates()]

    def submit(self) -> Future[Any]:
        """Let the executor run it."""
        if self._is_local:
            return self._executor.submit(contextvars.copy_context().run, self._run)
        try:
            if self._call is not None:
                self._call.start()
            return self._executor.submit(_elsewhere, self._fn, self._item)
        except BaseException as error:
            self._fail(error)
            raise

    def _run(self) -> None:
        """In a thread of this process."""
        updates: list[tuple[State, dict[str, Any]]] = []
        branch_name.set(self._name)  # in the context that was copied for this branch
        with stopped_by(self._stop), deferred(updates):
            if self._call is not None:
                self._call.start()
            result = self._fn(self._item)
        self._keep(result, list(updates))

    def _keep(self, result: Any, updates: list[tuple[State | None, dict[str, Any]]]) -> None:
        self.updates = updates
        self.result = result if self._call is None else self._call.done(result, [changes for _, changes in updates])

    def end(self, future: Future[Any]) -> None:
        """It has ended: record its result."""
        self.ended = True
        try:
            found = future.result()
            if not self._is_local:
                result, updates = found
                self._keep(result, [(None, changes) for changes in updates])
        except BaseException as error:  # noqa: BLE001 - raised by `map` when all have ended
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.error = error
        if self._call is not None:
            self._call.fail(error)


def _elsewhere(fn: Callable[..., Any], item: Any) -> tuple[Any, list[dict[str, Any]]]:
    """In a worker of any kind: the result for one item, and what it puts into a state, which is merged where it counts.

    Another process, also a forked one, has no thread of research: what it did to a state of its own would end with it.
    """
    updates: list[tuple[State, dict[str, Any]]] = []
    with deferred(updates):
        result = fn(item)
    return result, [changes for _, changes in updates]
