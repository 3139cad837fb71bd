"""What waits for a person, for a terminal: what is to be approved, what is in doubt, and the commands that answer."""

from __future__ import annotations

import shlex
import textwrap
from typing import TYPE_CHECKING

from resumable_nb import payloads
from resumable_nb.gates import Gate, Gates, asked_about, how_to_decide
from resumable_nb.receipts import called, folded
from resumable_nb.terminal import counted, one_line, plain

if TYPE_CHECKING:
    from resumable_nb.journal import Store

_LINES, _WIDTH, _INDENT = 20, 116, "    "


def waiting_gates(store: Store, thread_id: str) -> list[Gate]:
    """The gates of a thread that wait for a person, as the store has them now."""
    gates = Gates()
    gates.apply_all(store.visitor(thread_id).read(kinds=("approval",), bodies=False))
    return gates.waiting()


def waiting(store: Store, thread_id: str) -> list[str]:
    """Lines for each gate of a thread that waits and each effect in doubt: what it is about, and the command for it."""
    lines: list[str] = []
    for gate in waiting_gates(store, thread_id):
        lines.append(f"{gate} waits for a decision: {how_to_decide(gate, store=store, thread_id=thread_id)}")
        lines += about(gate, store, thread_id)
    for effect in folded(store.visitor(thread_id).read(kinds=("effect",))).by_key.values():
        if effect.standing == "in doubt":
            started, key = effect.started, shlex.quote(effect.started.key or "")
            settle = f"resumable-nb settle {key} {_where(store, thread_id)}"
            lines.append(
                f"`{started.name}` with the key `{one_line(started.key)}` in step `{one_line(started.step)}` is in "
                f"doubt: `{settle} --happened RECEIPT` or `{settle} --did-not-happen`"
            )
            lines += _bounded(called(effect), "SELECT * FROM effects", store)
    return lines


def about(gate: Gate, store: Store, thread_id: str) -> list[str]:
    """What a gate asks about, or what an edit made of it, as its panel shows it; and how to see all of a long one."""
    thread = "'" + thread_id.replace("'", "''") + "'"
    query = f"SELECT payload FROM approvals WHERE thread_id = {thread} AND seq = {gate.seq}"  # noqa: S608 - shown
    if not gate.editable:
        query = f"SELECT field, value FROM state_at({thread}, {gate.seq})"  # noqa: S608 - shown
    text = asked_about(gate)
    if gate.decision is not None and gate.decision.edited:
        text, query = payloads.shown(gate.decision.payload), query.replace("payload", "approved_payload", 1)
    return _bounded(text, query, store, always=not gate.editable)


def _bounded(text: str, query: str, store: Store, *, always: bool = False) -> list[str]:
    """Its first lines, indented; where there are more, how to see them."""
    lines = [part for line in plain(text).splitlines() for part in _wrapped(line)]
    shown, left = lines[:_LINES], len(lines) - _LINES
    quoted = shlex.quote(query) if set(query) & set('"$`!\\') else f'"{query}"'  # it holds single quotes
    see = f"`resumable-nb sql {quoted} --format json --db {shlex.quote(str(store.path))}`"
    if left > 0:
        shown.append(f"… {counted(left, 'more line')}; all of it: {see}")
    elif always:
        shown.append(f"To see it: {see}")
    return [_INDENT + line for line in shown]


def _wrapped(line: str) -> list[str]:
    kept = textwrap.wrap(line, _WIDTH, replace_whitespace=False, drop_whitespace=False, expand_tabs=False)
    return kept or [""]


def _where(store: Store, thread_id: str) -> str:
    return f"--thread {shlex.quote(thread_id)} --db {shlex.quote(str(store.path))}"
