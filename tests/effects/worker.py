"""What runs in workers of an executor: in a module of its own, so that other processes find it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resumable_nb import ResearchState

STATE: Any = None


def with_state(state: Any, body: Callable[[Any], Any]) -> Any:
    """Let `find` have the state of the step, where it runs in this process."""
    global STATE
    STATE = state
    try:
        return body(state)
    finally:
        STATE = None


def find(n: int) -> int:
    """Puts something into the state; in another process that is another one."""
    state = ResearchState() if STATE is None else STATE
    state.update(findings=[f"found {n}"])
    return 10 * n


def die_once(log: str, at: int, n: int) -> int:
    """Kills its process at one item, the first time."""
    path = Path(log)
    before = path.read_text().split() if path.exists() else []
    path.write_text(" ".join([*before, str(n)]))
    if n == at and before.count(str(n)) == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return n
