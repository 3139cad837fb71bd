"""The notebook of effects and approvals, in real kernels that are killed, at a desk whose ledger outlives them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from resumable_nb import demo
from resumable_nb.journal import Store
from resumable_nb.runner import Run, run_notebook

NAME = "02_effects_and_approvals.ipynb"
PLAN = ["43: once is enough", "42: in metres now", "41: replaced"]
KEYS = ["close-43", "close-42", "close-41", "report"]
COMMAND = [sys.executable, "-m", "resumable_nb"]


def start(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    shutil.copy(demo._notebook().with_name(NAME), folder)
    return folder


def run(folder: Path, failpoint: str = "", *, outcome: str = "failed") -> Run:
    """One kernel, to its end or to the failpoint; it doesn't kill itself."""
    env = {**os.environ, "RESUMABLE_NB_FAILPOINT": failpoint}
    told = run_notebook(folder / NAME, env=env, parameters={"KILL": False}, max_restarts=0, say=lambda _: None)
    assert (told.outcome, len(told.deaths)) == (outcome, bool(failpoint)), f"{failpoint}: {told.message}"
    return told


def approve(folder: Path, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    """Approve the edited plan, from a terminal."""
    command = [*COMMAND, "approve", "plan", "--payload", json.dumps(PLAN), "--comment", "in this order"]
    env = {**os.environ, "RESUMABLE_NB_FAILPOINT": failpoint}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def ask(folder: Path, query: str) -> list[tuple[Any, ...]]:
    store = Store.open(folder / "research.duckdb", create=False)
    rows = store.rows(query)[1]
    store.close()
    return rows


def last_row(folder: Path) -> tuple[Any, ...]:
    return ask(folder, "SELECT kind, phase FROM journal WHERE kind IN ('approval', 'effect') ORDER BY seq DESC")[0]


def passage(folder: Path, kind: str, phase: str) -> str:
    """The failpoint right after the first row of a kind: how many INSERTs its session had made by then."""
    first = f"(SELECT min(seq) FROM journal WHERE kind = '{kind}' AND phase = '{phase}')"
    query = f"""SELECT count(DISTINCT ts) FROM journal WHERE seq <= {first}
        AND session_id = (SELECT session_id FROM journal WHERE seq = {first})"""
    return f"journal.append.after:{ask(folder, query)[0][0]}"


def ledger(folder: Path) -> list[str]:
    return [json.loads(line)["key"] for line in (folder / "ledger.jsonl").read_text().splitlines()]


def state(folder: Path) -> dict[str, Any]:
    rows = ask(folder, "SELECT field, value FROM state_at('effects', (SELECT max(seq) FROM checkpoints))")
    found = {field: json.loads(value) for field, value in rows}
    found["decisions"] = [{**decision, "at": ""} for decision in found["decisions"]]
    return found


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = start(tmp_path_factory.mktemp("uninterrupted"))
    run(folder, outcome="waiting")
    assert approve(folder).returncode == 0
    run(folder, outcome="done")
    return folder


def test_killed_at_every_boundary_each_action_happens_once(uninterrupted: Path, tmp_path: Path) -> None:
    """Killed at the gate, at the decision, after a receipt, before a call, between call and receipt: the same ledger."""
    folder = start(tmp_path)
    run(folder, passage(uninterrupted, "approval", "requested"))
    assert last_row(folder) == ("approval", "requested")
    run(folder, outcome="waiting")

    assert approve(folder, "approval.decide.before").returncode == -signal.SIGKILL
    assert ask(folder, "SELECT phase FROM approvals") == [("waiting",)]
    assert approve(folder, "approval.decide.after").returncode == -signal.SIGKILL
    assert "That decision stands" in approve(folder).stderr

    run(folder, passage(uninterrupted, "effect", "done"))
    assert (last_row(folder), ledger(folder)) == (("effect", "done"), KEYS[:1])
    run(folder, "effect.call.before:1")
    assert (last_row(folder), ledger(folder)) == (("effect", "started"), KEYS[:1])
    run(folder, "effect.call.after:1")
    assert (last_row(folder), ledger(folder)) == (("effect", "started"), KEYS[:2])
    run(folder, "effect.call.after:2")
    assert (last_row(folder), ledger(folder)) == (("effect", "started"), KEYS)
    run(folder, outcome="done")

    assert ledger(folder) == ledger(uninterrupted) == KEYS
    assert state(folder) == state(uninterrupted)


def test_the_three_stories_from_a_terminal(tmp_path: Path) -> None:
    """Exit 3 with the command that answers; then the kernel kills itself once, and the ledger has each action once."""
    folder = start(tmp_path)
    command = [*COMMAND, "run", NAME]
    waiting = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    answer = re.search(r"`resumable-nb (approve .*?)`", waiting.stdout)
    assert (waiting.returncode, answer is not None) == (3, True), waiting.stdout
    subprocess.run([*COMMAND, *shlex.split(answer[1])], cwd=folder, check=True, capture_output=True)

    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "the kernel died" in done.stdout
    assert ledger(folder) == ["close-41", "close-42", "close-43", "report"]
    settled_by = ask(folder, "SELECT data->>'by' FROM journal WHERE kind = 'effect' AND phase = 'done' ORDER BY seq")
    assert settled_by == [(None,), ("lookup",), (None,), (None,)]
    why = ask(folder, "SELECT data->>'why' FROM journal WHERE kind = 'resource' AND phase = 'started' ORDER BY seq")
    assert why == [("first use",), ("not held by this process",), ("the probe said no",)]
