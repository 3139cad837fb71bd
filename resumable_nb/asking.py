"""Ask a person, stop until they decide, and pass through on the next run: what every gate of a step does."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from resumable_nb import payloads, terminal, values
from resumable_nb.errors import Paused, Rejected, UsageError, ValueNotStorable
from resumable_nb.gates import Answer, Decision, Gate, how_to_decide
from resumable_nb.journal import Row

if TYPE_CHECKING:
    from resumable_nb.scope import Scope

_STATE_TOKENS = 2000
_asking = threading.Lock()


@dataclass
class Question:
    """One question of a running step or cell, for exactly one payload.

    Attributes:
        scope: the step that asks.
        message: the question.
        key: hash of what is asked: the message, and the payload whatever the order of its keys.
        occurrence: how often the same was asked before in this run.
        payload: as the code gave it; None where it gave none.
        stored: the payload as JSON text.
        editable: whether the code gave a payload, which a person may edit.
        state: without a payload, the state that the decision is for, as a person reads it; else "".
    """

    scope: Scope
    message: str
    key: str
    occurrence: int
    payload: Any
    stored: str
    editable: bool
    state: str
    blobs: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def about(cls, scope: Scope, message: str, payload: Any, *, default: Any = None) -> Self:
        """A question about a payload; without one, about what `default` says.

        Raises:
            UsageError: the message is empty.
            ValueNotStorable: the payload has no exact form, or it or the message holds a secret.
        """
        if not str(message).strip():
            raise UsageError(f"What is to be approved? A gate needs a message for the person, not {message!r}.")
        values.encode(message, path="message")  # refuses what looks like a credential
        encoded = values.encode(default if payload is None else payload, path="payload")
        hashed = json.dumps([message, json.loads(encoded.text)], sort_keys=True)
        key = hashlib.sha256(hashed.encode()).hexdigest()
        number = scope.number("approval", key)
        state = scope.thread.live.state.context(_STATE_TOKENS) if payload is None else ""
        return cls(scope, message, key, number, payload, encoded.text, payload is not None, state, encoded.blobs)

    # ------------------------------------------------------------------ looking and asking
    def gate(self) -> Gate | None:
        """The gate, as this session knows it; None: nobody asked yet."""
        gates, scope = self.scope.thread.fold.gates, self.scope
        return gates.find(step=scope.step, cell_id=scope.cell_id, key=self.key, occurrence=self.occurrence)

    def look(self) -> Gate | None:
        """The gate, as the journal knows it now."""
        session = self.scope.thread.session
        session.refresh()
        if session.lost is not None:
            raise session.lost
        return self.gate()

    def ask(self) -> Gate:
        """Make sure that the question stands in the journal. What the step asked before and asks no more is closed."""
        with _asking:
            gate, fold = self.gate(), self.scope.thread.fold
            if gate is None:  # a known one closes none: its neighbours, asked in parallel, may only not be here yet
                waiting = fold.gates.waiting_of(step=self.scope.step, cell_id=self.scope.cell_id)
                rows = [old.row("dropped") for old in waiting if old.seq not in self.scope.gates_asked]
                self.scope.append(*self.scope.thread.value_rows(self.blobs), *rows, self._request())
                gate = self.gate()
            assert gate is not None
            self.scope.gates_asked.add(gate.seq)
            return gate

    def _request(self) -> Row:
        data = {"message": self.message, "payload": json.loads(self.stored), "editable": self.editable}
        return self._row("requested", data=json.dumps(data, ensure_ascii=False))

    def _row(self, phase: str, **columns: Any) -> Row:
        return Row(
            kind="approval",
            phase=phase,
            cell_id=self.scope.cell_id,
            name=self.message,
            key=self.key,
            occurrence=self.occurrence,
            **columns,
        )

    def pass_or_pause(self, *, raise_on_reject: bool = True) -> Answer[Any]:
        """The answer, if a person has decided.

        Raises:
            Paused: nobody has decided yet. The question stands in the journal.
            Rejected: they said no.
        """
        gate = self.look()
        if gate is None or gate.waits:
            raise self.pause(self.ask())
        return self.settle(gate, raise_on_reject=raise_on_reject)

    def pause(self, gate: Gate, why: str = "") -> Paused:
        """What stops the step; it says how to decide."""
        self.give_up()
        thread = self.scope.thread
        how = how_to_decide(gate, store=thread.store, thread_id=thread.thread_id)
        return Paused(f"{gate} waits for a decision. {why}Approve or reject it, then run again: {how}", self)

    def give_up(self) -> None:
        """The wait was broken off: the next attempt is the same question."""
        self.scope.give_back("approval", self.key, self.occurrence)

    # ------------------------------------------------------------------ going on
    def settle(self, gate: Gate, *, raise_on_reject: bool = True) -> Answer[Any]:
        """Use a decision: it appears in `state.decisions`, in the INSERT that says that the step saw it.

        Raises:
            Paused: the edited payload does not fit; it is asked again.
            Rejected: they said no.
        """
        decision = gate.decision
        assert decision is not None
        try:
            payload = self.as_asked()
            payload = payloads.conform(decision.payload, payload) if decision.edited else payload
        except UsageError as problem:
            why = terminal.one_line(str(problem).removesuffix(" Nothing was decided."), 300)
            refused = self._row("refused", ref_seq=gate.seq, data=json.dumps({"why": why}))
            self.scope.append(refused)
            raise self.pause(self.ask(), f"The edited payload could not be used: {why} It is asked again. ") from None
        self._tell_state(gate, decision)
        answer = Answer(decision.approved, payload, decision.comment, decision.who, decision.at)
        if not gate.seen and self.scope.step is not None:
            self.scope.append(self._row("done", ref_seq=gate.seq, data=json.dumps({"saw": decision.word})))
        if not decision.approved and raise_on_reject:
            raise Rejected(
                f"{gate} was {decision}. To be asked again, change what is asked about. To go on without a yes, take "
                "the answer: `approve(…, raise_on_reject=False)`.",
                answer,
            )
        return answer

    def as_asked(self) -> Any:
        """The payload that the decision is about; code may have changed its own while the cell waited."""
        with contextlib.suppress(ValueNotStorable):
            if self.payload is None or values.encode(self.payload).text == self.stored:
                return self.payload
        return values.decode(self.stored, self.blobs.__getitem__, self.scope.thread.resolve, what="the payload")

    def _tell_state(self, gate: Gate, decision: Decision) -> None:
        state = self.scope.thread.live.state
        if "decisions" not in type(state).model_fields:
            return
        told: dict[str, Any] = {"gate": gate.name, "message": self.message, "decision": decision.word}
        if decision.comment:
            told["comment"] = decision.comment
        if decision.edited:
            told["approved"] = decision.payload
        state.update(decisions=[told | {"who": decision.who, "at": decision.at}])
