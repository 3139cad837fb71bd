"""A thread of research: its journal, folded, and the state that people and steps see."""

from __future__ import annotations

import contextlib
import importlib
import json
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, cast

from resumable_nb import history, randomness, values
from resumable_nb.cells import Spent
from resumable_nb.errors import MigrationFailed, StateMismatch, ThreadNotFound, UsageError
from resumable_nb.fold import Fold
from resumable_nb.journal import QUERY_TIMEOUT_S, Row, Session, Store, statements
from resumable_nb.resuming import Resume
from resumable_nb.state import Image, Live, ResearchState, State
from resumable_nb.state.model import end
from resumable_nb.stops import refuse_if_stopped
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from resumable_nb.cells import Cell, Record
    from resumable_nb.history import Diff, Moment

_DRAWN_BY = "resumable_nb.notebook.timeline"
_PLOTTED_BY = "resumable_nb.plots"
"""By name: it speaks to ipywidgets, and stands far above."""
FOLDED = (
    "thread",
    "step",
    "checkpoint",
    "cell",
    "llm",
    "call",
    "effect",
    "approval",
    "resource",
    "notice",
    "value",
    "outputs",
)


class StepRunner(Protocol):
    """What runs the steps of a script; a notebook has its own way in."""

    def call(self, name: str, fn: Callable[..., Any]) -> Any:
        """Skip, replay or run one step."""

    def place_state(self) -> State | None:
        """The state after the last step that was called here; None before the first."""

    def close(self) -> None:
        """The thread is closed."""


class Thread:
    """One piece of research, named by the user, opened by this process.

    Use it as a context manager, or call `close`. Everything that it says it did is in the store when the call returns.

    Attributes:
        thread_id: its name.
        live: the state object that code sees, and its image.
        fold: what the journal says.
        saved: what skips and recorded answers have saved since it was opened.
        say: shows a line to the person at once; None: lines wait for the end of the step.
        resume: what it takes to go on with it.
    """

    def __init__(self, store: Store, session: Session, state_class: type[State], *, resolve: Any) -> None:
        self.store, self.session, self.thread_id = store, session, session.thread_id
        self.fold = Fold()
        self.live = Live(state_class, resolve=resolve, blobs=self.blob)
        self.runner: StepRunner | None = None
        self.notices: list[str] = []
        self.saved = Spent()
        self._untold: list[dict[str, Any]] = []
        self.say: Callable[[str], object] | None = None
        self._lock = threading.RLock()
        self.resolve = resolve
        session.on_foreign = self.fold.apply_all
        self.fold.apply_all(session.read(kinds=FOLDED, bodies=False))
        self.resume = Resume(self.fold, session)

    # ------------------------------------------------------------------ rows
    def append(self, *rows: Row) -> list[int]:
        """Write rows in one INSERT and fold them in. They are in the store when this returns."""
        if any(row.phase == "started" and row.kind != "step" for row in rows):
            refuse_if_stopped()
        with self._lock:
            untold, told = self._untold_rows(), len(self._untold)
            try:
                return self.session.append(*rows, *untold)[: len(rows)]
            finally:  # a Ctrl-C may come in between: what is in the store is folded in, whatever else happens
                stored = [row for row in (*rows, *untold) if self.fold.head < row.seq <= self.session.head]
                if len(stored) == len(rows) + len(untold):
                    del self._untold[:told]
                self.fold.apply_all(stored)

    def note_skip(self, cell: Cell, record: Record, *, how: str = "skipped") -> None:
        """A step was not run, or only replayed. That writes nothing now: the next row, or the end, takes it along."""
        about = {"step": cell.step, "cell": cell.cell_id, "checkpoint": record.checkpoint, "how": how}
        self._untold.append({**about, "at": round(time.time() * 1e3), "spent": record.spent})

    def _untold_rows(self) -> list[Row]:
        if not self._untold:
            return []
        saved = sum((told["spent"] for told in self._untold), Spent())
        steps = [{name: value for name, value in told.items() if name != "spent"} for told in self._untold]
        data = {
            "steps": steps,
            "saved": {
                "calls": saved.calls,
                "tokens": saved.input_tokens + saved.output_tokens,
                "ms": round(saved.ms),
            },
        }
        return [Row(kind="notice", name="skipped", data=json.dumps(data, ensure_ascii=False))]

    def read(self, seq: int) -> Row:
        """One whole row."""
        rows = self.session.read(seqs=[seq])
        if not rows:
            raise ThreadNotFound(f"Thread {self.thread_id!r} has no row {seq}.")
        return rows[0]

    def restore_random(self, record: Record) -> None:
        """Put the random numbers to where a run left them, if it drew any."""
        body = self.read(record.source_seq).body if record.moved_random else None
        if body:
            randomness.restore(body)

    def requests(self, answers: Iterable[int]) -> list[str]:
        """What was asked, of these answers."""
        started = [row.ref_seq for row in self.session.read(seqs=list(answers), bodies=False) if row.ref_seq]
        return [row.request for row in self.session.read(seqs=started) if row.request]

    def blob(self, key: str) -> bytes:
        """A large value by its sha256."""
        seq = self.fold.large_values.get(key)
        body = self.read(seq).body if seq else None
        if body is None:
            raise ThreadNotFound(f"The store has no value {key[:12]}…: it was pruned, or the store is damaged.")
        return body

    def value_rows(self, blobs: dict[str, bytes]) -> list[Row]:
        """Rows for large values that the store does not have yet."""
        new = {key: body for key, body in blobs.items() if key not in self.fold.large_values}
        return [Row(kind="value", key=key, body=body) for key, body in new.items()]

    # ------------------------------------------------------------------ the start
    def begin(self, query: str | None) -> None:
        """Make sure that the journal says what the thread starts with, as the state class and `query` say now."""
        fold = self.fold
        self.notices += _pruned(fold)
        stored = fold.image(fold.root) if fold.root else None
        kept_query = query if query is not None else self._query_of(stored)
        image = self.live.start(kept_query)
        if stored is not None and not self._starts_otherwise(stored, image, query):
            return
        before = self._query_of(stored)
        if query is not None and before not in (None, query):
            self.notices.append(
                f"the query changed from {before!r}: what was done for it is kept, and counts again when it is put back"
            )
        changes = image.changes_from(Image.EMPTY)
        self.append(*self.value_rows(image.blobs), Row(kind="checkpoint", phase="start", parent_seq=0, changes=changes))

    def _query_of(self, image: Image | None) -> str | None:
        if image is None or "query" not in image.fields:
            return None
        return str(json.loads(image.json("query")))

    @staticmethod
    def _starts_otherwise(stored: Image, image: Image, query: str | None) -> bool:
        """A default that changed, or another query. A new field is no change; across versions only the query is."""
        if stored.schema_version != image.schema_version:
            known = {"query"} if query is not None else set()
        else:
            known = set(stored.fields)
        return any(f in image.fields and stored.json(f) != image.json(f) for f in known & set(stored.fields))

    # ------------------------------------------------------------------ for people
    @property
    def state(self) -> State:
        """The state, as a copy: at the newest checkpoint; in a script that has called a step, after that step."""
        here = self.runner.place_state() if self.runner is not None else None
        if here is not None:
            return here
        with self.telling(seq := self.fold.newest()):
            return self.live.detached(self.fold.image(seq))

    def state_at(self, moment: Moment) -> State:
        """The state after a row of the journal: that of the newest checkpoint, or progress inside a step, up to it.

        Args:
            moment: a row, as `history` numbers them; the name of a step: after its last run; `"newest"` or `"start"`;
                -1, -2, … count back in the lineage.

        Raises:
            ThreadNotFound: There is no such row or step.
            StateMismatch, MigrationFailed: It does not fit the state class as it is now; `raw_state_at` gives it.
        """
        seq = self.row_of(moment)
        with self.telling(seq):
            return self.live.detached(history.state(self.fold, seq))

    def raw_state_at(self, moment: Moment) -> dict[str, Any]:
        """The same as it is stored: field → JSON value. No class is needed, and nothing is migrated."""
        return history.raw(history.state(self.fold, self.row_of(moment)))

    @contextlib.contextmanager
    def telling(self, seq: int) -> Iterator[None]:
        """Let the error of a state that does not fit the class say how to get what is stored."""
        try:
            yield
        except (StateMismatch, MigrationFailed) as error:
            thread, store = "'" + self.thread_id.replace("'", "''") + "'", shlex.quote(str(self.store.path))
            query = shlex.quote(f"FROM state_at({thread}, {seq})")
            if "state_at(" not in str(error):
                command = f"`resumable-nb sql {query} --format json --db {store}`"
                error.args = (f"{error}\nWhat is stored, as JSON: `thread.raw_state_at({seq})`, or {command}",)
            raise

    def row_of(self, moment: Moment) -> int:
        """The journal row that is meant, as `state_at` takes it. Raises ThreadNotFound."""
        return history.find(self.fold, self.thread_id, moment, head=self.session.head)

    def sql(
        self, query: str, params: list[Any] | dict[str, Any] | None = None, *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> pd.DataFrame:
        """Ask the store: one SELECT or EXPLAIN over the views; it cannot write, nor reach files or the network.

        Args:
            query: the statement; `?` or `$name` stand for values, `$thread` for the name of this thread.
            params: the values, as a list or by name.
            timeout_s: seconds until it is broken off. Nobody can write to the store meanwhile.
        """
        values = statements.with_thread(query, params, lambda: self.thread_id)
        return self.store.query(query, values, timeout_s=timeout_s)

    def history(self) -> list[dict[str, Any]]:
        """The checkpoints, oldest first: seq, at, step, origin, in_lineage, and the fields that it changed."""
        chain = set(self.fold.chain)
        return [
            {
                "seq": row.seq,
                "at": row.ts,
                "step": row.step,
                "origin": row.phase,
                "in_lineage": row.seq in chain,
                "changed": _changed(row.changes),
            }
            for row in self.fold.checkpoints()
        ]

    def diff(self, a: Moment, b: Moment) -> Diff:
        """What differs between the states at two moments, as `state_at` takes them.

        Returns:
            A list with a row per field that differs: `field`, `before` and `after` as JSON values (None where missing),
            and `changes`, each place in it. It shows itself as a panel; `changes` of the whole has all places.
        """
        return history.diff(self.fold, (a, self.row_of(a)), (b, self.row_of(b)))

    def timeline(self) -> Any:
        """The thread as a picture, for the end of a notebook's cell: steps, runs, costs; a click shows more."""
        return importlib.import_module(_DRAWN_BY).threads(self.store.path, self.thread_id)

    def plot_spending(self, *, ax: Axes | None = None, unit: Literal["tokens", "money"] = "tokens") -> Axes:
        """What was spent so far, over time, by step. See `resumable_nb.plots`, as for the other plots."""
        return cast("Axes", importlib.import_module(_PLOTTED_BY).plot_spending(self, ax=ax, unit=unit))

    def plot_saved(self, *, ax: Axes | None = None) -> Axes:
        """What resuming has saved: at each resume, the LLM calls that were not made again, and those that were."""
        return cast("Axes", importlib.import_module(_PLOTTED_BY).plot_saved(self, ax=ax))

    def plot_recoveries(self, *, ax: Axes | None = None) -> Axes:
        """How long each resume took, from opening the thread to its first new call."""
        return cast("Axes", importlib.import_module(_PLOTTED_BY).plot_recoveries(self, ax=ax))

    def fork(self, moment: Moment, new_id: str) -> str:
        """A new, self-contained thread that starts with the rows of this one up to a moment. Returns its name."""
        self.store.fork(self.thread_id, self.row_of(moment), new_id)
        return new_id

    def fresh(self, step: str) -> None:
        """Retire the answers and finished runs of a step: it runs and asks anew. Receipts of effects stay."""
        self.append(history.retirement(self.fold, self.thread_id, step))

    def step(self, name: str, fn: Callable[..., Any]) -> Any:
        """Run a function as a durable step, or take its recorded result.

        The step is done, and `fn` is not called, if it ended before with the same code, the same values of the names
        that it reads, and the same state at its entry. `fn` may take the state as its one argument. What it returns is
        stored without pickle and returned again; what else it changes, such as a list of the module, is not.

        Returns:
            What `fn` returns; for a coroutine function, an awaitable of it.
        """
        if self.runner is None:
            raise UsageError("This thread runs no steps here: open it with `resumable_nb.open`.")
        return self.runner.call(name, fn)

    def close(self) -> None:
        """End the session. The store is closed when nothing else in this process uses it."""
        if self.runner is not None:
            self.runner.close()
        try:
            if self.session.lost is None and ((rows := self.resume.closing()) or self._untold):
                self.append(*rows)
        finally:
            self.session.close()
        end(self.live.state, f"Thread {self.thread_id!r} was closed, so this state is not kept: open the thread again.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _pruned(fold: Fold) -> list[str]:
    """What of a pruned thread is not there any more, for whoever opens it."""
    told = []
    if fold.pruned:
        names = {row.step for row in fold.pruned.values() if row.step and row.cell_id not in fold.lineage}
        again = f"; {counted(len(names), 'step')} will run again, on recorded answers" if names else ""
        told.append(f"{counted(len(fold.pruned), 'older checkpoint')} of this thread went by `prune`{again}")
    if fold.pruned_answers:
        told.append(
            f"{counted(len(fold.pruned_answers), 'recorded answer')} of this thread went by `prune`: a step that asks "
            "for one again pays again, and says so"
        )
    return told


def _changed(changes: str | None) -> list[str]:
    parts = json.loads(changes) if changes else {}
    return [name for part in ("set", "append", "drop") for name in parts.get(part, {})]


def connect(
    thread_id: str,
    *,
    db: str | Path = "research.duckdb",
    state: type[State] = ResearchState,
    namespace: Mapping[str, Any] | None = None,
    take_over: bool = False,
) -> Thread:
    """Open a thread of a store, making both where they are missing."""
    if not str(thread_id).strip():
        raise UsageError(f"A thread needs a name, not {thread_id!r}.")
    store = Store.open(db)
    session = store.open_session(thread_id, take_over=take_over, about={"argv": sys.argv[:1]})
    return Thread(store, session, state, resolve=values.resolver(namespace if namespace is not None else {}))
