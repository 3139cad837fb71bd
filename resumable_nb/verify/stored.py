"""What a notebook's store remembers, in SQL."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resumable_nb.calls.http_rehearsal import place
from resumable_nb.errors import StoreError
from resumable_nb.journal import Store
from resumable_nb.verify.subject import Checkpoint, Gate, Memory
from resumable_nb.verify.world import Answer

_DIGEST = "md5(coalesce(CAST(response AS VARCHAR), '')) || '-' || md5(coalesce(body, ''::BLOB))"
_LIGHT = """
SELECT seq, kind, phase, step, cell_id, key, ref_seq, session_id, name, occurrence FROM journal
WHERE thread_id = $thread ORDER BY seq"""
_COLUMNS = ("seq", "kind", "phase", "step", "cell_id", "key", "ref_seq", "session_id", "name", "occurrence")
# Of several completing rows of one call the last one counts.
_ANSWERS = f"""
SELECT key, name, coalesce(step, '') AS step, occurrence, CAST(response AS VARCHAR) AS response, body, data,
       {_DIGEST} AS digest
FROM journal WHERE thread_id = $thread AND kind IN ('llm', 'call') AND phase IN ('done', 'partial')
QUALIFY row_number() OVER (PARTITION BY ref_seq ORDER BY seq DESC) = 1 ORDER BY seq"""
_WAITING = """
SELECT 'approval' AS kind, coalesce(seq, 0) AS seq, step, name, NULL AS key FROM approvals
WHERE thread_id = $thread AND phase = 'waiting'
UNION ALL SELECT 'effect', seq, step, name, idempotency_key FROM effects
WHERE thread_id = $thread AND phase = 'in doubt' AND idempotency_key NOT IN (
    SELECT idempotency_key FROM effects WHERE thread_id = $thread AND phase = 'done')"""
Row = dict[str, Any]


def thread_of(store: Store, wanted: str | None) -> str | None:
    """The thread under test: the one that is named, else the one that was opened first; None if there is none yet."""
    known = [str(row[0]) for row in store.rows("SELECT thread_id FROM threads ORDER BY started_at")[1]]
    return wanted if wanted in known else known[0] if known and wanted is None else None


def remember(path: Path, wanted: str | None) -> Memory:
    """All that is judged of a store. No process has it open."""
    if not path.exists():
        return Memory()
    try:
        store = Store.open(path, create=False)
        try:
            thread = thread_of(store, wanted)
            return Memory() if thread is None else _memory(store, thread)
        finally:
            store.close()
    except StoreError as error:
        return Memory(trouble=str(error))


def _memory(store: Store, thread: str) -> Memory:
    named = {"thread": thread}
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in store.rows(_LIGHT, named)[1]]
    answers = _dicts(store, _ANSWERS, named)
    answered: dict[str, list[str]] = {}
    places = Counter((answer["step"], answer["key"], answer["occurrence"]) for answer in answers if answer["step"])
    for answer in answers:
        if answer["step"]:
            answered.setdefault(answer["key"], []).append(answer["digest"])
    checkpoints = [Checkpoint(step=r["step"] or "", at=r["seq"]) for r in rows if r["kind"] == "checkpoint"]
    return Memory(
        rows=len(rows),
        checkpoints=checkpoints,
        state=state_at(store, thread, checkpoints[-1].at) if checkpoints else None,
        answered=answered,
        repeated=[key for (_, key, _), count in places.items() if count > 1],
        free=frozenset(answer["key"] for answer in answers if not answer["step"]),
        receipts=[r["key"] for r in rows if r["kind"] == "effect" and r["phase"] == "done"],
        gates=_gates(rows),
        renewed=_renewed(rows),
        live=_live(rows),
    )


def _dicts(store: Store, sql: str, parameters: Mapping[str, object]) -> list[Row]:
    columns, rows = store.rows(sql, parameters)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def state_at(store: Store, thread: str, seq: int) -> dict[str, Any]:
    """The state at a row, as SQL gives it."""
    found = store.rows("SELECT field, value FROM state_at($thread, $seq)", {"thread": thread, "seq": seq})[1]
    return {str(name): json.loads(value) for name, value in found}


def _gates(rows: list[Row]) -> list[Gate]:
    gates = []
    for asked in (r for r in rows if r["kind"] == "approval" and r["phase"] == "requested"):
        ends = [r for r in rows if r["kind"] == "approval" and r["ref_seq"] == asked["seq"]]
        first: Row = ends[0] if ends else {"seq": None, "phase": "waiting"}
        key = f"{asked['key']}-{asked['occurrence']}"
        step = asked["step"] or asked["cell_id"] or ""
        gates.append(Gate(step=step, key=key, at=asked["seq"], decided_at=first["seq"], decision=first["phase"]))
    return gates


def _renewed(rows: list[Row]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        if row["kind"] == "resource" and row["phase"] in ("done", "probed"):
            found.setdefault(row["name"], []).append(row["seq"])
    return found


def _live(rows: list[Row]) -> list[int]:
    """For each session, the first row of a call that really went out."""
    first: dict[str, int] = {}
    for row in rows:
        if row["kind"] in ("llm", "call", "effect") and row["phase"] == "started" and row["step"]:
            first.setdefault(row["session_id"], row["seq"])
    return list(first.values())


def answers(path: Path, wanted: str | None) -> list[Answer]:
    """The answers of a finished run, to be given again."""
    store = Store.open(path, create=False)
    try:
        thread = thread_of(store, wanted)
        return [_answer(row) for row in _dicts(store, _ANSWERS, {"thread": thread})] if thread else []
    finally:
        store.close()


def _answer(row: Row) -> Answer:
    headers = dict(json.loads(row["data"] or "{}").get("headers", ()))
    body = row["body"] if row["body"] is not None else (row["response"] or "").encode()
    return Answer(
        key=row["key"],
        path=row["name"].partition(" ")[2],
        place=place(row["step"], row["occurrence"]),
        content_type=headers.get("content-type", "application/json"),
        body=bytes(body),
        digest=row["digest"],
    )


def states(path: Path, wanted: str | None) -> dict[str, dict[str, Any]]:
    """By step, the state after its newest checkpoint."""
    store = Store.open(path, create=False)
    try:
        thread = thread_of(store, wanted)
        if thread is None:
            return {}
        sql = (
            "SELECT step, max(seq) AS seq FROM checkpoints WHERE thread_id = $thread AND step IS NOT NULL GROUP BY step"
        )
        return {row["step"]: state_at(store, thread, row["seq"]) for row in _dicts(store, sql, {"thread": thread})}
    finally:
        store.close()


def waiting(path: Path, acts: Mapping[str, Any]) -> list[list[str]]:
    """The commands by which a person answers what waits: yes to every gate; of effects, what the ledger knows."""
    store = Store.open(path, create=False)
    try:
        commands = []
        for thread in (str(row[0]) for row in store.rows("SELECT thread_id FROM threads")[1]):
            found = _dicts(store, _WAITING, {"thread": thread})
            commands += [[*_answer_to(row, acts), "--thread", thread] for row in found]
        return commands
    finally:
        store.close()


def _answer_to(row: Row, acts: Mapping[str, Any]) -> list[str]:
    if row["kind"] == "approval":
        return ["approve", row["step"] or row["name"], "--gate", str(row["seq"])]
    if row["key"] in acts:
        return ["settle", row["key"], "--happened", json.dumps(acts[row["key"]])]
    return ["settle", row["key"], "--did-not-happen"]


def readability(path: Path, wanted: str | None) -> tuple[int, list[str]]:
    """How many fields the newest state has, and those that hold bytes, which nobody reads in SQL."""
    state = remember(path, wanted).state or {}
    return len(state), [name for name, value in state.items() if _holds_bytes(value)]


def _holds_bytes(value: Any) -> bool:
    if isinstance(value, dict):
        binary = "$type" in value and ("base64" in value or "sha256" in value)
        return binary or any(map(_holds_bytes, value.values()))
    return isinstance(value, list) and any(map(_holds_bytes, value))
