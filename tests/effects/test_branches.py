"""Equal questions in different branches of `map`, in a process that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, os, signal, threading, uuid
import resumable_nb

FASTEST, KILL = os.environ["FASTEST"], os.environ["KILL"]
asked = threading.Event()

@resumable_nb.durable
def draw():
    with open("drawn", "a") as file:
        file.write("x")
    return uuid.uuid4().hex

def branch(item):
    if item != FASTEST:
        asked.wait(60)
    got = draw()
    os.write(1, (json.dumps([item, got]) + "\\n").encode())
    if KILL == "between":
        os.kill(os.getpid(), signal.SIGKILL)
    asked.set()
    return got

def body():
    found = {body}
    if KILL == "end":
        os.kill(os.getpid(), signal.SIGKILL)
    return found

with resumable_nb.open("t", db="t.duckdb", say=lambda _: None) as thread:
    thread.step("s", body)
"""


def run(folder: Path, body: str, *, fastest: str, kill: str = "") -> dict[str, str]:
    """What each item got."""
    command = [sys.executable, "-c", SCRIPT.replace("{body}", body)]
    env = {**os.environ, "FASTEST": fastest, "KILL": kill}
    ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    assert ended.returncode == (-signal.SIGKILL if kill else 0), ended.stderr
    return dict(json.loads(line) for line in ended.stdout.splitlines())


@pytest.mark.parametrize("kill", ["between", "end"])
def test_each_branch_gets_its_own_answer_again_whoever_is_faster(tmp_path: Path, kill: str) -> None:
    """Also where only some had one when the process was killed."""
    before = run(tmp_path, 'resumable_nb.map(branch, ["a", "b"])', fastest="a", kill=kill)
    after = run(tmp_path, 'resumable_nb.map(branch, ["a", "b"])', fastest="b")

    assert before.items() <= after.items()
    assert len(set(after.values())) == 2
    assert (tmp_path / "drawn").read_text() == "xx"


def test_branches_are_known_by_their_items(tmp_path: Path) -> None:
    """One that is put before the others takes no answer from them."""
    before = run(tmp_path, 'resumable_nb.map(branch, ["a", "b"])', fastest="a", kill="end")
    after = run(tmp_path, 'resumable_nb.map(branch, ["c", "a", "b"])', fastest="c")

    assert before.items() < after.items()
    assert (tmp_path / "drawn").read_text() == "xxx"


@pytest.mark.parametrize("body", ["[branch(item) for item in ('a', 'b')]", 'resumable_nb.map(branch, ["a", "d"])'])
def test_answers_of_branches_that_are_gone_are_free_for_others(tmp_path: Path, body: str) -> None:
    """Code that asks the same without `map`, or for another item, is not asked to pay again."""
    before = run(tmp_path, 'resumable_nb.map(branch, ["a", "b"])', fastest="a", kill="end")
    after = run(tmp_path, body, fastest="a")

    assert sorted(after.values()) == sorted(before.values())
    assert (tmp_path / "drawn").read_text() == "xx"


NESTED = """
import os, signal, sys
import resumable_nb

@resumable_nb.durable
def inner(item):
    with open("drawn", "a") as file:
        file.write("x")
    state.update(findings=[item])
    return item * 2

@resumable_nb.durable
def quiet(item):
    return -item

def outer(item):
    return resumable_nb.map(inner, [item, item + 1]) + resumable_nb.map(quiet, [item])

def body(given):
    global state
    state = given
    found = resumable_nb.map(outer, [10, 20])
    if sys.argv[1:] == ["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

with resumable_nb.open("t", db="t.duckdb", say=lambda _: None) as thread:
    print(thread.step("s", body), list(thread.state.findings))
"""


def test_what_branches_of_branches_put_into_the_state_is_put_there_again(tmp_path: Path) -> None:
    """`map` inside a branch of `map`: results, and the state in the order of the items, come from the journal."""
    command = [sys.executable, "-c", NESTED]
    killed = subprocess.run([*command, "kill"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)

    assert ended.stdout == "[[20, 22, -10], [40, 42, -20]] [10, 11, 20, 21]\n", ended.stderr
    assert (tmp_path / "drawn").read_text() == "xxxx"
