"""A thread with steps, answers, effects and large values, made in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import resumable_nb
from resumable_nb import approve, durable, effect
from resumable_nb.errors import Paused


def note(what: object) -> None:
    """Put down, where the test can see it, that something really happened."""
    with Path(os.environ["HAPPENED"]).open("a") as file:
        file.write(f"{what}\n")


@durable
def answer(number: int) -> str:
    """An answer that is too large to stand in a row."""
    note(number)
    return f"{number} " + "x" * 2000


@effect(key="mail-{to}")
def send(to: str, *, idempotency_key: str) -> dict[str, str]:
    """Changes the outside."""
    note(idempotency_key)
    return {"sent": to}


def work(db: Any, *, thread: str = "t", steps: int = 8) -> Any:
    """Steps that ask, one that sends a mail, and one that waits for a person; gives the newest state."""
    with resumable_nb.open(thread, db=db, query="q", say=lambda line: said.append(line)) as t:
        for i in range(steps):
            t.step(f"s{i}", _step(i))
        t.step("mail", lambda: send("ann"))
        try:
            t.step("gate", lambda: approve("Go on?"))
        except Paused:
            said.append("waits")
        return t.state


def _step(number: int) -> Any:
    def step(state: Any, number: int = number) -> int:
        state.update(findings=[{"claim": answer(number), "number": number}])
        return number

    return step


said: list[str] = []

if __name__ == "__main__":
    resumable_nb.prune(sys.argv[1], keep=2, answers_before="0h", yes=True)
