"""A thread as people think of it: a row per step, the runs of each, what they cost, and marks for what happened to all.

Times are milliseconds since 1970 (UTC). Everything is a value that JSON knows, and of bounded size: of very long
threads the oldest rows are told as one, and of long runs only some calls are told one by one.
"""

from __future__ import annotations

import functools
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resumable_nb.errors import ThreadNotFound
from resumable_nb.journal import processes
from resumable_nb.llm.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from resumable_nb.journal import Store

Json = dict[str, Any]

ROWS_AT_MOST = 4000
CALLS_AT_MOST = 6000
CALLS_OF_RUN_AT_MOST = 40
TEXT_CHARS = 300
_SQL = """
SELECT seq, kind, phase, epoch_ms(ts) AS at, session_id, ref_seq, parent_seq, run_seq, step, cell_id,
       name[:300] AS name,
       CASE WHEN kind IN ('llm', 'call', 'effect') THEN key[:120] END AS key, occurrence, duration_ms,
       gen_ai_request_model AS model, coalesce(gen_ai_usage_input_tokens, 0) AS input,
       coalesce(gen_ai_usage_output_tokens, 0) AS output,
       CASE WHEN kind = 'checkpoint'
            THEN list_concat(json_keys(changes, '$.set'), json_keys(changes, '$.drop')) END AS sets,
       CASE WHEN kind = 'checkpoint' THEN list_transform(json_keys(changes, '$.append'),
            lambda f: f || ' +' || json_array_length(changes, '$.append."' || f || '"')) END AS adds,
       CASE WHEN kind IN ('session', 'thread', 'recovery') OR (kind = 'step' AND phase <> 'started')
                 OR (kind = 'notice' AND name IN ('skipped', 'budget')) THEN data
            WHEN kind = 'checkpoint' AND phase = 'taken up' THEN data
            WHEN kind = 'checkpoint' THEN json_object('spent', data->'spent')
            WHEN kind IN ('llm', 'call', 'effect', 'resource')
            THEN json_object('why', (data->>'why')[:300], 'by', data->>'by')
            WHEN kind = 'approval' THEN json_object('message', (data->>'message')[:300], 'who', data->>'who',
                 'comment', (data->>'comment')[:300], 'edited', (data->'approved_payload') IS NOT NULL)
       END AS data
FROM journal WHERE thread_id = ? AND kind NOT IN ('value', 'outputs') ORDER BY seq"""


class _Row:
    """One row of the journal, as the picture needs it."""

    __slots__ = (
        "adds", "at", "cell_id", "data", "duration_ms", "input", "key", "kind", "model", "name", "occurrence", "output",
        "parent_seq", "phase", "ref_seq", "run_seq", "seq", "session_id", "sets", "step",
    )  # fmt: skip

    def __init__(self, names: Iterable[str], values: Iterable[Any]) -> None:
        for name, value in zip(names, values, strict=True):
            setattr(self, name, value)
        found = json.loads(str(self.data)) if self.data else {}
        self.data: Json = found if isinstance(found, dict) else {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


@dataclass
class _Lane:
    """The rows of one step, one cell that edits the state, or the start."""

    name: str
    what: str
    cell_id: str | None = None
    runs: list[Json] = field(default_factory=list)
    waits: list[Json] = field(default_factory=list)
    effects: list[Json] = field(default_factory=list)
    resources: list[Json] = field(default_factory=list)
    billed: dict[str, list[int]] = field(default_factory=dict)


def picture(store: Store, thread_id: str) -> Json:
    """Everything that the timeline of a thread draws, as it stands in the store now.

    Raises:
        ThreadNotFound: there is no such thread.
        StoreError: see its subclasses.
    """
    names, rows = store.rows(_SQL, [thread_id])
    if not rows:
        known = ", ".join(map(repr, store.threads()[:20])) or "none"
        raise ThreadNotFound(f"{store.path} has no thread {thread_id!r}. It has {known}")
    fold = _Fold()
    for values in rows:
        fold.apply(_Row(names, values))
    return {"thread": thread_id, "store": str(store.path), **fold.told()}


class _Fold:
    """The rows of a thread, folded into what is drawn."""

    def __init__(self) -> None:
        self.head, self.now = 0, time.time() * 1e3
        self.lanes: dict[tuple[str, str], _Lane] = {}
        self.sessions: dict[str, Json] = {}
        self.marks: list[Json] = []
        self.checkpoints: dict[int, Json] = {}
        self.chain: list[int] = []
        self.forked: Json | None = None
        self.prices: Mapping[str, Any] | None = None
        self._runs: dict[int, Json] = {}
        self._open: dict[int, Json] = {}
        self._gates: dict[int, Json] = {}
        self._effects: dict[int, Json] = {}
        self._asked: set[tuple[Any, ...]] = set()
        self._lane_of_run: dict[int, _Lane] = {}
        self.totals = dict.fromkeys(("calls", "failed", "twice", "input", "output", "saved_calls", "saved_tokens"), 0)
        self.saved_ms = 0.0

    # ------------------------------------------------------------------ rows in
    def apply(self, row: _Row) -> None:
        """Take one row in."""
        self.head = row.seq
        if row.session_id in self.sessions:
            session = self.sessions[row.session_id]
            session["last"], session["to"] = max(session["last"], row.at), row.seq
        handler = getattr(self, f"_{row.kind}", None)
        if handler is not None:
            handler(row)

    def _thread(self, row: _Row) -> None:
        if row.phase == "forked":
            self.forked = {"from": row.data.get("from"), "seq": row.data.get("seq")}
            self.totals = dict.fromkeys(self.totals, 0)
            for lane in self.lanes.values():
                lane.billed.clear()
            for session in self.sessions.values():
                session["ended"] = session["ended"] or "forked"
            self._mark(row, "fork", f"forked from {row.data.get('from')} at row {row.data.get('seq')}")

    def _session(self, row: _Row) -> None:
        if row.phase == "closed":
            if row.session_id in self.sessions:
                self.sessions[row.session_id]["ended"] = "closed"
            return
        if row.phase != "opened":
            return
        before = next((s for s in reversed(self.sessions.values()) if not s["ended"]), None)
        if before is not None:
            took = "took_over" in row.data
            before["ended"] = "taken over" if took else "crashed"
            if not took:
                what = f"the process died: {before['who']}"
                self.marks.append({"at": before["last"], "kind": "crash", "text": what, "seq": before["to"]})
            else:
                self._mark(row, "take-over", f"taken over by process {row.data.get('pid')} on {row.data.get('host')}")
        who = f"process {row.data.get('pid', '?')} on {row.data.get('host', '?')} ({row.data.get('user', '?')})"
        session: Json = {"at": row.at, "last": row.at, "from": row.seq, "to": row.seq, "who": who, "ended": ""}
        session["about"] = {name: row.data.get(name) for name in ("resumable_nb", "python", "duckdb")}
        session["_owner"] = row.data
        self.sessions[row.session_id] = session

    def _mark(self, row: _Row, kind: str, text: str) -> None:
        self.marks.append({"at": row.at, "kind": kind, "text": text[:TEXT_CHARS], "seq": row.seq})

    def _recovery(self, row: _Row) -> None:
        again, done = row.data.get("calls_again", 0), row.data.get("calls_done", 0)
        took = f"{(row.duration_ms or 0) / 1e3:,.1f} s from opening to the first new call"
        calls = f"calls answered before: {done}, done again for want of an answer that fits: {again}"
        self._mark(row, "recovery", f"went on after a crash: {took}; {calls}")

    def _notice(self, row: _Row) -> None:
        if row.name == "budget":
            self.prices = row.data.get("prices")
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
    def _lane(self, step: str | None, cell_id: str | None) -> _Lane:
        key = ("step", step) if step is not None else ("cell", cell_id or "")
        if key not in self.lanes:
            what = "step" if step is not None else "cell"
            name = step if step is not None else "edits of the state" if cell_id else "outside steps"
            self.lanes[key] = _Lane(name, what, cell_id)
        self.lanes[key].cell_id = cell_id or self.lanes[key].cell_id
        return self.lanes[key]

    def _run_of(self, seq: int, at: float, end: float | None, how: str, row: _Row, **more: Any) -> Json:
        session = list(self.sessions).index(row.session_id) if row.session_id in self.sessions else None
        made: Json = {
            "seq": seq,
            "at": at,
            "end": end,
            "how": how,
            "session": session,
            "calls": [],
            "count": 0,
            "effects": 0,
        }
        return made | {"input": 0, "output": 0, "replayed": 0, "progress": 0} | more

    def _step(self, row: _Row) -> None:
        lane = self._lane(row.step, row.cell_id)
        if row.phase == "started":
            run = self._run_of(row.seq, row.at, None, "running", row)
            self._runs[row.seq], self._lane_of_run[row.seq] = run, lane
            lane.runs.append(run)
            return
        if row.phase == "retired":
            lane.runs.append(self._run_of(row.seq, row.at, row.at, "retired", row))
            return
        run = self._runs.get(row.ref_seq or 0) or self._run_of(row.seq, row.at, row.at, row.phase, row)
        if row.ref_seq not in self._runs:
            lane.runs.append(run)
        # what somebody else finds out when they open the thread ended with the session that had it
        died = self._ended_with(run) if row.phase == "lost" else row.at
        run["end"], run["how"] = max(run["at"], died), row.phase
        if row.data.get("message") or row.data.get("error"):
            run["error"] = f"{row.data.get('error')}: {row.data.get('message')}"[:TEXT_CHARS]

    def _ended_with(self, run: Json) -> float:
        sessions = list(self.sessions.values())
        return float(sessions[run["session"]]["last"]) if run["session"] is not None else float(run["at"])

    def _checkpoint(self, row: _Row) -> None:
        while self.chain and self.chain[-1] > (row.parent_seq or 0):
            self.chain.pop()
        self.chain.append(row.seq)
        changed = [*(row.sets or ()), *(row.adds or ())]
        self.checkpoints[row.seq] = {"parent": row.parent_seq or 0}
        if row.phase == "taken up" and "was" in row.data:
            self._rename(row.data["was"], row)
        if row.cell_id is None:
            lane = self.lanes.setdefault(("", ""), _Lane("start", "start"))
        else:
            lane = self._lane(row.step, row.cell_id)
        run = self._runs.get(row.ref_seq or 0)
        if run is None:
            how = {"step": "ran", "edit": "edited", "start": "start", "migration": "migrated"}.get(
                row.phase, "taken up"
            )
            at = row.at - (row.duration_ms or 0)
            run = self._run_of(row.seq, at, row.at, how, row)
            lane.runs.append(run)
        run["end"], run["checkpoint"] = row.at, row.seq
        if run["how"] in ("running", "ran"):
            answered = int((row.data.get("spent") or {}).get("calls", 0))
            run["replayed"] = max(answered - run.get("_answered", 0), 0)
            run["how"] = "replayed" if run["replayed"] and not run["count"] + run["effects"] else "ran"
        run["changed"] = changed[:20]

    def _rename(self, was: list[str | None], row: _Row) -> None:
        before, now = ("step", was[1] or ""), ("step", row.step or "")
        if before in self.lanes and now not in self.lanes and before != now:
            lane = self.lanes[now] = self.lanes.pop(before)
            lane.name = row.step or ""

    # ------------------------------------------------------------------ what is inside
    def _inside(self, row: _Row) -> tuple[_Lane, Json | None]:
        return self._lane_of_run.get(row.run_seq or 0) or self._lane(row.step, row.cell_id), self._runs.get(
            row.run_seq or 0
        )

    def _llm(self, row: _Row) -> None:
        lane, run = self._inside(row)
        if row.phase == "started":
            asked = (row.kind, row.step, row.key, row.occurrence)
            call = {
                "seq": row.seq,
                "kind": row.kind,
                "name": row.model or row.name or "",
                "at": row.at,
                "phase": "running",
            }
            call["twice"], self._open[row.seq] = asked in self._asked, call
            self.totals["twice"] += call["twice"] and row.kind == "llm"
            self._asked.add(asked)
            if run is not None:
                run["count"] += 1
                run["calls"].append(call)
            return
        call = self._open.get(row.ref_seq or 0, {})
        call |= {"phase": row.phase, "ms": row.duration_ms or 0}
        if row.data.get("why"):
            call["why"] = row.data["why"]
        if row.kind != "llm":
            return
        call |= {"input": row.input, "output": row.output, "end": row.seq}
        answered = row.phase in ("done", "partial")
        if run is not None:
            run["input"] += row.input
            run["output"] += row.output
            run["_answered"] = run.get("_answered", 0) + answered
        self.totals["calls"] += answered
        self.totals["failed"] += row.phase == "failed"
        self.totals["input"] += row.input
        self.totals["output"] += row.output
        billed = lane.billed.setdefault(row.model or "?", [0, 0, 0])
        billed[0], billed[1], billed[2] = billed[0] + answered, billed[1] + row.input, billed[2] + row.output

    _call = _llm

    def _effect(self, row: _Row) -> None:
        lane, run = self._inside(row)
        if row.phase == "started":
            if run is not None:
                run["effects"] += 1
            for before in lane.effects:  # of one effect, the newest attempt counts
                if before["key"] == row.key and before["stands"] == "in doubt":
                    before["stands"] = "done again"
            effect = {"seq": row.seq, "name": row.name, "key": row.key, "at": row.at, "stands": "running"}
            self._effects[row.seq] = effect
            lane.effects.append(effect)
        elif row.ref_seq in self._effects:
            effect = self._effects[row.ref_seq]
            told = {"done": "happened", "failed": "did not happen", "not done": "did not happen", "lost": "in doubt"}
            if effect["stands"] in ("running", "in doubt") or row.phase == "lost":
                effect |= {"stands": told.get(row.phase, row.phase), "settled": row.at, "by": row.data.get("by")}

    def _approval(self, row: _Row) -> None:
        lane, _ = self._inside(row)
        if row.phase == "requested":
            wait = {
                "seq": row.seq,
                "at": row.at,
                "end": None,
                "message": row.data.get("message") or row.name,
                "word": "",
            }
            self._gates[row.seq] = wait
            lane.waits.append(wait)
        elif row.ref_seq in self._gates and row.phase != "done" and not self._gates[row.ref_seq]["word"]:
            word = row.phase if row.phase in ("approved", "rejected", "dropped") else "asked again"
            more = {k: row.data[k] for k in ("who", "comment", "edited") if row.data.get(k)}
            self._gates[row.ref_seq] |= {"end": row.at, "word": word} | more

    def _resource(self, row: _Row) -> None:
        lane, _ = self._inside(row)
        if row.phase in ("done", "failed"):
            lane.resources.append({"seq": row.seq, "name": row.name, "at": row.at, "phase": row.phase})

    # ------------------------------------------------------------------ the whole
    def told(self) -> Json:
        """The picture."""
        sessions = [self._told_session(s) for s in self.sessions.values()]
        alive = bool(sessions) and sessions[-1]["ended"] in ("", "unknown")
        lanes = self._in_order()
        for lane in lanes:
            self._end_open(lane, alive=alive)
        lanes, earlier = lanes[-ROWS_AT_MOST:], lanes[:-ROWS_AT_MOST]
        runs = sum(len(lane.runs) for lane in lanes)
        each = max(min(CALLS_OF_RUN_AT_MOST, CALLS_AT_MOST // max(runs, 1)), 2)
        chain, table = set(self.chain), json.dumps(self.prices)
        rows = [self._told_lane(lane, each, chain, table) for lane in lanes]
        told_earlier = [self._told_lane(lane, 0, chain, table) for lane in earlier]
        return {
            "head": self.head,
            "now": self.now,
            "newest": self.chain[-1] if self.chain else 0,
            "forked": self.forked,
            "sessions": sessions,
            "marks": sorted(self.marks, key=lambda m: m["at"]),
            "rows": rows,
            "earlier": _summed(told_earlier),
            "totals": self._told_totals([*rows, *told_earlier], sessions),
        }

    def _in_order(self) -> list[_Lane]:
        """As the notebook has them: that is how the lineage runs. What is not in it stands after what ran before it."""
        places = {seq: place for place, seq in enumerate(self.chain, 1)}
        found = [lane for lane in self.lanes.values() if lane.runs or lane.waits or lane.billed or lane.effects]
        order, before = {}, 0
        for lane in found:
            before = max((places.get(run.get("checkpoint", 0), 0) for run in lane.runs), default=0) or before
            order[id(lane)] = before
        return sorted(found, key=lambda lane: order[id(lane)])

    def _told_session(self, session: Json) -> Json:
        owner = session.pop("_owner")
        if not session["ended"]:
            alive = processes.is_alive(owner)
            session["ended"] = "" if alive else "crashed" if alive is False else "unknown"
            if alive is False:
                text = f"the process died: {session['who']}"
                self.marks.append({"at": session["last"], "kind": "crash", "text": text, "seq": session["to"]})
        return session

    def _end_open(self, lane: _Lane, *, alive: bool) -> None:
        for run in lane.runs:
            newest = run["session"] == len(self.sessions) - 1
            if run["end"] is None and not (alive and newest):  # nobody has opened the thread since its process died
                run["end"], run["how"] = max(self._ended_with(run), run["at"]), "lost"
                for call in run["calls"]:
                    call["phase"] = "lost" if call["phase"] == "running" else call["phase"]
        if not alive:
            for effect in lane.effects:
                effect["stands"] = "in doubt" if effect["stands"] == "running" else effect["stands"]

    def _told_lane(self, lane: _Lane, calls: int, chain: set[int], prices: str) -> Json:
        for run in lane.runs:
            run.pop("_answered", None)
            run["calls"] = _some(run["calls"], calls)
            run["ms"] = max((run["end"] or self.now) - run["at"], 0)
            if "checkpoint" in run:
                run["parent"] = self.checkpoints[run["checkpoint"]]["parent"]
                run["lineage"] = run["checkpoint"] in chain
        billed = lane.billed.items()
        costs = [_price(model, into, out, prices) for model, (_, into, out) in billed]
        return {
            "name": lane.name,
            "what": lane.what,
            "cell": lane.cell_id,
            "stands": _stands(lane),
            "runs": lane.runs,
            "waits": lane.waits,
            "effects": lane.effects,
            "resources": lane.resources,
            "models": sorted(lane.billed),
            "calls": sum(n for _, (n, _, _) in billed),
            "input": sum(i for _, (_, i, _) in billed),
            "output": sum(o for _, (_, _, o) in billed),
            "usd": None if None in costs else sum(c for c in costs if c is not None),
            "ms": sum(run["ms"] for run in lane.runs if run["how"] not in _TAKE_NO_TIME),
        }

    def _told_totals(self, rows: list[Json], sessions: list[Json]) -> Json:
        waits = [wait for row in rows for wait in row["waits"]]
        priced = [row["usd"] for row in rows]
        return {
            **self.totals,
            "saved_ms": self.saved_ms,
            "steps": sum(row["what"] == "step" for row in rows),
            "runs": sum(len(row["runs"]) for row in rows),
            "checkpoints": len(self.checkpoints),
            "ms": sum(row["ms"] for row in rows),
            "usd": None if None in priced else sum(priced),
            "sessions": len(sessions),
            "crashes": sum(mark["kind"] == "crash" for mark in self.marks),
            "waited_ms": sum((wait["end"] or self.now) - wait["at"] for wait in waits),
            "waiting": sum(not wait["word"] for wait in waits),
            "doubt": sum(effect["stands"] == "in doubt" for row in rows for effect in row["effects"]),
        }


@functools.lru_cache(16_384)
def _price(model: str, into: int, out: int, table: str) -> float | None:
    """A live picture asks for the same ones again and again, and one takes a millisecond."""
    return price(model, into, out, json.loads(table))


_TAKE_NO_TIME = ("skipped", "taken up", "retired", "start", "edited", "migrated")


def _stands(lane: _Lane) -> str:
    """What the newest run says; skips and the like say what was before them."""
    if any(not wait["word"] for wait in lane.waits):
        return "waiting"
    if any(effect["stands"] == "in doubt" for effect in lane.effects):
        return "in doubt"
    own = [run["how"] for run in lane.runs if run["how"] != "skipped"]
    how = own[-1] if own else "ran" if lane.runs else ""
    return {"ran": "done", "taken up": "done", "replayed": "done"}.get(how, how)


def _some(calls: list[Json], at_most: int) -> list[Json]:
    """The calls, or of many the first and the newest; what failed or was lost goes first."""
    if len(calls) <= at_most:
        return calls
    odd = [call for call in calls if call["phase"] not in ("done", "partial")][-(at_most // 2) :] if at_most else []
    left = at_most - len(odd)
    plain = [call for call in calls if call not in odd]
    kept = [*plain[: left - left // 2], *(plain[-(left // 2) :] if left // 2 else [])] if left else []
    return sorted([*odd, *kept], key=lambda call: call["seq"])


def _summed(rows: list[Json]) -> Json | None:
    """One row for many; None for none."""
    if not rows:
        return None
    runs = [run for row in rows for run in row["runs"]]
    numbers = {name: sum(row[name] or 0 for row in rows) for name in ("calls", "input", "output", "ms")}
    times = {"at": min(run["at"] for run in runs), "end": max(run["end"] or run["at"] for run in runs)} if runs else {}
    return {"count": len(rows), **numbers, **times}
