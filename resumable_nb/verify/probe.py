"""What a verifier asks a living kernel: the state that it loaded, the names that it has. Runs in the kernel.

Nothing here changes anything: no row is written, no name is bound.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from resumable_nb import values
from resumable_nb.errors import ResumableError
from resumable_nb.fingerprint import fingerprint, is_input
from resumable_nb.gates import Answer

if TYPE_CHECKING:
    from resumable_nb.thread import Thread

EACH = "__import__('resumable_nb.verify.probe', fromlist=['probe']).look(get_ipython())"
LAST = "__import__('resumable_nb.verify.probe', fromlist=['probe']).look(get_ipython(), last=True)"
_CONTEXTS = 200


def look(shell: Any, *, last: bool = False) -> str:
    """JSON about the open thread, or `null`: its state at the newest checkpoint; at the end also names and contexts."""
    kernel = getattr(getattr(shell, "resumable_nb", None), "kernel", None)
    if kernel is None:
        return "null"
    thread: Thread = kernel.thread
    found: dict[str, Any] = {"state": loaded(thread), "checkpoint": thread.fold.newest()}
    if last:
        found |= {"names": kept_names(thread, shell.user_ns), "contexts": contexts(thread)}
    return json.dumps(found)


def loaded(thread: Thread) -> dict[str, Any]:
    """The state as the kernel has it: made into objects of its class, and back to JSON."""
    image = thread.fold.image(thread.fold.newest())
    try:
        state = thread.live.detached(image)
        return {name: json.loads(values.encode(getattr(state, name)).text) for name in image.fields}
    except ResumableError:  # the class of the state comes in a later cell
        return {name: json.loads(image.json(name)) for name in image.fields}


def kept_names(thread: Thread, namespace: dict[str, Any]) -> dict[str, str]:
    """Of the names that steps kept, those that are bound: a digest of what they hold."""
    records = [thread.fold.latest(cell_id) for cell_id in thread.fold.lineage]
    kept = {name for r in records if r is not None and r.cell.step for name in r.kept if name not in r.lost}
    bound = sorted(name for name in kept & namespace.keys() - {"state", "thread"} if is_input(name))
    values_of = {name: _lasting(namespace[name]) for name in bound}
    return {name: fingerprint(value, namespace=namespace, name=name).digest for name, value in values_of.items()}


def _lasting(value: object) -> object:
    """A value without who decided and when: in another trial that is another."""
    return (value.approved, value.payload, value.comment) if isinstance(value, Answer) else value


def contexts(thread: Thread) -> dict[str, Any]:
    """Whether each question can be put to a model again as it was: its context is made anew from the stored state.

    Returns:
        `checked`: questions that brought a context of the state along. `equal`: those whose context is what some row
        before it in the store gives, to the letter. `different`: numbers of the others. `unloadable`: numbers of rows
        whose state cannot be made into objects of its class.
    """
    made: dict[int, str] = {}
    unloadable = []
    for seq in _rows_with_state(thread):
        try:
            made[seq] = json.dumps(thread.live.context(thread.fold.image(seq)), ensure_ascii=False)[1:-1]
        except ResumableError:
            unloadable.append(seq)
    equal, different = 0, []
    started = [r for r in thread.session.read(kinds=("llm",)) if r.phase == "started" and r.step and r.request]
    for row in started[:_CONTEXTS]:
        asked, known = str(row.request), [text for seq, text in made.items() if seq < row.seq and text]
        if any(text in asked for text in known):
            equal += 1
        elif known and known[-1].partition("\\n")[0] + "\\n" in asked:
            different.append(row.seq)
    return {"checked": equal + len(different), "equal": equal, "different": different, "unloadable": unloadable}


def _rows_with_state(thread: Thread) -> list[int]:
    fold = thread.fold
    runs = {row.run_seq for row in thread.session.read(kinds=("llm",), bodies=False) if row.run_seq}
    return sorted({*(c.seq for c in fold.checkpoints()), *(seq for run in runs for seq in fold.progress_of(run))})
