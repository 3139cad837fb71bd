"""The panel in which a person decides, and the wait of a cell for a decision, from here or from elsewhere.

Nothing waits synchronously: a click could never arrive. `approve` stops its cell, and a click records the decision for
the next run; `await approval(…)` lets the kernel take clicks while the cell waits. What is asked comes from code and
models: it is shown as text, never as HTML.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from resumable_nb import payloads
from resumable_nb.errors import AlreadyDecided, Misfit, ResumableError, StoreLocked
from resumable_nb.gates import Gate, asked_about, decide, how_to_decide
from resumable_nb.notebook.editor import Part, editor_of
from resumable_nb.notebook.shown import BOX, LINES, TEXT, Shown, old_note
from resumable_nb.panel import Panel, escape

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from resumable_nb.asking import Question

LOOK_EVERY_S = 1.0
_CLICKS_ARRIVE_WHILE_AWAITING = (7, 4)


class GatePanel:
    """One gate: the message, the payload as text, a comment, and buttons. Every decision goes through the journal.

    Args:
        question: what is asked.
        gate: as it stands in the journal.
        goes_on: whether the cell waits and goes on by itself.
        on_decided: called when the gate is decided; maybe in another thread.
    """

    def __init__(self, question: Question, gate: Gate, *, goes_on: bool, on_decided: Callable[[], None]) -> None:
        import ipywidgets as widgets

        self.question, self.gate, self._on_decided = question, gate, on_decided
        self.goes_on = goes_on
        self.on_end: Callable[[str], object] = lambda _: None
        waits = f"<b>{escape(gate.message)}</b><div>{escape(gate.name)} waits for a decision.</div>"
        self.title = widgets.HTML(f'<div style="{LINES}">{waits}</div>')
        self.payload = widgets.HTML(f'<pre style="{TEXT}">{escape(asked_about(gate, question.state))}</pre>')
        self.editor: Part | None = None
        self.comment = widgets.Text(
            placeholder="Comment (the step and the model can read it)", layout={"width": "auto"}
        )
        self.approve = widgets.Button(description="Approve", tooltip="Say yes to exactly this")
        self.reject = widgets.Button(description="Reject", tooltip="Say no")
        self.edit = widgets.Button(description="Edit", tooltip="Change what is to be approved")
        self.said = widgets.HTML()
        buttons = widgets.HBox([self.approve, self.reject, *([self.edit] if gate.editable else [])])
        self.old = old_note()
        self.box = widgets.VBox([self.title, self.payload, self.comment, buttons, self.said, self.old], layout=BOX)
        self.approve.on_click(lambda _: self.decide(approve=True))
        self.reject.on_click(lambda _: self.decide(approve=False))
        self.edit.on_click(lambda _: self._toggle_editor())

    @property
    def is_editing(self) -> bool:
        """Whether the payload is being edited."""
        return self.editor is not None and self.payload.layout.display == "none"

    def _toggle_editor(self) -> None:
        editing = not self.is_editing
        if self.editor is None:  # only now: it has many widgets
            self.editor = editor_of(self.question.as_asked())
            title, payload, *rest = self.box.children
            self.box.children = [title, payload, self.editor.box, *rest]
        self.editor.box.layout.display = "" if editing else "none"
        self.payload.layout.display = "none" if editing else ""
        self.edit.description = "Do not edit" if editing else "Edit"
        self.approve.description = "Approve the edited" if editing else "Approve"

    def _edited(self) -> str | None:
        """What was made of the payload, as JSON; None if it is as it was asked about. Raises Misfit."""
        if self.editor is None or not self.is_editing:
            return None
        self.editor.forgive()
        edited, asked = self.editor.read(), self.question.as_asked()
        payloads.conform(edited, asked)
        return None if edited == payloads.as_json(asked) else json.dumps(edited, ensure_ascii=False)

    def decide(self, *, approve: bool) -> None:
        """Record the decision; what keeps it from being recorded is shown, and nothing is decided."""
        thread = self.question.scope.thread
        try:
            decided = decide(
                thread.store,
                thread.thread_id,
                approve=approve,
                gate_seq=self.gate.seq,
                comment=self.comment.value,
                payload=self._edited() if approve else None,
            )
        except AlreadyDecided as told:
            self.end(str(told))
        except ResumableError as problem:
            at_field = isinstance(problem, Misfit) and self.editor and self.editor.blame(problem.path, problem.why)
            self.said.value = escape("Nothing was decided: see what is marked above." if at_field else str(problem))
        else:
            decision = decided.decision
            assert decision is not None
            then = "The cell goes on." if self.goes_on else "Run the cell again, or Run All, to go on."
            if not decision.approved and not self.goes_on:
                then = "The cell says so when it runs again."
            self.end(f"{decision}. {then}", shows_edited=decision.edited)

    def end(self, told: str, *, shows_edited: bool = False) -> None:
        """The gate is decided: say so, take no more clicks, and show what the decision is about."""
        if self.is_editing and not shows_edited:
            self._toggle_editor()
        for widget in (self.approve, self.reject, self.edit, self.comment):
            widget.disabled = True
        if self.editor is not None:
            self.editor.disable()
        self.title.value = f"<b>{escape(self.gate.message)}</b>"
        self.said.value = escape(told)
        self.old.layout.display = "none"
        self.on_end(told)
        self._on_decided()


class GateDesk:
    """Shows gates in a notebook, and waits for decisions. One per shell."""

    def __init__(self, shell: InteractiveShell, *, is_headless: Callable[[], bool]) -> None:
        self._shell, self._is_headless = shell, is_headless
        self._waiting, self._undo = 0, _nothing

    def can_wait(self) -> bool:
        """Whether a click can arrive while a cell awaits."""
        if self._is_headless() or getattr(self._shell, "kernel", None) is None:
            return False
        from ipykernel._version import version_info

        return tuple(version_info[:2]) >= _CLICKS_ARRIVE_WHILE_AWAITING

    def show(self, question: Question) -> None:
        """Show a gate whose cell has stopped; a click decides for the next run."""
        gate = question.gate()
        if gate is not None and gate.waits:
            self._show(question, gate, goes_on=False, on_decided=lambda: None)

    def _show(
        self, question: Question, gate: Gate, *, goes_on: bool, on_decided: Callable[[], None]
    ) -> GatePanel | None:
        panel = None
        if not self._is_headless() and getattr(self._shell, "kernel", None) is not None:
            panel = GatePanel(question, gate, goes_on=goes_on, on_decided=on_decided)
        shown = Shown(self._shell, "gate", self._as_text(question, gate), panel and panel.box)
        if panel is not None:
            panel.on_end = lambda told: shown.stand_for(Panel(f"{gate.name}: {told}", [gate.message]))
        return panel

    @staticmethod
    def _as_text(question: Question, gate: Gate) -> Panel:
        thread = question.scope.thread
        how = how_to_decide(gate, store=thread.store, thread_id=thread.thread_id)
        magic = f"%resumable approve {json.dumps(gate.name, ensure_ascii=False)} --gate {gate.seq}"
        lines = [gate.message, *asked_about(gate, question.state).splitlines(), f"Decide with {how} or `{magic}`"]
        return Panel(f"{gate.name} waits for a decision", lines)

    async def decided(self, question: Question) -> None:
        """Return when the gate is decided, by a click here or by anybody elsewhere."""
        gate = question.gate()
        if gate is None or not gate.waits:
            return
        loop, clicked = asyncio.get_running_loop(), asyncio.Event()

        def on_decided() -> None:  # ipykernel 7.0 to 7.3 call back in another thread
            loop.call_soon_threadsafe(clicked.set)

        with self._taking_clicks():
            panel = self._show(question, gate, goes_on=True, on_decided=on_decided)
            try:
                while gate is not None and gate.waits:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(clicked.wait(), LOOK_EVERY_S)
                    with contextlib.suppress(StoreLocked):  # somebody holds the store for long: look again later
                        gate = await asyncio.to_thread(question.look)
            except BaseException:  # Ctrl-C: a click decides for the next run
                if panel is not None:
                    panel.goes_on = False
                raise
            if panel is not None and not clicked.is_set() and gate is not None:
                panel.end(f"{gate.decision}. The cell goes on.")

    @contextlib.contextmanager
    def _taking_clicks(self) -> Iterator[None]:
        """While at least one cell or task awaits a decision."""
        if not self._waiting:
            self._undo = _idle_for_comms(self._shell)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._undo()


def _nothing() -> None:
    pass


def _idle_for_comms(shell: Any) -> Callable[[], None]:
    """From now on, say `idle` after each message of a widget. Returns what ends it.

    ipykernel 7.4 handles those that come while a cell awaits but does not say so, and the front end then holds every
    further one back: of a comment that is typed, only the first letter would arrive.
    """
    kernel = shell.kernel
    lock, handle = getattr(kernel, "_main_asyncio_lock", None), kernel.shell_handlers.get("comm_msg")
    if lock is None or handle is None:
        return _nothing

    def and_idle(stream: Any, ident: Any, parent: Any) -> Any:
        try:
            return handle(stream, ident, parent)
        finally:
            if threading.current_thread() is threading.main_thread():
                kernel._publish_status("idle", "shell", parent=parent)  # noqa: SLF001 there is no public way

    def undo() -> None:
        kernel.shell_handlers["comm_msg"] = handle

    kernel.shell_handlers["comm_msg"] = and_idle
    return undo
