"""A notebook as a subject: its kernels are killed, and its store is read."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from resumable_nb.document import cells_of
from resumable_nb.errors import UsageError
from resumable_nb.runner import AT_ITS_START, Look, run_notebook
from resumable_nb.verify import probe
from resumable_nb.verify.plan import TIME
from resumable_nb.verify.stored import remember, waiting
from resumable_nb.verify.subject import Ended, Memory, Passage, Point, Trial

STORE = "research.duckdb"
_STARTS = 4  # a kernel whose port another program was quicker to take does not start
_LINKED_BYTES = 20 << 20
_PACKAGES = ("resumable-nb", "duckdb", "ipython", "ipykernel", "nbclient", "openai", "httpx2", "pydantic")
_MARKED = ("effect.call.", "step.commit.", "approval.decide.")
_SETTINGS = ("RESUMABLE_NB_FAILPOINT", "RESUMABLE_NB_FAILPOINT_LOG", "RESUMABLE_NB_ANSWERS", "RESUMABLE_NB_LEDGER")


@dataclass
class NotebookSubject:
    """A notebook, run by the headless runner.

    Attributes:
        notebook: the file. Each trial has a copy of its folder; large files are linked.
        text: the file whose content is run under the notebook's name; None: its own.
        before: as it was until the kill: an edit while it was dead.
        thread: outranks the thread that it names.
        parameters: for its cell tagged `parameters`.
        cell_timeout_s: a cell that takes longer has failed.
        kernels: process numbers of the kernels that run now.
    """

    notebook: Path
    text: Path | None = None
    before: NotebookSubject | None = None
    thread: str | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    cell_timeout_s: float | None = 300
    kernels: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.notebook.name

    def versions(self) -> dict[str, str]:
        """Of Python, the system, and the packages that a run rests on."""
        found = {name: metadata.version(name) for name in _PACKAGES}
        digest = hashlib.sha256(self.notebook.read_bytes()).hexdigest()[:12]
        return {"notebook": digest, "python": platform.python_version(), "system": platform.platform(), **found}

    def prepare(self, folder: Path) -> None:
        """Copy the notebook's folder, without hidden things and stores."""
        source = self.notebook.absolute().parent
        folder.mkdir(parents=True)
        for entry in sorted(source.iterdir()):
            if entry.name.startswith(".") or ".duckdb" in entry.name or entry.name == "__pycache__":
                continue
            if folder.resolve().is_relative_to(entry.resolve()) or entry.suffix == ".verify":
                continue  # where trials, and reports, are kept
            if entry.suffix == ".ipynb" and entry.name != self.notebook.name:
                continue
            if _size(entry) > _LINKED_BYTES:
                (folder / entry.name).symlink_to(entry)
            elif entry.is_dir():
                shutil.copytree(entry, folder / entry.name, symlinks=True)
            else:
                shutil.copy2(entry, folder / entry.name)

    def run(self, trial: Trial, kill_at: Point | None = None) -> Ended:
        """Run a kernel until the notebook ends, waits, or the kernel dies."""
        log = trial.folder / f".passages-{trial.lives}"
        trial.lives += 1
        path = trial.folder / self.notebook.name
        path.write_bytes((self.text or self.notebook).read_bytes())
        watch = _Watch(self.kernels, log, kill_at if kill_at is not None and kill_at.name == TIME else None)
        for _ in range(_STARTS):
            ran = run_notebook(
                path,
                output=trial.folder / ".executed.ipynb",
                thread=self.thread,
                db=trial.folder / STORE,
                parameters=self.parameters,
                max_restarts=0,
                cell_timeout_s=self.cell_timeout_s,
                env=self._environment(trial, log, kill_at),
                say=lambda _: None,
                look=Look(probe.EACH, probe.LAST, watch.seen.append, watch.begin),
            )
            if ran.deaths != (AT_ITS_START,):
                break
        watch.end()
        passages, acknowledged = _passages(log)
        looks = [look for text in watch.seen if text and (look := json.loads(ast.literal_eval(text)))]
        ended_at = watch.killed_at or (passages[-1].at if ran.deaths and passages else time.time())
        return Ended(
            outcome="killed" if ran.deaths else ran.outcome if ran.outcome in ("done", "waiting") else "failed",
            message=ran.message,
            passages=passages,
            acknowledged=acknowledged,
            loaded=looks[0]["state"] if looks else None,
            names=looks[-1].get("names") if looks else None,
            contexts=looks[-1].get("contexts") if looks else None,
            began_at=watch.began_at,
            ended_at=ended_at,
        )

    def _environment(self, trial: Trial, log: Path, kill_at: Point | None) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
        env["RESUMABLE_NB_FAILPOINT_LOG"] = str(log)
        env["RESUMABLE_NB_LEDGER"] = trial.world.ledger_url(trial.name)
        if not trial.is_live:
            env["RESUMABLE_NB_ANSWERS"] = trial.world.answers_url(trial.name)
        if kill_at is not None and kill_at.name != TIME:
            env["RESUMABLE_NB_FAILPOINT"] = f"{kill_at.name}:{kill_at.nth}"
        return env

    def decide(self, trial: Trial, kill_at: Point | None = None) -> None:
        """Approve all that waits, from the command line; settle effects in doubt as the ledger knows."""
        store = trial.folder / STORE
        acts = {act["key"]: act["receipt"] for act in trial.world.log(trial.name).acts}
        for command in waiting(store, acts):
            env = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
            if kill_at is not None:
                env["RESUMABLE_NB_FAILPOINT"] = f"{kill_at.name}:{kill_at.nth}"
            full = [sys.executable, "-m", "resumable_nb", *command, "--db", str(store)]
            done = subprocess.run(full, env=env, capture_output=True, text=True)
            if done.returncode != 0 and kill_at is None:
                raise UsageError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")

    def remember(self, trial: Trial) -> Memory:
        """What the store holds."""
        return remember(trial.folder / STORE, self.thread)


class _Watch:
    """What is seen of one kernel, and its death by the clock."""

    def __init__(self, kernels: set[int], log: Path, kill_at: Point | None) -> None:
        self.seen: list[str] = []
        self.began_at, self.killed_at = 0.0, 0.0
        self._kernels, self._pid, self._log, self._kill_at = kernels, 0, log, kill_at
        self._ended = threading.Event()
        self._killer = threading.Thread(target=self._kill, name="resumable_nb kills", daemon=True)

    def begin(self, pid: int) -> None:
        self.began_at, self._pid = time.time(), pid
        self._kernels.add(pid)
        if self._kill_at is not None:
            self._killer.start()

    def end(self) -> None:
        self._ended.set()
        if self._killer.is_alive():
            self._killer.join()
        self._kernels.discard(self._pid)

    def _kill(self) -> None:
        assert self._kill_at is not None
        while not self._ended.is_set() and self._count() < self._kill_at.passed:
            self._ended.wait(0.002)
        if not self._ended.wait(self._kill_at.delay_s):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
                self.killed_at = time.time()

    def _count(self) -> int:
        return self._log.read_bytes().count(b"\n") if self._log.exists() else 0


def _size(entry: Path) -> int:
    if entry.is_file():
        return entry.stat().st_size
    return sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())


def _passages(log: Path) -> tuple[list[Passage], int]:
    """What a kernel passed, and how many rows of its thread it was told are in the store."""
    lines = log.read_text().splitlines() if log.exists() else []
    found, acknowledged = [], 0
    for line in lines:
        one = json.loads(line)
        rows = one["rows"]
        if one["point"] == "journal.append.after" and rows:
            acknowledged = max(acknowledged, one["seq"] + len(rows) - 1)
        of_gate = any(row[0] == "approval" for row in rows)
        about = ", ".join(dict.fromkeys(" ".join(filter(None, (kind, phase, step))) for kind, phase, step, _ in rows))
        is_marked = of_gate or one["point"].startswith(_MARKED)
        found.append(Passage(name=one["point"], nth=one["nth"], at=one["at"], about=about, is_marked=is_marked))
    return found, acknowledged


# ---------------------------------------------------------------- effects
def undeclared_effects(notebook: Path) -> list[str]:
    """Effects that the notebook declares and that do not say what stands in for them: name, and cell."""
    found = []
    cells = cells_of(notebook).cells
    for number, cell in enumerate(cells, 1):
        if cell.cell_type != "code":
            continue
        lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in cell.source.splitlines()]
        try:
            tree = ast.parse("\n".join(lines))
        except SyntaxError:
            continue
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        bare = [function.name for function in functions if any(map(_is_bare, function.decorator_list))]
        found += [f"`{name}` in cell {number} of {len(cells)}" for name in bare]
    return found


def _is_bare(decorator: ast.expr) -> bool:
    if not isinstance(decorator, ast.Call):
        return False
    called: Any = decorator.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    told = [k for k in decorator.keywords if k.arg in ("rehearsal", None)]
    return name == "effect" and all(isinstance(k.value, ast.Constant) and k.value.value is False for k in told)
