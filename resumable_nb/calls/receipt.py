"""The receipt of one call of an effect: how it is stored, given back, and put into the state."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resumable_nb import values
from resumable_nb.errors import StateError
from resumable_nb.receipts import kept

if TYPE_CHECKING:
    from resumable_nb.scope import Scope


@dataclass
class Receipt:
    """What an effect returned, once it did or was found to have done so.

    Attributes:
        data: its stored form, as the row of the receipt has it.
        blobs: its large values, by sha256.
    """

    effect: str
    key: str
    scope: Scope
    data: dict[str, Any] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)

    def keep(self, receipt: Any) -> None:
        """Its stored form; its text if it has none: it happened, and that must not be lost."""
        stored = kept(receipt, name=self.effect, key=self.key)
        self.data, self.blobs = stored.data, stored.blobs
        if stored.line:
            self.scope.notice(stored.line)

    def take(self, facts: dict[str, Any], blob: Callable[[str], bytes]) -> None:
        """The receipt as another row has it."""
        self.data = {"receipt": facts.get("receipt")} | {name: True for name in ("is_text",) if name in facts}
        self.blobs = values.encode(self._decoded(blob)).blobs

    def value(self) -> Any:
        """The receipt, made anew each time."""
        return self._decoded(lambda key: self.blobs[key])

    def _decoded(self, blob: Callable[[str], bytes]) -> Any:
        text, what = json.dumps(self.data["receipt"]), f"the receipt of {self.key!r}"
        return values.decode(text, blob, self.scope.thread.resolve, what=what)

    def put_into_state(self) -> None:
        """`state.receipts` gets it, once: a run that only finds the receipt ends with the same state."""
        state = self.scope.thread.live.state
        if "receipts" not in type(state).model_fields:
            return
        try:
            if not any(isinstance(r, dict) and r.get("key") == self.key for r in getattr(state, "receipts", ())):
                state.update(receipts=[{"effect": self.effect, "key": self.key, "receipt": self.value()}])
        except StateError as error:
            self.scope.notice(f"`{self.effect}` ({self.key}) happened; its receipt is not in the state: {error}")
