"""The class of the state, which a cell of the notebook defines: looked up by its name, again after every cell."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resumable_nb.errors import StateError, UsageError
from resumable_nb.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resumable_nb.state import Live


@dataclass(frozen=True)
class NamedState:
    """The class that `--state NAME` names.

    Attributes:
        name: None for the class that the thread was opened with.
        namespace: where cells run.
        live: the state of the thread.
    """

    name: str | None
    namespace: Mapping[str, Any]
    live: Live

    def find(self) -> type[State] | None:
        """The class as it is now; None if no cell has defined it yet.

        Raises:
            UsageError: the name holds something else.
        """
        if self.name is None:
            return self.live.cls
        found = self.namespace.get(self.name)
        if found is not None and not (isinstance(found, type) and issubclass(found, State)):
            raise UsageError(
                f"--state {self.name}: `{self.name}` is {type(found).__name__}, not a subclass of `State`. "
                f"Write `class {self.name}(ResearchState): …` and run that cell."
            )
        return found

    def missing(self) -> StateError:
        """What to say to a cell that needs the state while no cell has defined its class."""
        known = [n for n, x in self.namespace.items() if isinstance(x, type) and issubclass(x, State)]
        near = difflib.get_close_matches(str(self.name), known, 1)
        hint = f" Did you mean `--state {near[0]}`?" if near else " Run that cell first."
        return StateError(f"`--state {self.name}`: no cell has defined `{self.name}` yet.{hint}")
