"""The panel in which a person says what became of an effect in doubt: it happened, or it did not.

Its cell has stopped, or was skipped: a click records what they found, and the cell goes on when it is run again. What
is shown comes from code and services: it is text, never HTML.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from resumable_nb.errors import AlreadyDecided, ResumableError
from resumable_nb.notebook.shown import BOX, LINES, TEXT, Shown, old_note
from resumable_nb.panel import Panel, escape
from resumable_nb.receipts import called
from resumable_nb.terminal import when

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from resumable_nb.receipts import Doubt, Effect


class DoubtPanel:
    """One effect in doubt: what was called, when, a receipt, a comment, and two buttons.

    Args:
        doubt: which effect.
        effect: as it stands in the journal.
        on_settled: called when it is known what became of it; maybe in another thread.
    """

    def __init__(self, doubt: Doubt, effect: Effect, *, on_settled: Callable[[str], object]) -> None:
        import ipywidgets as widgets

        self.doubt, self._on_settled = doubt, on_settled
        title, asked = words(effect)
        self.title = widgets.HTML(f'<div style="{LINES}"><b>{escape(title)}</b><div>{escape(asked)}</div></div>')
        call = widgets.HTML(f'<pre style="{TEXT}">{escape(called(effect))}</pre>')
        self.receipt = widgets.Textarea(
            placeholder="If it happened: its receipt, as JSON or any text. It may stay empty.",
            rows=3,
            layout={"width": "auto"},
        )
        self.comment = widgets.Text(placeholder="Comment (kept with your word)", layout={"width": "auto"})
        for typed in (self.receipt, self.comment):
            typed.continuous_update = False  # one message when it is left: letters cannot get lost on the way
        wide = {"width": "auto", "min_width": "12em"}
        gone = effect.facts.get("gone")
        yes, no = ("It stands", "It does not: do it again") if gone else ("It happened", "It did not happen: run it")
        self.happened = widgets.Button(description=yes, layout=wide, tooltip="Keep the receipt; never run it again")
        self.did_not = widgets.Button(description=no, layout=wide, tooltip="Run it, with the same key, next time")
        self.said = widgets.HTML()
        self.old = old_note()
        buttons = widgets.HBox([self.happened, self.did_not], layout={"flex_flow": "row wrap"})
        inside = [self.title, call, self.receipt, self.comment, buttons, self.said, self.old]
        self.box = widgets.VBox(inside, layout=BOX)
        self.happened.on_click(lambda _: self.settle(happened=True))
        self.did_not.on_click(lambda _: self.settle(happened=False))

    def settle(self, *, happened: bool) -> None:
        """Record a person's word. What keeps it from being recorded is shown, and nothing is changed."""
        receipt = self.receipt.value.strip()
        if receipt and not happened:
            self.said.value = escape("A receipt is for what happened: empty that field first. Nothing was recorded.")
            return
        try:
            effect = self.doubt.settle(happened=happened, receipt=receipt or None, comment=self.comment.value)
        except AlreadyDecided as told:
            self.end(str(told))
        except ResumableError as problem:
            self.said.value = escape(str(problem))
        else:
            self.end(f"It {effect.standing}, as {effect.facts['by']} said. {self.doubt.then(effect)}")

    def end(self, told: str) -> None:
        """It is known: say so, and take no more clicks."""
        for widget in (self.happened, self.did_not, self.receipt, self.comment):
            widget.disabled = True
        self.said.value = escape(told)
        self.old.layout.display = "none"
        self._on_settled(told)


def words(effect: Effect) -> tuple[str, str]:
    """The question, and what it is about."""
    started = effect.started
    what = f"{started.name} with the key {started.key} was started by step {started.step} at {when(started.ts)}"
    if effect.facts.get("gone"):
        return "Shall this be done again?", f"{what} and done. verify= says that it does not stand any more."
    return "Did this happen?", f"{what}. Nobody knows whether it happened. Look outside, then say what you found."


def show(shell: InteractiveShell, doubt: Doubt, *, is_headless: bool, then: Callable[[], object]) -> DoubtPanel | None:
    """Show what a person has to say; nothing where it is known meanwhile.

    Args:
        shell: where.
        doubt: which effect.
        is_headless: nobody can click.
        then: called when it is settled.

    Returns:
        The panel, where somebody can click.
    """
    effect = doubt.look()
    if effect is None or effect.standing != "in doubt":
        return None
    title, asked = words(effect)
    key = json.dumps(doubt.key, ensure_ascii=False)
    how = f"Say it with `%resumable settle {key} --happened RECEIPT` or `%resumable settle {key} --did-not-happen`"
    panel = None
    if not is_headless and getattr(shell, "kernel", None) is not None:

        def settled(told: str) -> None:
            shown.stand_for(Panel(f"{doubt.key}: {told}", [called(effect)]))
            then()

        panel = DoubtPanel(doubt, effect, on_settled=settled)
    shown = Shown(shell, "doubt", Panel(title, [asked, called(effect), how]), panel and panel.box)
    return panel
