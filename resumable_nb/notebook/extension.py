"""How cells of IPython become steps: the input is rewritten, an AST transformer decides, hooks watch what is shown.

Nothing nests a run. For each cell that a person executes IPython calls, in this order: the rewriting of its text,
`pre_run_cell`, `visit` (what happens to it is decided, and its code is wrapped), the code itself with `commit` as its
last act, and `post_run_cell`.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, cast

from resumable_nb import pictures
from resumable_nb.calls import approval
from resumable_nb.errors import Paused, ResumableError, StepError, UsageError, main_error
from resumable_nb.notebook import doubt, source
from resumable_nb.notebook.canvas import Canvas
from resumable_nb.notebook.capture import Tee
from resumable_nb.notebook.failures import handle_groups, leave_groups
from resumable_nb.notebook.gate import GateDesk
from resumable_nb.notebook.interrupts import Wakeup
from resumable_nb.notebook.order import Notebook, Request
from resumable_nb.notebook.outputs import OURS, Output, prepare
from resumable_nb.notebook.panels import resume_panel
from resumable_nb.notebook.signing import sign, trusted
from resumable_nb.notebook.summary import summary
from resumable_nb.panel import Panel, line
from resumable_nb.spending import spent_since

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell

    from resumable_nb.receipts import Doubt
    from resumable_nb.resuming import Line
    from resumable_nb.step import Decision, Kernel
    from resumable_nb.thread import Thread

NO_THREAD = (
    "No thread is open: this step has no journal. Open one in a cell above, such as `%resumable open my-research`."
)
CHANGED_WHILE_OPENING = (
    "The cell that opens the thread changed the state, and that is not kept: do it in the next cell."
)
UNSAVED = (
    "The saved notebook does not have this cell: it is taken to stand after the cell that was run before it. "
    "Save the notebook, so that its place is known."
)


def no_step_here(line: str) -> str:
    """Why a step line has no effect where it stands."""
    return (
        f"`%%resumable {line}` was reached inside another cell (by %run, run_cell or a magic above it) and is no step "
        "there. Give it a cell of its own, with the `%%resumable` line at its top."
    )


@dataclass
class _Run:
    """One cell that a person executed, from `pre_run_cell` to `post_run_cell`."""

    request: Request
    info: ExecutionInfo | None
    visited: bool = False
    kernel: Kernel | None = None
    decision: Decision | None = None
    error: BaseException | None = None
    tee: Tee | None = None
    committed: bool = False
    in_magic: bool = False
    error_shown_before: BaseException | None = None
    nested: list[ExecutionInfo] = field(default_factory=list)
    said: list[tuple[int, str]] = field(default_factory=list)

    @property
    def clears(self) -> int:
        """How often the cell has erased its outputs."""
        return self.tee.clears if self.tee is not None else 0


class Extension:
    """The library's hold on one IPython shell. Cells reach it as `get_ipython().resumable_nb`.

    Attributes:
        shell: the shell.
        kernel: the rules of the open thread, or None.
        notebook: where its cells stand.
        parser: reads the text of cells.
        on_unload: takes the magics away.
    """

    def __init__(self, shell: InteractiveShell, *, thread_id: int) -> None:
        """`thread_id`: the thread that runs the cells."""
        self.shell = shell
        self.kernel: Kernel | None = None
        self.parser = source.Parser(shell.input_transformer_manager.transform_cell)
        self.notebook = Notebook(self.parser, path=os.environ.get("JPY_SESSION_NAME"))
        self._rewrite, self._wakeup = source.Rewrite(), Wakeup()
        self._gates = GateDesk(shell, is_headless=self._is_headless)
        self._canvas = Canvas(shell)
        self._run: _Run | None = None
        self._skipped = False
        self._opening: tuple[Kernel, str, str] | None = None
        self._thread_id, self._pid = thread_id, os.getpid()
        self.on_unload: Callable[[], None] = lambda: None

    # ------------------------------------------------------------------ on and off
    def load(self) -> None:
        """Take hold of the shell."""
        setattr(self.shell, source.ATTRIBUTE, self)
        self.shell.input_transformers_cleanup.append(self._rewrite)
        self.shell.ast_transformers.append(cast("ast.NodeTransformer", self))
        self.shell.events.register("pre_run_cell", self.pre_run_cell)
        self.shell.events.register("post_run_cell", self.post_run_cell)
        atexit.register(self._at_exit)
        handle_groups(self.shell)
        approval.wait_with(self._gates)
        if getattr(self.shell, "kernel", None) is not None:  # a terminal cannot draw anew
            pictures.draw_with(self._canvas)

    def unload(self) -> None:
        """Close the thread, and leave the shell as it was."""
        atexit.unregister(self._at_exit)
        leave_groups(self.shell)
        approval.wait_no_more_with(self._gates)
        pictures.draw_no_more_with(self._canvas)
        if self.kernel is not None:  # from here on nothing is kept
            thread_id = self.kernel.thread.thread_id
            self.say([f"Thread {thread_id} is closed. To go on: `%load_ext resumable_nb` and `%resumable open`."])
        self.leave()
        self._wakeup.stop()
        if self._run is not None and self._run.tee is not None:
            self._run.tee.stop()
        self.shell.events.unregister("pre_run_cell", self.pre_run_cell)
        self.shell.events.unregister("post_run_cell", self.post_run_cell)
        with contextlib.suppress(ValueError):  # IPython takes out a transformer that raised
            self.shell.ast_transformers.remove(cast("ast.NodeTransformer", self))
        self.shell.input_transformers_cleanup.remove(self._rewrite)
        delattr(self.shell, source.ATTRIBUTE)

    def open(self, kernel: Kernel) -> None:
        """From the next cell on, cells belong to this thread."""
        self.leave()
        self.kernel = kernel
        kernel.thread.say = lambda text: self.say([text])
        self.notebook.start_over()
        request = self.request
        cell, _ = self.notebook.place(request, front_path=self._front_path())
        self._opening = kernel, cell.cell_id, kernel.thread.live.image().digest

    def leave(self) -> None:
        """Close the open thread; that its store cannot be written any more does not hold a person here."""
        with self._telling():
            self.close()

    def close(self) -> None:
        """Close the open thread, if there is one."""
        kernel, self.kernel, self._opening = self.kernel, None, None
        if kernel is not None:
            kernel.close()
            kernel.thread.close()

    def _at_exit(self) -> None:
        # A forked child that ends by sys.exit must not end its parent's session.
        if os.getpid() == self._pid:
            with contextlib.suppress(ResumableError):  # nobody is there to be told; the next opening says what is lost
                self.close()

    # ------------------------------------------------------------------ before the code
    def pre_run_cell(self, info: ExecutionInfo) -> None:
        """A cell is about to run: whose is it? Runs inside a run, by widgets or by tools are nobody's."""
        request = self._request(info) if threading.get_ident() == self._thread_id else None
        if self._run is not None and request is not None and request.msg_id != self._run.request.msg_id:
            self._end(
                KeyboardInterrupt()
            )  # a front end's next request: an interrupt kept us from seeing the last one's end
        if self._run is not None:
            self._run.nested.append(info)
        elif request is not None:
            self._run, self._skipped = _Run(request, info), False

    def _request(self, info: ExecutionInfo | None) -> Request | None:
        """What a person's front end asked for; None if this is not what is running now."""
        parent = self.shell.get_parent() if hasattr(self.shell, "get_parent") else {}
        if not parent:  # a terminal, or a program that drives a shell
            return Request(str(info.raw_cell)) if info is not None else None
        content, metadata = parent.get("content", {}), parent.get("metadata") or {}
        if parent["header"].get("msg_type") != "execute_request" or not content.get("store_history", True):
            return None
        if info is not None and (not info.store_history or info.raw_cell != content.get("code")):
            return None
        return Request(content.get("code", ""), metadata.get("cellId"), metadata, parent["header"]["msg_id"])

    @property
    def request(self) -> Request:
        """What a person's front end asked for, and is running now."""
        return self._run.request if self._run else self._request(None) or Request("")

    def _is_headless(self) -> bool:
        """Whether no person sits before this: the cell was sent by `resumable-nb run`."""
        return self._run is not None and bool(self._run.request.metadata.get("runner"))

    def _front_path(self) -> str | None:
        found = self.shell.user_ns.get("__vsc_ipynb_file__")
        return found if isinstance(found, str) else None

    def visit(self, node: ast.AST) -> ast.AST:
        """Decide what happens to the cell and wrap its code. It never raises: IPython would drop the transformer."""
        run = self._run
        if run is None or run.visited or run.nested or not isinstance(node, ast.Module) or not node.body:
            return node
        if threading.get_ident() != self._thread_id:
            return node
        run.visited = True
        first = node.body[0]
        is_step = source.marker_line(first) is not None
        if self.kernel is None and not is_step:
            return node
        body = node.body[1:] if is_step else node.body
        try:
            action = self._begin(run, body, is_step=is_step)
        except BaseException as error:  # noqa: BLE001 the cell raises it, where its author sees it
            run.error = error
            node.body = [source.call("stop", at=first)]
        else:
            if action == "skip":
                node.body = [source.call("show", at=first)]
            elif body:
                node.body = source.with_commit(body, interactivity=self.shell.ast_node_interactivity)
            else:
                node.body = [source.call("commit", at=first)]
        return ast.fix_missing_locations(node)

    def _begin(self, run: _Run, body: list[ast.stmt], *, is_step: bool) -> str:
        kernel = self.kernel
        parsed = self.parser.parse(run.request.raw)
        if parsed.error is not None:
            raise parsed.error
        if kernel is None:
            raise UsageError(NO_THREAD)
        if is_step != (parsed.step is not None):
            raise StepError(no_step_here(parsed.step or ""))
        step_line = parsed.step_line
        if step_line is not None and step_line.fresh and step_line.name in kernel.thread.fold.step_names():
            kernel.thread.fresh(step_line.name)
        cell, order = self.notebook.place(run.request, front_path=self._front_path())
        run.decision, run.kernel = kernel.begin(cell, order), kernel
        self._skipped = run.decision.action == "skip"
        run.in_magic, run.error_shown_before = source.is_cell_magic(body), getattr(sys, "last_value", None)
        self._wakeup.start()
        unsaved = is_step and order.origin == "file" and all(c.cell_id != cell.cell_id for c in order.cells)
        self.say([run.decision.line, UNSAVED if unsaved else ""])
        self._ask_about([], bool(run.request.metadata.get("runner")))
        if run.decision.action == "run":
            run.tee = Tee(self.shell, run.request.msg_id)
            run.tee.start()
        return run.decision.action

    # ------------------------------------------------------------------ called by the cell
    def step(self, line: str) -> None:
        """What stands in place of the `%%resumable` line; it is taken out where the cell is a step."""
        raise StepError(no_step_here(line))

    def stop(self) -> None:
        """Raise what made the cell stop before its code ran."""
        if self._run is not None and self._run.error is not None:
            raise self._run.error

    def show(self) -> None:
        """Show again what a skipped step showed."""
        run = self._run
        if run is None or run.decision is None:
            return
        outputs = list(run.decision.outputs)
        shown = prepare(outputs, is_trusted=trusted(outputs, run.decision.signature), is_headless=self._is_headless())
        self._publish(shown.outputs)
        self.say(shown.lines)

    def commit(self, value: object = None) -> object:
        """The last act of a cell: its checkpoint is in the store when this returns. Gives the value back."""
        run = self._run
        if run is None or run.kernel is None or run.kernel is not self.kernel or run.committed:
            return value
        swallowed = getattr(sys, "last_value", None)
        if run.in_magic and swallowed is not run.error_shown_before and isinstance(swallowed, BaseException):
            run.error = swallowed
            if run.decision is not None and run.decision.action == "run":
                raise swallowed.with_traceback(None) from None
            return value
        thread = run.kernel.thread
        if thread.fold.root:  # `%reset` takes them away
            self.shell.user_ns.setdefault("state", thread.live.state)
            self.shell.user_ns.setdefault("thread", thread)
        lines = run.kernel.commit()
        run.committed = True
        self.say(lines)
        return value

    # ------------------------------------------------------------------ after the code
    def post_run_cell(self, result: ExecutionResult | None) -> None:
        """The cell has ended, whatever way."""
        run = self._run
        if run is None:
            self._opened()
            return
        if result is not None and result.info is not run.info:
            nested = [info for info in run.nested if info is not result.info]
            text = result.info.raw_cell if result.info else None
            if len(nested) < len(run.nested) or text != run.request.raw:
                run.nested = nested
                return
        error = KeyboardInterrupt() if result is None else result.error_before_exec or result.error_in_exec
        if result is not None and result.error_in_exec is not None:
            error = result.error_in_exec = main_error(result.error_in_exec)
        self._end(error or (run.error if not run.committed else None))
        self._opened()

    def _end(self, error: BaseException | None) -> None:
        run, self._run = self._run, None
        assert run is not None
        self._wakeup.stop()
        is_headless = bool(run.request.metadata.get("runner"))
        if isinstance(error, Paused) and error.question is not None and not is_headless:
            self._gates.show(error.question)
        kernel = run.kernel if run.kernel is self.kernel else None
        if kernel is not None and error is not None:
            with self._telling():
                self.say(kernel.fail(error))
        with self._telling():
            self._ask_about([] if not isinstance(error, Paused) or is_headless else error.doubts, is_headless)
        if run.tee is None:
            return
        if error is not None:
            run.tee.make_room()
        clears = run.clears
        self.say(text for seen, text in run.said if seen < clears)  # a `clear_output` of the cell took it away
        outputs = run.tee.stop()
        if kernel is not None and run.committed:
            with self._telling():
                kernel.outputs(outputs, sign(outputs))
        if run.tee.problem is not None:
            self.say([f"Not all outputs of this step could be kept: {run.tee.problem!r}"])

    def _opened(self) -> None:
        """The cell that opened a thread has ended: what is bound now was left by it and the cells above."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        kernel, cell_id, digest = opening
        kernel.baseline(cell_id)
        if kernel.thread.live.image().digest != digest:
            self.say([CHANGED_WHILE_OPENING])

    # ------------------------------------------------------------------ showing
    def _ask_about(self, doubts: Iterable[Doubt], is_headless: bool) -> None:  # noqa: FBT001
        """Show panels for effects that a person has to settle, and for those that no step stops for."""
        kernel = self.kernel
        if kernel is None:
            return

        def then() -> None:
            with contextlib.suppress(ResumableError):  # the next cell says what is wrong with the store
                kernel.thread.session.refresh()
                kernel.thread.resume.show()

        for found in [*doubts, *kernel.thread.resume.to_ask()]:
            doubt.show(self.shell, found, is_headless=is_headless, then=then)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Show an error of the library's as a line, where no cell can raise it."""
        try:
            yield
        except ResumableError as problem:
            self.say([f"{type(problem).__name__}: {problem}"])

    def say(self, lines: Iterable[str]) -> None:
        """Show lines for the person; they are no part of what the cell shows."""
        text = "\n".join(filter(None, lines))
        if text:
            self.shell.display_pub.publish(line(text), metadata={OURS: {"says": "line"}})
            if self._run is not None:
                self._run.said.append((self._run.clears, text))

    def show_panel(self, panel: Panel) -> None:
        """Show a panel; it is no part of what the cell shows."""
        self.shell.display_pub.publish(panel.data(), metadata={OURS: {"says": "panel"}})

    def show_resume(self, thread: Thread) -> None:
        """Show where a thread stands. The panel follows its resume, line by line."""
        found, place = summary(thread, self.notebook.steps()), {"display_id": f"resumable-nb-{os.urandom(8).hex()}"}

        def publish(lines: Sequence[Line], *, update: bool) -> None:
            data, told = resume_panel(found, lines).data(), [f"resume: {line}" for line in lines if line.is_news]
            metadata = {OURS: {"says": "resume", "lines": told}}  # the lines are for `resumable-nb run`
            self.shell.display_pub.publish(data, metadata=metadata, transient=place, update=update)

        def show(lines: Sequence[Line], changed: Sequence[Line]) -> None:
            if getattr(self.shell, "kernel", None) is None:  # a terminal cannot show it anew
                self.say([f"resume: {line}" for line in changed])
            else:
                publish(lines, update=True)

        thread.resume.listen(show)
        publish(thread.resume.lines(), update=False)

    def account(self, since: str) -> tuple[bool, str, str, int, int]:
        """For the headless runner: whether the last cell was skipped; store, thread, calls and tokens since then."""
        if self.kernel is None:
            return self._skipped, "", "", 0, 0
        thread = self.kernel.thread
        calls, tokens = spent_since(thread.session, datetime.fromisoformat(since))
        return self._skipped, str(thread.store.path), thread.thread_id, calls, tokens

    def _publish(self, outputs: Sequence[Output]) -> None:
        """Show outputs anew, with no display id: one of that name may be somebody else's."""
        for output in outputs:
            if output["output_type"] == "stream":
                stream = sys.stderr if output["name"] == "stderr" else sys.stdout
                stream.write(output["text"])
                stream.flush()
            else:
                self.shell.display_pub.publish(output["data"], metadata=output["metadata"])
