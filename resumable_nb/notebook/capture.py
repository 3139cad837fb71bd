"""Following what one request shows, by ipykernel's own hooks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from resumable_nb.notebook.outputs import OURS, Collector, Output, WidgetTexts

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_THREAD_WAIT_S = 2.0


class Tee:
    """Collects the outputs of one execute request while they stream to the front end as ever.

    In a shell that is no kernel (a terminal) there are no hooks, and nothing is collected.

    Attributes:
        problem: what went wrong while collecting; the front end got its messages all the same.
    """

    def __init__(self, shell: InteractiveShell, msg_id: str) -> None:
        self.problem: Exception | None = None
        self._shell, self._msg_id = shell, msg_id
        self._collector, self._lock = Collector(), threading.Lock()
        self._undo: list[Callable[[], object]] = []

    def start(self) -> None:
        """Begin to collect. Text that was written before is not taken."""
        self._flush()
        streams: list[Any] = [sys.stdout, sys.stderr]
        for stream in streams:
            thread = getattr(stream, "pub_thread", None)
            if thread is not None and hasattr(stream, "register_hook"):
                # A stream's hooks belong to the thread that publishes it.
                _on_thread(thread, stream.register_hook, self._see)
                self._undo.append(partial(_on_thread, thread, stream.unregister_hook, self._see))
        publishers: list[Any] = [self._shell.display_pub, self._shell.displayhook]
        for publisher in publishers:
            if hasattr(publisher, "register_hook"):
                publisher.register_hook(self._see)
                self._undo.append(partial(publisher.unregister_hook, self._see))
        if hasattr(self._shell.display_pub, "register_hook"):
            for name in ("publish", "clear_output"):
                self._hear_threads(self._shell.display_pub, name)

    def _hear_threads(self, publisher: Any, name: str) -> None:
        """Hear other threads of the cell too, such as draw the end of rich's bars: hooks are each thread's own."""
        original, home = getattr(publisher, name), threading.get_ident()

        @wraps(original)
        def show(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == home:
                return original(*args, **kwargs)
            publisher.register_hook(self._see)
            try:
                return original(*args, **kwargs)
            finally:
                publisher.unregister_hook(self._see)

        setattr(publisher, name, show)
        self._undo.append(partial(setattr, publisher, name, original))

    @property
    def clears(self) -> int:
        """How often the cell has erased what it had shown, our lines too."""
        self._flush()
        with self._lock:
            return self._collector.clears

    def make_room(self) -> None:
        """A traceback was shown, which is no output of the step, but ends a `clear_output(wait=True)`."""
        with self._lock:
            self._collector.make_room()

    def stop(self) -> list[Output]:
        """End, and give what stands on screen now."""
        self._flush()
        while self._undo:
            self._undo.pop()()
        with self._lock:
            try:
                return self._collector.outputs(self._widgets())
            except Exception as problem:  # noqa: BLE001 any widget class may have code of its own; said by the caller
                self.problem = problem
                return []

    @staticmethod
    def _flush() -> None:
        """Let pending text reach the hooks."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()

    @staticmethod
    def _widgets() -> WidgetTexts | None:
        """The kernel's widgets, if it has loaded ipywidgets."""
        module = sys.modules.get("ipywidgets.widgets.widget")
        instances = getattr(module, "_instances", None)
        return None if instances is None else WidgetTexts(instances)

    def _see(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            kind, content = message["header"]["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") == self._msg_id:
                widgets = self._widgets()
                widget_id = widgets.catching(self._msg_id) if widgets else None
                with self._lock:
                    if OURS not in (content.get("metadata") or {}):
                        self._collector.add(kind, content, widget_id=widget_id)
                    elif kind == "display_data" and widget_id is None:
                        self._collector.make_room()
        except Exception as problem:  # noqa: BLE001 the person's output must go through; said by the caller
            self.problem = problem
        return message


def _on_thread(thread: Any, function: Callable[[Any], object], argument: object) -> None:
    """Call on ipykernel's publishing thread, and wait until it is done."""
    done = threading.Event()

    def act() -> None:
        function(argument)
        done.set()

    thread.schedule(act)
    done.wait(_THREAD_WAIT_S)
