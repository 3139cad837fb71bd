"""Named points at which a test can kill the process; without `RESUMABLE_NB_FAILPOINT` they do nothing.

`RESUMABLE_NB_FAILPOINT=NAME[:N]` sends SIGKILL to this process when it passes the point NAME the Nth time (1 is the
first). The points stand on both sides of every durable boundary: see `POINTS`.
"""

from __future__ import annotations

import itertools
import os
import signal

BOUNDARIES = (
    "journal.append",
    "http.send",
    "http.receive",
    "http.stream",
    "effect.call",
    "approval.decide",
    "resource.acquire",
    "step.commit",
    "open",
)
POINTS = tuple(f"{name}.{side}" for name in BOUNDARIES for side in ("before", "after"))


def _armed() -> tuple[str, int] | None:
    setting = os.environ.get("RESUMABLE_NB_FAILPOINT", "")
    if not setting:
        return None
    name, _, nth = setting.partition(":")
    if name not in POINTS or not (nth or "1").isdigit() or int(nth or 1) < 1:
        raise ValueError(
            f"RESUMABLE_NB_FAILPOINT={setting!r}: expected NAME or NAME:N with N at least 1 and NAME one of "
            + ", ".join(POINTS)
        )
    return name, int(nth or 1)


_ARMED = _armed()
_passed = itertools.count(1)


def passing(name: str) -> None:
    """Die here by SIGKILL if this point is armed and this is its Nth passage."""
    if _ARMED is not None and _ARMED[0] == name and next(_passed) == _ARMED[1]:
        os.kill(os.getpid(), signal.SIGKILL)
