"""A thread as people think of it: a row per step, the runs of each, what they cost, and marks for what happened to all.

Times are milliseconds since 1970 (UTC). Everything is a value that JSON knows, and of bounded size: of very long
threads the oldest rows are told as one, and of long runs only some calls are told one by one. A `Drawing` is kept as
long as somebody looks: it reads only rows that are new, and tells only the steps anew that these touched.
"""

from __future__ import annotations

import functools
import itertools
import json
import time
from typing import TYPE_CHECKING, Any

from resumable_nb.errors import ThreadNotFound
from resumable_nb.journal import processes
from resumable_nb.llm.prices import price
from resumable_nb.timeline import rows
from resumable_nb.timeline.lanes import Lane, Lanes, Told, crash

if TYPE_CHECKING:
    from resumable_nb.journal import Store

Json = dict[str, Any]

ROWS_AT_MOST = 4000
CALLS_AT_MOST = 6000
CALLS_OF_RUN_AT_MOST = 40
_READINGS = itertools.count(1)


def picture(store: Store, thread_id: str, *, at_most: int | None = None) -> Json:
    """Everything that the timeline of a thread draws, as it stands in the store now.

    Args:
        store: where the thread is.
        thread_id: its name.
        at_most: rows; older ones are told as one. None: `ROWS_AT_MOST`.

    Raises:
        ThreadNotFound: there is no such thread.
        StoreError: see its subclasses.
    """
    drawing = Drawing(store, thread_id)
    drawing.refresh()
    return drawing.tell(at_most=at_most)


class Drawing:
    """The picture of one thread, to be told again and again.

    Args:
        store: where the thread is.
        thread_id: its name.

    Attributes:
        reading: another number each time that all rows were read: what was known of them may be no longer so.
    """

    def __init__(self, store: Store, thread_id: str) -> None:
        self._store, self._thread_id = store, thread_id
        self.reading = 0
        self._known: tuple[Lanes, int, int | None] = Lanes(), 0, None

    @property
    def stamp(self) -> int | None:
        """Of the rows that it tells of: another one once there are others."""
        return self._known[2]

    def refresh(self) -> None:
        """Read what is new. Where the rows that were read before have become others, all are read again.

        Raises:
            ThreadNotFound: there is no such thread, or no longer.
            StoreError: see its subclasses.
        """
        lanes, head, checksum = self._known
        found = rows.read(self._store, self._thread_id, after=head)
        if found.before != checksum:
            lanes, head = Lanes(), 0
            found = rows.read(self._store, self._thread_id)
        if not head:
            self.reading = next(_READINGS)
        # a Ctrl-C that comes now leaves half of the rows taken: then the next look begins anew
        self._known = Lanes(), 0, None
        if found.head is None:
            known = ", ".join(map(repr, self._store.threads()[:20])) or "none"
            raise ThreadNotFound(f"{self._store.path} has no thread {self._thread_id!r}. It has {known}")
        for row in found.fresh:
            lanes.take(row)
        self._known = lanes, found.head, found.whole

    def parents(self) -> dict[int, int]:
        """For each checkpoint of the last `refresh`, drawn or not, the one that it goes on from; 0: the beginning."""
        return dict(self._known[0].parents)

    def tell(self, *, at_most: int | None = None, now: float | None = None) -> Json:
        """The picture as of the last `refresh`. Rows that are as they were told before are the same objects.

        Args:
            at_most: rows; older ones are told as one. None: `ROWS_AT_MOST`.
            now: what time it is.
        """
        lanes, head, _ = self._known
        told = tell(lanes, at_most=at_most or ROWS_AT_MOST, now=time.time() * 1e3 if now is None else now)
        return {"thread": self._thread_id, "store": str(self._store.path), "head": head, **told}


def tell(lanes: Lanes, *, at_most: int, now: float) -> Json:
    """What is drawn of a thread, but for its name, its store and its newest row.

    Args:
        lanes: what became of it.
        at_most: rows; older ones are told as one.
        now: what time it is.
    """
    return _Telling(lanes, now).whole(at_most)


class _Telling:
    """Lanes, told once. Nothing that it gives is changed by rows that come later."""

    def __init__(self, lanes: Lanes, now: float) -> None:
        self._lanes, self._now = lanes, now
        self._sessions = [_session(session) for session in lanes.sessions.values()]
        self._is_alive = bool(self._sessions) and self._sessions[-1]["ended"] in ("", "unknown")
        self._prices = json.dumps(lanes.prices)

    def whole(self, at_most: int) -> Json:
        """The picture, without the names of thread and store."""
        lanes = self._in_order()
        drawn, earlier = lanes[-at_most:], lanes[:-at_most]
        runs = sum(len(lane.runs) for lane in drawn)
        each = max(min(CALLS_OF_RUN_AT_MOST, CALLS_AT_MOST // max(runs, 1)), 2)
        told = [self._lane(lane, each) for lane in drawn]
        told_earlier = [self._lane(lane, 0) for lane in earlier]
        marks = [*self._lanes.marks, *self._crashes()]
        return {
            "now": self._now,
            "newest": self._lanes.chain[-1] if self._lanes.chain else 0,
            "forked": self._lanes.forked,
            "sessions": self._sessions,
            "marks": sorted(marks, key=lambda mark: mark["at"]),
            "unread": self._lanes.unread[:10],
            "rows": told,
            "earlier": _summed(told_earlier),
            "totals": self._totals([*told, *told_earlier], sum(mark["kind"] == "crash" for mark in marks)),
        }

    def _crashes(self) -> list[Json]:
        """Of processes that nobody has found dead before."""
        ended = zip(self._lanes.sessions.values(), self._sessions, strict=True)
        return [crash(told) for session, told in ended if not session["ended"] and told["ended"] == "crashed"]

    def _in_order(self) -> list[Lane]:
        """As the notebook has them: that is how the lineage runs. What is not in it stands after what ran before it."""
        found = [l for l in self._lanes.lanes.values() if l.runs or l.waits or l.billed or l.effects]  # noqa: E741
        places, before = self._lanes.places, 0
        order = list[int]()
        for lane in found:
            if lane.place is None:
                lane.place = max((places.get(run.get("checkpoint", 0), 0) for run in lane.runs), default=0)
            before = lane.place or before
            order.append(before)
        return [found[i] for i in sorted(range(len(found)), key=order.__getitem__)]

    def _lane(self, lane: Lane, calls: int) -> Json:
        """A row of the picture; what was told before, where it is still that."""
        if lane.told is not None and min(calls, lane.told.most) == lane.told.calls:
            return lane.told.row
        most = max((len(run["calls"]) for run in lane.runs), default=0)
        told = Told(self._told_lane(lane, calls), min(calls, most), most)
        if not lane.is_open():
            lane.told = told
        return told.row

    def _told_lane(self, lane: Lane, calls: int) -> Json:
        runs = [self._run(run, calls) for run in lane.runs]
        waits, resources = [dict(wait) for wait in lane.waits], [dict(resource) for resource in lane.resources]
        effects = [self._effect(effect) for effect in lane.effects]
        billed = lane.billed.items()
        costs = [_price(model, into, out, self._prices) for model, (_, into, out) in billed]
        return {
            "name": lane.name,
            "what": lane.what,
            "cell": lane.cell_id,
            "stands": _stands(runs, waits, effects),
            "runs": runs,
            "waits": waits,
            "effects": effects,
            "resources": resources,
            "models": sorted(lane.billed),
            "calls": sum(n for _, (n, _, _) in billed),
            "input": sum(i for _, (_, i, _) in billed),
            "output": sum(o for _, (_, _, o) in billed),
            "usd": None if None in costs else sum(c for c in costs if c is not None),
            "ms": sum(run["ms"] for run in runs if run["how"] not in _TAKE_NO_TIME),
        }

    def _run(self, run: Json, calls: int) -> Json:
        told = {name: value for name, value in run.items() if not name.startswith("_")}
        told["calls"] = [dict(call) for call in _some(run["calls"], calls)]
        is_newest = run["session"] == len(self._sessions) - 1
        if run["end"] is None and not (self._is_alive and is_newest):  # nobody has opened the thread since it died
            told |= {"end": max(self._lanes.ended_with(run), run["at"]), "how": "lost"}
            for call in told["calls"]:
                call["phase"] = "lost" if call["phase"] == "running" else call["phase"]
        told["ms"] = max((told["end"] or self._now) - run["at"], 0)
        if "checkpoint" in run:
            told["parent"] = self._lanes.parents[run["checkpoint"]]
            told["lineage"] = run["checkpoint"] in self._lanes.places
        return told

    def _effect(self, effect: Json) -> Json:
        is_doubt = effect["stands"] == "running" and not self._is_alive
        return effect | {"stands": "in doubt" if is_doubt else effect["stands"]}

    def _totals(self, told: list[Json], crashes: int) -> Json:
        waits = [wait for row in told for wait in row["waits"]]
        priced = [row["usd"] for row in told]
        return {
            **self._lanes.totals,
            "saved_ms": self._lanes.saved_ms,
            "steps": sum(row["what"] == "step" for row in told),
            "runs": sum(len(row["runs"]) for row in told),
            "checkpoints": len(self._lanes.parents),
            "ms": sum(row["ms"] for row in told),
            "usd": None if None in priced else sum(priced),
            "sessions": len(self._sessions),
            "crashes": crashes,
            "waited_ms": sum((wait["end"] or self._now) - wait["at"] for wait in waits),
            "waiting": sum(not wait["word"] for wait in waits),
            "doubt": sum(effect["stands"] == "in doubt" for row in told for effect in row["effects"]),
        }


def _session(session: Json) -> Json:
    told = {name: value for name, value in session.items() if not name.startswith("_")}
    if not told["ended"]:
        alive = processes.is_alive(session["_owner"])
        told["ended"] = "" if alive else "crashed" if alive is False else "unknown"
    return told


@functools.lru_cache(16_384)
def _price(model: str, into: int, out: int, table: str) -> float | None:
    """A live picture asks for the same ones again and again, and one takes a millisecond."""
    return price(model, into, out, json.loads(table))


_TAKE_NO_TIME = ("skipped", "taken up", "retired", "start", "edited", "migrated")


def _stands(runs: list[Json], waits: list[Json], effects: list[Json]) -> str:
    """What the newest run says; skips and the like say what was before them."""
    if any(not wait["word"] for wait in waits):
        return "waiting"
    if any(effect["stands"] == "in doubt" for effect in effects):
        return "in doubt"
    own = [run["how"] for run in runs if run["how"] != "skipped"]
    how = own[-1] if own else "ran" if runs else ""
    return {"ran": "done", "taken up": "done", "replayed": "done"}.get(how, how)


def _some(calls: list[Json], at_most: int) -> list[Json]:
    """The calls, or of many the first and the newest; what failed or was lost goes first."""
    if len(calls) <= at_most:
        return calls
    odd = [call for call in calls if call["phase"] not in ("done", "partial")][-(at_most // 2) :] if at_most else []
    left = at_most - len(odd)
    taken = {call["seq"] for call in odd}
    plain = [call for call in calls if call["seq"] not in taken]
    kept = [*plain[: left - left // 2], *(plain[-(left // 2) :] if left // 2 else [])] if left else []
    return sorted([*odd, *kept], key=lambda call: call["seq"])


def _summed(told: list[Json]) -> Json | None:
    """One row for many; None for none."""
    if not told:
        return None
    runs = [run for row in told for run in row["runs"]]
    numbers = {name: sum(row[name] or 0 for row in told) for name in ("calls", "input", "output", "ms")}
    times = {"at": min(run["at"] for run in runs), "end": max(run["end"] or run["at"] for run in runs)} if runs else {}
    return {"count": len(told), **numbers, **times}
