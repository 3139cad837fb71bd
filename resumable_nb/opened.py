"""A thread that is open in a kernel: its state in the notebook's names, put to the place of each cell."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resumable_nb.binding import Binder
from resumable_nb.cells import STATE
from resumable_nb.commit import state_facts
from resumable_nb.errors import (
    ResumableError,
    StateError,
    StateMismatch,
    StoreError,
    ThreadError,
    ValueNotLoadable,
    ValueNotStorable,
)
from resumable_nb.lineage import Lineage
from resumable_nb.named_state import NamedState
from resumable_nb.place import Left, Places
from resumable_nb.scope import Run, Scope, leave

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from resumable_nb.cells import Cell
    from resumable_nb.names import Names
    from resumable_nb.place import Entry
    from resumable_nb.running import Running
    from resumable_nb.state import Image
    from resumable_nb.thread import Thread


@dataclass
class Opened:
    """What a kernel has of its thread, from one cell to the next; cells begin (`step`) and end (`ending`) on it.

    Args:
        thread: the open thread.
        namespace: where cells run.
        names: the notebook's names in it.
        state_name: the notebook's name of the state class, looked up again after every cell; None for a fixed class.
        query: what a new thread is about.
        newest: whether this notebook goes on from the newest checkpoint, whatever its cells are.

    Attributes:
        places: what stands above a cell.
        outside: where the calls of ordinary cells go.
        problem: why the state does not fit its class as it is now; cells that need it stop.
        running: the cell that has begun and not ended.
    """

    thread: Thread
    namespace: MutableMapping[str, Any]
    names: Names
    state_name: str | None = None
    query: str | None = None
    newest: bool = False
    places: Places = field(init=False)
    outside: Scope = field(init=False)
    lineage: Lineage = field(init=False)
    binder: Binder = field(init=False)
    problem: StateError | None = field(init=False, default=None)
    running: Running | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        fold = self.thread.fold
        self.places = Places(fold, self.names, Left(), anchors=dict(fold.anchors))
        self.outside = Scope(self.thread)
        self.lineage = Lineage(self.thread, self.places)
        self.binder = Binder(self.thread, self.names, self.places)
        self._class = NamedState(self.state_name, self.namespace, self.thread.live)
        self._left: str | None = None

    # ------------------------------------------------------------------ opening
    def begin(self) -> None:
        """Load the thread, or have it wait for the cell that defines the class of its state."""
        if self.state_name is None or self._class.find() is not None:
            self._begin_thread()
        else:
            self.thread.resume.loaded(None, waits_for=f"the cell that defines `{self.state_name}` has run")

    def _begin_thread(self) -> None:
        with self.thread.telling(self.thread.fold.newest()):
            self._load_thread()

    def _load_thread(self) -> None:
        cls = self._class.find()
        if cls is not None and cls is not self.thread.live.cls:
            self.thread.live.redefine(cls)
        self.thread.begin(self.query)
        for line in self.thread.notices:
            self.outside.notice(line)
        self.thread.notices.clear()
        root = self.thread.fold.newest() if self.newest else self.thread.fold.root
        self.places.start = Left(state_facts(self.thread.fold.image(root)))
        self.lineage.start = root
        self.namespace["thread"] = self.thread
        try:
            self.set_state(self.thread.fold.image(self.thread.fold.newest()))
        except ValueNotLoadable:  # its class is defined by a cell to come: a place's state is loaded when it is needed
            self.set_state(self.thread.fold.image(self.thread.fold.root))
            self.thread.resume.loaded(None, waits_for="the cells that define the classes of its values have run")
        else:
            self.thread.resume.loaded(self.thread.live.state)

    def follow_state_class(self) -> None:
        """The class of the state may have been defined anew. What does not fit stops the cells that need it."""
        if self.state_name is None:
            return
        cls = self._class.find()
        if cls is None or (self.thread.fold.root and cls is self.thread.live.cls):
            return
        try:
            self._begin_thread()
            self.problem = None
        except StateError as error:
            self.problem = error

    # ------------------------------------------------------------------ between cells
    def refresh(self) -> ResumableError | None:
        """See what others wrote. What is wrong with the store or the thread stops steps, not ordinary cells."""
        try:
            self.thread.session.refresh()
        except (StoreError, ThreadError) as error:
            return error
        self.thread.resume.show()
        return self.thread.session.lost

    def look_between(self) -> None:
        """The state may have been changed since the last cell ended; that belongs to no cell, and is not kept."""
        with contextlib.suppress(StateError, ValueNotStorable):
            if self._left is not None and self.thread.live.image().digest != self._left:
                self.outside.notice(
                    "the state was changed between cells, by a widget or a task: that is not kept. Change it in a cell"
                )

    # ------------------------------------------------------------------ the state
    def put_state(self, above: list[Cell], at: Entry) -> tuple[int, Image]:
        """R2: the state is that of the place; it stays where that is not known and the cell does not need it."""
        left, needed = at.state, STATE in at.placed
        try:
            if self.problem is not None:
                raise self.problem
            if self._class.find() is None:
                raise self._class.missing()
            if left.blame or left.facts is None:
                raise self._class.missing()
            seq = left.record.checkpoint if left.record else self.lineage.start
            image = self.thread.fold.image(seq)
            self.set_state(image)
        except (StateError, ValueNotLoadable):
            if needed:
                raise
            return self.lineage.parent(above), self.thread.live.image()
        return seq, image

    def set_state(self, image: Image) -> None:
        """The state is this one, under its name."""
        with self.thread.telling(self.thread.fold.newest()):
            self.thread.live.set(image)
        self._left = image.digest
        self.namespace[STATE] = self.thread.live.state

    def adopt_state(self) -> None:
        """A cell may have bound `state` to a new object."""
        bound = self.namespace.get(STATE, self.thread.live.state)  # `%reset` takes it away
        if bound is not self.thread.live.state:
            if not isinstance(bound, type(self.thread.live.state)):
                raise StateMismatch(
                    f"The cell bound `state` to {type(bound).__name__}. Change its fields instead, such as "
                    "`state.update(findings=[…])`; nothing was stored."
                )
            for name in type(bound).model_fields:
                setattr(self.thread.live.state, name, getattr(bound, name))
            self.namespace[STATE] = self.thread.live.state

    def end(self, running: Running) -> None:
        """A cell has ended, however that was: what is changed from here on belongs to no cell."""
        self.names.forget()
        with contextlib.suppress(StateError, ValueNotStorable):
            self._left = self.thread.live.image().digest
        if isinstance(running.scope, Run):
            leave(running.scope)
        if self.running is running:
            self.running = None
