"""What stays when a kernel dies: a model that answers, the journal, and the moments at which a process may be killed.

`ask` is the simplest honest durable call over a `Scope`; cells call it, and `Client` is something that no store keeps.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from resumable_nb import effect
from resumable_nb.journal import Row
from resumable_nb.scope import scope
from tests.model.oracle import Cell, Prompt, digest, receipt_of

NAME = "POST /v1/chat/completions"


class Killed(BaseException):
    """SIGKILL: the process writes nothing more."""


class World:
    """The outside of one sequence.

    Attributes:
        era: answers change with it.
        sent: how often the model was asked inside steps: by step, prompt and occurrence.
        acted: how often each effect happened.
        started: keys of effects that the journal has as started, and not as something that did not happen.
        receipts: keys of effects whose receipt the journal has.
        answers: what the journal holds, told from its rows alone: cell id, step, prompt, occurrence → row since which it
            counts, answer.
        is_ambiguous: who went back to a run left two of one step that count, and that were answered otherwise: which of
            them a clean run is like depends on the code of the step now.
        owner: the kernel that opened the thread last.
        boundary: called with its name wherever a process may be killed, overtaken or cut off.
    """

    def __init__(self) -> None:
        self.era = 0
        self.sent: Counter[tuple[str, Prompt, int]] = Counter()
        self.acted: Counter[str] = Counter()
        self.is_ambiguous = False
        self.started: set[str] = set()
        self.receipts: set[str] = set()
        self.asked: list[Prompt] = []  # outside of steps, by the cell that runs
        self.calls = 0  # of `ask`, by the cell that runs
        self.answers: dict[tuple[str, str, Prompt, int], tuple[int, str]] = {}
        self.earlier: list[tuple[tuple[str, str, Prompt, int], tuple[int, str]]] = []  # retired, or asked anew
        self.boundary: Callable[[str], None] = lambda where: None
        self.owner: object = None
        self.rows: list[Row] = []
        self._prompts: dict[int, Prompt] = {}

    def reply(self, step: str | None, prompt: Prompt, nth: int) -> str:
        """One live call of the model."""
        if step is None:
            self.asked.append(prompt)
            return digest(prompt, self.asked.count(prompt) - 1)
        self.sent[step, prompt, nth] += 1
        return digest(prompt, nth, self.era)

    @classmethod
    def copy_of(cls, world: World) -> World:
        """The journaled answers as they are now."""
        copy = cls()
        copy.answers = dict(world.answers)
        return copy

    # ------------------------------------------------------------------ the journal, read anew
    def journaled(self, rows: Iterable[Row]) -> None:
        """Rows are in the store."""
        for row in rows:
            self.rows.append(row)
            if row.kind == "llm" and row.phase == "started":
                self._prompts[row.seq] = prompt_of(row.request or "")
            elif row.kind == "llm" and row.phase == "done" and row.step is not None:
                question = (row.cell_id or "", row.step, self._prompts[row.ref_seq or 0], row.occurrence or 0)
                self.earlier += [(question, self.answers[question])] if question in self.answers else []
                self.answers[question] = row.seq, json.loads(row.response or "")["answer"]
            elif row.kind == "effect" and row.key:
                self._effect(row.key, row.phase)
            elif row.kind == "step" and row.phase == "retired":
                self._retire(row)
            elif row.kind == "checkpoint" and row.phase == "taken up":
                self._rename(row)
                self._restore(row)

    def _effect(self, key: str, phase: str) -> None:
        if phase == "started":
            self.started.add(key)
        elif phase == "done":
            self.receipts.add(key)
        elif phase in ("failed", "not done"):
            self.started.discard(key)

    def settled(self, key: str, *, happened: bool) -> None:
        """A person has said whether it happened."""
        self._effect(key, "done" if happened else "not done")

    def _of(self, cell_id: str | None, step: str | None) -> Iterator[tuple[str, str, Prompt, int]]:
        """R7, R8: the answers of a step are those by its cell id or by its name."""
        return (q for q in list(self.answers) if q[0] == cell_id or q[1] == step)

    def _retire(self, row: Row) -> None:
        for question in self._of(row.cell_id, row.step):
            self.earlier.append((question, self.answers.pop(question)))

    def _restore(self, row: Row) -> None:
        extra = json.loads(row.data or "{}")
        if row.step is None or not extra.get("back", {}).get("answers"):
            return
        steps, known = [(row.cell_id, row.step), extra.get("was", ())], [*self.earlier, *self.answers.items()]
        mine = [
            (q, a) for q, a in known if a[0] <= extra["as"] and any(q[0] == s[0] or q[1] == s[1] for s in steps if s)
        ]
        for question, answer in sorted(mine, key=lambda item: item[1]):
            now = (row.cell_id or "", row.step or "", *question[2:])
            active = [self.answers[q][1] for q in self._of(row.cell_id, row.step) if q[2:] == question[2:]]
            self.is_ambiguous |= any(other != answer[1] for other in active)
            self.earlier += [(now, self.answers[now])] if now in self.answers else []
            self.answers[now] = row.seq, answer[1]

    def _rename(self, row: Row) -> None:
        was = json.loads(row.data or "{}").get("was")
        for question in self._of(*was) if was else ():
            now = (row.cell_id or "", row.step or "", *question[2:])
            self.answers[now] = max(self.answers[question], self.answers.get(now, (0, "")))

    def answer(self, cell: Cell, prompt: Prompt, nth: int) -> str | None:
        """The newest journaled answer of a step, or None."""
        found = [self.answers[q] for q in self._of(cell.cell_id, cell.step) if q[2:] == (prompt, nth)]
        return max(found)[1] if found and cell.step else None


_worlds: list[World] = []


def enter(world: World) -> None:
    """`ask` speaks to this world from now on."""
    _worlds[:] = [world]


def prompt_of(request: str) -> Prompt:
    """The prompt of a recorded request."""
    prompt: Prompt = deep(json.loads(request)["body"])
    return prompt


def deep(value: Any) -> Any:
    """Lists, and those in them, as tuples."""
    return tuple(map(deep, value)) if isinstance(value, list | tuple) else value


def ask(text: str, value: Iterable[str] | None = None) -> str:
    """Ask the model; an answer that the journal holds is not asked for again. Every prompt holds the state."""
    world, ground = _worlds[0], scope()
    assert ground is not None
    world.calls += 1
    ground.context()
    state: Any = ground.thread.live.state
    body = [text, None if value is None else list(value), state.query, list(state.findings)]
    request = json.dumps({"method": "POST", "path": NAME, "body": body})
    key = hashlib.sha256(request.encode()).hexdigest()
    claim = ground.claim(key, request=request)
    if claim.answer is not None:
        return str(json.loads(claim.answer.response or "")["answer"])
    columns: dict[str, Any] = {"kind": "llm", "name": NAME, "key": key, "occurrence": claim.occurrence}
    started = 0
    try:
        started = ground.append(Row(phase="started", request=request, **columns))[-1]
        world.boundary("send")
        answer = world.reply(ground.step, prompt_of(request), claim.occurrence)
        world.boundary("receive")
    except (Exception, KeyboardInterrupt):
        ground.release(key, claim.occurrence)
        if started:
            ground.append(Row(phase="failed", ref_seq=started, **columns))
        raise
    response = json.dumps({"answer": answer})
    ground.append(Row(phase="done", ref_seq=started, response=response, gen_ai_usage_input_tokens=10, **columns))
    return answer


def act(effect_key: str) -> str:
    """Something that is done outside, once for each key. Whether it happened cannot be looked up if that ends in "?"."""
    _worlds[0].calls += 1
    return str((_act_unseen if effect_key.endswith("?") else _act)(effect_key))


def happens(effect_key: str) -> str:
    """The effect itself."""
    world = _worlds[0]
    world.boundary("act")
    world.acted[effect_key] += 1
    world.boundary("acted")
    return receipt_of(effect_key)


def find(effect_key: str) -> str | None:
    """Ask the outside whether it happened."""
    return receipt_of(effect_key) if _worlds[0].acted[effect_key] else None


@effect(key="{effect_key}", lookup=find)
def _act(effect_key: str) -> str:
    return happens(effect_key)


@effect(key="{effect_key}")
def _act_unseen(effect_key: str) -> str:
    return happens(effect_key)


class Client:
    """Something that cannot be stored, such as a connection."""

    def __init__(self, setting: str) -> None:
        self.setting, self.lock = setting, threading.Lock()

    def __iter__(self) -> Iterator[str]:
        return iter(("client", self.setting))
