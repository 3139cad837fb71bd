"""The timeline in a notebook, live: the front end asks, a kernel that is free answers.

The front end draws by itself (`timeline/timeline.js`, by anywidget) what it asks for: the picture of a thread, what is
new since, a look at checkpoints and calls, a fork. It asks one thing at a time, and nothing while nobody can see it; so
a closed view costs nothing, and a busy kernel is not asked again before it has answered.
"""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from resumable_nb.cells import duration
from resumable_nb.errors import ResumableError, StoreLocked, UsageError
from resumable_nb.journal import Store
from resumable_nb.notebook.outputs import OURS, WIDGET
from resumable_nb.panel import Panel
from resumable_nb.terminal import counted, when
from resumable_nb.timeline import Details, Drawing, overview
from resumable_nb.timeline.page import script, style

if TYPE_CHECKING:
    from datetime import datetime

Json = dict[str, Any]

AT_ONCE_CHARS = 200_000
"""A picture of this size goes along with the widget, and may be saved with the notebook; a larger one is asked for."""
KEPT = 4
ANYHOW_EVERY = 10
"""Looks after which a picture is drawn anew though nobody wrote: a process that dies writes nothing."""
ROWS_AS_TEXT = 50


class _Told(NamedTuple):
    """What a view was told, and as of when: the file as it lay there, the rows that it tells of, how many at most."""

    value: Json
    mark: object
    stamp: int | None = None
    at_most: int | None = None


def _told(drawing: Drawing, mark: object, at_most: int | None = None) -> _Told:
    return _Told(drawing.tell(at_most=at_most) | {"reading": drawing.reading}, mark, drawing.stamp, at_most)


class Desk:
    """Answers what views of the timeline ask about one store.

    Args:
        store: the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._versions, self._looks = 0, 0
        self._drawings: dict[str, Drawing] = {}
        self._told: dict[tuple[str | None, int], _Told] = {}

    def answer(self, message: Json) -> Json:
        """What a view asked, as the message that answers it; what went wrong is `error`, for a person to read."""
        reply: Json = {"id": message.get("id")}
        try:
            answers: dict[str, Callable[[Json], Any]] = {
                "picture": lambda asked: self.draw(str(asked["thread"])),
                "news": self._news,
                "threads": lambda _: self.list_threads(),
                "parents": lambda asked: self._parents(str(asked["thread"])),
                "changes": lambda asked: self._details(asked).changes(asked["checkpoints"]),
                "exchanges": lambda asked: self._details(asked).exchanges(asked["runs"]),
                "fork": lambda asked: self._fork(str(asked["thread"]), int(asked["seq"]), str(asked["name"])),
            }
            reply["value"] = answers[message["ask"]](message)
        except ResumableError as error:
            reply["error"] = str(error)
        except Exception as error:  # noqa: BLE001 - a view that waits for an answer would wait for ever
            reply["error"] = f"{type(error).__name__}: {error}"
        return reply

    def draw(self, thread_id: str) -> Json:
        """The picture of a thread, with a number that tells it from later ones."""
        mark = self._store.mark()
        drawing = self._drawing(thread_id)
        drawing.refresh()
        return self._keep(thread_id, _told(drawing, mark))

    def list_threads(self) -> Json:
        """All threads of the store."""
        mark = self._store.mark()
        return self._keep(None, _Told({"threads": overview(self._store)}, mark))

    def _drawing(self, thread_id: str) -> Drawing:
        """What has read the thread so far; of few threads, those that were looked at last."""
        drawing = self._drawings.pop(thread_id, None) or Drawing(self._store, thread_id)
        self._drawings[thread_id] = drawing
        while len(self._drawings) > KEPT:
            self._drawings.pop(next(iter(self._drawings)))
        return drawing

    def _keep(self, thread_id: str | None, told: _Told) -> Json:
        self._versions += 1
        told.value["version"] = self._versions
        self._told[thread_id, self._versions] = told
        while len(self._told) > KEPT:
            self._told.pop(next(iter(self._told)))
        return told.value

    def _news(self, asked: Json) -> Json | None:
        """What is new since a version; None if nothing is. Rows that are as they were are told by their place only."""
        thread_id, version = asked.get("thread"), int(asked["version"])
        before, mark = self._told.get((thread_id, version)), self._store.mark()
        at_most = asked.get("rows") or (before.at_most if before else None)
        self._looks += 1
        anyhow = before is not None and self._looks % ANYHOW_EVERY == 0 and _is_open(before.value)
        if before is not None and not anyhow and (before.mark, before.at_most) == (mark, at_most):
            return None
        try:
            if thread_id is None:
                return self.list_threads()
            drawing = self._drawing(thread_id)
            drawing.refresh()
        except StoreLocked:  # somebody holds it for long: look again later
            return None
        if before is not None and not anyhow and (before.stamp, before.at_most) == (drawing.stamp, at_most):
            self._told[thread_id, version] = before._replace(mark=mark)  # somebody wrote, but nothing of this thread
            return None
        now = self._keep(thread_id, _told(drawing, mark, at_most))
        if before is None:
            return now
        places = {id(row): place for place, row in enumerate(before.value["rows"])}
        return now | {"rows": [places.get(id(row), row) for row in now["rows"]]}

    def _parents(self, thread_id: str) -> Json:
        drawing = self._drawing(thread_id)
        drawing.refresh()
        return {str(seq): parent for seq, parent in drawing.parents().items()}

    def _details(self, asked: Json) -> Details:
        return Details(self._store, str(asked["thread"]))

    def _fork(self, thread_id: str, seq: int, name: str) -> str:
        if not name.strip():
            raise UsageError("A thread needs a name.")
        self._store.fork(thread_id, seq, name)
        where = f"%resumable open {shlex.quote(name)} --db {shlex.quote(str(self._store.path))}"
        return f"Thread {name} holds rows 1 to {seq} of {thread_id}. Open it in a notebook: {where}"


def _is_open(told: Json) -> bool:
    """Whether a process seems to be at work in what was told."""
    if "threads" in told:
        return any(one["open"] != "no" for one in told["threads"])
    return bool(told["sessions"]) and told["sessions"][-1]["ended"] == ""


def threads(db: str | Path = "research.duckdb", thread_id: str | None = None) -> Any:
    """A view of all threads of a store, or the timeline of one of them, for the end of a notebook's cell.

    Args:
        db: the store.
        thread_id: the thread to show; None: the list, in which a click opens one.

    Raises:
        ThreadNotFound: there is no such thread.
        StoreError: there is no such store, or it cannot be read.
    """
    desk = Desk(store := Store.open(db, create=False))
    if thread_id is None:
        listed = desk.list_threads()
        return _widget_class()(desk, store, listed, _list_as_text(store, listed["threads"]))
    drawn = desk.draw(thread_id)
    small = len(json.dumps(drawn, ensure_ascii=False)) <= AT_ONCE_CHARS
    start: Json = {"picture": drawn} if small else {"thread": thread_id}
    return _widget_class()(desk, store, start, _thread_as_text(store, drawn))


@functools.cache
def _widget_class() -> type:
    """Made when it is first needed: its base takes long to import."""
    import anywidget
    import traitlets

    class Timeline(anywidget.AnyWidget):
        """The view, and what stands for it where there are no widgets."""

        _esm = script()
        _css = style()
        start = traitlets.Dict().tag(sync=True)
        store = traitlets.Unicode().tag(sync=True)

        def __init__(self, desk: Desk, store: Store, start: Json, panel: Panel) -> None:
            super().__init__(start=start, store=str(store.path))
            self._panel = panel
            self.on_msg(lambda _widget, message, _buffers: self.send(desk.answer(message)))

        def _repr_mimebundle_(self, **_: Any) -> tuple[Json, Json]:
            view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
            return {**self._panel.data(), WIDGET: view}, {OURS: {"says": "timeline"}}

    return Timeline


# ------------------------------------------------------------------------------------------ without widgets
def _thread_as_text(store: Store, drawn: Json) -> Panel:
    total, rows = drawn["totals"], drawn["rows"][-ROWS_AS_TEXT:]
    tokens = counted(total["input"] + total["output"], "token")
    spent = f"{counted(total['calls'], 'LLM call')}, {tokens}, {duration(total['ms'])} of work"
    more = (
        f"{counted(total['sessions'], 'session')}, crashes: {total['crashes']:,}, waiting gates: {total['waiting']:,}"
    )
    command = f"resumable-nb timeline --thread {shlex.quote(drawn['thread'])} --db {shlex.quote(str(store.path))}"
    lines = [spent, f"{more}, effects in doubt: {total['doubt']:,}", f"As a page that opens anywhere: `{command}`"]
    if len(drawn["rows"]) > len(rows):
        lines.append(f"the newest {len(rows)} of {total['steps']:,} steps:")
    columns = ("step", "stands", "runs", "LLM calls", "tokens", "cost", "time")
    return Panel(f"Timeline of thread {drawn['thread']}", lines, columns, [_row_as_text(row) for row in rows])


def _row_as_text(row: Json) -> Sequence[object]:
    tokens, cost = row["input"] + row["output"], f"${row['usd']:.2g}" if row["usd"] else None
    return [
        row["name"],
        row["stands"],
        len(row["runs"]),
        row["calls"] or None,
        tokens or None,
        cost,
        duration(row["ms"]),
    ]


def _list_as_text(store: Store, found: Sequence[Json]) -> Panel:
    columns = ("thread", "last activity", "steps done", "gates", "in doubt", "LLM calls", "tokens", "cost", "open in")
    rows = [
        [
            one["thread"],
            when(_moment(one["last"])),
            one["done"],
            one["waiting"] or None,
            one["doubt"] or None,
            one["calls"],
            one["input"] + one["output"],
            f"${one['usd']:.2g}" if one["usd"] else None,
            one["who"] if one["open"] == "yes" else None,
        ]
        for one in found
    ]
    return Panel(f"Threads of {store.path}", (), columns, rows)


def _moment(ms: float) -> datetime:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1e3, UTC)
