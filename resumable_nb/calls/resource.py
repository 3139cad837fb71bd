"""Resources: what can go stale outside (a token, a session, a handle) is probed and acquired again, never assumed."""

from __future__ import annotations

import contextlib
import inspect
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from resumable_nb import values
from resumable_nb.errors import ResourceGone, UsageError, ValueNotStorable
from resumable_nb.failpoints import passing
from resumable_nb.journal import Row
from resumable_nb.resuming import asks
from resumable_nb.scope import Scope, outside, scope

T = TypeVar("T")

NOT_HELD = "not held by this process"
_WHY_LENGTH = 300
_declared: dict[str, Resource[Any]] = {}


class Resource(Generic[T]):
    """Something outside that can go stale. Made by `resource`; `get` gives it.

    Attributes:
        name: as it was declared.
    """

    def __init__(
        self,
        name: str,
        acquire: Callable[[], T],
        probe: Callable[[T], Any] | None,
        facts: Callable[[T], dict[str, Any]] | None,
    ) -> None:
        self.name = name
        # In a tuple: how it is acquired, and by what object with what token in it, is no input of steps
        self._how = acquire, probe, facts
        self._held: list[T] = []
        self._good_for: weakref.ref[Any] | None = None
        self._lock = threading.RLock()
        self._tries = 0
        self._failed: ResourceGone | None = None  # the last try to acquire it, and for whom
        self._failed_for: weakref.ref[Any] | None = None

    def __repr__(self) -> str:
        return f"<resource {self.name!r}, {'held' if self._held else 'not held'}>"

    def get(self) -> T:
        """The thing, probed once in each step, and acquired where there is none or the probe fails.

        Raises:
            ResourceGone: It cannot be acquired. Nothing is marked done, and what was held is kept.
        """
        with self._alone():
            ground = scope()
            if not self._held or (ground is not None and (self._good_for is None or self._good_for() is not ground)):
                self._stand(ground)
            return self._held[-1]

    def renew(self, stale: T) -> T:
        """A new one in place of `stale`, which an answer such as 401 said is not valid any more.

        Calls in parallel that all find theirs stale acquire one together, and get it.

        Raises:
            ResourceGone: It cannot be acquired.
        """
        with self._alone():
            if not self._held or self._held[-1] is stale or self._held[-1] == stale:
                self._take(scope(), "said to be stale")
            return self._held[-1]

    def check(self, ground: Scope) -> None:
        """After a thread was opened again: probe it, and acquire it where that fails or it is not held."""
        with self._alone():
            if self._failed is not None and self._failed_for is not None and self._failed_for() is ground:
                raise self._gone_as_before()  # for the other calls of this run: the next run tries again
            if self.name in ground.thread.resume.unprobed:  # else somebody has asked meanwhile
                self._stand(ground)

    def _stand(self, ground: Scope | None) -> None:
        """Probe it, or acquire it where none is held. A resume is told what came of it."""
        resume = None if ground is None or self.name not in ground.thread.resume.unprobed else ground.thread.resume
        if not self._held:
            why = self._take(ground, "first use" if resume is None else NOT_HELD)
        else:
            why = "" if ground is None else self._check(ground)
        self._good_for = None if ground is None else weakref.ref(ground)
        if resume is not None:
            resume.probed(self.name, stands=not why, why=why)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One at a time. Who waited while it could not be acquired does not try it once more."""
        tries = self._tries
        with self._lock:
            if self._failed is not None and self._tries != tries:
                raise self._gone_as_before()
            yield

    def _gone_as_before(self) -> ResourceGone:
        return ResourceGone(str(self._failed))

    def _check(self, ground: Scope) -> str:
        """Probe it; acquire it if that fails, and give the reason."""
        _, probe, _ = self._how
        if probe is None:
            return ""
        try:
            with outside():
                stands, why = bool(probe(self._held[-1])), "the probe said no"
        except Exception as error:  # noqa: BLE001 - a probe may fail in any way; it means that it is gone
            stands, why = False, f"the probe failed: {_clean(error)}"
        ground.append(self._row("probed", {"stands": stands} | ({} if stands else {"why": why})))
        return "" if stands else self._take(ground, why)

    def _take(self, ground: Scope | None, why: str) -> str:
        started = None if ground is None else ground.append(self._row("started", {"why": why}))[0]
        passing("resource.acquire.before")
        self._tries, self._failed = self._tries + 1, None
        try:
            with outside():
                new = self._how[0]()
        except BaseException as error:
            text = _clean(error)
            if ground is not None:
                ground.append(self._row("failed", {"why": text}, started))
            if not isinstance(error, Exception):
                raise
            kept = " The one held before is kept." if self._held else ""
            self._failed = ResourceGone(
                f"The resource {self.name!r} cannot be acquired ({why}; {text}). Nothing was done with it, and nothing "
                f"is marked done.{kept} Mend what `acquire=` needs, and run this step again."
            )
            self._failed_for = None if ground is None else weakref.ref(ground)
            raise self._failed from error
        values.hold(new)
        passing("resource.acquire.after")
        if ground is not None:
            ground.append(self._row("done", self._told(new, ground), started))
            if why != "first use":
                ground.notice(f"resource {self.name!r}: {why}; acquired again")
        self._held[:] = [new]
        return why

    def _told(self, new: T, ground: Scope) -> dict[str, Any]:
        """Facts for the journal, if they are what it may hold; never the thing itself."""
        *_, facts = self._how
        if facts is None:
            return {}
        try:
            return {
                "facts": values.hidden_in(json.loads(values.encode(facts(new), path=f"the facts of {self.name}").text))
            }
        except ValueNotStorable as error:
            ground.notice(f"resource {self.name!r}: {error}; its facts are left out of the journal")
            return {}

    def _row(self, phase: str, data: dict[str, Any], ref_seq: int | None = None) -> Row:
        return Row(kind="resource", phase=phase, name=self.name, key=self.name, ref_seq=ref_seq, data=json.dumps(data))


def resource(
    name: str,
    *,
    acquire: Callable[[], T],
    probe: Callable[[T], Any] | None = None,
    facts: Callable[[T], dict[str, Any]] | None = None,
) -> Resource[T]:
    """Declare something outside that can go stale, such as a token, a session or a handle.

    After `github = resource("github", acquire=login, probe=is_valid)`, `github.get()` gives it. It is probed before its
    first use in each step; and, after a thread was opened again, every resource that the thread has used is probed, or
    acquired, before the first live call of a step. The journal says when it was acquired and why, and `facts`; it never
    holds the thing itself, which lives in this process only.

    Args:
        name: what the journal calls it. Declaring it anew, as by running its cell again, replaces it.
        acquire: gets a new one.
        probe: asks whether this one is still good; False, or an exception, means that it is not.
        facts: what may be written about one, such as `{"expires": …}`: no secrets.

    Raises:
        UsageError: `acquire` or `probe` is a coroutine function.
    """
    if not str(name).strip():
        raise UsageError(f"A resource needs a name, not {name!r}.")
    for label, function in (("acquire", acquire), ("probe", probe)):
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"resource({name!r}): {label}= is `async def`; give a function that is not.")
    _declared[name] = made = Resource(name, acquire, probe, facts)
    return made


def _probe_used(ground: Scope) -> None:
    """All that the thread has used and that is declared by now is probed, once in an opening of the thread.

    Raises:
        ResourceGone: One of them cannot be acquired.
    """
    for name in sorted(ground.thread.resume.unprobed & _declared.keys()):
        _declared[name].check(ground)


asks.resources = _probe_used


def _clean(error: BaseException) -> str:
    return values.hidden(f"{type(error).__name__}: {error}"[:_WHY_LENGTH])
