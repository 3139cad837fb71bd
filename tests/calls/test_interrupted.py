"""Ctrl-C among parallel questions, in real processes and kernels: what is on its way is kept, and nothing else begins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

from resumable_nb.journal import Store
from resumable_nb.runner.kernel import SETTLE_S
from tests.cases.kernel import kernel
from tests.support.model_server import ModelServer

ROOT = Path(__file__).parents[2]
ANSWERS = ["AQ1-1 AQ11-1", "AQ2-1 AQ12-1", "AQ3-1 AQ13-1"]
BODY = """
def both(n):
    return ask(f"Q{n} first", context=False) + " " + ask(f"Q{n + 10} then", context=False)
"""
SCRIPT = f"""
import resumable_nb
from resumable_nb import ask, map, progress
{BODY}
progress.GRACE_S = SECONDS
with resumable_nb.open("t", db="t.duckdb", say=lambda line: print(line, flush=True)) as thread:
    print(thread.step("s", lambda: map(both, [1, 2, 3])), flush=True)
"""


def environment(server: ModelServer) -> dict[str, str]:
    return os.environ | {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none", "PYTHONPATH": str(ROOT)}


@contextmanager
def script(folder: Path, server: ModelServer, grace_s: float = 60) -> Iterator[subprocess.Popen[str]]:
    """A process that asks three times two questions, the three at once."""
    code = SCRIPT.replace("SECONDS", str(grace_s))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(server),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def until_said(process: subprocess.Popen[str], words: str) -> None:
    """Read what it prints up to a line with these words."""
    assert process.stdout is not None
    while words not in (line := process.stdout.readline()):
        assert line, f"it ended without: {words}"


def run(folder: Path, server: ModelServer) -> list[str]:
    """The same process to its end: its lines."""
    with script(folder, server) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.splitlines()


def phases(folder: Path) -> list[str]:
    with_all = "SELECT phase FROM journal WHERE kind = 'llm' AND phase <> 'started' ORDER BY phase"
    return [phase for (phase,) in Store.open(folder / "t.duckdb").rows(with_all)[1]]


def slow(server: ModelServer, seconds: float) -> None:
    server.script(*[{"marker": f"Q{n}", "delay_s": seconds} for n in (1, 2, 3)])


def hold(server: ModelServer) -> None:
    server.script(*[{"marker": f"Q{n}", "hold": True} for n in (1, 2, 3)])


def test_answers_on_their_way_are_kept_and_no_question_follows(server: ModelServer, tmp_path: Path):
    """The three that were asked are answered, paid and stored; the next run asks only what is left."""
    hold(server)
    with script(tmp_path, server) as process:
        until(lambda: server.asked() == 3)
        process.send_signal(signal.SIGINT)
        until_said(process, "stopping. 3 answers on the way")
        server.release()
        _, err = process.communicate(timeout=120)

    assert process.returncode != 0 and "KeyboardInterrupt" in err
    assert phases(tmp_path) == ["done"] * 3 and server.asked() == 3
    assert run(tmp_path, server)[-1] == str(ANSWERS)
    assert server.asked() == 6


def test_a_second_ctrl_c_stops_at_once(server: ModelServer, tmp_path: Path):
    """It waits for no answer, not even at the end of the process; the next run says what was lost and goes on."""
    slow(server, 200)
    with script(tmp_path, server) as process:
        until(lambda: server.asked() == 3)
        process.send_signal(signal.SIGINT)
        until_said(process, "stopping")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    lines = run(tmp_path, server)

    assert process.returncode != 0 and "KeyboardInterrupt" in err
    assert phases(tmp_path) == ["done"] * 6 + ["lost"] * 3
    assert lines[-1] == str([answer.replace("-1 ", "-2 ") for answer in ANSWERS])
    assert any("3 calls were in flight when an earlier run ended" in line for line in lines)


def test_an_answer_that_comes_too_late_is_lost_and_asked_again(server: ModelServer, tmp_path: Path):
    """The waiting has an end, though the server answers after it; the end of the process does not wait either."""
    slow(server, 200)
    with script(tmp_path, server, grace_s=0.5) as process:
        until(lambda: server.asked() == 3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    run(tmp_path, server)

    assert phases(tmp_path) == ["done"] * 6 + ["lost"] * 3


def test_a_wait_for_a_rate_limit_ends_without_another_request(server: ModelServer, tmp_path: Path):
    """A branch that waits before it tries again gives up when it is stopped."""
    server.script(*[{"marker": f"Q{n}", "status": 429, "headers": {"retry-after": "100"}} for n in (1, 2, 3)])
    with script(tmp_path, server, grace_s=90) as process:
        until(lambda: server.asked() == 3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)

    assert server.asked() == 3 and phases(tmp_path) == ["failed"] * 3
    run(tmp_path, server)
    assert server.asked() == 9


def test_an_interrupted_cell_keeps_what_was_on_its_way(server: ModelServer, tmp_path: Path):
    """In a kernel: the cell says that it stops, and run again it asks only what is left."""
    hold(server)
    cell = f"%%resumable s\nfrom resumable_nb import ask, map\n{BODY}\nfound = map(both, [1, 2, 3])\nprint(found)"
    with kernel(tmp_path, environment(server)) as cells:
        cells.run("%load_ext resumable_nb\n%resumable open t --db t.duckdb")
        sent = cells.send(cell)
        until(lambda: server.asked() == 3)
        cells.interrupt()
        stopping = cells.wait(sent, until="stopping. 3 answers on the way")
        server.release()
        stopped = stopping + cells.wait(sent)
        again = cells.run(cell)

    assert "stopped. What was answered is kept" in stopped and "Traceback" not in stopped
    assert str(ANSWERS) in again and server.asked() == 6


def test_a_headless_run_waits_for_what_is_on_its_way(server: ModelServer, tmp_path: Path):
    """Ctrl-C in the terminal: the cell gets the time that it needs, and the same command goes on."""
    hold(server)
    step = f"%%resumable s\nfrom resumable_nb import ask, map\n{BODY}\nprint(map(both, [1, 2, 3]))"
    cells = [nbformat.v4.new_code_cell(s) for s in ("%load_ext resumable_nb\n%resumable open t --db t.duckdb", step)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "nb.ipynb")
    command = [sys.executable, "-u", "-m", "resumable_nb", "run", "nb.ipynb"]
    options: Any = {"cwd": tmp_path, "env": environment(server), "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **options) as process:
        until(lambda: server.asked() == 3)
        process.send_signal(signal.SIGINT)
        until_said(process, "Ctrl-C again stops at once")
        time.sleep(SETTLE_S + 1)  # longer than a cell that waits for nothing gets
        server.release()
        process.communicate(timeout=120)

    assert process.returncode == 130
    assert phases(tmp_path) == ["done"] * 3
    assert subprocess.run(command, check=True, **options).returncode == 0 and server.asked() == 6


def test_tasks_are_cancelled_and_the_next_run_goes_on(server: ModelServer, tmp_path: Path):
    """Async code stops at once, as `asyncio.run` has it: what was on its way is recorded as failed, and asked again."""
    slow(server, 100)
    body = """
async def both(n):
    return await aask(f"Q{n} first", context=False) + " " + await aask(f"Q{n + 10} then", context=False)


async def body():
    return await asyncio.gather(*[both(n) for n in (1, 2, 3)])
"""
    code = f"""
import asyncio, resumable_nb
from resumable_nb.llm.ask import aask
{body}
with resumable_nb.open("t", db="t.duckdb") as thread:
    print(asyncio.run(thread.step("s", body)), flush=True)
"""
    options: Any = {"cwd": tmp_path, "env": environment(server), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **options) as process:
        until(lambda: server.asked() == 3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    again = subprocess.run([sys.executable, "-c", code], text=True, check=True, **options)

    assert "KeyboardInterrupt" in err
    assert phases(tmp_path) == ["done"] * 6 + ["failed"] * 3
    assert "AQ1-2 AQ11-1" in again.stdout
