"""How a thread is opened: by `resumable_nb.open` in scripts, by `open_notebook` for the magics."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from resumable_nb.collecting import collecting_later
from resumable_nb.errors import UsageError, ValueNotLoadable
from resumable_nb.script import Script, tell_pauses
from resumable_nb.state import ResearchState, State
from resumable_nb.step import Kernel
from resumable_nb.thread import Thread, connect

if TYPE_CHECKING:
    from resumable_nb.resuming import Line


def _where(thread_id: str, db: str | Path | None) -> tuple[str, str | Path]:
    """The environment outranks what the notebook says: a runner decides."""
    named = os.environ.get("RESUMABLE_NB_THREAD") or thread_id
    return named, os.environ.get("RESUMABLE_NB_DB") or db or "research.duckdb"


@collecting_later()
def open(  # noqa: A001 - the public name is `resumable_nb.open`
    thread_id: str,
    *,
    db: str | Path | None = None,
    query: str | None = None,
    state: type[State] = ResearchState,
    start: Literal["first", "newest"] = "first",
    take_over: bool = False,
    say: Callable[[str], None] = print,
) -> Thread:
    """Open a thread of research from a script or a console.

    Args:
        thread_id: its name; it is made where it does not exist.
        db: the store, by default `research.duckdb` in this folder. `RESUMABLE_NB_DB` and `RESUMABLE_NB_THREAD`
            outrank both.
        query: the question, put into the state that the thread starts with. None keeps what it is.
        state: the class of the state.
        start: from where the first step starts: `first` (the thread's first checkpoint, so that finished steps are
            skipped) or `newest` (what the thread knows now).
        take_over: take it from another session that is alive; that one can write no more.
        say: where lines for the person go.

    Returns:
        The open thread: a context manager; `thread.step(name, fn)` runs steps. The store has the session on return.

    Raises:
        ThreadInUse: Another live session has it.
        StoreError: The store cannot be opened; the message says what to do.
        StateMismatch: The stored state does not fit the class.
    """
    if start not in ("first", "newest"):
        raise UsageError(f"start={start!r}: expected 'first' or 'newest'.")
    thread_id, db = _where(thread_id, db)
    if not hasattr(builtins, "__IPYTHON__"):
        tell_pauses()
    thread = connect(thread_id, db=db, state=state, take_over=take_over)
    try:
        fold = thread.fold
        with thread.telling(fold.newest()):
            thread.begin(query)
            for line in thread.notices:
                say(line)
            base = fold.root if start == "first" else fold.newest()
            with thread.telling(base):
                thread.live.set(fold.image(base))
            _load(thread, say)
        thread.runner, thread.say = Script(thread, base, say), say
    except BaseException:
        thread.session.close()
        raise
    return thread


def _load(thread: Thread, say: Callable[[str], object]) -> None:
    """Load the newest checkpoint, and say what a resume comes to, line by line as it happens."""

    def told(_: object, changed: Iterable[Line]) -> None:
        for line in changed:
            if line.is_news:
                say(f"resume: {line}")

    if not thread.resume.is_one:
        return
    try:
        thread.resume.loaded(thread.state)
    except ValueNotLoadable as error:
        thread.resume.loaded(None, waits_for=f"it can be: {error}")
    told(None, thread.resume.lines())
    thread.resume.listen(told)


@collecting_later()
def open_notebook(
    thread_id: str,
    *,
    namespace: MutableMapping[str, Any],
    hidden: Mapping[str, Any] | None = None,
    db: str | Path | None = None,
    query: str | None = None,
    state: str | None = None,
    start: Literal["first", "newest"] = "first",
    take_over: bool = False,
    tracked: frozenset[str] = frozenset(),
) -> Kernel:
    """Open a thread for the cells of a notebook.

    Args:
        thread_id: its name.
        db: the store.
        query: the question.
        start: as `open` has it; `newest` is `--continue`.
        take_over: take it from another live session.
        namespace: where cells run; `state` and `thread` are bound in it.
        hidden: names that were in it before the person wrote anything.
        state: name of the state class in the namespace; a cell may define it later.
        tracked: names that cells bound under an earlier opening in this kernel.
    """
    thread_id, db = _where(thread_id, db)
    thread = connect(thread_id, db=db, namespace=namespace, take_over=take_over)
    try:
        return Kernel(
            thread,
            namespace,
            hidden=hidden,
            state_name=state,
            query=query,
            newest=start == "newest",
            tracked=tracked,
        )
    except BaseException:
        thread.session.close()
        raise
