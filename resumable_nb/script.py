"""Steps outside notebooks: `thread.step(name, fn)`, in the order in which a script calls them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from resumable_nb import failpoints, fingerprint, scope, values
from resumable_nb.cells import DIGEST_LENGTH, STATE, Cell, Record
from resumable_nb.commit import checkpoint_row, failed_again, report, rows_to, state_facts, take_notices
from resumable_nb.errors import Blocked, Paused, StepError, UsageError, main_error
from resumable_nb.fingerprint import Code, Facts
from resumable_nb.resuming import before_skip
from resumable_nb.scope import Run, Scope
from resumable_nb.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from resumable_nb.state import Image, State
    from resumable_nb.thread import Thread

_RESULT = "result"
INTERRUPTED = "Stopped. What was finished and answered is kept: run the script again to go on."


@functools.cache
def tell_pauses() -> None:
    """Have a script that waits for a person end with what it waits for and exit code 3, as `resumable-nb run` does.

    Only what nobody caught comes to this hook; all but our own stops goes on to the one that was there before. A
    console lives on. Where no decision would help, the code is 1. After Ctrl-C a line says that nothing is lost.
    """
    before = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        stop = main_error(error)
        if not isinstance(stop, Paused):
            before(kind, error, traceback)
            if isinstance(stop, KeyboardInterrupt):
                sys.stderr.write(f"{INTERRUPTED}\n")
            return
        sys.stderr.write(f"{plain(str(stop))}\n")
        if not hasattr(sys, "ps1"):
            sys.exit(1 if isinstance(stop, Blocked) else 3)  # Python ends by it, with all that it does at its end

    sys.excepthook = tell


@dataclass(frozen=True)
class _Started:
    """A step of a script between its start and its end."""

    run: Run
    cell: Cell
    before: dict[str, Facts | None]
    image: Image
    found: Record | None
    fn: Callable[..., Any]


@dataclass
class Script:
    """Runs the steps of one process, each from the state at the end of the step called before it.

    Args:
        thread: the open thread.
        start: the checkpoint that the first step starts from.
        say: where lines for the person go.
    """

    thread: Thread
    start: int
    say: Callable[[str], object] = print
    _last: int = field(init=False)
    _done: dict[str, _Done] = field(init=False, default_factory=dict)
    _running: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._last = self.start
        self._outside = Scope(self.thread)
        scope.enter(self._outside)

    # ------------------------------------------------------------------ one step
    def call(self, name: str, fn: Callable[..., Any]) -> Any:
        """Skip, replay or run one step. See `Thread.step`."""
        if type(name) is not str or not name.isprintable() or not name.strip() or not callable(fn):
            raise UsageError(f"thread.step(name, fn) takes a name of one line and a function, not {name!r} and {fn!r}.")
        if inspect.iscoroutinefunction(fn):
            return self._call_async(name, fn)
        started = self._begin(name, fn)
        if isinstance(started, Record):
            return self._result(started)
        with self._while_running(started):
            return self._commit(started, fn(*self._arguments(fn)))

    async def _call_async(self, name: str, fn: Callable[..., Any]) -> Any:
        started = self._begin(name, fn)
        if isinstance(started, Record):
            return self._result(started)
        with self._while_running(started):
            return self._commit(started, await fn(*self._arguments(fn)))

    @contextlib.contextmanager
    def _while_running(self, started: _Started) -> Iterator[None]:
        """The scope of a running step; if its body raises, the step has failed."""
        self._running = started.cell.step
        try:
            with scope.within(started.run):
                started.run.enter_main()
                yield
        except BaseException as error:
            self._fail(started, error)
            raise
        finally:
            self._running = None

    def _arguments(self, fn: Callable[..., Any]) -> list[Any]:
        try:
            wanted = [p for p in inspect.signature(fn).parameters.values() if p.default is p.empty and p.kind <= 1]
        except ValueError:
            wanted = []
        if len(wanted) > 1:
            raise UsageError(f"A step's function takes nothing, or the state: {fn!r} wants {len(wanted)} arguments.")
        return [self.thread.live.state] if wanted else []

    def _begin(self, name: str, fn: Callable[..., Any]) -> _Started | Record:
        if self._running is not None:
            raise StepError(
                f"`{name}` was started while `{self._running}` is running: steps come one after the other. Call it "
                "after; what should run at once belongs into one step."
            )
        again = self._done.get(name)
        entry = again.entry if again is not None else self._last
        image = self.thread.fold.image(entry)
        cell, before = self._inputs(name, fn, image)
        record = Record(cell, before, {})
        found = self.thread.fold.run_like(cell, record.key)
        if again is not None and (found is None or found.key != again.record.key):
            raise StepError(
                f"`{name}` has already run in this session, with other code, inputs or state. Give each step its own "
                f"name, such as `{name} 2`."
            )
        if found is not None and not found.lost:
            taken = self._take_up(cell, found, entry)
            self.thread.saved += taken.spent
            self.thread.note_skip(cell, taken)
            self.say(f"`{name}`: restored from checkpoint {taken.checkpoint}: {taken.spent} not spent again")
            return taken
        self.thread.live.set(image)
        run = Run(self.thread, cell, key=record.key, entry=entry, image=image, eager=False)
        run.restore_random(self.thread.fold.started(cell, record.key))
        return _Started(run, cell, before, image, found, fn)

    def _inputs(self, name: str, fn: Callable[..., Any], image: Image) -> tuple[Cell, dict[str, Facts | None]]:
        """The function by source, defaults and closure; the names of its module that it reads, by value."""
        names = getattr(inspect.unwrap(fn), "__globals__", {})
        own = fingerprint.fingerprint(fn, namespace=names)
        before: dict[str, Facts | None] = {STATE: state_facts(image)}
        todo = sorted(own.reads)
        while todo:
            read = todo.pop()
            if read in before or names.get(read) is self.thread or read not in names:
                continue
            facts = fingerprint.fingerprint(names[read], namespace=names)
            before[read] = facts
            todo += sorted(facts.reads)
        code = Code(digest=own.digest[:DIGEST_LENGTH], loads={}, writes=frozenset())
        return Cell(f"step {name}", name, "", known=code), before

    def _take_up(self, cell: Cell, found: Record, entry: int) -> Record:
        """The lineage holds this run already, or moves to it by a new checkpoint."""
        before_skip(self._outside, cell.step, cell.cell_id)
        for line in take_notices(self._outside):
            self.say(f"`{cell.step}`: {line}")
        fold = self.thread.fold
        row = fold.row(found.checkpoint)
        if row is None or found.checkpoint not in fold.chain_set or (row.parent_seq or 0) != entry:
            parent = entry if entry in fold.chain_set else fold.root
            changes = fold.image(found.checkpoint).changes_from(fold.image(parent))
            data = json.dumps({"as": found.source_seq})
            self.thread.append(checkpoint_row(cell, "taken up", parent, changes, key=found.key, data=data))
            found = fold.record(fold.chain[-1])
        self.thread.restore_random(found)
        self._end(cell, found, entry)
        return found

    def _end(self, cell: Cell, record: Record, entry: int) -> None:
        assert cell.step is not None
        if cell.step not in self._done:
            self._done[cell.step] = _Done(record, entry)
            self._last = record.checkpoint
        self.thread.live.set(self.thread.fold.image(self._last))

    def _result(self, record: Record) -> Any:
        text = None if record.returned_none else self.thread.read(record.source_seq).response
        if text is None:
            return None
        return values.decode_names(text, self.thread.blob, self.thread.resolve)[_RESULT]

    # ------------------------------------------------------------------ the end
    def _commit(self, started: _Started, result: Any) -> Any:
        run, cell = started.run, started.cell
        run.settle()
        for line in report(run):
            self.say(f"`{cell.step}`: {line}")
        if started.found is not None:
            self.thread.note_skip(cell, self._take_up(cell, started.found, run.entry), how="replayed")
            return result
        image = self.thread.live.end_step()
        encoded = values.encode_names({_RESULT: result})
        random = run.random_at_end()
        record = Record(
            cell,
            started.before,
            {STATE: state_facts(image)},
            lost=encoded.failed,
            spent=run.spent(),
            moved_random=random is not None,
            returned_none=result is None,
        )
        failpoints.passing("step.commit.before")
        rows = [
            *self.thread.value_rows({**image.blobs, **encoded.blobs}),
            *rows_to(
                self.thread,
                cell,
                parent=run.entry if run.entry in self.thread.fold.chain_set else self.thread.fold.root,
                entry=started.image,
                image=image,
                origin="step",
                key=run.key,
                ref_seq=run.started_seq,
                run_seq=run.started_seq,
                duration_ms=round((time.monotonic() - run.began) * 1e3, 3),
                response=encoded.text if result is not None and not encoded.failed else None,
                body=random,
                data=record.to_json(),
            ),
        ]
        resumed = self.thread.resume.ended(cell.step, cell.cell_id, run.again, is_done=True)
        seq = self.thread.append(*rows, *resumed)[len(rows) - 1]
        record = replace(record, seq=seq, source_seq=seq, checkpoint=seq, started_seq=run.started_seq)
        failpoints.passing("step.commit.after")
        self._done[str(cell.step)] = _Done(self.thread.fold.remember(record, image), run.entry)
        self._last = seq
        self._say_changed(started)
        for why in encoded.failed.values():
            self.say(f"`{cell.step}`: what it returns is not stored ({why}); it is rebuilt by replay after a restart")
        return result

    def _say_changed(self, started: _Started) -> None:
        """What a step changed in place of its module's names is not kept: that has to be said."""
        names = getattr(inspect.unwrap(started.fn), "__globals__", {})
        for name, facts in started.before.items():
            if name != STATE and facts is not None and facts.kind == "value":
                now = fingerprint.fingerprint(names.get(name), namespace=names, name=name)
                if now.digest != facts.digest:
                    self.say(
                        f"`{started.cell.step}`: it changed `{name}`, and that is not kept: the next time the step is "
                        "skipped and the change is missing. Return what it makes, or put it into the state"
                    )

    def place_state(self) -> State | None:
        """The state after the last step that was called here; None before the first."""
        return self.thread.live.detached(self.thread.fold.image(self._last)) if self._done else None

    def _fail(self, started: _Started, error: BaseException) -> None:
        """The function raised: the state is as at the step's entry."""
        run = started.run
        self.thread.live.set(started.image)
        for line in [*report(run), *(failed_again(run, "thread.fresh") if isinstance(error, Exception) else [])]:
            self.say(f"`{started.cell.step}`: {line}")
        self.thread.append(run.failed_row(error))
        self.thread.resume.ended(run.step, started.cell.cell_id, run.again, is_done=False)

    def close(self) -> None:
        """Calls go live and unrecorded from here on."""
        scope.leave(self._outside)


@dataclass(frozen=True)
class _Done:
    """A step that ended in this session, and the checkpoint that it started from."""

    record: Record
    entry: int
