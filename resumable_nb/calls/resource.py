"""Resources: what can go stale outside (a token, a session, a handle) is probed and acquired again, never assumed."""

from __future__ import annotations

import contextlib
import inspect
import json
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from resumable_nb import values
from resumable_nb.errors import ResourceGone, UsageError, ValueNotStorable
from resumable_nb.failpoints import passing
from resumable_nb.journal import Row
from resumable_nb.scope import Scope, scope

T = TypeVar("T")

_WHY_LENGTH = 300
_declared: dict[str, Resource[Any]] = {}
_asked: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
_is_asking: ContextVar[bool] = ContextVar("resumable_nb_asking", default=False)


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

    def __repr__(self) -> str:
        return f"<resource {self.name!r}, {'held' if self._held else 'not held'}>"

    def get(self) -> T:
        """The thing, probed once in each step, and acquired where there is none or the probe fails.

        Raises:
            ResourceGone: It cannot be acquired. Nothing is marked done, and what was held is kept.
        """
        with self._lock:
            ground = scope()
            if not self._held:
                self._take(ground, "first use")
            elif ground is not None and (self._good_for is None or self._good_for() is not ground):
                self._check(ground)
            self._good_for = None if ground is None else weakref.ref(ground)
            return self._held[-1]

    def renew(self, stale: T) -> T:
        """A new one in place of `stale`, which an answer such as 401 said is not valid any more.

        Calls in parallel that all find theirs stale acquire one together, and get it.

        Raises:
            ResourceGone: It cannot be acquired.
        """
        with self._lock:
            if not self._held or self._held[-1] is stale or self._held[-1] == stale:
                self._take(scope(), "said to be stale")
            return self._held[-1]

    def check(self, ground: Scope) -> None:
        """Probe it, and acquire it where that fails or it is not held."""
        with self._lock:
            if self._held:
                self._check(ground)
            else:
                self._take(ground, "not held by this process")
            self._good_for = weakref.ref(ground)

    def _check(self, ground: Scope) -> None:
        _, probe, _ = self._how
        if probe is None:
            return
        try:
            with _asking():
                stands, why = bool(probe(self._held[-1])), "the probe said no"
        except Exception as error:  # noqa: BLE001 - a probe may fail in any way; it means that it is gone
            stands, why = False, f"the probe failed: {_clean(error)}"
        ground.append(self._row("probed", {"stands": stands} | ({} if stands else {"why": why})))
        if not stands:
            self._take(ground, why)

    def _take(self, ground: Scope | None, why: str) -> None:
        started = None if ground is None else ground.append(self._row("started", {"why": why}))[0]
        passing("resource.acquire.before")
        try:
            with _asking():
                new = self._how[0]()
        except BaseException as error:
            text = _clean(error)
            if ground is not None:
                ground.append(self._row("failed", {"why": text}, started))
            if not isinstance(error, Exception):
                raise
            kept = " The one held before is kept." if self._held else ""
            raise ResourceGone(
                f"The resource {self.name!r} cannot be acquired ({why}; {text}). Nothing was done with it, and nothing "
                f"is marked done.{kept} Mend what `acquire=` needs, and run this step again."
            ) from error
        passing("resource.acquire.after")
        if ground is not None:
            ground.append(self._row("done", self._told(new, ground), started))
            if why != "first use":
                ground.notice(f"resource {self.name!r}: {why}; acquired again")
        self._held[:] = [new]

    def _told(self, new: T, ground: Scope) -> dict[str, Any]:
        """Facts for the journal, if they are what it may hold; never the thing itself."""
        *_, facts = self._how
        if facts is None:
            return {}
        try:
            return {"facts": json.loads(values.encode(facts(new), path=f"the facts of {self.name}").text)}
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


def probe_before_live(ground: object) -> None:
    """Before the first live call after a thread was opened: all that it has used is probed, once.

    Raises:
        ResourceGone: One of them cannot be acquired. The call was not made.
    """
    if not _declared or _is_asking.get() or not isinstance(ground, Scope) or ground.step is None:
        return
    asked = _asked.get(ground.thread)
    if asked is None:
        rows = ground.thread.session.read(kinds=("resource",), bodies=False)
        mine = ground.thread.session.session_id
        asked = _asked[ground.thread] = {r.name or "" for r in rows if r.session_id != mine and r.phase == "done"}
    for name in sorted(asked & _declared.keys()):
        _declared[name].check(ground)
        asked.discard(name)


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    """Calls that a probe or an acquire makes are not held up by the probing."""
    token = _is_asking.set(True)
    try:
        yield
    finally:
        _is_asking.reset(token)


def _clean(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"[:_WHY_LENGTH]
    return values.redact(text.encode("utf-8", "replace"))[0].decode("utf-8", "replace")
