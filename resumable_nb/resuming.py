"""The order of a resume, always the same: each part with its result, and what it took in all.

Load the checkpoint → migrate → rebuild the context → probe the outside → settle effects in doubt → go on. The first
three happen when a thread is opened. What is outside is asked when it is first needed, because a notebook declares
resources and effects in its cells: before the first new call of a step, and before a step is skipped whose effects
have to be verified. `calls/` says how, by `asks`; the order is here.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resumable_nb.journal import Row
from resumable_nb.terminal import when

if TYPE_CHECKING:
    from resumable_nb.fold import Fold
    from resumable_nb.journal import Session
    from resumable_nb.receipts import Doubt, Effect
    from resumable_nb.scope import Scope
    from resumable_nb.state import State

NAMES_SHOWN = 5


@dataclass
class Asks:
    """How the outside is asked; None while nothing that could be asked was ever declared."""

    resources: Callable[[Scope], None] | None = None
    effects: Callable[[Scope], None] | None = None
    effects_of_step: Callable[[Scope, str | None, str], None] | None = None


asks = Asks()


def before_live(ground: Any) -> None:
    """Before a call goes live in a step: what was not asked yet in this opening of the thread is asked, in the order.

    Args:
        ground: the scope of the call; one without a thread has no past.

    Raises:
        ResourceGone: A resource cannot be acquired. The call was not made.
    """
    if ground.step is None or not hasattr(ground, "thread"):
        return  # also the calls that a probe or a look-up makes: they do not wait for themselves
    for ask in (asks.resources, asks.effects):
        if ask is not None:
            ask(ground)
    ground.thread.resume.go_on()


def before_skip(ground: Scope, step: str | None, cell_id: str) -> None:
    """Before a step is skipped: do its effects still stand? What does not is said; the step is skipped all the same."""
    if asks.effects_of_step is not None:
        asks.effects_of_step(ground, step, cell_id)


@dataclass(frozen=True, slots=True)
class Line:
    """One part of a resume.

    Attributes:
        part: what it is about.
        result: what came of it, or what it waits for.
        is_over: whether nothing more is to come.
        is_news: whether it is worth a line where nothing else shows it.
    """

    part: str
    result: str
    is_over: bool = True
    is_news: bool = True

    def __str__(self) -> str:
        return f"{self.part}: {self.result}"


@dataclass(frozen=True, slots=True)
class Probed:
    """What the probe of a resource gave; `why` says why it was acquired again."""

    name: str
    stands: bool
    why: str = ""

    def __str__(self) -> str:
        return f"`{self.name}` stands" if self.stands else f"`{self.name}` was acquired again ({self.why})"


@dataclass
class _Went:
    """How it went on: when, and the calls that had to be done again, by step."""

    at: float | None = None
    again: dict[str, int] = field(default_factory=dict)
    interrupted: set[str] = field(default_factory=set)


class Resume:
    """One opening of a thread that had been worked on before.

    Attributes:
        is_one: whether there is anything to resume.
        unprobed: resources that the thread has used and that were not asked yet.
        unverified: keys of effects that had happened before, and were not asked about yet.
        doubts: keys of effects that were in doubt when it was opened, or do not stand any more.
        not_asked: keys about which asking failed: not asked again but by their step.
    """

    def __init__(self, fold: Fold, session: Session) -> None:
        self._fold, self._session, self._calls_before = fold, session, fold.calls_done
        self._opened = time.monotonic()
        self._lock = threading.RLock()
        started = fold.latest_started()
        self._went = _Went(interrupted={r.cell_id or "" for r in started if r.session_id == session.died})
        self.is_one = bool(started) or len(fold.checkpoints()) > 1
        self.unprobed, self.used = set(fold.resources), sorted(fold.resources)
        effects = fold.effects.by_key
        self.unverified = {key for key, effect in effects.items() if _may_be_verified(effect)}
        self.doubts = [key for key, effect in effects.items() if effect.standing == "in doubt"]
        self.not_asked: set[str] = set()
        self._probed: list[Probed] = []
        self._to_ask: list[Doubt] = []
        self._asked_at = 0
        self._at_opening: list[Line] = []
        self._shown: list[Line] = []
        self._show: Callable[[list[Line], list[Line]], object] = lambda *_: None

    # ------------------------------------------------------------------ the parts, in their order
    def loaded(self, state: State | None, *, waits_for: str = "") -> None:
        """The state at the newest checkpoint was loaded and, where it is of an older version, migrated.

        Args:
            state: it; None where it cannot be loaded yet.
            waits_for: what it waits for then.
        """
        fold = self._fold
        newest = fold.newest()
        image, row = fold.image(newest), fold.row(newest)
        at = f" of {when(row.ts)}" if row is not None else ""
        if state is None:
            self._at_opening = [Line("checkpoint", f"{newest}{at} is loaded when {waits_for}", is_over=False)]
        else:
            was, now = image.schema_version, type(state).schema_version
            lifted = f"lifted from version {was} to {now}" if was != now else f"not needed (version {now})"
            self._at_opening = [
                Line("checkpoint", f"{newest}{at} was loaded"),
                Line("migration", lifted, is_news=was != now),
                Line("context", _rebuilt(state)),
            ]
        self.show()

    def probed(self, name: str, *, stands: bool, why: str = "") -> None:
        """A resource was asked for; if it did not stand, it was acquired again."""
        with self._lock:
            self.unprobed.discard(name)
            self._probed.append(Probed(name, stands, why))
        self.show()

    def is_to_ask(self, change: int) -> bool:
        """Whether effects are to be asked about: once for each change of what is declared. True for one caller."""
        with self._lock:
            before, self._asked_at = self._asked_at, change
        return before != change

    def stands(self, key: str) -> None:
        """A finished effect still stands."""
        self.unverified.discard(key)

    def does_not_stand(self, doubt: Doubt) -> None:
        """A finished effect does not stand any more: it is in doubt now."""
        with self._lock:
            self.unverified.discard(doubt.key)
            self.doubts += [] if doubt.key in self.doubts else [doubt.key]
            self._to_ask += [doubt] if doubt.skipped is not None else []
        self.show()

    def to_ask(self) -> list[Doubt]:
        """What a person has to be asked although no step stops for it: once each."""
        with self._lock:
            found, self._to_ask = self._to_ask, []
        return found

    def go_on(self) -> None:
        """The first new call is about to be made."""
        if self._went.at is None:
            self._went.at = time.monotonic()
            self.show()

    # ------------------------------------------------------------------ for people
    def lines(self) -> list[Line]:
        """Each part with its result so far; none where there is nothing to resume."""
        if not self.is_one:
            return []
        with self._lock:
            return [*self._at_opening, self._outside_line(), self._effects_line(), self._going_on_line()]

    def _outside_line(self) -> Line:
        if not self.used:
            return Line("outside", "no resource was used before", is_news=False)
        parts = [str(found) for found in self._probed]
        waiting = _names([name for name in self.used if name in self.unprobed])
        if waiting:
            when = "before the next new call" if self._went.at is None else "when it is declared here"
            parts.append(f"{waiting} will be probed {when}")
        return Line("outside", "; ".join(parts), is_over=not waiting)

    def _effects_line(self) -> Line:
        if not self.doubts:
            count = len(self._fold.effects.by_key)
            return Line("effects", "none is in doubt" if count else "none was started before", is_news=False)
        found = [self._fold.effects.by_key[key] for key in self.doubts]
        parts = [_told(effect) for effect in found[:NAMES_SHOWN]]
        parts += [f"and {len(found) - NAMES_SHOWN} more"] if len(found) > NAMES_SHOWN else []
        return Line("effects", "; ".join(parts), is_over=all(e.standing != "in doubt" for e in found))

    def _going_on_line(self) -> Line:
        went = self._went
        if went.at is None:
            return Line("going on", "with the first new call", is_over=False, is_news=False)
        again, done = sum(went.again.values()), self._calls_before
        calls = "no call had been answered"
        if done:
            calls = f"{done:,} call{'s' * (done > 1)} had been answered"
            calls += f"; done again, for want of an answer that fits: {again:,}" if again else ""
        return Line("going on", f"{self._took_s():,.1f} s after opening; {calls}")

    def listen(self, show: Callable[[list[Line], list[Line]], object]) -> None:
        """From now on, tell what comes: called with all lines, and with those that are new or changed."""
        self._show = show
        self._shown = self.lines()

    def show(self) -> None:
        """Tell what has changed since it was told last, such as by a decision from elsewhere."""
        if not self.is_one:
            return
        with self._lock:
            lines = self.lines()
            changed = [line for line in lines if line not in self._shown]
            self._shown = lines
        if changed:
            self._show(lines, changed)

    # ------------------------------------------------------------------ the record of it
    def ended(self, step: str | None, cell_id: str, again: int, *, is_done: bool) -> list[Row]:
        """A run of a step has ended. After an interruption gives the row of `recoveries`, once: with the first step
        that is done, if by then no step is open that was interrupted.

        Args:
            step: its name.
            cell_id: its cell.
            again: calls that it did again.
            is_done: whether it ended well.
        """
        went = self._went
        went.again[step or ""] = went.again.get(step or "", 0) + again
        if is_done:
            went.at = went.at or time.monotonic()
            went.interrupted.discard(cell_id)
        return self._rows() if is_done and not went.interrupted else []

    def closing(self) -> list[Row]:
        """The thread is being closed: the row of `recoveries`, if a step has run and it was not written yet."""
        return self._rows() if self._went.again else []

    def _rows(self) -> list[Row]:
        went = self._went
        if self._session.died is None or self._session.session_id in self._fold.recovered_in:
            return []
        done, again = self._calls_before, sum(went.again.values())
        data: dict[str, Any] = {
            "died": self._session.died,
            "calls_done": done,
            "calls_again": again,
            "share": again / done if done else 0.0,
            "probed": [{"name": p.name, "stands": p.stands, "why": p.why} for p in self._probed],
            "settled": [{"key": key, "standing": self._fold.effects.by_key[key].standing} for key in self.doubts],
            "again": {step: count for step, count in went.again.items() if count},
        }
        return [Row(kind="recovery", phase="done", duration_ms=self._took_s() * 1e3, data=json.dumps(data))]

    def _took_s(self) -> float:
        """From opening to the first new call; to now, if there was none."""
        return (self._went.at or time.monotonic()) - self._opened


def _may_be_verified(effect: Effect) -> bool:
    """It happened, and not only by a person's word."""
    return effect.standing == "happened" and effect.facts.get("by") in (None, "lookup")


def _told(effect: Effect) -> str:
    key, facts = effect.started.key, effect.facts
    if effect.standing == "in doubt":
        gone = "does not stand any more" if facts.get("gone") else "is in doubt"
        return f"`{key}` of `{effect.started.step}` {gone}"
    by = facts.get("by")
    return f"`{key}` {effect.standing}" + (f" ({'looked up' if by == 'lookup' else f'as {by} said'})" if by else "")


def _rebuilt(state: State) -> str:
    try:
        return f"rebuilt, {len(state.context()):,} characters"
    except Exception as error:  # noqa: BLE001 - a class of the user's may render in its own way; opening goes on
        return f"cannot be rendered now ({type(error).__name__}: {error})"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:NAMES_SHOWN]) + more
