"""The story as it is told with a plain loop, LangGraph, DBOS, and in a session that keeps nothing.

`python benchmarks/peers/tellers.py KIND FOLDER` tells it, or goes on with it; exit code 0: done, 3: a person has to
decide. Each is written as the documentation of its library has it. What is kept is read by `kept`, and `click` is the
person's yes.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

sys.path.append(str(Path(__file__).parent.parent))

from peers.story import Kept, ask, ask_plan, ask_report, close_ticket, committed

DONE, WAITING = 0, 3
_CLICK, _LOADED = "click.json", ".loaded.json"
_GRACE_S = 1.5


def ready(folder: Path, loaded: Kept | None) -> None:
    """Say that the work begins, and which state it begins with (None where that is not known before)."""
    (folder / _LOADED).write_text(json.dumps(loaded))
    print("ready", flush=True)


# ---------------------------------------------------------------- a loop and a file
class Plain:
    """A loop with a JSON-lines file: each result is written, with fsync, before the next step."""

    def tell(self, folder: Path) -> int:
        """Steps that have a line are not done again."""
        path = folder / "progress.jsonl"
        done = self._lines(folder)
        ready(folder, self.kept(folder))

        def once(step: str, work: Callable[[], Any]) -> Any:
            if step not in done:
                done[step] = work()
                with path.open("a") as file:
                    file.write(json.dumps([step, done[step]]) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                committed()
            return done[step]

        plan = once("plan", ask_plan)
        once("asked", lambda: True)
        if "decision" not in done:
            return WAITING
        findings = [once(f"finding {n}", partial(ask, question)) for n, question in enumerate(plan)]
        once("ticket", close_ticket)
        once("report", lambda: ask_report(findings))
        return DONE

    def kept(self, folder: Path) -> Kept:
        """The lines."""
        done = self._lines(folder)
        return done | {"findings": [done[step] for step in done if step.startswith("finding ")]}

    def click(self, folder: Path) -> None:
        """One more line."""
        with (folder / "progress.jsonl").open("a") as file:
            file.write(json.dumps(["decision", True]) + "\n")

    def _lines(self, folder: Path) -> Kept:
        path = folder / "progress.jsonl"
        return dict(map(json.loads, path.read_text().splitlines())) if path.exists() else {}


class Session:
    """A chat loop that lives in its session: what it knows is in its variables."""

    def tell(self, folder: Path) -> int:
        """From the beginning, each time. The report is what it leaves."""
        ready(folder, None)
        plan = ask_plan()
        committed()
        if not (folder / _CLICK).exists():
            return WAITING
        (folder / _CLICK).unlink()
        findings = [ask(question) for question in plan]
        ticket = close_ticket()
        committed()
        report = ask_report(findings)
        (folder / "product.json").write_text(
            json.dumps({"plan": plan, "findings": findings, "ticket": ticket, "report": report})
        )
        return DONE

    def kept(self, folder: Path) -> Kept:
        """Nothing before its end."""
        product = folder / "product.json"
        return json.loads(product.read_text()) if product.exists() else {}

    def click(self, folder: Path) -> None:
        """The person types yes at the prompt of the next session."""
        (folder / _CLICK).write_text("true")


# ---------------------------------------------------------------- LangGraph
class _State(TypedDict, total=False):
    plan: list[str]
    approved: bool
    findings: Annotated[list[str], operator.add]
    ticket: dict[str, Any]
    report: str


class LangGraph:
    """A graph with one call in each node, on SqliteSaver; the gate is an `interrupt`."""

    def __init__(self, durability: Literal["sync", "async"]) -> None:
        self.durability = durability
        self.config: Any = {"configurable": {"thread_id": "story"}}

    def tell(self, folder: Path) -> int:
        """Begin, go on from the newest checkpoint, or resume the interrupt with the person's answer."""
        from langgraph.types import Command

        with self._graph(folder) as graph:
            snapshot = graph.get_state(self.config)
            ready(folder, snapshot.values or None)
            if "report" in snapshot.values:
                return DONE
            start: Any = None if snapshot.created_at else {"findings": []}
            if snapshot.interrupts and (folder / _CLICK).exists():
                (folder / _CLICK).unlink()
                start = Command(resume=True)
            result = graph.invoke(start, self.config, durability=self.durability)
            return WAITING if "__interrupt__" in result else DONE

    def kept(self, folder: Path) -> Kept:
        """What LangGraph says of the thread; nodes that have ended since the newest checkpoint are in it."""
        if not (folder / "checkpoints.sqlite").exists():
            return {}
        with self._graph(folder) as graph:
            snapshot = graph.get_state(self.config)
            found: Kept = dict(snapshot.values)
            return found | {"asked": bool(snapshot.interrupts), "decision": found.get("approved")}

    def click(self, folder: Path) -> None:
        """The answer, with which the next invocation is begun."""
        (folder / _CLICK).write_text("true")

    @contextlib.contextmanager
    def _graph(self, folder: Path) -> Iterator[Any]:
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.graph import END, START, StateGraph
        from langgraph.types import interrupt

        def approve(state: _State) -> _State:
            committed()
            return {"approved": interrupt({"question": "Look into these?", "plan": state["plan"]})}

        def research(state: _State) -> _State:
            committed()
            return {"findings": [ask(state["plan"][len(state["findings"])])]}

        def close(_: _State) -> _State:
            committed()
            return {"ticket": dict(close_ticket())}

        def report(state: _State) -> _State:
            committed()
            return {"report": ask_report(state["findings"])}

        def after_research(state: _State) -> str:
            return "research" if len(state["findings"]) < len(state["plan"]) else "close"

        builder: Any = StateGraph(_State)
        builder.add_node("plan", lambda _: {"plan": ask_plan()})
        for name, node in {"approve": approve, "research": research, "close": close, "write": report}.items():
            builder.add_node(name, node)
        for one, other in (
            (START, "plan"),
            ("plan", "approve"),
            ("approve", "research"),
            ("close", "write"),
            ("write", END),
        ):
            builder.add_edge(one, other)
        builder.add_conditional_edges("research", after_research, ["research", "close"])
        with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
            yield builder.compile(checkpointer=saver)


# ---------------------------------------------------------------- DBOS
class Dbos:
    """A workflow of steps on SQLite; the gate is a message that it waits for, as in the documentation's examples."""

    def tell(self, folder: Path) -> int:
        """Launch: DBOS recovers what was pending. Ends when the workflow ends, or waits for the person."""
        from dbos import DBOS, SetWorkflowID

        asked = threading.Event()
        DBOS(
            config={
                "name": "story",
                "system_database_url": self._url(folder),
                "log_level": "CRITICAL",
                "application_version": "1",
            }
        )
        story = self._workflow(asked)
        ready(folder, None)
        DBOS.launch()
        if DBOS.get_workflow_status("story") is None:
            with SetWorkflowID("story"):
                DBOS.start_workflow(story)
        handle: Any = DBOS.retrieve_workflow("story")
        waits_since = time.monotonic()
        while (status := handle.get_status().status) in ("PENDING", "ENQUEUED"):
            if not asked.is_set():
                waits_since = time.monotonic()
            elif time.monotonic() - waits_since > _GRACE_S:
                return WAITING
            time.sleep(0.05)
        return DONE if status == "SUCCESS" else 1

    def _workflow(self, asked: threading.Event) -> Any:
        from dbos import DBOS

        @DBOS.step()
        def plan() -> list[str]:
            return ask_plan()

        @DBOS.step()
        def research(question: str) -> str:
            return ask(question)

        @DBOS.step()
        def close() -> dict[str, Any]:
            return dict(close_ticket())

        @DBOS.step()
        def report(findings: list[str]) -> str:
            return ask_report(findings)

        @DBOS.workflow()
        def story() -> None:
            questions = plan()
            committed()
            DBOS.set_event("question", questions)
            asked.set()
            while DBOS.recv("approve", timeout_seconds=3600) is None:
                pass
            asked.clear()
            findings = []
            for question in questions:
                findings.append(research(question))
                committed()
            close()
            committed()
            report(findings)
            committed()

        return story

    def kept(self, folder: Path) -> Kept:
        """The outputs of the steps."""
        if not (folder / "dbos.sqlite").exists():
            return {}
        outputs: dict[str, list[Any]] = {}
        with self._client(folder) as client, contextlib.suppress(Exception):  # killed before its tables were made
            for step in client.list_workflow_steps("story"):
                outputs.setdefault(step["function_name"].rpartition(".")[2], []).append(step["output"])
        one = {name: found[0] for name, found in outputs.items()}
        return {
            "plan": one.get("plan"),
            "asked": "setEvent" in one,
            "decision": any(outputs.get("recv", ())),
            "findings": outputs.get("research", []),
            "ticket": one.get("close"),
            "report": one.get("report"),
        }

    def click(self, folder: Path) -> None:
        """Send the message from another process, by DBOS's client."""
        with self._client(folder) as client:
            client.send("story", True, topic="approve")  # noqa: FBT003 - the message

    @contextlib.contextmanager
    def _client(self, folder: Path) -> Iterator[Any]:
        from dbos import DBOSClient

        client = DBOSClient(system_database_url=self._url(folder))
        try:
            yield client
        finally:
            client.destroy()

    def _url(self, folder: Path) -> str:
        return f"sqlite:///{folder / 'dbos.sqlite'}"


TELLERS: dict[str, Any] = {
    "plain": Plain(),
    "session": Session(),
    "langgraph-sync": LangGraph("sync"),
    "langgraph-async": LangGraph("async"),
    "dbos": Dbos(),
}

if __name__ == "__main__":
    code = TELLERS[sys.argv[1]].tell(Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(code)  # threads of libraries would be waited for
