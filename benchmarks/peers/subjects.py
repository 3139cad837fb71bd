"""Tellers of the story as subjects of the verifier: started, killed at a point, resumed, and asked what they keep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peers.story import FINDINGS, PATH, PLAN, REPORT, Kept, body_of, completion, digest_of, exchanges, state_of
from peers.tellers import DONE, TELLERS, WAITING
from resumable_nb.calls.matching import question
from resumable_nb.verify.plan import DECIDING, TIME
from resumable_nb.verify.subject import Checkpoint, Ended, Gate, Memory, Passage, Point, Trial
from resumable_nb.verify.world import Answer

_SETTINGS = ("RESUMABLE_NB_FAILPOINT", "RESUMABLE_NB_FAILPOINT_LOG", "STORY_LOOK_UP")
_OUTCOMES = {DONE: "done", WAITING: "waiting"}
# Places of the story, in order: rows of an ordinary store would have numbers.
_PLAN, _ASKED, _DECIDED, _APPROVE, _RESEARCH = 1, 2, 3, 4, 5


def key_of(prompt: str) -> str:
    """By what the verifier knows a question."""
    body = json.dumps(body_of(prompt)).encode()
    return question("POST", PATH.encode(), headers={"content-type": "application/json"}, body=body).key


def answers() -> list[Answer]:
    """What the model answers, to all subjects alike."""
    found = []
    for prompt, text in exchanges():
        body = completion(text)
        made = Answer(
            key=key_of(prompt),
            path=PATH,
            content_type="application/json",
            body=body.encode(),
            digest=digest_of(body),
        )
        found.append(made)
    return found


@dataclass
class Told:
    """A teller in a process of its own.

    Attributes:
        kind: which one.
        name: for people.
        look_up: it asks the desk by hand whether the ticket is closed before it closes it.
        packages: whose versions the result holds for.
    """

    kind: str
    name: str
    look_up: bool = False
    packages: Sequence[str] = ()

    @property
    def before(self) -> None:
        """It is never edited."""
        return

    def versions(self) -> dict[str, str]:
        """Of its library."""
        from importlib import metadata

        return {name: metadata.version(name) for name in self.packages}

    def prepare(self, folder: Path) -> None:
        """An empty folder."""
        folder.mkdir(parents=True)

    def run(self, trial: Trial, kill_at: Point | None = None) -> Ended:
        """Start it; the same command goes on."""
        log = trial.folder / f".passages-{trial.lives}"
        trial.lives += 1
        (trial.folder / ".loaded.json").unlink(missing_ok=True)
        command = [sys.executable, str(Path(__file__).with_name("tellers.py")), self.kind, str(trial.folder)]
        process = subprocess.Popen(
            command,
            env=self._environment(trial, log, kill_at),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        while (line := process.stdout.readline()) and line.strip() != "ready":
            pass
        began_at, killed_at = time.time(), 0.0

        def kill() -> None:
            nonlocal killed_at
            killed_at = time.time()
            process.kill()

        timer = threading.Timer(kill_at.nth / 1000, kill) if kill_at is not None and kill_at.name == TIME else None
        if timer is not None:
            timer.start()
        _, said = process.communicate()
        if timer is not None:
            timer.cancel()
        passages = _passages(log)
        died = process.returncode < 0
        at = killed_at if died and killed_at else passages[-1].at if died and passages else time.time()
        return Ended(
            outcome="killed" if died else _OUTCOMES.get(process.returncode, "failed"),  # type: ignore[arg-type]
            message=said[-300:],
            passages=passages,
            loaded=self._loaded(trial),
            began_at=began_at,
            ended_at=at,
        )

    def _environment(self, trial: Trial, log: Path, kill_at: Point | None) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
        env |= {"RESUMABLE_NB_FAILPOINT_LOG": str(log), "RESUMABLE_NB_LEDGER": trial.world.ledger_url(trial.name)}
        env |= {"STORY_MODEL": trial.world.answers_url(trial.name), "LANGSMITH_TRACING": "false"}
        if self.look_up:
            env["STORY_LOOK_UP"] = "1"
        if kill_at is not None and kill_at.name != TIME:
            env["RESUMABLE_NB_FAILPOINT"] = f"{kill_at.name}:{kill_at.nth}"
        return env

    def _loaded(self, trial: Trial) -> Kept | None:
        path = trial.folder / ".loaded.json"
        loaded = json.loads(path.read_text()) if path.exists() else None
        return None if loaded is None else state_of(loaded)

    def decide(self, trial: Trial, kill_at: Point | None = None) -> None:
        """Say yes. The person's own act has no inside to be killed in: it is done, or it is not."""
        if kill_at is None or kill_at.name != DECIDING[0]:
            TELLERS[self.kind].click(trial.folder)

    def remember(self, trial: Trial) -> Memory:
        """What is on disk."""
        return memory_of(TELLERS[self.kind].kept(trial.folder))


def _passages(log: Path) -> list[Passage]:
    lines = map(json.loads, log.read_text().splitlines() if log.exists() else ())
    return [
        Passage(name=one["point"], nth=one["nth"], at=one["at"], is_marked=one["point"].startswith("effect."))
        for one in lines
    ]


def memory_of(kept: Kept) -> Memory:
    """What is judged, of what is kept."""
    state = state_of(kept)
    prompts = dict(exchanges())
    answered = [prompt for prompt, _ in exchanges()[: 1 if state.get("plan") else 0]]
    answered += PLAN[: len(state.get("findings", ()))]
    answered += [prompt for prompt, text in prompts.items() if text == REPORT and state.get("report")]
    gates = []
    if kept.get("asked") or kept.get("decision"):
        decided = bool(kept.get("decision"))
        gates.append(
            Gate(
                step="approve",
                key="plan",
                at=_ASKED,
                decided_at=_DECIDED if decided else None,
                decision="approved" if decided else "waiting",
            )
        )
    return Memory(
        checkpoints=[Checkpoint(step=step, at=at) for step, at in _steps(kept)],
        state=state or None,
        answered={key_of(prompt): [digest_of(completion(prompts[prompt]))] for prompt in answered},
        receipts=[str(state["ticket"].get("key"))] if state.get("ticket") else [],
        gates=gates,
        live=[_RESEARCH] if state else [],
    )


def _steps(kept: Kept) -> list[tuple[str, int]]:
    """The steps that have ended, with their places."""
    state = state_of(kept)
    steps = [("plan", _PLAN)] if state.get("plan") else []
    findings = len(state.get("findings", ()))
    if kept.get("decision") or findings:
        steps.append(("approve", _APPROVE))
    steps += [(f"research {n}", _RESEARCH + n) for n in range(findings)]
    after = _RESEARCH + len(FINDINGS)
    return steps + [(step, after + n) for n, step in enumerate(("ticket", "report")) if state.get(step)]


def expected_states(final: Kept) -> dict[str, Kept]:
    """The state after each step, of an uninterrupted run that ended with this one."""
    found: dict[str, Kept] = {"plan": {"plan": final["plan"]}}
    found["approve"] = found["plan"]
    for n in range(len(final["findings"])):
        found[f"research {n}"] = {"plan": final["plan"], "findings": final["findings"][: n + 1]}
    found["ticket"] = {**found[f"research {n}"], "ticket": final["ticket"]}
    return found | {"report": dict(final)}
