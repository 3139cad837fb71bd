"""The log of failpoints: what a process passed is on record, also when it is killed there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from resumable_nb import failpoints

SCRIPT = "import resumable_nb\nwith resumable_nb.open('t', db='t.duckdb') as thread:\n    thread.step('s', lambda: 1)"


def passages(folder: Path, **env: str) -> tuple[int, list[tuple[str, int]]]:
    log = folder / "log"
    env = {**os.environ, "RESUMABLE_NB_FAILPOINT_LOG": str(log), **env}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], cwd=folder, env=env)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(line["at"] > 0 for line in lines)
    assert all(line["rows"] and line["seq"] for line in lines if line["point"].startswith("journal.append"))
    return ran.returncode, [(line["point"], line["nth"]) for line in lines]


def test_all_passages_are_on_record_up_to_the_kill(tmp_path):
    """The armed point is the last line, and everything before it is as in a run without a kill."""
    for folder in ("whole", "killed"):
        (tmp_path / folder).mkdir()
    code, whole = passages(tmp_path / "whole")
    killed_code, killed = passages(tmp_path / "killed", RESUMABLE_NB_FAILPOINT="step.commit.before:1")

    assert (code, killed_code) == (0, -signal.SIGKILL)
    assert killed[-1] == ("step.commit.before", 1)
    assert killed == whole[: len(killed)]
    assert {name for name, _ in whole} <= set(failpoints.POINTS)


def test_without_the_setting_nothing_is_written(tmp_path):
    """In a person's kernel the log does not exist."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, env=dict(os.environ))

    assert ran.returncode == 0
    assert failpoints._LOG is None
    assert not (tmp_path / "log").exists()
