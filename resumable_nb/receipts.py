"""What the journal says of effects, by their idempotency keys; and the way to settle one that is in doubt.

In the journal an effect is a row `started`. What completes it is `done` (it happened; `data` has the receipt), `failed`
or `not done` (it did not happen), or `lost` (nobody knows). The first row that knows stands; a later `lost` row puts it
in doubt again.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from resumable_nb import values
from resumable_nb.errors import AlreadyDecided, NotAsked, UsageError, ValueNotStorable
from resumable_nb.gates import who
from resumable_nb.journal import Row

if TYPE_CHECKING:
    from resumable_nb.journal import Session, Store

_RECEIPT_BYTES = 10 << 20
"""In JSON with its escapes, this is less than the most that a row takes."""
_RECEIPT_CHARS = 10_000
Standing = Literal["happened", "did not happen", "in doubt", "running"]
_STANDS: dict[Standing, str] = {
    "happened": "happened",
    "did not happen": "did not happen",
    "in doubt": "is in doubt",
    "running": "has not ended",
}
_STANDING: dict[str, Standing] = {
    "done": "happened",
    "failed": "did not happen",
    "not done": "did not happen",
    "lost": "in doubt",
}


@dataclass
class Effect:
    """The newest attempt at one effect.

    Attributes:
        started: its first row.
        settled: the row that its standing comes from.
    """

    started: Row
    settled: Row | None = None
    standing: Standing = "running"

    def take(self, row: Row) -> None:
        """Take a completing row in. Once it is known what happened, only doubt changes that."""
        new = _STANDING.get(row.phase)
        if new is not None and (self.standing in ("running", "in doubt") or new == "in doubt"):
            self.settled, self.standing = row, new

    @property
    def arguments(self) -> str:
        """The hash of its arguments."""
        return str(_data(self.started).get("arguments", ""))

    @property
    def call_has_ended(self) -> bool:
        """Whether the call itself is over: who took a thread over knows of a call in flight only that it is `lost`."""
        return self.settled is not None and (self.standing != "in doubt" or "why" in self.facts)

    @property
    def facts(self) -> dict[str, Any]:
        """What the row that settled it says: `receipt`, `is_text`, `by`, `at`."""
        return {} if self.settled is None else _data(self.settled)


@dataclass
class Effects:
    """All effects of a thread by key."""

    by_key: dict[str, Effect] = field(default_factory=dict)
    _by_seq: dict[int, Effect] = field(default_factory=dict)

    def apply(self, row: Row) -> None:
        """Take a row of an effect in."""
        if row.phase == "started" and row.key is not None:
            self.by_key[row.key] = self._by_seq[row.seq] = Effect(row)
        elif row.ref_seq in self._by_seq:
            self._by_seq[row.ref_seq].take(row)

    def of_step(self, step: str | None, cell_id: str | None) -> list[Effect]:
        """The effects of a step that happened, in their order."""
        mine = [e for e in self.by_key.values() if e.started.cell_id == cell_id or e.started.step == step]
        return [effect for effect in mine if effect.standing == "happened"]


def _data(row: Row) -> dict[str, Any]:
    found = json.loads(row.data) if row.data else {}
    return found if isinstance(found, dict) else {}


def folded(rows: Iterable[Row]) -> Effects:
    """The effects of these rows."""
    effects = Effects()
    for row in rows:
        if row.kind == "effect":
            effects.apply(row)
    return effects


def completing(effect: Effect, phase: str, data: dict[str, Any]) -> Row:
    """The row that says what became of an effect, from outside the run that started it."""
    started = effect.started
    return Row(
        kind="effect",
        phase=phase,
        step=started.step,
        cell_id=started.cell_id,
        name=started.name,
        key=started.key,
        ref_seq=started.seq,
        run_seq=started.run_seq,
        data=json.dumps(data),
    )


@dataclass(frozen=True)
class Kept:
    """The stored form of a receipt: for `data`, its large values, and a line where only its text is kept."""

    data: dict[str, Any]
    blobs: dict[str, bytes]
    line: str = ""


def kept(receipt: Any, *, name: str, key: str) -> Kept:
    """A receipt as it is stored; its text if it has no stored form: the effect happened, and that must not be lost."""
    try:
        encoded = values.encode(receipt, path=f"the receipt of {name}", limit_bytes=_RECEIPT_BYTES)
        return Kept({"receipt": json.loads(encoded.text)}, encoded.blobs)
    except ValueNotStorable as error:
        text, _ = values.redact(_text_of(receipt)[:_RECEIPT_CHARS].encode("utf-8", "replace"))
        line = f"`{name}` ({key}) happened, and {error}. Its text is kept, and given back; return plain values instead"
        return Kept({"receipt": text.decode("utf-8", "replace"), "is_text": True}, {}, line)


def _text_of(receipt: Any) -> str:
    try:
        return repr(receipt)
    except Exception:  # noqa: BLE001 - the code of a class of the user's; the effect has happened all the same
        return object.__repr__(receipt)


# ------------------------------------------------------------------------------------------ settling by a person
def called(effect: Effect) -> str:
    """The call, for people; of one that was done, its receipt."""
    asked: dict[str, Any] = json.loads(effect.started.request or "{}")
    arguments = ", ".join(f"{n}={_value(v)}" for n, v in asked.get("arguments", {}).items())
    return f"{asked.get('function', effect.started.name)}({arguments})"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) else None)


@dataclass(frozen=True)
class Doubt:
    """An effect that a person is asked about.

    Attributes:
        key: its idempotency key.
        skipped: the step that did it, where that is done and does not stop for it.
    """

    store: Store
    thread_id: str
    key: str
    skipped: str | None = None

    def look(self) -> Effect | None:
        """The effect as the journal has it now."""
        return folded(self.store.visitor(self.thread_id).read(kinds=("effect",))).by_key.get(self.key)

    def settle(self, *, happened: bool, receipt: str | None, comment: str) -> Effect:
        """See `settle`."""
        return settle(self.store, self.thread_id, self.key, happened=happened, receipt=receipt, comment=comment)

    def then(self, effect: Effect) -> str:
        """What to do when it is settled."""
        if self.skipped is None:
            return "Run the cell again, or Run All, to go on."
        return "" if effect.standing == "happened" else f"`%resumable fresh {self.skipped}`, then run that step again."


def settle(
    store: Store, thread_id: str, key: str, *, happened: bool, receipt: str | None = None, comment: str = ""
) -> Effect:
    """Say what became of an effect in doubt. The first word stands; who said it, and when, is kept with it.

    The next run of its step takes it from there: with the receipt, without running it again; or it runs with the same
    key.

    Args:
        store: where the thread is.
        thread_id: the thread. It may be open elsewhere.
        key: the idempotency key.
        happened: whether the outside world has it.
        receipt: what the outside world answered: JSON, or any text.
        comment: free text.

    Returns:
        The effect as it stands now.

    Raises:
        NotAsked: There is no such effect, or it is not in doubt: it runs, or its process died and the thread was not
            opened since. Also for "it did not happen" while a process that may still do it is seen to live.
        AlreadyDecided: It is known what became of it.
        UsageError: A receipt for what did not happen.
    """
    if receipt is not None and not happened:
        raise UsageError("A receipt is for what happened: give one of --happened RECEIPT and --did-not-happen.")
    visitor = store.visitor(thread_id)
    effects = folded(visitor.read(kinds=("effect",)))
    effect = effects.by_key.get(key)
    if effect is None:
        raise _no_effect(store, thread_id, key, effects)
    _check_in_doubt(effects, effect, key)
    if not happened:
        _check_that_it_cannot_happen(effect, visitor)
    data: dict[str, Any] = {"by": who(), "at": datetime.now(UTC).isoformat(timespec="seconds"), "comment": comment}
    if happened:
        data["receipt"] = _parsed(receipt)
    row = completing(effect, "done" if happened else "not done", data)
    visitor.append(row)
    now = folded(visitor.read(kinds=("effect",))).by_key[key]
    if now.settled is None or now.settled.seq != row.seq:
        raise _already(now)
    return now


def _no_effect(store: Store, thread_id: str, key: str, effects: Effects) -> NotAsked:
    """It is not known here; a fork, or the thread that this one was forked from, may have started it."""
    for other in store.family(thread_id):
        effect = folded(store.visitor(other).read(kinds=("effect",), bodies=False)).by_key.get(key)
        if effect is not None:
            words = ["resumable-nb", "settle", key, "--thread", other, "--db", str(store.path)]
            how = f" Settle it there: `{shlex.join(words)}`." if effect.standing == "in doubt" else ""
            return NotAsked(
                f"The effect {key!r} was started in thread {other!r}, a relative of {thread_id!r} by `fork`, "
                f"and {_STANDS[effect.standing]} there.{how} Nothing was changed."
            )
    return NotAsked(f"Thread {thread_id!r} has no effect with the key {key!r}. {_told(effects)}")


def _told(effects: Effects) -> str:
    waiting = [f"`{k}`" for k, e in effects.by_key.items() if e.standing == "in doubt"]
    return f"In doubt: {', '.join(waiting)}." if waiting else "No effect is in doubt."


def _check_in_doubt(effects: Effects, effect: Effect, key: str) -> None:
    if effect.standing == "running":
        raise NotAsked(
            f"The effect {key!r} has started and not ended: it runs now, or its process died. Run its step again; if "
            f"it is in doubt then, settle it. {_told(effects)} Nothing was changed."
        )
    if effect.standing != "in doubt":
        raise _already(effect)


def _check_that_it_cannot_happen(effect: Effect, visitor: Session) -> None:
    opener = visitor.opener(effect.started.session_id)
    if not effect.call_has_ended and opener.runs_elsewhere:
        raise NotAsked(
            f"The effect {effect.started.key!r} was started by {opener.told}, which still runs and may be doing it. "
            "Wait for it to end, or end that process; then look outside. Nothing was changed."
        )


def _already(effect: Effect) -> AlreadyDecided:
    facts = effect.facts
    by = f", as {facts['by']} said at {facts['at']}" if "by" in facts else ""
    return AlreadyDecided(
        f"It is known of the effect {effect.started.key!r}: it {effect.standing}{by}. That stands; nothing was changed."
    )


def _parsed(receipt: str | None) -> Any:
    """JSON as it is, any other text as a text; never a secret."""
    if receipt is None:
        return None
    clean = values.redact(receipt.encode("utf-8", "replace"))[0].decode("utf-8", "replace")
    try:
        return json.loads(values.encode(json.loads(clean)).text)
    except (ValueError, TypeError):
        return clean
