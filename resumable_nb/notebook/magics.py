"""`%resumable`, `%%resumable`, `%%resumable_sql`: they parse, call and show."""

from __future__ import annotations

import argparse
import json
import keyword
import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import resumable_nb
from resumable_nb import gates, payloads, receipts
from resumable_nb.errors import UsageError
from resumable_nb.journal import Row
from resumable_nb.notebook import panels, source
from resumable_nb.notebook.accounts import accounts
from resumable_nb.notebook.extension import Extension, no_step_here
from resumable_nb.notebook.signing import sign, trusted
from resumable_nb.notebook.summary import summary
from resumable_nb.notebook.tables import Tables
from resumable_nb.opening import open_notebook
from resumable_nb.state import State
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    import pandas as pd
    from IPython.core.interactiveshell import InteractiveShell

    from resumable_nb.thread import Thread

HELP = """Durable steps, and threads of research.

    %%resumable NAME [--approve TEXT] [--fresh]
        Make this cell a step of the open thread. NAME is any text; with spaces it stands in quotes. Calls to models,
        effects and the state are journaled as they happen. A step that ended with the same code, inputs and state is
        not run again: names, state and outputs come from the journal.
        --approve TEXT   a person must answer TEXT before the step runs
        --fresh          retire the recorded answers at every run of this cell: it always asks anew, and pays

    %resumable open THREAD [--db PATH] [--query TEXT] [--state NAME] [--continue] [--take-over]
        Open a thread of the store PATH (default: research.duckdb in this folder), making both where they are missing.
        --query TEXT     the question that the thread starts with
        --state NAME     the class of the state, a subclass of `ResearchState` that the notebook defines
        --continue       start from what the thread knows now, not from its beginning
        --take-over      take it from another session that is alive; that one can write no more
        RESUMABLE_NB_THREAD and RESUMABLE_NB_DB in the environment outrank THREAD and PATH.
    %resumable status            the steps, what was spent and saved, what is left of a budget
    %resumable timeline          a picture of it: steps, runs, costs; a click shows states, changes, and what models saw
    %resumable threads [--db PATH]
        all threads of the store; a click opens the picture of one
    %resumable history           the checkpoints
    %resumable diff A B          what differs between two states: after the rows A and B, or after the steps A and B
    %resumable plot [spending|money|saved|recoveries]
        what was spent over time by step, in tokens or US dollars; what resuming has saved; how long it took
    %resumable fork SEQ NEW      a new thread NEW that starts with this one up to row SEQ, or up to the step SEQ
        A row can also be `newest`, `start`, or -1, -2, …, which count back.
    %resumable back STEP [--run N]
        go back to the state after the last run of STEP, or after its run N (STEP can also be a checkpoint's number, or
        `start`): the cells above count as they were then, the cells below are to be run again from there. What came
        later is kept; `%resumable back newest` goes forward again, or the number of that checkpoint, which is said
    %resumable fresh NAME        retire the answers of a step: it runs and asks anew
    %resumable approve NAME [--comment TEXT] [--payload JSON|@FILE] [--gate ROW]
    %resumable reject NAME [--comment TEXT] [--gate ROW]
        decide what the step NAME waits for (outside steps: NAME is the question itself); run its cell again to go on
    %resumable settle KEY --happened RECEIPT | --did-not-happen
        say what became of an effect in doubt; run its cell again to go on
    %resumable trust             show what steps of this thread showed in full, as if you had run them
    %resumable sql SELECT ...    ask the store; gives a DataFrame, as `%%resumable_sql` does
    %resumable close             leave the thread
"""
SQL_HELP = """Ask the store of the open thread: one SELECT or EXPLAIN over its views (threads, steps, llm_calls, ...).

    %%resumable_sql [VARIABLE]
    SELECT ... WHERE thread_id = $thread

`$thread` is the thread that is open. Gives a DataFrame, and binds VARIABLE to it if one is named. A notebook shows it
as a table to sort, search and page through, if `itables` is installed; a click on a cell shows its whole text.
"""
USAGES = {
    "open": "%resumable open THREAD [--db PATH] [--query TEXT] [--state NAME] [--continue] [--take-over]",
    "status": "%resumable status",
    "timeline": "%resumable timeline",
    "threads": "%resumable threads [--db PATH]",
    "history": "%resumable history",
    "diff": "%resumable diff A B   (each a row as `%resumable history` numbers them, a step, `newest`, or -1, -2, …)",
    "plot": "%resumable plot [spending|money|saved|recoveries]",
    "fork": "%resumable fork SEQ NEW   (a row of this thread, a step, or `newest`; and a name for the new one)",
    "back": "%resumable back STEP [--run N]   (a step, a checkpoint's number, `newest` or `start`)",
    "fresh": "%resumable fresh NAME",
    "approve": "%resumable approve NAME [--comment TEXT] [--payload JSON|@FILE] [--gate ROW]",
    "reject": "%resumable reject NAME [--comment TEXT] [--gate ROW]",
    "settle": "%resumable settle KEY --happened RECEIPT | --did-not-happen [--comment TEXT]",
    "trust": "%resumable trust",
    "sql": "%resumable sql SELECT ...",
    "close": "%resumable close",
}
OPEN_OPTIONS = ("--db", "--query", "--state", "--continue", "--take-over")
PLOTS: dict[str, Callable[[Thread], object]] = {
    "spending": lambda thread: thread.plot_spending(),
    "money": lambda thread: thread.plot_spending(unit="money"),
    "saved": lambda thread: thread.plot_saved(),
    "recoveries": lambda thread: thread.plot_recoveries(),
}
STEP_OPTIONS = ("--approve", "--fresh")


class _Arguments(argparse.ArgumentParser):
    """Reads the words of one subcommand. Wrong ones are a UsageError."""

    def __init__(self, command: str, *names: str, **types: Callable[[str], Any]) -> None:
        super().__init__(prog=f"%resumable {command}", add_help=False, allow_abbrev=False)
        self._usage = f"usage: {USAGES[command]}"
        for name in names:
            self.add_argument(name, type=types.get(name, str))

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self._usage}")

    def read(self, rest: list[str]) -> argparse.Namespace:
        """The arguments. Raises UsageError."""
        try:
            return self.parse_args(rest)
        except argparse.ArgumentError as problem:
            self.error(str(problem))


class Commands:
    """The subcommands of `%resumable`. Each shows something or gives a value."""

    def __init__(self, extension: Extension) -> None:
        self._extension = extension
        self._opened_with: dict[str, Any] | None = None
        self._tables = Tables(lambda: extension.request)

    def run(self, line: str) -> object:
        """Do what the line says. Raises UsageError with the right usage line."""
        command, _, rest = line.strip().partition(" ")
        if not command:
            command = "status" if self._extension.kernel else "help"
        if command in ("help", "--help", "-h"):
            print(HELP)  # noqa: T201 this is the magic's output
            return None
        if command not in USAGES:
            raise UsageError(
                f"{command!r} is no subcommand\nusage: %resumable {'|'.join(USAGES)} ...   (`%resumable?` explains)"
            )
        if command == "sql":
            return self.sql(rest)
        expand: Callable[[str], object] = self._extension.shell.var_expand
        words = source.words(rest, f"usage: {USAGES[command]}")
        if {"--help", "-h"} & {*words}:
            print(f"usage: {USAGES[command]}\n\n`%resumable?` explains them all.")  # noqa: T201 as above
            return None
        if command in (
            "approve",
            "reject",
            "settle",
        ):  # JSON is full of braces, and a decision is taken as it was typed
            expand = str
        expanded = [str(expand(word)) for word in words]
        do: Callable[[list[str]], object] = getattr(self, command)
        return do(expanded)

    def _thread(self) -> Thread:
        if self._extension.kernel is None:
            raise UsageError(f"no thread is open\nusage: {USAGES['open']}")
        return self._extension.kernel.thread

    # ------------------------------------------------------------------ the thread as a whole
    def open(self, words: list[str]) -> None:
        """Open a thread and show where it stands. The same one again only shows."""
        arguments = _Arguments("open", "thread")
        for option in ("--db", "--query", "--state"):
            arguments.add_argument(option)
        arguments.add_argument("--continue", action="store_true", dest="newest")
        arguments.add_argument("--take-over", action="store_true", dest="take_over")
        found = arguments.read(words)
        if not self._is_open(found):
            self._open(found)
        self._opened_with = vars(found)
        self._extension.show_resume(self._thread())

    def _is_open(self, found: argparse.Namespace) -> bool:
        """Whether this is the cell that opened the thread, run once more, and the thread is still ours."""
        kernel = self._extension.kernel
        if kernel is None or found.take_over or vars(found) != self._opened_with:
            return False
        kernel.thread.session.refresh()
        return kernel.thread.session.lost is None

    def _open(self, found: argparse.Namespace) -> None:
        shell, before = self._extension.shell, self._extension.kernel
        tracked = before.made_here() if before else frozenset()
        thread_id = os.environ.get("RESUMABLE_NB_THREAD") or found.thread
        if before is not None and before.thread.thread_id == thread_id:
            self._extension.leave()
        kernel = open_notebook(
            found.thread,
            namespace=shell.user_ns,
            hidden=shell.user_ns_hidden,
            db=found.db,
            query=found.query,
            state=found.state,
            start="newest" if found.newest else "first",
            take_over=found.take_over,
            tracked=tracked,
        )
        self._extension.open(kernel)

    def status(self, words: list[str]) -> None:
        """Show the steps and what they cost."""
        _Arguments("status").read(words)
        thread = self._thread()
        found = summary(thread, self._extension.notebook.steps())
        self._extension.show_panel(panels.status_panel(found, accounts(thread)))

    def timeline(self, words: list[str]) -> object:
        """The picture of the thread."""
        _Arguments("timeline").read(words)
        return self._thread().timeline()

    def threads(self, words: list[str]) -> object:
        """All threads: of the store that is named, else of the open thread's, else of the one beside the notebook."""
        arguments = _Arguments("threads")
        arguments.add_argument("--db")
        found, kernel = arguments.read(words), self._extension.kernel
        beside = kernel.thread.store.path if kernel else os.environ.get("RESUMABLE_NB_DB") or "research.duckdb"
        return resumable_nb.threads(found.db or beside)

    def history(self, words: list[str]) -> None:
        """Show the checkpoints."""
        _Arguments("history").read(words)
        thread = self._thread()
        self._extension.show_panel(panels.history_panel(thread.thread_id, thread.history()))

    def diff(self, words: list[str]) -> None:
        """Show what differs between two states."""
        found = _Arguments("diff", "A", "B").read(words)
        self._extension.show_panel(self._thread().diff(found.A, found.B).panel())

    def plot(self, words: list[str]) -> None:
        """Plot what was spent, what resuming saved, or how long it took; shown by matplotlib's own means."""
        what = _Arguments("plot", "WHAT").read(words or ["spending"]).WHAT
        thread = self._thread()
        if what not in PLOTS:
            raise UsageError(f"{what!r} is no plot\nusage: {USAGES['plot']}")
        PLOTS[what](thread)

    def fork(self, words: list[str]) -> None:
        """Make a new thread out of the rows so far."""
        found = _Arguments("fork", "SEQ", "NEW").read(words)
        thread = self._thread()
        seq = thread.row_of(found.SEQ)
        thread.fork(seq, found.NEW)
        opens = f"%resumable open {shlex.quote(found.NEW)}"
        self._extension.say([f"Thread {found.NEW} holds rows 1 to {seq} of {thread.thread_id}: `{opens}`"])

    def back(self, words: list[str]) -> None:
        """Let an earlier run of a step count again."""
        arguments = _Arguments("back", "STEP")
        arguments.add_argument("--run", type=int)
        found = arguments.read(words)
        self._thread()
        assert self._extension.kernel is not None
        self._extension.say(self._extension.kernel.back(found.STEP, found.run))

    def fresh(self, words: list[str]) -> None:
        """Retire the answers of a step."""
        name = _Arguments("fresh", "NAME").read(words).NAME
        self._thread().fresh(name)
        self._extension.say([f"`{name}` will run and ask anew; receipts of its effects stay."])

    def approve(self, words: list[str]) -> None:
        """Say yes to what a step waits for."""
        self._decide("approve", words, "--payload")

    def reject(self, words: list[str]) -> None:
        """Say no to what a step waits for."""
        self._decide("reject", words)

    def _decide(self, command: str, words: list[str], *more: str) -> None:
        arguments = _Arguments(command, "NAME")
        for option in ("--comment", *more):
            arguments.add_argument(option, default="" if option == "--comment" else None)
        arguments.add_argument("--gate", type=int)
        found = vars(arguments.read(words))
        if found.get("payload") is not None:
            found["payload"] = payloads.from_command(found["payload"])
        thread, name, gate_seq = self._thread(), found.pop("NAME"), found.pop("gate")
        yes = command == "approve"
        gate = gates.decide(thread.store, thread.thread_id, name, approve=yes, gate_seq=gate_seq, **found)
        thread.session.refresh()
        self._extension.say([f"{gate} is {gate.decision}. Run its cell again, or Run All, to go on."])

    def settle(self, words: list[str]) -> None:
        """Say what became of an effect in doubt."""
        arguments = _Arguments("settle", "KEY")
        arguments.add_argument("--happened")
        arguments.add_argument("--did-not-happen", action="store_true")
        arguments.add_argument("--comment", default="")
        found = arguments.read(words)
        if (found.happened is None) != found.did_not_happen:
            raise UsageError(f"Say one of --happened RECEIPT and --did-not-happen.\nusage: {USAGES['settle']}")
        thread = self._thread()
        effect = receipts.settle(
            thread.store,
            thread.thread_id,
            found.KEY,
            happened=not found.did_not_happen,
            receipt=found.happened or None,
            comment=found.comment,
        )
        thread.session.refresh()
        self._extension.say([f"`{found.KEY}` {effect.standing}. Run its cell again, or Run All, to go on."])

    def close(self, words: list[str]) -> None:
        """Leave the thread."""
        _Arguments("close").read(words)
        thread_id = self._thread().thread_id
        self._extension.close()
        self._opened_with = None
        self._extension.say([f"Thread {thread_id} is closed."])

    # ------------------------------------------------------------------ what it holds
    def trust(self, words: list[str]) -> None:
        """Sign what steps of this thread showed."""
        _Arguments("trust").read(words)
        thread = self._thread()
        rows = [(ref, thread.read(seq)) for ref, seq in thread.fold.outputs.items()]
        new = []
        for ref, row in rows:
            outputs = json.loads(row.response or "[]")
            if not trusted(outputs, row.key or ""):
                signature = sign(outputs)
                if not signature:
                    raise UsageError("No secret to sign with can be kept: this user's data folder cannot be written.")
                new.append(Row(kind="outputs", ref_seq=ref, step=row.step, key=signature, response=row.response))
        if new:
            thread.append(*new)
        told = f"What {counted(len(new), 'step')} showed is trusted from now on; run their cells again to see it."
        self._extension.say([told if new else "There is nothing to trust: what steps of this thread showed is yours."])

    def sql(self, query: str) -> pd.DataFrame:
        """Ask the store."""
        if not query.strip():
            raise UsageError(f"what to ask?\nusage: {USAGES['sql']}")
        found = self._thread().sql(query)
        if getattr(self._extension.shell, "kernel", None) is not None:  # a terminal shows no tables
            self._extension.say([self._tables.present(found)])
        return found

    # ------------------------------------------------------------------ completion
    def complete(self, _shell: InteractiveShell, event: Any) -> list[str]:
        """What may follow on the line."""
        before = event.text_until_cursor.split()[1:]
        if before and not event.text_until_cursor.endswith((" ", "\t")):
            before.pop()
        if event.command == "%%resumable":
            return [*([] if before else self._step_names()), *STEP_OPTIONS]
        return self._after(before) if before else list(USAGES)

    def _after(self, before: list[str]) -> list[str]:
        """What may follow these words."""
        match before:
            case ["plot"]:
                return list(PLOTS)
            case ["fresh" | "back" | "diff" | "fork"] | ["diff", _]:
                return self._step_names()
            case ["approve" | "reject"]:
                waiting = self._extension.kernel.thread.fold.gates.waiting() if self._extension.kernel else []
                return _quoted(dict.fromkeys(gate.name for gate in waiting))
            case ["open", *_, "--state"]:
                return self._state_classes()
            case ["open", *_, "--db"]:
                return sorted(str(path) for path in Path().glob("*.duckdb"))
            case ["open", *_]:
                return list(OPEN_OPTIONS)
        return []

    def _step_names(self) -> list[str]:
        kernel = self._extension.kernel
        known = kernel.thread.fold.step_names() if kernel else []
        names = dict.fromkeys([*self._extension.notebook.steps(), *known])
        return _quoted(names)

    def _state_classes(self) -> list[str]:
        names = self._extension.shell.user_ns.items()
        return sorted(n for n, v in names if isinstance(v, type) and issubclass(v, State) and not n.startswith("_"))


def _quoted(names: Iterable[str]) -> list[str]:
    return [name if name.split() == [name] else f'"{name}"' for name in names]


def register(extension: Extension) -> Callable[[], None]:
    """Give the shell its magics and their completion. Returns what takes them away."""
    from IPython.core.magic import no_var_expand
    from IPython.display import display

    shell, commands = extension.shell, Commands(extension)

    # SQL and prompts are full of `$` and braces: lines are not expanded as a whole, only the words of a subcommand are.
    @no_var_expand
    def resumable(line: str) -> object:
        return commands.run(line)

    @no_var_expand
    def resumable_step(line: str, cell: str) -> NoReturn:  # noqa: ARG001 as IPython calls it
        raise UsageError(no_step_here(line))

    @no_var_expand
    def resumable_sql(line: str, cell: str) -> object:
        name = line.strip()
        if name and (not name.isidentifier() or keyword.iskeyword(name) or name in ("state", "thread")):
            raise UsageError(f"{name!r} is no name to bind\nusage: %%resumable_sql [VARIABLE]")
        found = commands.sql(cell)
        if not name:
            return found
        shell.user_ns[name] = found
        display(found)  # type: ignore[no-untyped-call]  # IPython's
        return None

    resumable.__doc__, resumable_step.__doc__, resumable_sql.__doc__ = HELP, HELP, SQL_HELP
    magics: tuple[tuple[str, str, Any], ...] = (
        ("line", "resumable", resumable),
        ("cell", "resumable", resumable_step),
        ("cell", "resumable_sql", resumable_sql),
    )
    for kind, name, function in magics:
        shell.register_magic_function(function, kind, name)
    keys = ("%resumable", "%%resumable")
    set_hook: Callable[..., None] = shell.set_hook
    for key in keys:
        set_hook("complete_command", commands.complete, str_key=key)

    def undo() -> None:
        for kind, name, _ in magics:
            shell.magics_manager.magics[kind].pop(name, None)
        for key in keys:
            shell.strdispatchers["complete_command"].strs.pop(key, None)

    return undo
