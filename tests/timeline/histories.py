"""Random histories of a thread, as the timeline reads them: every kind of row that it draws, in any order that can be."""

from __future__ import annotations

import json
import random
from typing import Any

from resumable_nb.journal import processes
from resumable_nb.timeline.rows import Row

STEPS = (("plan", "c1"), ("read", "c2"), ("rank", "c3"), ("report", "c4"))
PRICES = {"m": [1.0, 2.0]}


class History:
    """Makes the rows of one thread, one by one.

    Args:
        seed: the same, the same history.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.rows: list[Row] = []
        self._session = ""
        self._begun: list[Row] = []
        self._runs: list[Row] = []
        self._calls: list[Row] = []
        self._effects: list[Row] = []
        self._gates: list[Row] = []
        self._chain = [0]

    def grow(self, count: int) -> list[Row]:
        """So many rows."""
        acts = [
            *[self._start] * 4, *[self._call] * 8, *[self._end_call] * 8, *[self._commit] * 5, self._fail, self._retire,
            *[self._effect] * 2, *[self._settle] * 2, *[self._ask] * 2, *[self._decide] * 2, self._edit, self._skip,
            *[self._budget] * 2, self._rename, self._resource, self._fork, *[self._open] * 2, self._close, self._recover,
        ]  # fmt: skip
        self._open()
        self._add("checkpoint", "start", parent_seq=0, sets=["query"])
        self._chain.append(len(self.rows))
        while len(self.rows) < count:
            self._random.choice(acts)()
        return self.rows

    def _add(self, kind: str, phase: str = "", data: Any = None, **more: Any) -> Row:
        values: dict[str, Any] = dict.fromkeys(Row.__slots__) | {"input": 0, "output": 0} | more
        for name in ("data", "is_unread"):
            values.pop(name)
        seq = len(self.rows) + 1
        text = None if data is None else json.dumps(data)
        session = values["session_id"] or self._session
        row = Row(
            **values | {"seq": seq, "kind": kind, "phase": phase, "session_id": session, "text": text, "at": 1e3 * seq}
        )
        self.rows.append(row)
        return row

    def _where(self) -> dict[str, Any]:
        step, cell_id = self._random.choice(STEPS)
        return {"step": step, "cell_id": cell_id}

    def _within(self) -> dict[str, Any]:
        """A run that has started, and may have ended; or none: a call outside steps."""
        if self._begun and self._random.random() < 0.9:
            run = self._random.choice(self._begun[-4:])
            return {"step": run.step, "cell_id": run.cell_id, "run_seq": run.seq}
        return {}

    # ------------------------------------------------------------------ all of them
    def _open(self) -> None:
        self._session = f"s{len(self.rows)}"
        dead = {**processes.describe(), "process_started": "0"}
        data = processes.describe() if self._random.random() < 0.5 else dead
        self._add("session", "opened", data | ({"took_over": 1} if self._random.random() < 0.3 else {}))

    def _close(self) -> None:
        self._add("session", "closed")

    def _recover(self) -> None:
        self._add("recovery", data={"calls_again": 1, "calls_done": 2}, duration_ms=5.0)

    def _fork(self) -> None:
        self._add("thread", "forked", {"from": "other", "seq": len(self.rows)})

    def _budget(self) -> None:
        self._add("notice", name="budget", data={"prices": self._random.choice([None, PRICES])})

    def _skip(self) -> None:
        steps = [{"step": step, "cell": cell, "checkpoint": 2} for step, cell in STEPS[: self._random.randint(1, 4)]]
        self._add("notice", name="skipped", data={"steps": steps, "saved": {"calls": 2, "tokens": 9, "ms": 12.5}})

    # ------------------------------------------------------------------ steps
    def _start(self) -> None:
        self._begun.append(self._add("step", "started", **self._where()))
        self._runs.append(self._begun[-1])

    def _fail(self) -> None:
        if self._runs:
            run = self._runs.pop(self._random.randrange(len(self._runs)))
            phase = self._random.choice(["failed", "interrupted", "waiting", "lost", "pruned"])
            data = {"error": "ValueError", "message": "no"}
            self._add("step", phase, data, step=run.step, cell_id=run.cell_id, ref_seq=run.seq)

    def _retire(self) -> None:
        self._add("step", "retired", **self._where())

    def _commit(self) -> None:
        if self._runs:
            run = self._runs.pop(self._random.randrange(len(self._runs)))
            self._checkpoint("step", run.seq, {"spent": {"calls": 2}}, step=run.step, cell_id=run.cell_id)

    def _edit(self) -> None:
        self._checkpoint("edit", None, None, cell_id=self._random.choice("xy"))

    def _rename(self) -> None:
        step, cell_id = self._random.choice([*STEPS, ("new", "c5")])
        was = [cell_id, self._random.choice(STEPS)[0]]
        self._checkpoint("taken up", None, {"was": was}, step=step, cell_id=cell_id)

    def _checkpoint(self, phase: str, ref_seq: int | None, data: Any, **more: Any) -> None:
        back = 1 if self._random.random() < 0.7 else self._random.randint(1, len(self._chain))
        self._chain = self._chain[: len(self._chain) - back + 1]
        row = self._add(
            "checkpoint", phase, data, ref_seq=ref_seq, parent_seq=self._chain[-1], adds=["findings +1"], **more
        )
        self._chain.append(row.seq)

    # ------------------------------------------------------------------ inside
    def _call(self) -> None:
        kind = self._random.choice(["llm", "llm", "call"])
        about = {"key": self._random.choice("ab"), "occurrence": 0, "model": "m" if kind == "llm" else None}
        self._calls.append(self._add(kind, "started", **about, **self._within()))

    def _end_call(self) -> None:
        if self._calls:
            call = self._calls.pop(self._random.randrange(len(self._calls)))
            phase = self._random.choice(["done", "done", "partial", "failed", "lost"])
            about = {name: getattr(call, name) for name in ("step", "cell_id", "run_seq", "key", "occurrence", "model")}
            self._add(call.kind, phase, {"why": "no"}, ref_seq=call.seq, **about, input=7, output=2, duration_ms=3.0)

    def _effect(self) -> None:
        self._effects.append(
            self._add("effect", "started", name="send", key=self._random.choice("kl"), **self._within())
        )

    def _settle(self) -> None:
        if self._effects:
            effect = self._random.choice(self._effects)
            by = self._within() if self._random.random() < 0.5 else {}  # somebody may settle it from anywhere
            phase = self._random.choice(["done", "failed", "not done", "lost"])
            self._add("effect", phase, {"by": "somebody"}, ref_seq=effect.seq, key=effect.key, **by)

    def _ask(self) -> None:
        self._gates.append(self._add("approval", "requested", {"message": "Go on?"}, **self._within()))

    def _decide(self) -> None:
        if self._gates:
            gate = self._random.choice(self._gates)
            phase = self._random.choice(["approved", "rejected", "withdrawn", "dropped", "done"])
            self._add("approval", phase, {"who": "somebody", "edited": True}, ref_seq=gate.seq)

    def _resource(self) -> None:
        self._add("resource", self._random.choice(["done", "failed", "probed"]), name="token", **self._within())
