"""Start a notebook again with a new kernel when one dies, and say what happened."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, wait_exponential

from resumable_nb.document import Document
from resumable_nb.errors import ResumableError
from resumable_nb.journal import Store
from resumable_nb.parameters import inject
from resumable_nb.pending import about, waiting_gates
from resumable_nb.runner.ended import AT_ITS_START, Look, Outcome, Run
from resumable_nb.runner.kernel import INTERRUPTED_S, SETTLE_S, Client, take_signals
from resumable_nb.spending import Spending
from resumable_nb.terminal import plain


@dataclass
class Runner:
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
    client: Client | None = None
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
    ) -> Runner:
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
        """Take the notebook to its end, and say how it went."""
        self.task, self.signalled = asyncio.current_task(), on_signal or self.on_signal
        self.spending = Spending()
        take_signals(self.signalled)
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
            self.say("stopping: answers on their way are waited for. Ctrl-C again stops at once")
            loop.call_later(INTERRUPTED_S, self._give_up)

    def _give_up(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def _one_kernel(self) -> Run:
        env = self.env if not self.deaths else {k: v for k, v in self.env.items() if k != "RESUMABLE_NB_FAILPOINT"}
        self.client = Client(
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
            take_signals(self.signalled)  # nbclient has taken its own away, and ours with them

    async def _all_cells(self, client: Client) -> Run:
        for index in range(len(self.document.content.cells)):
            run = await self._one_cell(client, index)
            if run is not None:
                return run
        client.set_widgets_metadata()
        self.document.save()
        return self._ended("done")

    async def _one_cell(self, client: Client, index: int) -> Run | None:
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
            client.end_children()
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

    async def _account(self, client: Client) -> bool:
        """Ask the kernel what its thread has spent since this run began; and whether the last cell was skipped."""
        spending, told = self.spending, ""
        asked = f"get_ipython().resumable_nb.account({spending.since.isoformat()!r})"
        with contextlib.suppress(TimeoutError, DeadKernelError):
            told = await asyncio.wait_for(client.evaluate(asked), SETTLE_S)
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

    async def _note_death(self, client: Client, index: int, label: str) -> None:
        self.deaths.append(f"in {label}{await client.cause_of_death()}")
        self.document.note(
            index, f"[resumable-nb run] The kernel died in this cell (death {len(self.deaths)} of this run)."
        )

    def _announce_restart(self, state: RetryCallState) -> None:
        pause_s = state.next_action.sleep if state.next_action else 0
        error = state.outcome.exception() if state.outcome else None
        why = f" ({error})" if self.deaths[-1] == AT_ITS_START and error else ""
        self.say(
            f"the kernel died {self.deaths[-1]}{why}: starting a new one in {pause_s:g} s "
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
