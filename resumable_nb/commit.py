"""What notebooks and scripts share at the end of a step: its rows, and what is said of its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resumable_nb import differences
from resumable_nb.cells import DIGEST_LENGTH
from resumable_nb.fingerprint import Facts
from resumable_nb.journal import Row
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    from resumable_nb.cells import Cell
    from resumable_nb.scope import Run, Scope
    from resumable_nb.state import Image
    from resumable_nb.thread import Thread


AT_MOST = 2
"""Calls made anew of which a line says what differs; the others are counted."""


def state_facts(image: Image) -> Facts:
    """The state as a name like others: by the digest of its image."""
    return Facts(digest=image.digest[:DIGEST_LENGTH])


def checkpoint_row(cell: Cell, origin: str, parent: int, changes: str | None, **columns: Any) -> Row:
    """One checkpoint."""
    return Row(
        kind="checkpoint",
        phase=origin,
        parent_seq=parent,
        step=cell.step,
        cell_id=cell.cell_id,
        changes=changes,
        **columns,
    )


def rows_to(
    thread: Thread, cell: Cell, *, parent: int, entry: Image, image: Image, origin: str, **columns: Any
) -> list[Row]:
    """The rows that move the lineage to `image`: first to the entry state, where the lineage is elsewhere.

    Args:
        thread: where they go.
        cell: whose checkpoint it is.
        parent: a checkpoint of the lineage.
        entry: the state that the cell started from: that of the parent, or one to be taken up (or migrated) first.
        image: the state at its end.
        origin: of the checkpoint: `step` or `edit`.
        columns: of the checkpoint itself.
    """
    rows = thread.value_rows(entry.blobs)
    if origin == "step":  # it has ended: what it asked on the way and did not wait for needs no answer
        rows += [g.row("dropped") for g in thread.fold.gates.waiting_of(step=cell.step, cell_id=cell.cell_id)]
    bring = entry.changes_from(thread.fold.image(parent))
    if bring is not None:
        phase = "migration" if '"version"' in bring else "taken up"
        rows.append(Row(kind="checkpoint", phase=phase, parent_seq=parent, changes=bring))
    start = parent if bring is None else -1
    return [*rows, checkpoint_row(cell, origin, start, image.changes_from(entry), **columns)]


def report(run: Run) -> list[str]:
    """Lines for the end of a step: notices of its calls, and calls made anew although recorded ones were left."""
    lines, anew = take_notices(run), run.unmatched()
    if run.resent:
        were = "1 call was" if run.resent == 1 else f"{run.resent} calls were"
        lines.append(f"{were} in flight when an earlier run ended, without an answer: made again")
    for request, recorded in anew[:AT_MOST]:
        nearest = differences.nearest(request, recorded)
        if nearest is None:
            continue
        what = "; ".join(differences.describe_difference(recorded[nearest], request)) or "it was asked more often"
        lines.append(f"a call was made anew because it differs from the recorded one: {what}")
    if len(anew) > AT_MOST:
        lines.append(f"{counted(len(anew) - AT_MOST, 'more call')} made anew")
    return lines


def failed_again(run: Run, call: str = "%resumable fresh") -> list[str]:
    """What to do about a step that raised on recorded answers alone: it would raise again."""
    if run.claimed and not run.made:
        known = f"all {run.claimed} answers were the recorded ones, so running it again gives the same"
        how = f"{call}({run.step!r})" if call.startswith("thread") else f"{call} {run.step}"
        return [f"{known}. Change the code, or ask anew: `{how}`"]
    return []


def take_notices(ground: Scope) -> list[str]:
    """The notices so far, once."""
    lines, ground.notices = ground.notices, []
    return lines
