"""Gates: what waits for a person's yes, and what was decided, folded from the journal; and the way to decide.

A gate is one question of one step, for exactly one payload. In the journal it is a row `requested`; the first row
`approved` or `rejected` that names it is the decision, and stands. A gate is closed without one (`dropped`, `refused`)
when the step asks about something else now, when its thread is forked, or when an edited payload did not fit.
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from resumable_nb import payloads, terminal, values
from resumable_nb.errors import AlreadyDecided, NotAsked, UsageError
from resumable_nb.failpoints import passing
from resumable_nb.journal import Row

if TYPE_CHECKING:
    from resumable_nb.journal import Store

DECIDED = ("approved", "rejected")
CLOSED = ("dropped", "refused")
_COMMENT_CHARS = 10_000
T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What a person decided. It is true if they approved.

    Attributes:
        approved: whether they said yes.
        payload: what they said yes to: the payload as the code gave it, or as they edited it.
        comment: what they said about it; "" for nothing.
        who: the JupyterHub user, else the user of the operating system.
        at: when, in UTC, as ISO 8601 has it.
    """

    approved: bool
    payload: T
    comment: str
    who: str
    at: str

    def __bool__(self) -> bool:
        return self.approved


@dataclass(frozen=True)
class Decision:
    """The first decision about a gate."""

    approved: bool
    who: str
    comment: str
    at: str
    edited: bool = False
    payload: Any = None
    seq: int = 0

    @classmethod
    def of(cls, row: Row) -> Decision:
        """From its row."""
        data = json.loads(row.data or "{}")
        return cls(
            approved=row.phase == "approved",
            who=data.get("who") or "somebody",
            comment=data.get("comment") or "",
            at=data.get("at") or f"{row.ts:%Y-%m-%dT%H:%M:%SZ}",
            edited="approved_payload" in data,
            payload=data.get("approved_payload"),
            seq=row.seq,
        )

    @property
    def word(self) -> str:
        """`approved`, `approved after an edit`, `rejected`."""
        return ("approved after an edit" if self.edited else "approved") if self.approved else "rejected"

    def __str__(self) -> str:
        said = f": {terminal.one_line(self.comment, 200)}" if self.comment else ""
        return f"{self.word} by {terminal.plain(self.who)} at {terminal.plain(self.at)}{said}"


@dataclass
class Gate:
    """One question put to a person."""

    request: Row
    decision: Decision | None = None
    closed: bool = False
    seen: bool = False

    @property
    def seq(self) -> int:
        """The row of the question."""
        return self.request.seq

    @property
    def message(self) -> str:
        """The question."""
        return self.request.name or ""

    @property
    def name(self) -> str:
        """What people call it: its step; outside steps the question itself."""
        return self.request.step or self.message

    @property
    def waits(self) -> bool:
        """Whether a person is still to decide."""
        return self.decision is None and not self.closed

    @property
    def editable(self) -> bool:
        """Whether the code gave a payload, which may be edited."""
        return bool(self._data.get("editable"))

    @property
    def payload(self) -> Any:
        """What is to be approved, as stored."""
        return self._data.get("payload")

    @property
    def _data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.request.data or "{}")
        return found

    def row(self, phase: str, data: dict[str, Any] | None = None) -> Row:
        """The row that says what became of it."""
        asked = self.request
        return Row(
            kind="approval",
            phase=phase,
            ref_seq=self.seq,
            step=asked.step,
            cell_id=asked.cell_id,
            name=asked.name,
            key=asked.key,
            occurrence=asked.occurrence,
            data=None if data is None else json.dumps(data),
        )

    def __str__(self) -> str:
        asked = f" ({terminal.one_line(self.message, 100)})" if self.request.step else ""
        return f"`{terminal.one_line(self.name, 100)}`{asked}"


class Gates:
    """The gates of a thread, in the order in which they were opened."""

    def __init__(self) -> None:
        self._by_seq: dict[int, Gate] = {}
        self._by_key: dict[tuple[str, int], list[Gate]] = {}

    def apply(self, row: Row) -> None:
        """Take in one row of kind `approval`. Rows come in the order of `seq`."""
        if row.phase == "requested":
            gate = self._by_seq[row.seq] = Gate(row)
            self._by_key.setdefault((row.key or "", row.occurrence or 0), []).append(gate)
            return
        if row.ref_seq in self._by_seq:
            self._close(self._by_seq[row.ref_seq], row)

    @staticmethod
    def _close(gate: Gate, row: Row) -> None:
        if row.phase in DECIDED and gate.waits:
            gate.decision = Decision.of(row)
        gate.closed = gate.closed or (row.phase in CLOSED and (gate.decision is None or row.phase == "refused"))
        gate.seen = gate.seen or row.phase == "done"

    def apply_all(self, rows: Iterable[Row]) -> None:
        """Take in what of these rows is about gates."""
        for row in rows:
            if row.kind == "approval":
                self.apply(row)

    def find(self, *, step: str | None, cell_id: str | None, key: str, occurrence: int) -> Gate | None:
        """The gate of a step, by name or by cell, for one payload; None if it was not asked, or is closed."""
        found = [
            gate
            for gate in self._by_key.get((key, occurrence), [])
            if not gate.closed and _is_of(gate, step=step, cell_id=cell_id)
        ]
        return next((g for g in found if g.decision), found[-1] if found else None)

    def waiting(self) -> list[Gate]:
        """Gates that wait for a person."""
        return [gate for gate in self._by_seq.values() if gate.waits]

    def waiting_of(self, *, step: str | None, cell_id: str | None) -> list[Gate]:
        """Those of one step or cell."""
        return [gate for gate in self.waiting() if _is_of(gate, step=step, cell_id=cell_id)]

    def decided_of(self, *, step: str | None, cell_id: str | None) -> Gate | None:
        """The newest gate of one step or cell, if it was rejected, or approved and no run has seen that yet."""
        newest = next((g for g in reversed(self._by_seq.values()) if _is_of(g, step=step, cell_id=cell_id)), None)
        decision = newest.decision if newest and not newest.closed else None
        return newest if newest and decision and not (decision.approved and newest.seen) else None

    def rejected(self, *, after: int, before: int) -> list[Gate]:
        """Those that were asked after one row and rejected before another, in the order in which they were asked."""
        asked = [gate for gate in self._by_seq.values() if gate.seq > after and gate.decision]
        return [gate for gate in asked if (no := gate.decision) and not no.approved and no.seq < before]

    def pick(self, name: str | None, seq: int | None = None) -> Gate:
        """The gate that a person means.

        Raises:
            NotAsked: there is none; the message lists what waits.
            AlreadyDecided: it is decided; the message says by whom and when.
            UsageError: several wait under this name.
        """
        named = [g for g in self._by_seq.values() if (g.name == name if seq is None else g.seq == seq)]
        waiting = [gate for gate in named if gate.waits]
        if len(waiting) == 1:
            return waiting[0]
        if waiting:
            listed = "; ".join(f"{g.seq}: {terminal.one_line(g.message, 60)} {_short(g.payload)}" for g in waiting)
            raise UsageError(f"`{name}` waits at {len(waiting)} gates. Say which one with --gate: {listed}")
        decided = [gate for gate in named if gate.decision is not None]
        if decided:
            raise already(decided[-1])
        raise self._not_asked(name if seq is None else f"gate {seq}")

    def _not_asked(self, name: str | None) -> NotAsked:
        waiting = self.waiting()
        told = "What waits: " + ", ".join(map(str, waiting)) if waiting else "Nothing waits for a decision"
        return NotAsked(
            f"`{terminal.one_line(name or '', 100)}` does not wait for a decision, so nothing was decided. {told}."
        )


def _is_of(gate: Gate, *, step: str | None, cell_id: str | None) -> bool:
    if step is None:
        return gate.request.step is None and gate.request.cell_id == cell_id
    return gate.request.step == step or (gate.request.step is not None and gate.request.cell_id == cell_id)


def _short(payload: Any) -> str:
    return terminal.one_line(json.dumps(payload, ensure_ascii=False), 80)


def already(gate: Gate) -> AlreadyDecided:
    """Somebody was first."""
    fork = f"%resumable fork {gate.seq - 1} NEW"
    return AlreadyDecided(
        f"{gate} was {gate.decision}. That decision stands; nothing was changed. To be asked anew, change what is "
        f"asked about, or go on in a fork from before the question: `{fork}`."
    )


# ------------------------------------------------------------------------------------------ deciding
def who() -> str:
    """The person who decides: the JupyterHub user, else the user of the operating system."""
    hub = os.environ.get("JUPYTERHUB_USER")
    if hub:
        return hub
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return f"uid {os.getuid()}"


def decide(
    store: Store,
    thread_id: str,
    name: str | None = None,
    *,
    approve: bool,
    gate_seq: int | None = None,
    comment: str = "",
    payload: str | None = None,
) -> Gate:
    """Decide about a gate, for good. The decision is in the store when this returns.

    Whoever is first decides: the look and the decision are one act, whichever process does it.

    Args:
        store: where the thread lives. The thread may be open anywhere, or nowhere.
        thread_id: the thread.
        name: the step that waits; not needed with `gate_seq`.
        approve: yes or no.
        gate_seq: the row of the question, where it is known.
        comment: is kept, without what looks like a secret.
        payload: JSON to approve in place of what was asked about.

    Raises:
        NotAsked: nothing of this name waits.
        AlreadyDecided: somebody was first.
        UsageError: the edited payload does not fit, or the name is not clear.
    """
    visitor = store.visitor(thread_id)
    gates = Gates()
    gates.apply_all(visitor.read(kinds=["approval"], bodies=False))
    gate = gates.pick(name, gate_seq)
    data = _decision_data(gate, approve=approve, comment=comment, payload=payload)

    def look_again(rows: list[Row]) -> None:
        gates.apply_all(rows)
        if not gate.waits:
            gates.pick(None, gate.seq)

    visitor.on_foreign = look_again
    row = gate.row("approved" if approve else "rejected", data)
    passing("approval.decide.before")
    visitor.append(row)
    passing("approval.decide.after")
    gates.apply(row)
    return gate


def _decision_data(gate: Gate, *, approve: bool, comment: str, payload: str | None) -> dict[str, Any]:
    said, _ = values.redact(terminal.plain(comment.strip())[:_COMMENT_CHARS].encode("utf-8", "replace"))
    data: dict[str, Any] = {"who": who(), "comment": said.decode("utf-8", "replace")}
    data["at"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if payload is not None:
        if not approve:
            raise UsageError("A payload can be edited only to approve it. Nothing was decided.")
        if not gate.editable:
            raise UsageError(f"{gate} has no payload that can be edited: it asks about code. Nothing was decided.")
        edited = payloads.parse(payload)
        payloads.check(edited, gate.payload)
        values.encode(edited, path="the edited payload")  # refuses what looks like a credential
        data["approved_payload"] = edited
    return data


def asked_about(gate: Gate, state: str = "") -> str:
    """What a person says yes or no to: the payload; without one, the inputs of the cell and the state as it is now."""
    if gate.editable:
        return payloads.shown(gate.payload)
    inputs = {name: facts["value"] for name, facts in gate.payload.get("inputs", {}).items() if facts}
    lines = ["It holds for the code of this cell, its inputs and the state as it is now."]
    if "code" not in gate.payload:
        lines = ["It holds for the state as it is now."]
    lines += [f"{name} = {value}" for name, value in inputs.items()]
    return "\n".join([*lines, "", state]).rstrip()


def how_to_decide(gate: Gate, *, store: Store, thread_id: str) -> str:
    """The commands that decide about this gate, and about no later one of the same step: said twice, they tell so."""
    where = f"--thread {shlex.quote(thread_id)} --db {shlex.quote(str(store.path))} --gate {gate.seq}"
    name = shlex.quote(gate.name)
    return f"`resumable-nb approve {name} {where}` (or `reject`)"
