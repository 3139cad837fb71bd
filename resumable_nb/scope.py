"""What a durable call sees of the step that it is in: recorded answers, numbers, and the way into the journal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from resumable_nb import randomness, values
from resumable_nb.errors import Blocked, CallsInFlight, Paused, StateError, ValueNotStorable
from resumable_nb.fold import ANSWERED, with_branch
from resumable_nb.journal import Row
from resumable_nb.recorded import Account, Recorded
from resumable_nb.state.model import AFTER_UPDATE, at_once

if TYPE_CHECKING:
    from resumable_nb.cells import Cell, Spent
    from resumable_nb.fold import Question
    from resumable_nb.receipts import Effect
    from resumable_nb.state import Image, State
    from resumable_nb.thread import Thread

_ENDED: dict[type[BaseException], str] = {Paused: "waiting", Blocked: "failed"}
COMPLETING = ("done", "failed", "partial", "interrupted", "lost")


@dataclass(frozen=True)
class Claim:
    """A number for one call, and its recorded answer if there is one.

    Attributes:
        occurrence: how often the same was asked before in this run.
        answer: the whole completing row (phase `done` or `partial`), or None: the call goes live.
    """

    occurrence: int
    answer: Row | None = None


class Scope:
    """The ground that calls stand on outside any step: they go live, are recorded for the accounts, never replayed."""

    step: str | None = None
    cell_id: str | None = None

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.notices: list[str] = []
        self.uses_state = False
        self.gates_asked: set[int] = set()
        self._numbers: dict[tuple[str, str], set[int]] = {}
        self._numbering = threading.Lock()

    def begin(self, cell_id: str) -> None:
        """An ordinary cell begins: gates in it are counted from 0."""
        self.cell_id, self.uses_state = cell_id, False
        self.gates_asked.clear()
        self._numbers.clear()

    def number(self, kind: str, key: str) -> int:
        """The next free number for a question in this run of the step or cell, however it was answered before."""
        with self._numbering:
            used = self._numbers.setdefault((kind, key), set())
            number = next(n for n in range(len(used) + 1) if n not in used)
            used.add(number)
            return number

    def give_back(self, kind: str, key: str, number: int) -> None:
        """What was numbered did not come to an end: the next attempt is the same question."""
        with self._numbering:
            self._numbers.get((kind, key), set()).discard(number)

    def claim(self, key: str, *, kind: str = "llm", request: str = "") -> Claim:  # noqa: ARG002 - as in a step
        """The next free number for this question, with the recorded answer if there is one."""
        return Claim(0)

    def release(self, key: str, occurrence: int, *, kind: str = "llm") -> None:
        """A failed attempt gives its number back."""

    def append(self, *rows: Row) -> list[int]:
        """Write rows. When it returns they are in the store. Thread-safe."""
        return self.thread.append(*rows)

    def notice(self, text: str) -> None:
        """A line for the person, shown when the cell ends."""
        if text not in self.notices:
            self.notices.append(text)

    def say(self, text: str) -> None:
        """A line for the person, shown now, while the cell runs."""
        if self.thread.say is None:
            self.notice(text)
        else:
            self.thread.say(f"`{self.step}`: {text}")

    @contextlib.contextmanager
    def noting_pauses(self) -> Iterator[None]:
        """In a step: what stops here for a person stops the step, even if its code does not let the exception out."""
        yield

    def refuse_if_paused(self) -> None:
        """Raise again what stopped for a person in this run of a step, if something did."""

    def note_doubt(self, key: str, stop: Paused) -> None:
        """An effect came to be in doubt in this run of a step: it cannot end before that is settled."""

    def before_commit(self, callback: Callable[[], None]) -> None:
        """Call this when the step is about to commit. Outside a step there is no such moment."""

    def context(self) -> str:
        """What the model should know: the state at the start of this branch."""
        self.uses_state = True
        return self.thread.live.state.context()


@dataclass
class _Asked:
    """One live call: for the report of what was not matched."""

    question: Question
    request: str


class Run(Scope):
    """One run of a step, from its entry state to its end.

    Args:
        entry: the checkpoint that the run starts from, and its image.
        key: the fingerprint of the run.
    """

    def __init__(self, thread: Thread, cell: Cell, *, key: str, entry: int, image: Image, eager: bool) -> None:
        super().__init__(thread)
        self.cell, self.key, self.entry, self.image = cell, key, entry, image
        self.step: str | None = cell.step
        self.cell_id: str | None = cell.cell_id
        self.started_seq: int | None = None
        self.account = Account()
        self.began = time.monotonic()
        self._progress = thread.fold.image(entry)
        self._used: dict[tuple[str, str], set[int]] = {}
        self._claimed: set[Question] = set()
        self._branches: set[str] = set()
        self._branch_of: dict[Question, str] = {}
        self._asked: list[_Asked] = []
        self.resent = 0
        self._open: dict[int, str] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.RLock()
        self._claims = threading.Lock()  # of its own: a claim on an event loop must not wait for an INSERT
        self._recorded = Recorded(thread, cell)
        self._random = randomness.snapshot()
        self._paused: list[Paused] = []
        self._doubts: dict[str, Paused] = {}
        self._main = _flow()
        self._view = self._last_seen = image
        self._told_pruned = False
        self._earlier = {q: s for q, s in thread.fold.answers(cell).items() if q[0] == "llm"}
        if eager:
            self._write_started()

    @contextlib.contextmanager
    def noting_pauses(self) -> Iterator[None]:
        """A pool, `gather` or a bare `except:` may keep it: then the end of the step raises it again."""
        try:
            yield
        except Paused as stop:
            self._paused.append(stop)
            raise

    def refuse_if_paused(self) -> None:
        """Raise the first of them: nothing that comes after it may change the outside, or end the step."""
        if self._paused:
            raise self._paused[0]

    def note_doubt(self, key: str, stop: Paused) -> None:
        """Raised at the end, if it is in doubt then."""
        self._doubts[key] = stop

    def _refuse_doubts(self) -> None:
        effects = self.thread.fold.effects.by_key
        for key, stop in self._doubts.items():
            if key in effects and effects[key].standing == "in doubt":
                raise stop

    # ------------------------------------------------------------------ calls
    def claim(self, key: str, *, kind: str = "llm", request: str = "") -> Claim:
        """The next free number, with its newest answer over all runs of the step."""
        with self._claims:
            used = self._used.setdefault((kind, key), set())
            number = self._number_for(kind, key, used)
            used.add(number)
            question = (kind, key, number)
            self._branch_of[question] = branch.get()
            seq = self.thread.fold.answer(self.cell, kind, key, number)
            if seq is None:
                self._asked.append(_Asked(question, request))
                self.resent += self.thread.fold.was_lost(self.cell, question)
                if not self._told_pruned and self.thread.fold.was_pruned(self.cell, question):
                    self._told_pruned = True
                    self.say("a recorded answer was pruned: asked anew, and paid anew where it costs money")
                return Claim(number)
            self._claimed.add(question)
            answer = self._recorded.take(seq)
            self.thread.saved += self.account.add(answer)
            return Claim(number, answer)

    def _number_for(self, kind: str, key: str, used: set[int]) -> int:
        """The smallest number that is free. An answer that a branch got is for that branch, as long as there is one."""
        if not self._branches:
            return next(n for n in range(len(used) + 1) if n not in used)
        fold, mine = self.thread.fold, branch.get()
        free = [n for n in range(max(fold.highest(kind, key), *used, -1) + 2) if n not in used]
        got_by = {n: fold.branch_of(fold.answer(self.cell, kind, key, n)) for n in free}
        own = [n for n in free if mine and got_by[n] == mine]
        return own[0] if own else next(n for n in free if got_by[n] not in self._branches)

    def branch_out(self, names: Iterable[str]) -> None:
        """Branches of these names begin: what they ask is told apart, whoever is faster."""
        with self._claims:
            self._branches.update(names)

    def release(self, key: str, occurrence: int, *, kind: str = "llm") -> None:
        """A failed attempt gives its number back."""
        with self._claims:
            self._used.get((kind, key), set()).discard(occurrence)
            self._asked = [a for a in self._asked if a.question != (kind, key, occurrence)]

    def append(self, *rows: Row) -> list[int]:
        """Write rows of this run. When it returns they are in the store. Thread-safe."""
        with self._lock:
            written = list(rows)
            blobs: list[Row] = []
            for row in written:
                row.step, row.cell_id = self.step, self.cell.cell_id
                self._note_branch(row)
                if row.phase == "done" and row.changes is None:
                    blobs += self._add_progress(row)
            head = [] if self.started_seq else [self._started_row()]
            written = [*head, *blobs, *written]
            for place, row in enumerate(written[len(head) :], len(head)):
                row.run_seq = self.started_seq or -place
            seqs = self.thread.append(*written)
            self.started_seq = self.started_seq or seqs[0]
            self._follow(written)
            return seqs[len(written) - len(rows) :]

    def _note_branch(self, row: Row) -> None:
        name = self._branch_of.get((row.kind, row.key or "", row.occurrence or 0))
        if name and row.phase in ANSWERED:
            row.data = with_branch(name, row.data)

    def _follow(self, rows: list[Row]) -> None:
        for row in rows:
            if row.phase == "started" and row.kind != "step":
                self._open[row.seq] = row.name or row.kind
            if row.phase in COMPLETING and row.ref_seq:
                self._open.pop(row.ref_seq, None)
                if row.phase in ("done", "partial"):
                    self.account.add(row)

    def _started_row(self) -> Row:
        return Row(
            kind="step",
            phase="started",
            step=self.step,
            cell_id=self.cell.cell_id,
            key=self.key,
            parent_seq=self.entry,
            body=randomness.pack(self._random),
            data=json.dumps({"code": self.cell.code.digest}),
        )

    def _write_started(self) -> None:
        self.started_seq = self.thread.append(self._started_row())[0]

    def _add_progress(self, row: Row) -> list[Row]:
        """What the state gained since the row before, in the same INSERT. A paid answer never fails for it."""
        with contextlib.suppress(StateError, ValueNotStorable):  # said at the commit, where it can be mended
            image = self.thread.live.image()
            row.changes = image.changes_from(self._progress)
            if row.changes is not None:
                row.parent_seq, self._progress = self.entry, image
                return self.thread.value_rows(image.blobs)
        return []

    # ------------------------------------------------------------------ branches
    def enter_main(self) -> None:
        """The body runs in this thread and task: others are branches."""
        self._main = _flow()

    def context(self) -> str:
        """The state for the model. In a pool's thread or a task of its own: as at the start of that branch.

        What branches put into the state by `update` is not seen by the others, so that a prompt does not depend on who
        was faster. Any other change ends the branches: the next one starts from there.
        """
        self.uses_state = True
        live = self.thread.live
        if _flow() == self._main:
            return live.state.context()
        with self._lock:
            self._see_changes()
            return live.context(self._view)

    def _see_changes(self) -> None:
        now = self.thread.live.image()
        if now.digest != self._last_seen.digest:
            self._view = self._last_seen = now

    def shelve(self, **changes: object) -> None:
        """Put into the state what a branch of `map` has found so far, for others to see as progress of the step.

        No branch is told of it, and it comes in the order of time: who called `map` takes it out again when the
        branches have joined, and puts in what they found in an order that does not depend on who was faster.
        """
        with self._lock, at_once(), contextlib.suppress(StateError, ValueNotStorable):  # said at the commit
            self._see_changes()
            self.thread.live.state.update(**changes)

    def after_update(self) -> None:
        """The state was updated by reducers."""
        if _flow() != self._main:
            with self._lock, contextlib.suppress(StateError, ValueNotStorable):
                self._last_seen = self.thread.live.image()

    def progress_before(self) -> State | None:
        """A copy of the state as far as runs with this fingerprint came; None if none has left progress."""
        seq = self.thread.fold.progress_like(self.cell, self.key)
        return None if seq is None else self.thread.live.detached(self.thread.fold.image(seq))

    # ------------------------------------------------------------------ the end
    def before_commit(self, callback: Callable[[], None]) -> None:
        """Call this when the step is about to commit."""
        with self._lock:
            self._callbacks.append(callback)

    def settle(self) -> None:
        """Let streams that were left open record their prefix.

        Raises:
            CallsInFlight: Calls that the step started are still running.
        """
        for callback in list(self._callbacks):
            callback()
        self.refuse_if_paused()
        self._refuse_doubts()
        if self._open:
            names = ", ".join(sorted(set(self._open.values())))
            raise CallsInFlight(
                f"`{self.step}` ended while {len(self._open)} of its calls were still running ({names}). Wait for them "
                "in the step: join the threads, await the tasks. Nothing that was answered is lost."
            )

    def spent(self) -> Spent:
        """What the run cost, or its recorded answers did: the wall time at least that of its calls."""
        wall = (time.monotonic() - self.began) * 1e3
        return replace(self.account.spent, ms=max(wall, self.account.spent.ms))

    def failed_row(self, error: BaseException) -> Row:
        """The row that says that the body raised."""
        message = values.hidden(str(error)[:500])
        return Row(
            kind="step",
            phase="failed" if isinstance(error, Exception) else _ENDED.get(type(error), "interrupted"),
            step=self.step,
            cell_id=self.cell.cell_id,
            key=self.key,
            ref_seq=self.started_seq,
            run_seq=self.started_seq,
            data=json.dumps({"error": type(error).__name__, "message": message}),
        )

    def restore_random(self, started: Row | None) -> None:
        """Put `random` and numpy's legacy state to where an earlier run of the same fingerprint started."""
        stored = self.thread.read(started.seq).body if started is not None else None
        if stored:
            randomness.restore(stored)
            self._random = randomness.snapshot()

    def random_at_end(self) -> bytes | None:
        """The state of the random numbers, if the step moved it."""
        now = randomness.snapshot()
        return randomness.pack(now) if now != self._random else None

    def unmatched(self) -> list[tuple[str, list[str]]]:
        """Requests that went live although recorded calls were not asked for again, each with what was left over."""
        left = [seq for question, seq in self._earlier.items() if question not in self._claimed]
        lost = self.thread.fold.was_lost  # it was asked before, and had no answer: that is no other question
        new = [a for a in self._asked if a.request and not lost(self.cell, a.question)]
        asked = [a.request for a in new if a.question not in self._earlier]
        if not left or not asked:
            return []
        requests = self.thread.requests(left)
        return [(request, requests) for request in asked]

    @property
    def began_before(self) -> bool:
        """Whether an earlier run of the step left answers or receipts."""
        fold, cell = self.thread.fold, self.cell
        return bool(fold.answers(cell) or fold.effects.of_step(cell.step, cell.cell_id))

    def is_of_another_version(self, effect: Effect) -> bool:
        """Whether an effect was done by this step when its code was another one."""
        started = self.thread.fold.started_row(effect.started.run_seq or 0)
        return started is not None and json.loads(started.data or "{}").get("code") != self.cell.code.digest

    @property
    def claimed(self) -> int:
        """How many calls were answered from the journal."""
        return len(self._claimed)

    @property
    def made(self) -> int:
        """How many calls went live."""
        return len(self._asked)

    @property
    def again(self) -> int:
        """How many calls were done again: recorded ones that were not used while others went live, and lost ones."""
        fold, code = self.thread.fold, self.cell.code.digest
        same = [q for q, seq in self._earlier.items() if fold.code_of_run(seq) == code]
        left = sum(1 for question in same if question not in self._claimed)
        return min(left, len(self._asked)) + self.resent


def _flow() -> tuple[int, int]:
    """The thread and the task that this code runs in."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), id(task)


branch: ContextVar[str] = ContextVar("resumable_nb_branch", default="")
"""The name of the branch of `map` that this code runs in; "" outside any."""
_current: ContextVar[Scope | None] = ContextVar("resumable_nb_scope", default=None)
_fallback: list[Scope] = []


def scope() -> Scope | None:
    """The scope of the running step; outside a step one with `step=None`; None if no thread is open.

    A context variable first; threads of a pool, which inherit none, belong to the process's running step.
    """
    return _current.get() or (_fallback[-1] if _fallback else None)


def _after_update(state: object) -> None:
    running = scope()
    if isinstance(running, Run) and running.thread.live.state is state:
        running.after_update()


AFTER_UPDATE.append(_after_update)


def enter(entered: Scope) -> None:
    """Make it the process's scope until `leave`."""
    _fallback.append(entered)


def leave(left: Scope) -> None:
    """The scope has ended."""
    with contextlib.suppress(ValueError):
        _fallback.remove(left)


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Code that asks how things stand now: its calls go live, and no answer of theirs is ever given again."""
    ground = scope()
    aside = None
    if ground is not None:
        aside = Scope(ground.thread)
        aside.notices = ground.notices
    token = _current.set(aside)
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def within(entered: Scope) -> Iterator[Scope]:
    """Run code in a scope: this context and the threads that it starts."""
    enter(entered)
    token = _current.set(entered)
    try:
        yield entered
    finally:
        _current.reset(token)
        leave(entered)
