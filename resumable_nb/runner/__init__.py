"""Take a notebook to its end without a browser, through kernels that die.

Every cell is sent with its id, the order of all cells and the notebook's path, so that the rules of place hold
as in JupyterLab. When the kernel dies, a new one starts at the first cell again: steps that are done are skipped there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from resumable_nb.runner.ended import AT_ITS_START, EXIT_CODES, Look, Outcome, Run
from resumable_nb.runner.restarts import Runner
from resumable_nb.terminal import plain

__all__ = ["AT_ITS_START", "EXIT_CODES", "Look", "Outcome", "Run", "run_notebook", "run_threads"]


def run_notebook(
    notebook: Path,
    *,
    output: Path | None = None,
    thread: str | None = None,
    db: Path | None = None,
    parameters: Mapping[str, object] | None = None,
    max_restarts: int = 3,
    cell_timeout_s: float | None = None,
    env: Mapping[str, str] | None = None,
    say: Callable[[str], None] = print,
    look: Look | None = None,
) -> Run:
    """Run all cells in a fresh kernel; start again with a new kernel when it dies.

    The kernel runs in the notebook's folder, with this Python unless the notebook names another kernel that is
    installed. The notebook itself is not changed.

    Args:
        notebook: the file to run.
        output: where the executed notebook goes; without it, `NAME.executed.ipynb` beside the notebook. It is written
            after every cell, by rename.
        thread: outranks the thread that the notebook names.
        db: outranks the store that the notebook names.
        parameters: values for the cell tagged `parameters`; see `resumable_nb.parameters`.
        max_restarts: kernels to start after the first one, with growing pauses in between.
        cell_timeout_s: a cell that takes longer is interrupted, and the run has failed.
        env: the kernel's environment; without it, this process's. `RESUMABLE_NB_FAILPOINT` in it is for the first
            kernel only: it kills once, and a kernel started after it must get past that point.
        say: told one line per cell and per restart.
        look: for a verifier, who looks into the kernel after each cell.

    Raises:
        UsageError: there is no such notebook, or it cannot be read.
    """
    runner = Runner.of(
        notebook,
        output,
        thread=thread,
        db=db,
        parameters=parameters or {},
        env=os.environ if env is None else env,
        max_restarts=max_restarts,
        cell_timeout_s=cell_timeout_s,
        say=say,
        look=look,
    )
    return asyncio.run(runner.run())


def run_threads(
    notebook: Path,
    threads: Mapping[str, Mapping[str, object]],
    *,
    jobs: int,
    db: Path | None = None,
    max_restarts: int = 3,
    cell_timeout_s: float | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Run]:
    """Run a notebook once for each thread, several at a time, all on one store.

    Args:
        notebook: the file.
        threads: by thread, the values for the cell tagged `parameters`.
        jobs: how many kernels at a time.
        db: outranks the store that the notebook names.
        max_restarts: as for `run_notebook`, for each thread.
        cell_timeout_s: as for `run_notebook`.
        say: told lines that begin with their thread.

    Returns:
        How each of them ended. The executed notebooks are `NAME.THREAD.executed.ipynb` beside the notebook.

    Raises:
        UsageError: there is no such notebook, or it cannot be read.
    """
    runners = {}
    for thread, parameters in threads.items():
        runners[thread] = Runner.of(
            notebook,
            notebook.with_suffix(f".{_as_file_name(thread)}.executed.ipynb"),
            thread=thread,
            db=db,
            parameters=parameters,
            env=os.environ,
            max_restarts=max_restarts,
            cell_timeout_s=cell_timeout_s,
            say=_named(thread, say),
        )
    return asyncio.run(_run_together(runners, jobs))


def _named(thread: str, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda text: say(f"{plain(thread)}: {text}")


def _as_file_name(thread: str) -> str:
    """Of a thread's name, what every file system takes; with a digest where that is not all of it."""
    kept = re.sub(r"[^\w-]", "_", thread)
    return kept if kept == thread else f"{kept}-{hashlib.sha256(thread.encode()).hexdigest()[:8]}"


async def _run_together(runners: Mapping[str, Runner], jobs: int) -> dict[str, Run]:
    free = asyncio.Semaphore(jobs)

    def on_signal() -> None:
        for runner in runners.values():
            runner.on_signal()

    async def one(runner: Runner) -> Run:
        async with free:
            return runner.stopped() if runner.stopping else await runner.run(on_signal)

    found = await asyncio.gather(*(one(runner) for runner in runners.values()))
    return dict(zip(runners, found, strict=True))
