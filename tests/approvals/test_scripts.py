"""A script that waits for a person, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

SCRIPT = """
import atexit, resumable_nb
atexit.register(print, "at its end")

def plan(state):
    {body}
    return "planned"

with resumable_nb.open("t", db="t.duckdb", query="q") as thread:
    print(thread.step("plan", plan))
"""


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=100)


def test_a_script_that_waits_says_so_in_one_line_and_ends_with_code_3(tmp_path: Path) -> None:
    """No traceback; what Python does at its end is done; after the decision, the same script goes on."""
    script = SCRIPT.format(body='resumable_nb.approve("Go on?")')
    waits = run(tmp_path, "-c", script)
    approved = run(tmp_path, "-m", "resumable_nb", "approve", "plan", "--db", "t.duckdb")
    done = run(tmp_path, "-c", script)

    assert waits.returncode == 3
    assert waits.stdout == "at its end\n"
    assert "waits for a decision" in waits.stderr
    assert "Traceback" not in waits.stderr
    assert len(waits.stderr.splitlines()) == 1
    assert approved.returncode == 0, approved.stderr
    assert done.returncode == 0
    assert done.stdout.endswith("\nplanned\nat its end\n")


def test_a_pause_among_tasks_ends_a_script_in_the_same_way(tmp_path: Path) -> None:
    """A group of errors that holds it is no traceback either."""
    script = SCRIPT.format(
        body='raise BaseExceptionGroup("two", [ValueError("x"), resumable_nb.errors.Paused("waits")])'
    )
    ended = run(tmp_path, "-c", "import resumable_nb.errors\n" + script)

    assert (ended.returncode, ended.stderr) == (3, "waits\n")


def test_every_other_error_of_a_script_is_shown_as_ever(tmp_path: Path) -> None:
    """With its traceback, by the hook that was there before."""
    script = SCRIPT.format(body='raise ValueError("no")')
    ended = run(tmp_path, "-c", script)
    own = run(tmp_path, "-c", "import sys\nsys.excepthook = lambda *error: print('mine')\n" + script)

    assert (ended.returncode, own.returncode) == (1, 1)
    assert "Traceback" in ended.stderr
    assert own.stdout.endswith("mine\nat its end\n")


def test_a_script_that_catches_the_pause_goes_on(tmp_path: Path) -> None:
    """It is an exception like others; only what nobody caught ends the script."""
    script = SCRIPT.format(body='resumable_nb.approve("Go on?")')
    caught = (
        f"import resumable_nb.errors\ntry:\n{textwrap.indent(script, '    ')}\nexcept resumable_nb.errors.Paused:\n"
    )
    ended = run(tmp_path, "-c", f"{caught}    print('caught')\n")

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "caught\nat its end\n", "")


def test_ctrl_c_says_after_the_traceback_that_the_script_can_go_on(tmp_path: Path) -> None:
    """The person need not read a page of traceback to know that nothing is lost."""
    script = SCRIPT.format(body="import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    ended = run(tmp_path, "-c", script)

    assert ended.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("Stopped. What was finished and answered is kept")
