"""Named points at which a test can kill the process; without `RESUMABLE_NB_FAILPOINT` they do nothing.

`RESUMABLE_NB_FAILPOINT=NAME[:N]` sends SIGKILL to this process when it passes the point NAME the Nth time (1 is the
first). The points stand on both sides of every durable boundary: see `POINTS`.

`RESUMABLE_NB_FAILPOINT_LOG=FILE` writes down every passage, one line of JSON each: point, number, time, and of an
append what was appended. A line is with the system before the process goes on, or is killed there.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

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
    "store.replace",
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


def _log() -> int | None:
    path = os.environ.get("RESUMABLE_NB_FAILPOINT_LOG")
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600) if path else None


class Appended(Protocol):
    """What the log says of a row."""

    kind: str
    phase: str
    step: str | None
    key: str | None


_ARMED = _armed()
_LOG = _log()
_passed = itertools.count(1)
_counts: defaultdict[str, itertools.count[int]] = defaultdict(lambda: itertools.count(1))


def passing(name: str, rows: Sequence[Appended] = (), first_seq: int = 0) -> None:
    """Die here by SIGKILL if this point is armed and this is its Nth passage.

    Args:
        name: of the point.
        rows: what is appended here, for the log.
        first_seq: the number of the first of them.
    """
    if _LOG is not None:
        about = [[row.kind, row.phase, row.step, row.key] for row in rows]
        passage = {"point": name, "nth": next(_counts[name]), "at": time.time(), "rows": about, "seq": first_seq}
        os.write(_LOG, (json.dumps(passage) + "\n").encode())
    if _ARMED is not None and _ARMED[0] == name and next(_passed) == _ARMED[1]:
        os.kill(os.getpid(), signal.SIGKILL)
