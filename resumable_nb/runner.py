"""Take a notebook to its end without a browser, through kernels that die.

Every cell is sent with its id, the order of all cells and the notebook's path, so that the rules of place hold
as in JupyterLab. When the kernel dies, a new one starts at the first cell again: steps that are done are skipped there.
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import contextlib
import hashlib
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.session import Session
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbclient.util import ensure_async
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, wait_exponential

from resumable_nb.document import Document
from resumable_nb.errors import ResumableError
from resumable_nb.journal import Store
from resumable_nb.parameters import inject
from resumable_nb.pending import about, waiting_gates
from resumable_nb.spending import Spending
from resumable_nb.terminal import counted, plain

Outcome = Literal["done", "failed", "waiting", "stopped"]
EXIT_CODES: dict[Outcome, int] = {"done": 0, "failed": 1, "waiting": 3, "stopped": 130}
AT_ITS_START = "at its start"
_SETTLE_S = 5
_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # nbclient reports to it what `Run.message` says in plain words


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a run of a notebook ended.

    Attributes:
        outcome: `done`; `failed` (a cell raised, timed out, or killed every kernel); `waiting` (a step waits for a
            person's decision); `stopped` (Ctrl-C or SIGTERM).
        message: what happened and what to do next, without control characters; "" when done.
        output: the executed notebook, valid at any time, whatever the outcome.
        restarts: kernels started after the first one.
        deaths: for each kernel that died, in which cell and by what.
        calls: answers that models gave since this run began, as the stores of its threads have them: of all kernels.
        tokens: billed since then.
    """

    outcome: Outcome
    message: str
    output: Path
    restarts: int
    deaths: tuple[str, ...]
    calls: int = 0
    tokens: int = 0

    @property
    def exit_code(self) -> int:
        """The exit code of `resumable-nb run`."""
        return EXIT_CODES[self.outcome]

    def __str__(self) -> str:
        counts = {"call": self.calls, "token": self.tokens, "restart": self.restarts}
        numbers = ", ".join(counted(number, what) for what, number in counts.items())
        return f"{self.message}\n{numbers}" if self.message else f"done: {self.output} ({numbers})"


@dataclass(frozen=True)
class Look:
    """What a verifier wants of a run. Its kernels end by SIGKILL, as in a crash, not by closing their thread.

    Attributes:
        each: Python that is evaluated in the kernel after each cell that ended well; it changes nothing.
        last: the same, in place of it, after the last cell.
        told: gets what the expression gave, as text.
        began: gets the process number of each kernel.
    """

    each: str
    last: str
    told: Callable[[str], None]
    began: Callable[[int], None]


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
    runner = _Runner.of(
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
        runners[thread] = _Runner.of(
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


async def _run_together(runners: Mapping[str, _Runner], jobs: int) -> dict[str, Run]:
    free = asyncio.Semaphore(jobs)

    def on_signal() -> None:
        for runner in runners.values():
            runner.on_signal()

    async def one(runner: _Runner) -> Run:
        async with free:
            return runner.stopped() if runner.stopping else await runner.run(on_signal)

    found = await asyncio.gather(*(one(runner) for runner in runners.values()))
    return dict(zip(runners, found, strict=True))


class _PlacedSession(Session):
    """Sends with every execute request where its cell stands; nbclient alone sends not even the cell's id."""

    place: Mapping[str, object] = {}

    def msg(
        self,
        msg_type: str,
        content: dict[str, Any] | None = None,
        parent: dict[str, Any] | None = None,
        header: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        if msg_type == "execute_request":
            metadata = {**(metadata or {}), **self.place}
        return super().msg(msg_type, content, parent, header, metadata)


class _ThisPython(KernelSpecManager):
    """Kernels that are installed, by name; for `python3`, and for names that are not installed, this Python."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        if kernel_name != "python3":
            with contextlib.suppress(NoSuchKernel):
                return super().get_kernel_spec(kernel_name)
        try:  # what ipykernel says about itself, such as that it can encrypt
            spec = KernelSpec.from_resource_dir(str(Path(sys.prefix) / "share" / "jupyter" / "kernels" / "python3"))
        except OSError:
            spec = KernelSpec(display_name="Python", language="python")
        spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return spec


def _kernel_manager(name: str) -> AsyncKernelManager:
    manager = AsyncKernelManager(kernel_name=name, kernel_spec_manager=_ThisPython())
    if manager.has_trait("transport_encryption"):  # since jupyter_client 8.10; others on this machine can listen
        manager.set_trait("transport_encryption", "auto")
    return manager


class _Client(NotebookClient):
    """One kernel's way through the notebook."""

    def __init__(
        self,
        document: Document,
        *,
        cell_timeout_s: float | None,
        on_signal: Callable[[], None],
        end: Literal["graceful", "immediate"] = "graceful",
    ) -> None:
        name = document.content.metadata.get("kernelspec", {}).get("name") or "python3"
        manager = _kernel_manager(name)
        manager.session = _PlacedSession(parent=manager)
        folder = {"metadata": {"path": str(document.source.parent)}}
        super().__init__(
            document.content,
            km=manager,
            resources=folder,
            timeout_func=lambda _: cell_timeout_s,
            log=_log,
            shutdown_kernel=end,
        )
        self.on_cell_error = lambda cell, **_: document.failed.add(cell.id)
        self.owns_km = True  # the kernel ends with this client, although we made its manager
        self._document, self._on_signal = document, on_signal

    async def async_start_new_kernel(self, **options: Any) -> None:
        _take_signals(self._on_signal)  # nbclient's own handlers would end the kernel under a running cell
        await super().async_start_new_kernel(**options)

    async def async_execute_cell(self, cell: Any, cell_index: int, *args: Any, **options: Any) -> Any:
        assert self.kc is not None  # this runs within `async_setup_kernel`
        self.kc.session.place = self._document.place(cell.id)
        return await super().async_execute_cell(cell, cell_index, *args, **options)

    async def interrupt(self) -> None:
        """Interrupt the running cell, as the stop button does."""
        if self.km is not None and self.km.has_kernel:
            await ensure_async(self.km.interrupt_kernel())

    async def settle(self) -> None:
        """Give the kernel a moment to write down how its cell ended."""
        if self.kc is not None:
            with contextlib.suppress(TimeoutError, DeadKernelError):
                await asyncio.wait_for(self.async_wait_for_reply(self.kc.kernel_info()), _SETTLE_S)

    @property
    def pid(self) -> int:
        """The kernel's process; 0 where it is not known, as for one on another machine."""
        return int(getattr(self.km and self.km.provisioner, "pid", 0) or 0)

    async def evaluate(self, expression: str) -> str:
        """What an expression gives in the kernel, as text; "" where it raises. No cell has run by this."""
        assert self.kc is not None  # this runs within `async_setup_kernel`
        asked = self.kc.execute("", silent=True, store_history=False, user_expressions={"found": expression})
        reply = await self.async_wait_for_reply(asked)
        found = (reply or {}).get("content", {}).get("user_expressions", {}).get("found", {})
        return str(found.get("data", {}).get("text/plain", ""))

    async def cause_of_death(self) -> str:
        """How the kernel's process ended, such as " by SIGKILL"; "" where the system does not say."""
        provisioner = self.km and self.km.provisioner
        code = await provisioner.poll() if provisioner else None
        return "" if code is None else f" by {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"

    async def end(self) -> None:
        """End a kernel that was still being started: nbclient ends it only later."""
        if self.km is not None and self.km.has_kernel:
            await ensure_async(self.km.shutdown_kernel(now=True))
        atexit.unregister(self._cleanup_kernel)  # nbclient's, for a kernel that is still alive then


def _take_signals(on_signal: Callable[[], None]) -> None:
    with contextlib.suppress(ValueError, RuntimeError):  # not the main thread: nobody presses Ctrl-C there
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, on_signal)


@dataclass
class _Runner:
    """The state of one run: how many kernels died, and where."""

    document: Document
    env: dict[str, str]
    max_restarts: int
    cell_timeout_s: float | None
    say: Callable[[str], None]
    look: Look | None = None
    deaths: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    stopping: bool = False
    client: _Client | None = None
    task: asyncio.Task[Any] | None = None
    signalled: Callable[[], None] = lambda: None
    spending: Spending = field(default_factory=Spending)

    @classmethod
    def of(
        cls,
        notebook: Path,
        output: Path | None,
        *,
        thread: str | None,
        db: Path | None,
        parameters: Mapping[str, object],
        env: Mapping[str, str],
        say: Callable[[str], None],
        **options: Any,
    ) -> _Runner:
        """What `run_notebook` is asked for."""
        document = Document.read(notebook, output)
        if parameters:
            inject(document.content, parameters, say)
        environment = {**env, "JPY_SESSION_NAME": str(document.source)}
        if thread is not None:
            environment["RESUMABLE_NB_THREAD"] = thread
        if db is not None:
            environment["RESUMABLE_NB_DB"] = str(db)
        if environment.get("RESUMABLE_NB_DB"):
            environment["RESUMABLE_NB_DB"] = str(Path(environment["RESUMABLE_NB_DB"]).absolute())
        return cls(document, environment, say=say, **options)

    async def run(self, on_signal: Callable[[], None] | None = None) -> Run:
        self.task, self.signalled = asyncio.current_task(), on_signal or self.on_signal
        self.spending = Spending()
        _take_signals(self.signalled)
        ended = await self._all_kernels()
        if self.spending.is_behind:
            await self._read_stores()
        if ended.outcome == "waiting":
            ended = replace(ended, message="\n".join([ended.message, *self._asked()]))
        calls, tokens = self.spending.total
        return replace(ended, calls=calls, tokens=tokens)

    async def _all_kernels(self) -> Run:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(DeadKernelError),
            stop=stop_after_attempt(self.max_restarts + 1),
            wait=wait_exponential(multiplier=0.5, max=30),
            before_sleep=self._announce_restart,
            reraise=True,
        )
        try:
            return await retrying(self._one_kernel)
        except DeadKernelError:
            return self._ended("failed", self._death_message())
        except asyncio.CancelledError:
            if not self.stopping:
                raise
            return self.stopped()

    def on_signal(self) -> None:
        """Ctrl-C: the first one interrupts the cell, so that it ends as in a notebook; a second one ends the kernel."""
        again, self.stopping = self.stopping, True
        if again or self.client is None or not self.client.code_cells_executed:
            self._give_up()
        else:
            loop = asyncio.get_running_loop()
            self._interrupting = loop.create_task(self.client.interrupt())
            loop.call_later(_SETTLE_S, self._give_up)

    def _give_up(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def _one_kernel(self) -> Run:
        env = self.env if not self.deaths else {k: v for k, v in self.env.items() if k != "RESUMABLE_NB_FAILPOINT"}
        self.client = _Client(
            self.document,
            cell_timeout_s=self.cell_timeout_s,
            on_signal=self.signalled,
            end="immediate" if self.look else "graceful",
        )
        started = False
        self.document.failed.clear()
        try:
            async with self.client.async_setup_kernel(env=env):
                started = True
                if self.look is not None:
                    self.look.began(self.client.pid)
                return await self._all_cells(self.client)
        except RuntimeError as error:
            if self.stopping:
                return self.stopped()
            if started:
                raise
            self.deaths.append(AT_ITS_START)
            raise DeadKernelError(str(error)) from error
        finally:
            await self.client.end()
            _take_signals(self.signalled)  # nbclient has taken its own away, and ours with them

    async def _all_cells(self, client: _Client) -> Run:
        for index in range(len(self.document.content.cells)):
            run = await self._one_cell(client, index)
            if run is not None:
                return run
        client.set_widgets_metadata()
        self.document.save()
        return self._ended("done")

    async def _one_cell(self, client: _Client, index: int) -> Run | None:
        """Run a cell and save the notebook, however it went. None: go on with the next one."""
        restart = f" (restart {len(self.deaths)})" if self.deaths else ""
        began, cell, label = time.monotonic(), self.document.content.cells[index], self.document.label(index)
        how, run, before = "ok", None, self.spending.total
        try:
            await client.async_execute_cell(cell, index)
            if cell.cell_type == "code" and await self._account(client):
                how = "skipped"
            if self.look is not None and cell.cell_type == "code":
                is_last = not any(c.cell_type == "code" for c in self.document.content.cells[index + 1 :])
                self.look.told(await client.evaluate(self.look.last if is_last else self.look.each))
        except CellExecutionError as error:
            run = self._raised(label, error)
            how = "interrupted" if self.stopping else run.outcome
            await self._account(client)
        except CellTimeoutError:
            how, run = "timed out", self._ended("failed", f"{label} took longer than {self.cell_timeout_s:g} s.")
            await client.interrupt()
            await client.settle()
            await self._account(client)
        except DeadKernelError:
            how, self.spending.is_behind = "interrupted" if self.stopping else "the kernel died", True
            if not self.stopping:
                await self._note_death(client, index, label)
                await self._read_stores()
            raise
        except asyncio.CancelledError:
            how, self.spending.is_behind = "interrupted", True
            raise
        finally:
            self.document.save()
            self._tell_resume()
            if cell.cell_type == "code" and cell.source.strip():
                took = f"{time.monotonic() - began:.1f} s{self.spending.more_than(before)}"
                self.say(plain(f"{label}: {how}, {took}{restart}"))
        return self.stopped(label) if self.stopping else run

    async def _account(self, client: _Client) -> bool:
        """Ask the kernel what its thread has spent since this run began; and whether the last cell was skipped."""
        spending, told = self.spending, ""
        asked = f"get_ipython().resumable_nb.account({spending.since.isoformat()!r})"
        with contextlib.suppress(TimeoutError, DeadKernelError):
            told = await asyncio.wait_for(client.evaluate(asked), _SETTLE_S)
        skipped, path, thread_id, *spent = ast.literal_eval(told or "(False, '', '')")
        if path:
            spending.by_thread[path, thread_id] = tuple(spent)
        spending.is_behind = not path and bool(spending.by_thread)
        return bool(skipped)

    async def _read_stores(self) -> None:
        """What a kernel could not tell. A verifier wants the store as the kernel left it."""
        if self.look is None:
            await asyncio.to_thread(self.spending.read)

    def _asked(self) -> list[str]:
        """What is to be approved, of each gate that waits in the threads of this run."""
        lines = []
        for path, thread_id in self.spending.by_thread:
            with contextlib.suppress(ResumableError):  # the message has the command that tells it
                store = Store.open(Path(path), create=False)
                for gate in waiting_gates(store, thread_id):
                    lines += [f"{gate} asks about:", *about(gate, store, thread_id)]
        return lines

    def _tell_resume(self) -> None:
        """Say what is new in the panels that follow a resume."""
        lines = self.document.resume_lines()
        for line in lines:
            if line not in self.told:
                self.say(plain(line))
        self.told = lines

    async def _note_death(self, client: _Client, index: int, label: str) -> None:
        self.deaths.append(f"in {label}{await client.cause_of_death()}")
        self.document.note(
            index, f"[resumable-nb run] The kernel died in this cell (death {len(self.deaths)} of this run)."
        )

    def _announce_restart(self, state: RetryCallState) -> None:
        pause_s = state.next_action.sleep if state.next_action else 0
        self.say(
            f"the kernel died {self.deaths[-1]}: starting a new one in {pause_s:g} s "
            f"(restart {len(self.deaths)} of at most {self.max_restarts})"
        )

    def _death_message(self) -> str:
        times = f"{len(self.deaths)} times" if len(self.deaths) > 1 else "once"
        where = self.deaths[0] if len(set(self.deaths)) == 1 else "; ".join(self.deaths)
        each = "each time " if len(self.deaths) > 1 and len(set(self.deaths)) == 1 else ""
        return (
            f"The kernel died {times}, {each}{where}. What was journaled before is kept: change the cell, or give the "
            "kernel more memory if the system killed it, and run the same command again."
        )

    def _raised(self, label: str, error: CellExecutionError) -> Run:
        if error.ename == "Paused":
            return self._ended("waiting", f"{label} waits for a decision.\n{error.evalue}")
        return self._ended(
            "failed", f"{label} failed: {error.ename}: {error.evalue}\nThe traceback is in {self.document.output}"
        )

    def stopped(self, label: str = "") -> Run:
        """How it ended, if by Ctrl-C."""
        return self._ended("stopped", f"Stopped{label and ' at '}{label}. Run the same command again to go on.")

    def _ended(self, outcome: Outcome, message: str = "") -> Run:
        deaths = tuple(self.deaths)
        return Run(
            outcome=outcome,
            message=plain(message),
            output=self.document.output,
            restarts=min(len(deaths), self.max_restarts),
            deaths=deaths,
        )
