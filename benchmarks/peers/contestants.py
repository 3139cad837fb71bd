"""What is compared: each appends findings of 1 KB, one by one, and each step is durable before the next one begins.

`python benchmarks/peers/contestants.py NAME FOLDER DONE` is one of them in a process of its own. It opens (or, with
DONE steps done, resumes) what is in the folder, and then does what lines on its standard input say; see `serve`.
Nothing here makes anything less durable than its documentation has it, but for LangGraph's `durability="sync"`, which
makes it more so than its default.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import queue
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Annotated, Any, Protocol, TypedDict

sys.path.append(str(Path(__file__).parent.parent))  # bare.py

THREAD = "t"
_ENDLESS = 10**9


def text_of(number: int) -> str:
    """The finding of a step: 1 KB of words that do not compress to nothing, the same in every process."""
    random = Random(number)
    return " ".join(f"{random.getrandbits(40):010x}" for _ in range(93))


class Contestant(Protocol):
    """One way to do it."""

    def open(self, folder: Path, done: int) -> None:
        """Open it, or resume what a dead process left: the next step is number done + 1."""

    def step(self) -> float:
        """Do the next step; gives the seconds that it took. It is on disk on return."""

    def appeared(self, number: int) -> int:
        """In which step the finding of a step appeared, found as its documentation says."""

    def close(self) -> None:
        """Let go of the files."""


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# ---------------------------------------------------------------- ours
class Text:
    """`thread.step` of a script; a finding is a text."""

    imports = "resumable_nb"

    def open(self, folder: Path, done: int) -> None:
        """The script runs from its beginning: finished steps are skipped."""
        import resumable_nb

        self.thread = resumable_nb.open(THREAD, db=folder / "store.duckdb", say=lambda _: None)
        self.number = 0
        for _ in range(done):
            self.step()

    def value(self, number: int) -> object:
        """What is appended."""
        return text_of(number)

    def step(self) -> float:
        """One step that appends one finding."""
        self.number += 1
        value = self.value(self.number)

        def work(state: Any, value: object = value) -> None:
            state.update(findings=[value])

        return _timed(lambda: self.thread.step(f"step {self.number}", work))

    def appeared(self, number: int) -> int:
        """Ask the store, by SQL."""
        sql = "SELECT min_by(step, seq) AS step FROM findings WHERE thread_id = ? AND finding->>'$' = ?"
        return int(self.thread.sql(sql, [THREAD, text_of(number)]).step[0].removeprefix("step "))

    def close(self) -> None:
        """Close thread and file."""
        self.thread.close()
        self.thread.store.close()


class Dict(Text):
    """The same; a finding is a dict, as when it has a source and a place."""

    def value(self, number: int) -> object:
        """A dict with the text."""
        return {"quote": text_of(number)}

    def appeared(self, number: int) -> int:
        """Ask the store, by SQL."""
        sql = "SELECT min_by(step, seq) AS step FROM findings WHERE thread_id = ? AND finding->>'quote' = ?"
        return int(self.thread.sql(sql, [THREAD, text_of(number)]).step[0].removeprefix("step "))


# ---------------------------------------------------------------- LangGraph
class LangGraph:
    """A graph with one node that goes round; each superstep appends one finding to a list with a reducer."""

    imports = "langgraph.graph langgraph.checkpoint.sqlite"
    channel = False

    def open(self, folder: Path, done: int) -> None:
        """Stream from the start, or, with no input, from the newest checkpoint."""
        import sqlite3

        from langgraph.checkpoint.sqlite import SqliteSaver

        self.connection = sqlite3.connect(folder / "checkpoints.sqlite", check_same_thread=False)
        self.graph = self._build(SqliteSaver(self.connection))
        self.config = {"configurable": {"thread_id": THREAD}, "recursion_limit": _ENDLESS}
        state: Any = None if done else {"findings": []}
        self.steps = self.graph.stream(state, self.config, stream_mode="updates", durability="sync")

    def _build(self, saver: Any) -> Any:
        import operator

        from langgraph.graph import START, StateGraph

        kind: Any = operator.add
        if self.channel:
            from langgraph.channels.delta import DeltaChannel

            kind = DeltaChannel(lambda state, writes: [*state, *itertools.chain.from_iterable(writes)])
        state = TypedDict("state", {"findings": Annotated[list[str], kind]})  # noqa: UP013
        builder = StateGraph(state)
        builder.add_node("find", lambda state: {"findings": [text_of(len(state["findings"]) + 1)]})
        builder.add_edge(START, "find")
        builder.add_edge("find", "find")
        return builder.compile(checkpointer=saver)

    def step(self) -> float:
        """One superstep; the checkpoint of the one before is waited for at its start."""
        return _timed(lambda: next(self.steps))

    def appeared(self, number: int) -> int:
        """Walk the history, newest first."""
        text, found = text_of(number), 0
        for snapshot in self.graph.get_state_history({"configurable": {"thread_id": THREAD}}):
            if text not in snapshot.values.get("findings", ()):
                break
            found = snapshot.metadata["step"]
        return found

    def close(self) -> None:
        """Close the stream and the file."""
        self.steps.close()
        self.connection.close()


class LangGraphDelta(LangGraph):
    """The same on a `DeltaChannel` (beta) with its own snapshot frequency."""

    imports = "langgraph.graph langgraph.checkpoint.sqlite langgraph.channels.delta"
    channel = True


# ---------------------------------------------------------------- loops that belong to a library
class _Turns:
    """Lets a loop that runs inside a library take one step at a time. The steps that were done are passed at once."""

    def open(self, folder: Path, done: int) -> None:
        """Start the loop in a thread of its own."""
        self.done = done
        self.go, self.took = threading.Semaphore(0), queue.Queue[float | BaseException]()
        self.start(folder)

    def start(self, folder: Path) -> None:
        """Start or resume the library's work; it calls `loop`."""
        raise NotImplementedError

    def loop(self, step: Callable[[int], object]) -> None:
        """The body of the library's workflow."""
        try:
            for number in itertools.count(1):
                if number <= self.done:
                    step(number)
                    continue
                self.go.acquire()
                began = time.perf_counter()
                step(number)
                self.took.put(time.perf_counter() - began)
        except BaseException as error:
            self.took.put(error)
            raise

    def step(self) -> float:
        """Let the loop do one step; the time is taken inside."""
        self.go.release()
        took = self.took.get()
        if isinstance(took, BaseException):
            raise took
        return took


class LangGraphFunctional(_Turns):
    """The functional API: an entrypoint that loops over a task."""

    imports = "langgraph.func langgraph.checkpoint.sqlite"

    def start(self, folder: Path) -> None:
        """Invoke it; after a crash with no input: tasks that are done give their results."""
        import sqlite3

        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.func import entrypoint, task

        self.connection = sqlite3.connect(folder / "checkpoints.sqlite", check_same_thread=False)

        @task
        def find(number: int) -> str:
            return text_of(number)

        @entrypoint(checkpointer=SqliteSaver(self.connection))
        def research(_: Any) -> None:
            self.loop(lambda number: find(number).result())

        config = {"configurable": {"thread_id": THREAD}}
        state = None if self.done else {"query": ""}
        run = threading.Thread(target=research.invoke, args=(state, config), kwargs={"durability": "sync"}, daemon=True)
        run.start()

    def appeared(self, number: int) -> int:
        """There is one checkpoint for the whole entrypoint: its history does not say."""
        raise NotImplementedError

    def close(self) -> None:
        """The loop is in the middle; the file is closed under it."""
        self.connection.close()


class Dbos(_Turns):
    """One workflow that loops over a step, on SQLite, which is what DBOS uses where nothing else is configured."""

    imports = "dbos"

    def start(self, folder: Path) -> None:
        """Launch it: workflows that a dead process left are recovered by DBOS itself."""
        from dbos import DBOS, SetWorkflowID

        # The version is a hash of the workflows' source by default; this file is all of it.
        DBOS(
            config={
                "name": "peer",
                "system_database_url": f"sqlite:///{folder / 'dbos.sqlite'}",
                "log_level": "ERROR",
                "application_version": "1",
            }
        )

        @DBOS.step()
        def find(number: int) -> str:
            return text_of(number)

        @DBOS.workflow()
        def research() -> None:
            self.loop(find)

        DBOS.launch()
        if not self.done:
            with SetWorkflowID(THREAD):
                DBOS.start_workflow(research)

    def appeared(self, number: int) -> int:
        """Look through the outputs of the steps."""
        from dbos import DBOS

        text = text_of(number)
        return next(int(s["function_id"]) for s in DBOS.list_workflow_steps(THREAD) if s["output"] == text)

    def close(self) -> None:
        """Stop it; the workflow stays pending."""
        from dbos import DBOS

        DBOS.destroy()


class Chowki(_Turns):
    """One workflow that loops over a step, with its limit of 25 steps a run lifted."""

    imports = "chowki"

    def start(self, folder: Path) -> None:
        """Run it, or recover and rerun it as its README says."""
        import chowki

        limits = chowki.GuardrailConfig(max_steps_per_run=_ENDLESS)
        self.engine = chowki.configure(
            db_path=folder / "chowki.sqlite", resume_secret=b"0123456789abcdef" * 2, guardrails=limits
        )

        @chowki.step
        def find(number: int) -> str:
            return text_of(number)

        @chowki.workflow
        def research() -> None:
            self.loop(find)

        def run() -> None:
            if self.done:
                chowki.recover_runs(self.engine)
                chowki.rerun(THREAD)
            else:
                research(run_id=THREAD)

        threading.Thread(target=run, daemon=True).start()

    def appeared(self, number: int) -> int:
        """Look through the results of the steps."""
        import chowki
        from chowki.state.codec import decode_state

        text = text_of(number)
        steps = chowki.inspect_run(THREAD).steps
        return next(place for place, step in enumerate(steps, 1) if step.result and decode_state(step.result) == text)

    def close(self) -> None:
        """The loop is in the middle; the file is closed under it."""
        self.engine.close()


# ---------------------------------------------------------------- plain files and floors
class JsonLines:
    """A line of JSON for each finding, with fsync."""

    imports = "json"

    def open(self, folder: Path, done: int) -> None:
        """Read all that is there."""
        self.path = folder / "findings.jsonl"
        lines = self.path.read_text().splitlines() if done else []
        self.findings = [json.loads(line)["finding"] for line in lines]
        self.file = self.path.open("a")

    def step(self) -> float:
        """Append, flush, fsync."""
        finding = text_of(len(self.findings) + 1)
        self.findings.append(finding)
        return _timed(lambda: self._append(finding))

    def _append(self, finding: str) -> None:
        self.file.write(json.dumps({"finding": finding}) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def appeared(self, number: int) -> int:
        """Read the file."""
        text = text_of(number)
        with self.path.open() as file:
            return next(place for place, line in enumerate(file, 1) if json.loads(line)["finding"] == text)

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class BareDuckDB:
    """A floor: one INSERT of one row of the same size, in a file of the same format, on an open connection."""

    imports = "duckdb"

    def open(self, folder: Path, done: int) -> None:
        """A table of the journal's columns."""
        import duckdb
        from bare import bare_table

        self.number = done
        if done:
            self.connection = duckdb.connect(str(folder / "bare.duckdb"))
        else:
            self.connection = bare_table(folder)

    def step(self) -> float:
        """One commit."""
        from bare import commit

        self.number += 1
        changes = json.dumps({"append": {"findings": [text_of(self.number)]}})
        return _timed(lambda: commit(self.connection, self.number, changes, "{}"))

    def appeared(self, number: int) -> int:
        """Nothing to compare: a floor."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


class BareFile:
    """A floor: 1 KB written to the end of a file, and fdatasync."""

    imports = "json"

    def open(self, folder: Path, done: int) -> None:
        """Open the file."""
        self.file = os.open(folder / "bare.bin", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.number = done

    def step(self) -> float:
        """Write and fdatasync."""
        self.number += 1
        data = text_of(self.number).encode()
        return _timed(lambda: self._append(data))

    def _append(self, data: bytes) -> None:
        os.write(self.file, data)
        os.fdatasync(self.file)

    def appeared(self, number: int) -> int:
        """Nothing to compare: a floor."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""
        os.close(self.file)


CONTESTANTS: dict[str, type[Any]] = {
    "resumable_nb, text": Text,
    "resumable_nb, dict": Dict,
    "LangGraph": LangGraph,
    "LangGraph, DeltaChannel": LangGraphDelta,
    "LangGraph, functional": LangGraphFunctional,
    "DBOS": Dbos,
    "chowki": Chowki,
    "JSON lines, fsync": JsonLines,
    "bare DuckDB commit": BareDuckDB,
    "bare fdatasync": BareFile,
}


# ---------------------------------------------------------------- a process of its own
def memory_mb(field: str = "VmRSS") -> float:
    """What this process has in memory now (`VmRSS`), or had at most since `forget_peak` (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def forget_peak() -> None:
    """Count `VmHWM` from here on."""
    Path("/proc/self/clear_refs").write_text("5")


def serve(contestant: Any, folder: Path, done: int) -> None:
    """Answer each line of standard input with a line of JSON.

    `open` → seconds; `steps N` → a list of seconds; `appeared N` → step, seconds and the megabytes that it took;
    `memory` → megabytes; `close` → bytes on disk, and it ends.
    """
    for line in sys.stdin:
        what, _, number = line.strip().partition(" ")
        answer: object
        if what == "open":
            answer = _timed(lambda: contestant.open(folder, done))
        elif what == "steps":
            answer = [contestant.step() for _ in range(int(number))]
        elif what == "appeared":
            answer = _asked(contestant, int(number))
        elif what == "memory":
            answer = memory_mb()
        else:
            contestant.close()
            answer = None
        sys.__stdout__.write(json.dumps(answer) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
        if what == "close":
            os._exit(0)  # loops inside libraries would be waited for


def _asked(contestant: Any, number: int) -> list[float]:
    forget_peak()
    before, began = memory_mb(), time.perf_counter()
    step = contestant.appeared(number)
    return [step, time.perf_counter() - began, memory_mb("VmHWM") - before]


def main(name: str, folder: Path, done: int) -> None:
    """Import what it needs, say how long that took and what was in memory before, and serve."""
    kind, bare_mb = CONTESTANTS[name], memory_mb()
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    for module in kind.imports.split():
        importlib.import_module(module)
    if kind.imports == "resumable_nb":
        _ = sys.modules["resumable_nb"].open  # names are imported when they are used
    imported = time.perf_counter() - began
    sys.__stdout__.write(json.dumps([imported, bare_mb]) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]
    sys.stdout = sys.stderr
    serve(kind(), folder, done)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
