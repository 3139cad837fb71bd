"""A thread and its forks: what one of them did outside, the others must not do again."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resumable_nb.errors import ThreadNotFound
from resumable_nb.receipts import Effect, folded

if TYPE_CHECKING:
    from resumable_nb.thread import Thread

_families: weakref.WeakKeyDictionary[Thread, tuple[list[str], list[str]]] = weakref.WeakKeyDictionary()
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
    relatives = []
    for thread_id in _family(thread):
        rows = thread.store.visitor(thread_id).read(kinds=("effect",), bodies=False)
        if (effect := folded(rows).by_key.get(key)) is not None:
            relatives.append(Relative(thread, thread_id, effect))
    return min(relatives, key=lambda r: _BY_WEIGHT[r.effect.standing], default=None)


def _family(thread: Thread) -> list[str]:
    """The other threads of the family. Looked up anew when the store has other threads than before: that takes long."""
    names = thread.store.threads()
    known = _families.get(thread)
    if known is None or known[0] != names:
        known = _families[thread] = names, thread.store.family(thread.thread_id) if len(names) > 1 else []
    return known[1]
