"""What a person sees of a thread: the resume panel, status, history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from resumable_nb.cells import duration
from resumable_nb.panel import Panel
from resumable_nb.terminal import when

if TYPE_CHECKING:
    from resumable_nb.notebook.summary import StepSummary, Summary
    from resumable_nb.resuming import Line

HISTORY_ROWS = 50


# ------------------------------------------------------------------------------------------ the panels
def resume_panel(found: Summary, resume: Sequence[Line] = ()) -> Panel:
    """What `%resumable open` shows: what was loaded, what is done, and what is left.

    Args:
        found: where the thread stands.
        resume: each part of the resume, with its result so far.
    """
    lines = [f"store: {found.store}", *_about(found)]
    done = found.named("done")
    if done:
        names = ", ".join(f"`{step.name}`" for step in done)
        lines.append(f"done: {names} ({found.spent}, not spent again unless what they depend on has changed)")
    lines += [str(step) for step in found.named("unfinished")]
    if left := found.named("not done"):
        lines.append("to do: " + ", ".join(f"`{step.name}`" for step in left))
    rows = [["✓" if line.is_over else "…", line.part, line.result] for line in resume]
    if done or found.named("unfinished"):
        lines.append("Run All goes on from here: steps that are done are skipped, questions already answered are free.")
        title = f"Thread {found.thread_id}: checkpoint {found.checkpoint} of {when(found.at)} was loaded"
        return Panel(title, lines, ("", "on resume", "result"), rows)
    return Panel(f"Thread {found.thread_id} is open; no step is done yet", lines, ("", "on resume", "result"), rows)


def _about(found: Summary) -> list[str]:
    lines = [f"query: {found.query}"] if found.query else []
    return [*lines, "state: " + ", ".join(found.fields)] if found.fields else lines


def status_panel(found: Summary, accounts: Sequence[str] = ()) -> Panel:
    """What `%resumable status` shows: each step, what it cost, and the accounts of the whole."""
    newest = f"newest checkpoint {found.checkpoint} of {when(found.at)}" if found.checkpoint else "no checkpoint yet"
    lines = [f"store: {found.store}", newest, *_about(found)]
    lines += [*accounts, *(str(step) for step in found.named("unfinished"))]
    columns = ("step", "stands", "checkpoint", "ended", "LLM calls", "tokens", "time")
    return Panel(f"Thread {found.thread_id}", lines, columns, [_step_row(step) for step in found.steps])


def _step_row(step: StepSummary) -> list[object]:
    if step.stands != "done":
        return [step.name, step.stands_at, None, None, step.answered or None, None, None]
    spent = step.spent
    tokens = spent.input_tokens + spent.output_tokens
    return [step.name, step.stands, step.checkpoint, when(step.at), spent.calls, tokens, duration(spent.ms)]


def history_panel(thread_id: str, history: Sequence[dict[str, Any]]) -> Panel:
    """What `%resumable history` shows: the newest checkpoints, without the values."""
    shown = list(history)[-HISTORY_ROWS:]
    lines = ["· marks those that are not in the lineage any more"] if not all(h["in_lineage"] for h in shown) else []
    if len(history) > len(shown):
        lines.append(f"{len(history) - len(shown):,} earlier ones: `thread.history()` has them all")
    rows = [
        [h["seq"], "" if h["in_lineage"] else "·", when(h["at"]), h["step"], h["origin"], ", ".join(h["changed"])]
        for h in shown
    ]
    title = f"History of thread {thread_id}" if rows else f"Thread {thread_id} has no checkpoints yet"
    return Panel(title, lines, ("checkpoint", "", "when", "step", "origin", "changed"), rows)
