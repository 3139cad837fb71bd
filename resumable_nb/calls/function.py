"""Durable functions: a result that was recorded in a step is given back, and the function does not run again."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from resumable_nb import values
from resumable_nb.calls.arguments import bound, digest_of, name_of, namespace_of, text_of
from resumable_nb.calls.off_loop import off_loop
from resumable_nb.errors import UsageError, ValueNotLoadable, ValueNotStorable
from resumable_nb.fingerprint import fingerprint
from resumable_nb.fold import UPDATES
from resumable_nb.journal import Row
from resumable_nb.resuming import before_live
from resumable_nb.scope import Claim, Scope, scope

F = TypeVar("F", bound=Callable[..., Any])

_WHY_LENGTH = 300
_durable: weakref.WeakSet[Any] = weakref.WeakSet()


def durable(function: F) -> F:
    """A function whose results are recorded inside a step: parsing, embeddings, scraping, `durable(datetime.now)()`.

    In a step that runs again, a call with the same arguments gives the recorded result, made anew each time, so that
    changing it does not change the record. It is the same call while the arguments, the source of the function and the
    values that it reads of the notebook are the same (so a counter there that it changes makes each call another one);
    a function of a module counts by the module's source. Asked for several times in one run, it has as many results.
    What the function changes elsewhere is not made again: side effects are for `@effect`, and the research state is to
    be changed by who calls it. Outside a step it just runs.

    A generator function gives a list of its items. A result that has no stored form is handed on, and said not to be
    recorded: the function runs again with its step.

    Args:
        function: sync or async, of the notebook or of a package.

    Returns:
        A function with the same arguments. When it returns, the result is in the store.

    Raises:
        UsageError: It is an async generator function, which has no result.
    """
    if not callable(function):
        raise UsageError(f"@durable takes a function, not {function!r}.")
    if inspect.isasyncgenfunction(function):
        raise _no_result(function)
    wrapper = _async_wrapper(function) if inspect.iscoroutinefunction(function) else _sync_wrapper(function)
    made = functools.wraps(function)(wrapper)
    _durable.add(made)
    return cast("F", made)


def is_durable(function: object) -> bool:
    """Whether `durable` made it."""
    return inspect.isfunction(function) and function in _durable


def _sync_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    def durable_call(*args: Any, **kwargs: Any) -> Any:
        if (call := begun(function, args, kwargs)) is None:
            return _whole(function, function(*args, **kwargs))
        return call.recorded() if call.is_recorded else call.run(partial(function, *args, **kwargs))

    return durable_call


def _async_wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    async def durable_call(*args: Any, **kwargs: Any) -> Any:
        if (call := begun(function, args, kwargs)) is None:
            return await function(*args, **kwargs)
        if call.is_recorded:
            return call.recorded()
        try:
            await off_loop(call.start)
            result = await function(*args, **kwargs)
            return await off_loop(partial(call.done, result))
        except BaseException as error:
            await off_loop(partial(call.fail, error))
            raise

    return durable_call


def begun(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> FunctionCall | None:
    """The call with its number in the running step; None outside any step."""
    running = scope()
    return None if running is None or running.step is None else FunctionCall(running, function, args, kwargs)


class FunctionCall:
    """One call of a durable function in a step: its number, its rows, and its recorded result if there is one."""

    def __init__(
        self, running: Scope, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._scope, self._function, self._name = running, function, name_of(function)
        arguments = bound(function, args, kwargs)
        asked = [self._name, _identity(running, function), digest_of(arguments, namespace_of(function))]
        self._key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
        self._request = text_of(self._name, arguments)
        self._claim: Claim = running.claim(self._key, kind="call", request=self._request)
        self._started_seq: int | None = None
        self._ended = False
        self._began = time.monotonic()

    @property
    def is_recorded(self) -> bool:
        """Whether there is a result already."""
        return self._claim.answer is not None

    def recorded(self) -> Any:
        """The recorded result, made anew.

        Raises:
            ValueNotLoadable: A class that it needs is not defined here.
        """
        answer = self._claim.answer
        assert answer is not None
        return self._decoded(answer.response or "null", {})

    def recorded_updates(self) -> list[dict[str, Any]]:
        """What the recorded call put into the state, for who merges it."""
        answer = self._claim.answer
        assert answer is not None
        data = json.loads(answer.data or "[]")
        text = json.dumps(data.get(UPDATES, []) if isinstance(data, dict) else data)
        updates: list[dict[str, Any]] = self._decoded(text, {})
        return updates

    def run(self, work: Callable[[], Any]) -> Any:
        """Run the function and record its result."""
        try:
            self.start()
            return self.done(work())
        except BaseException as error:
            self.fail(error)
            raise

    def start(self) -> None:
        """Write the `started` row."""
        before_live(self._scope)
        (self._started_seq,) = self._scope.append(self._row("started", request=self._request))

    def done(self, result: Any, updates: Sequence[Mapping[str, Any]] = ()) -> Any:
        """Write the result. When it returns, the result is in the store, if it has a stored form.

        Args:
            result: what the function returned.
            updates: what it put into the state, where that is merged by who called it.
        """
        result = _whole(self._function, result)
        try:
            encoded = values.encode(result, path=f"the result of {self._name}")
            gained = values.encode(list(updates), path=f"what {self._name} puts into the state")
            fresh = self._decoded(encoded.text, encoded.blobs)
        except (ValueNotStorable, ValueNotLoadable) as error:
            self._not_recorded(str(error))
            return result
        row = self._row("done", response=encoded.text, data=gained.text if updates else None)
        self._ended = True
        self._scope.append(*self._scope.thread.value_rows({**encoded.blobs, **gained.blobs}), row)
        return fresh

    def fail(self, error: BaseException) -> None:
        """Write that it raised, and give its number back: the next attempt is the same call."""
        if not self._ended:
            self._fail(f"{type(error).__name__}: {error}")

    def _not_recorded(self, why: str) -> None:
        self._fail(why)
        self._scope.notice(
            f"`{self._name}` is not recorded: {why}. It runs again whenever its step does; give back plain values"
        )

    def _fail(self, why: str) -> None:
        self._ended = True
        try:
            if self._started_seq is not None:
                text = values.hidden(why[:_WHY_LENGTH])
                self._scope.append(self._row("failed", data=json.dumps({"why": text})))
        finally:
            self._scope.release(self._key, self._claim.occurrence, kind="call")

    def _decoded(self, text: str, blobs: Mapping[str, bytes]) -> Any:
        thread = self._scope.thread
        what = f"the recorded result of `{self._name}`"
        return values.decode(
            text, lambda key: blobs[key] if key in blobs else thread.blob(key), thread.resolve, what=what
        )

    def _row(self, phase: str, **columns: Any) -> Row:
        return Row(
            kind="call",
            phase=phase,
            name=self._name,
            key=self._key,
            occurrence=self._claim.occurrence,
            ref_seq=self._started_seq,
            duration_ms=None if phase == "started" else (time.monotonic() - self._began) * 1e3,
            **columns,
        )


def _identity(running: Scope, function: Callable[..., Any]) -> dict[str, str]:
    """The function by its source, and what it reads of the notebook, transitively; the state as this branch sees it."""
    namespace = namespace_of(function)
    own = fingerprint(function, namespace=namespace)
    found = {"": own.digest}
    todo = sorted(own.reads)
    while todo:
        name = todo.pop()
        if name in found or (name not in namespace and name != "state") or namespace.get(name) is running.thread:
            continue
        if name == "state":
            found[name] = hashlib.sha256(running.context().encode("utf-8", "surrogatepass")).hexdigest()
            continue
        facts = fingerprint(namespace[name], namespace=namespace, name=name)
        found[name] = facts.digest
        todo += sorted(facts.reads)
    return dict(sorted(found.items()))


def _whole(function: Callable[..., Any], result: Any) -> Any:
    """A generator would be empty when it is read again: the list of its items stands for it."""
    if isinstance(result, AsyncGenerator):
        raise _no_result(function)
    return list(result) if isinstance(result, Generator) else result


def _no_result(function: Callable[..., Any]) -> UsageError:
    name = name_of(function)
    return UsageError(
        f"`{name}` is an async generator: it has no result that could be recorded. Return a list instead, such as "
        f"`return [item async for item in …]`."
    )
