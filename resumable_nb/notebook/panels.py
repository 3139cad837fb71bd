"""What a person sees of a thread: the resume panel, status, history, differences. Text from anywhere is only text."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from resumable_nb import terminal
from resumable_nb.cells import duration

if TYPE_CHECKING:
    from resumable_nb.notebook.summary import StepSummary, Summary
    from resumable_nb.resuming import Line

HISTORY_ROWS = 50
VALUE_CHARS = 2000
_WORDS_CHARS = 300

_BOX = (
    "border:1px solid var(--jp-border-color2,#bbb);border-radius:3px;padding:.5em .8em;max-width:60em;"
    "color:var(--jp-content-font-color1,inherit);font-family:var(--jp-ui-font-family,sans-serif);"
    "font-size:var(--jp-ui-font-size1,13px);line-height:1.5"
)
_QUIET = "color:var(--jp-ui-font-color2,#777);font-size:var(--jp-ui-font-size1,13px)"
_CELL = "text-align:left;padding:.1em 1em .1em 0;vertical-align:top;white-space:pre-wrap"
_CODE = "font-family:var(--jp-code-font-family,monospace);white-space:pre-wrap;overflow-wrap:anywhere"


@dataclass(frozen=True, slots=True)
class Panel:
    """A title, lines, and perhaps a table; as plain text and as HTML in the colours of the front end's theme."""

    title: str
    lines: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = field(default=())

    def text(self) -> str:
        """For terminals, consoles and files."""
        parts = [terminal.plain(self.title), *(f"  {terminal.plain(line)}" for line in self.lines)]
        if self.rows:
            parts.append(terminal.table(self.columns, self.rows, width=_WORDS_CHARS))
        return "\n".join(parts)

    def html(self) -> str:
        """For notebooks. Everything that is not ours is escaped."""
        parts = [f'<div style="{_BOX}"><div><b>{escape(self.title)}</b></div>']
        parts += [f'<div style="{_CODE}">{escape(line)}</div>' for line in self.lines]
        if self.rows:
            heads = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in self.columns)
            body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
            parts.append(f'<table style="border-collapse:collapse;margin:.4em 0 0"><tr>{heads}</tr>{body}</table>')
        return "".join([*parts, "</div>"])

    def data(self) -> dict[str, str]:
        """Both, as the data of a display."""
        return {"text/plain": self.text(), "text/html": self.html()}


def escape(text: str) -> str:
    """Text as HTML that shows it and does nothing."""
    return html.escape(terminal.plain(text), quote=True)


def _cell(value: object) -> str:
    return f'<td style="{_CELL}">{escape(terminal.one_line(value, _WORDS_CHARS))}</td>'


def line(text: str) -> dict[str, str]:
    """One quiet line below or above what a cell shows, as the data of a display."""
    return {"text/plain": terminal.plain(text), "text/html": f'<div style="{_QUIET};{_CODE}">{escape(text)}</div>'}


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
        return [step.name, step.stands, None, None, step.answered or None, None, None]
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


def diff_panel(a: int, b: int, differences: Sequence[dict[str, Any]]) -> Panel:
    """What `%resumable diff A B` shows: each field that differs, before and after, long values cut."""
    lines: list[str] = []
    for found in differences:
        before, after = found["before"], found["after"]
        if isinstance(before, list) and isinstance(after, list) and after[: len(before)] == before:
            added = after[len(before) :]
            lines.append(f"{found['field']}: {len(added):,} more")
            lines += [f"  + {_value(item)}" for item in added[:HISTORY_ROWS]]
            lines += [f"  … {len(added) - HISTORY_ROWS:,} more"] if len(added) > HISTORY_ROWS else []
        else:
            lines += [f"{found['field']}:", f"  - {_value(before)}", f"  + {_value(after)}"]
    return Panel(f"From {a} to {b}" if lines else f"The states at {a} and {b} are the same", lines)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}… ({len(text):,} characters)"


def when(moment: datetime | None) -> str:
    """A moment in the person's time zone."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else ""
