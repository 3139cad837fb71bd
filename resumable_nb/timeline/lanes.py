"""The rows of a thread, put into lanes: one for each step, with its runs, and what they asked, did and waited for.

It takes rows one by one, in their order, and keeps what it needs for the next ones: after a thousand rows, one more
costs as much as after ten. It notes which lanes a row touched, so that only these must be told anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from resumable_nb.timeline.rows import Row

Json = dict[str, Any]

TEXT_CHARS = 300
_MADE_BY = {"step": "ran", "edit": "edited", "start": "start", "migration": "migrated"}
_EFFECT_STANDS = {"done": "happened", "failed": "did not happen", "not done": "did not happen", "lost": "in doubt"}


class Told(NamedTuple):
    """A lane as a row of the picture.

    Attributes:
        calls: how many it tells of a run at most.
        most: how many the run with the most of them has.
    """

    row: Json
    calls: int
    most: int


@dataclass(eq=False)
class Lane:
    """The rows of one step, one cell that edits the state, or the start.

    Attributes:
        place: where its newest checkpoint in the lineage stands there; 0: it has none; None: to be looked up.
        told: it, as it was told last; None: something of it has changed since.
    """

    name: str
    what: str
    cell_id: str | None = None
    runs: list[Json] = field(default_factory=list)
    waits: list[Json] = field(default_factory=list)
    effects: list[Json] = field(default_factory=list)
    resources: list[Json] = field(default_factory=list)
    billed: dict[str, list[int]] = field(default_factory=dict)
    place: int | None = None
    told: Told | None = None

    def touch(self) -> None:
        """Something of it has changed."""
        self.place = self.told = None

    def is_open(self) -> bool:
        """Whether something of it has not ended: how it is told then depends on who lives, and on the time."""
        return any(run["end"] is None for run in self.runs) or any(e["stands"] == "running" for e in self.effects)


class Lanes:
    """What became of a thread, up to the newest row that was taken in."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[str, str], Lane] = {}
        self.sessions: dict[str, Json] = {}
        self.marks: list[Json] = []
        self.parents: dict[int, int] = {}
        self.chain: list[int] = []
        self.places: dict[int, int] = {}
        self.forked: Json | None = None
        self.prices: Mapping[str, Any] | None = None
        self.unread: list[int] = []
        self._runs: dict[int, Json] = {}
        self._open: dict[int, Json] = {}
        self._gates: dict[int, Json] = {}
        self._effects: dict[int, Json] = {}
        self._asked: set[tuple[Any, ...]] = set()
        self._lane_of: dict[int, Lane] = {}
        self.totals = dict.fromkeys(("calls", "failed", "twice", "input", "output", "saved_calls", "saved_tokens"), 0)
        self.saved_ms = 0.0
        self._handlers: dict[str, Callable[[Row], None]] = {
            "thread": self._thread,
            "session": self._session,
            "recovery": self._recovery,
            "notice": self._notice,
            "step": self._step,
            "checkpoint": self._checkpoint,
            "llm": self._call,
            "call": self._call,
            "effect": self._effect,
            "approval": self._approval,
            "resource": self._resource,
        }

    def take(self, row: Row) -> None:
        """Take one row in: the next one of the thread."""
        session = self.sessions.get(row.session_id)
        if session is not None:
            session["last"], session["to"] = max(session["last"], row.at), row.seq
        if row.is_unread:
            self.unread.append(row.seq)
        # what it completes may stand in another lane than it
        if row.ref_seq in self._lane_of:
            self._lane_of[row.ref_seq].touch()
        handler = self._handlers.get(row.kind)
        if handler is not None:
            handler(row)

    def ended_with(self, run: Json) -> float:
        """When the session of a run was last heard of."""
        session = self.sessions.get(run["_session_id"])
        return float(run["at"] if session is None else session["last"])

    def _touch_all(self) -> None:
        for lane in self.lanes.values():
            lane.touch()

    # ------------------------------------------------------------------ what happened to all
    def _thread(self, row: Row) -> None:
        if row.phase == "forked":
            self.forked = {"from": row.data.get("from"), "seq": row.data.get("seq")}
            self.totals = dict.fromkeys(self.totals, 0)
            for lane in self.lanes.values():
                lane.billed.clear()
            self._touch_all()
            for session in self.sessions.values():
                session["ended"] = session["ended"] or "forked"
            self._mark(row, "fork", f"forked from {row.data.get('from')} at row {row.data.get('seq')}")

    def _session(self, row: Row) -> None:
        if row.phase == "closed":
            if row.session_id in self.sessions:
                self.sessions[row.session_id]["ended"] = "closed"
            return
        if row.phase != "opened":
            return
        self._end_session_before(row)
        known = self.sessions.get(row.session_id)
        who = f"process {row.data.get('pid', '?')} on {row.data.get('host', '?')} ({row.data.get('user', '?')})"
        session: Json = {"at": row.at, "last": row.at, "from": row.seq, "to": row.seq, "who": who, "ended": ""}
        session["about"] = {name: row.data.get(name) for name in ("resumable_nb", "python", "duckdb")}
        session["_owner"] = row.data
        session["_number"] = known["_number"] if known else len(self.sessions)
        self.sessions[row.session_id] = session

    def _end_session_before(self, row: Row) -> None:
        before = next((s for s in reversed(self.sessions.values()) if not s["ended"]), None)
        if before is None:
            return
        took = "took_over" in row.data
        before["ended"] = "taken over" if took else "crashed"
        if took:
            self._mark(row, "take-over", f"taken over by process {row.data.get('pid')} on {row.data.get('host')}")
        else:
            self.marks.append(crash(before))

    def _mark(self, row: Row, kind: str, text: str) -> None:
        self.marks.append({"at": row.at, "kind": kind, "text": text[:TEXT_CHARS], "seq": row.seq})

    def _recovery(self, row: Row) -> None:
        again, done = row.data.get("calls_again", 0), row.data.get("calls_done", 0)
        took = f"{(row.duration_ms or 0) / 1e3:,.1f} s from opening to the first new call"
        calls = f"calls answered before: {done}, done again for want of an answer that fits: {again}"
        self._mark(row, "recovery", f"went on after a crash: {took}; {calls}")

    def _notice(self, row: Row) -> None:
        if row.name == "budget":
            prices, self.prices = self.prices, row.data.get("prices")
            if self.prices != prices:
                self._touch_all()
        if row.name != "skipped":
            return
        for told in row.data.get("steps", ()):
            at = float(told.get("at") or row.at)
            lane = self._lane(told.get("step"), told.get("cell"))
            of = told.get("checkpoint")
            lane.runs.append(self._run_of(row.seq, at, at, told.get("how", "skipped"), row, of=of))
        for name, value in row.data.get("saved", {}).items():
            if name == "ms":
                self.saved_ms += value
            elif f"saved_{name}" in self.totals:
                self.totals[f"saved_{name}"] += value

    # ------------------------------------------------------------------ steps and their runs
    def _lane(self, step: str | None, cell_id: str | None) -> Lane:
        """The lane of a step or a cell, which is about to change."""
        key = ("step", step) if step is not None else ("cell", cell_id or "")
        if key not in self.lanes:
            what = "step" if step is not None else "cell"
            name = step if step is not None else "edits of the state" if cell_id else "outside steps"
            self.lanes[key] = Lane(name, what, cell_id)
        lane = self.lanes[key]
        lane.cell_id = cell_id or lane.cell_id
        lane.touch()
        return lane

    def _run_of(self, seq: int, at: float, end: float | None, how: str, row: Row, **more: Any) -> Json:
        session = self.sessions.get(row.session_id)
        made: Json = {
            "seq": seq,
            "at": at,
            "end": end,
            "how": how,
            "session": session["_number"] if session else None,
            "_session_id": row.session_id,
            "_answered": 0,
            "calls": [],
            "count": 0,
            "effects": 0,
        }
        return made | {"input": 0, "output": 0, "replayed": 0, "progress": 0} | more

    def _step(self, row: Row) -> None:
        lane = self._lane(row.step, row.cell_id)
        if row.phase == "started":
            run = self._run_of(row.seq, row.at, None, "running", row)
            self._runs[row.seq], self._lane_of[row.seq] = run, lane
            lane.runs.append(run)
            return
        if row.phase == "retired":
            lane.runs.append(self._run_of(row.seq, row.at, row.at, "retired", row))
            return
        run = self._runs.get(row.ref_seq or 0) or self._run_of(row.seq, row.at, row.at, row.phase, row)
        if row.ref_seq not in self._runs:
            lane.runs.append(run)
        # what somebody else finds out when they open the thread ended with the session that had it
        died = self.ended_with(run) if row.phase == "lost" else row.at
        run["end"], run["how"] = max(run["at"], died), row.phase
        if row.data.get("message") or row.data.get("error"):
            run["error"] = f"{row.data.get('error')}: {row.data.get('message')}"[:TEXT_CHARS]

    def _checkpoint(self, row: Row) -> None:
        self._go_on_from(row)
        if row.phase == "taken up" and "was" in row.data:
            self._rename(row.data["was"], row)
        if row.cell_id is None:
            lane = self.lanes.setdefault(("", ""), Lane("start", "start"))
            lane.touch()
        else:
            lane = self._lane(row.step, row.cell_id)
        run = self._runs.get(row.ref_seq or 0)
        if run is None:
            at = row.at - (row.duration_ms or 0)
            run = self._run_of(row.seq, at, row.at, _MADE_BY.get(row.phase, "taken up"), row)
            lane.runs.append(run)
        else:
            lane = self._lane_of[row.ref_seq or 0]
        self._lane_of[row.seq] = lane
        run["end"], run["checkpoint"] = row.at, row.seq
        if run["how"] in ("running", "ran"):
            answered = int((row.data.get("spent") or {}).get("calls", 0))
            run["replayed"] = max(answered - run["_answered"], 0)
            run["how"] = "replayed" if run["replayed"] and not run["count"] + run["effects"] else "ran"
        run["changed"] = [*(row.sets or ()), *(row.adds or ())][:20]

    def _go_on_from(self, row: Row) -> None:
        """The lineage goes on with a checkpoint: those that came after its parent are no longer in it."""
        while self.chain and self.chain[-1] > (row.parent_seq or 0):
            gone = self.chain.pop()
            del self.places[gone]
            self._lane_of[gone].touch()
        self.chain.append(row.seq)
        self.places[row.seq] = len(self.chain)
        self.parents[row.seq] = row.parent_seq or 0

    def _rename(self, was: list[str | None], row: Row) -> None:
        before, now = ("step", was[1] or ""), ("step", row.step or "")
        if before in self.lanes and now not in self.lanes and before != now:
            lane = self.lanes[now] = self.lanes.pop(before)
            lane.name = row.step or ""
            lane.touch()

    # ------------------------------------------------------------------ what is inside
    def _inside(self, row: Row) -> tuple[Lane, Json | None]:
        """The lane of a row, which is about to change, and the run that it belongs to."""
        run = row.run_seq or 0
        lane = self._lane_of[run] if run in self._runs else self._lane(row.step, row.cell_id)
        lane.touch()
        return lane, self._runs.get(run)

    def _call(self, row: Row) -> None:
        lane, run = self._inside(row)
        if row.phase == "started":
            self._ask(row, lane, run)
            return
        call = self._open.get(row.ref_seq or 0, {})
        call |= {"phase": row.phase, "ms": row.duration_ms or 0}
        if row.data.get("why"):
            call["why"] = row.data["why"]
        if row.kind == "llm":
            call |= {"input": row.input, "output": row.output, "end": row.seq}
            self._bill(row, lane, run)

    def _ask(self, row: Row, lane: Lane, run: Json | None) -> None:
        asked = (row.kind, row.step, row.key, row.occurrence)
        call: Json = {
            "seq": row.seq,
            "kind": row.kind,
            "name": row.model or row.name or "",
            "at": row.at,
            "phase": "running",
            "twice": asked in self._asked,
        }
        self._open[row.seq], self._lane_of[row.seq] = call, lane
        self.totals["twice"] += call["twice"] and row.kind == "llm"
        self._asked.add(asked)
        if run is not None:
            run["count"] += 1
            run["calls"].append(call)

    def _bill(self, row: Row, lane: Lane, run: Json | None) -> None:
        answered = row.phase in ("done", "partial")
        if run is not None:
            run["input"] += row.input
            run["output"] += row.output
            run["_answered"] += answered
        self.totals["calls"] += answered
        self.totals["failed"] += row.phase == "failed"
        self.totals["input"] += row.input
        self.totals["output"] += row.output
        billed = lane.billed.setdefault(row.model or "?", [0, 0, 0])
        billed[0], billed[1], billed[2] = billed[0] + answered, billed[1] + row.input, billed[2] + row.output

    def _effect(self, row: Row) -> None:
        lane, run = self._inside(row)
        if row.phase == "started":
            if run is not None:
                run["effects"] += 1
            for before in lane.effects:  # of one effect, the newest attempt counts
                if before["key"] == row.key and before["stands"] == "in doubt":
                    before["stands"] = "done again"
            effect = {"seq": row.seq, "name": row.name, "key": row.key, "at": row.at, "stands": "running"}
            self._effects[row.seq], self._lane_of[row.seq] = effect, lane
            lane.effects.append(effect)
        elif row.ref_seq in self._effects:
            effect = self._effects[row.ref_seq]
            if effect["stands"] in ("running", "in doubt") or row.phase == "lost":
                stands = _EFFECT_STANDS.get(row.phase, row.phase)
                effect |= {"stands": stands, "settled": row.at, "by": row.data.get("by")}

    def _approval(self, row: Row) -> None:
        lane, _ = self._inside(row)
        if row.phase == "requested":
            message = row.data.get("message") or row.name
            wait = {"seq": row.seq, "at": row.at, "end": None, "message": message, "word": ""}
            self._gates[row.seq], self._lane_of[row.seq] = wait, lane
            lane.waits.append(wait)
        elif row.ref_seq in self._gates and row.phase != "done" and not self._gates[row.ref_seq]["word"]:
            word = row.phase if row.phase in ("approved", "rejected", "dropped") else "asked again"
            more = {k: row.data[k] for k in ("who", "comment", "edited") if row.data.get(k)}
            self._gates[row.ref_seq] |= {"end": row.at, "word": word} | more

    def _resource(self, row: Row) -> None:
        lane, _ = self._inside(row)
        if row.phase in ("done", "failed"):
            lane.resources.append({"seq": row.seq, "name": row.name, "at": row.at, "phase": row.phase})


def crash(session: Json) -> Json:
    """The mark of a session whose process died."""
    what = f"the process died: {session['who']}"
    return {"at": session["last"], "kind": "crash", "text": what, "seq": session["to"]}
