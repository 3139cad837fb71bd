"""A thread and its forks: what one of them did outside, the others must not do again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from resumable_nb.errors import ThreadNotFound
from resumable_nb.journal import Row
from resumable_nb.receipts import Effect, folded

if TYPE_CHECKING:
    from resumable_nb.thread import Thread

_EFFECTS = """
SELECT thread_id, seq, ts, phase, ref_seq, step, data FROM journal
WHERE kind = 'effect' AND key = $key AND thread_id <> $thread ORDER BY thread_id, seq
"""
_FORKS = """
SELECT thread_id, arg_max(data->>'from', seq) FROM journal WHERE kind = 'thread' AND phase = 'forked' GROUP BY thread_id
"""
_BY_WEIGHT = {"happened": 0, "running": 1, "in doubt": 2, "did not happen": 3}


@dataclass(frozen=True)
class Relative:
    """An effect as another thread of the family has it."""

    thread: Thread
    thread_id: str
    effect: Effect

    def blob(self, key: str) -> bytes:
        """A large value of that thread."""
        for row in self.thread.store.visitor(self.thread_id).read(kinds=("value",)):
            if row.key == key and row.body is not None:
                return row.body
        raise ThreadNotFound(f"Thread {self.thread_id!r} has no value {key[:12]}…: it was pruned.")


def newest_of_relatives(thread: Thread, key: str) -> Relative | None:
    """The effect with this key in the family of a thread, without the thread itself: one that happened goes first.

    A fork that was made elsewhere, or whose origin was deleted, is no relative that this store knows of.
    """
    _, found = thread.store.rows(_EFFECTS, {"key": key, "thread": thread.thread_id})
    if not found:
        return None
    _, forks = thread.store.rows(_FORKS)
    origins = dict(forks)
    mine = _root(thread.thread_id, origins)
    by_thread: dict[str, list[Row]] = {}
    for thread_id, seq, ts, phase, ref_seq, step, data in found:
        row = Row(kind="effect", phase=phase, ref_seq=ref_seq, step=step, key=key, data=data)
        row.seq, row.ts, row.thread_id = seq, ts, thread_id
        if _root(thread_id, origins) == mine:
            by_thread.setdefault(thread_id, []).append(row)
    relatives = [
        Relative(thread, thread_id, effect)
        for thread_id, rows in by_thread.items()
        if (effect := folded(rows).by_key.get(key)) is not None
    ]
    return min(relatives, key=lambda r: _BY_WEIGHT[r.effect.standing], default=None)


def _root(thread_id: str, origins: dict[str, str]) -> str:
    seen = {thread_id}
    while (origin := origins.get(thread_id)) is not None and origin not in seen:
        seen.add(origin)
        thread_id = origin
    return thread_id
