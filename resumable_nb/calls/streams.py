"""Streamed answers as they come: what may be handed on, what is written of them, and streams that nobody reads on."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable

from resumable_nb.calls.protocol import current_scope
from resumable_nb.calls.recording import LEFT_OPEN, MAX_BODY_BYTES, Call, Headers, content_type_of, too_large
from resumable_nb.calls.sse import Ending, EventParser, WholeLines, has_lines, is_events
from resumable_nb.failpoints import passing


class StreamRecord:
    """What came of one streamed answer so far.

    Lines are handed on whole, and without the request's own credentials: what is stored is what the caller saw.

    Attributes:
        collected: the garbage collector has closed it.
    """

    def __init__(self, call: Call, *, status: int, headers: Headers) -> None:
        self.call = call
        self._status, self._headers = status, headers
        content_type = content_type_of(headers)
        self._lines = WholeLines() if has_lines(content_type) else None
        self._parser = EventParser(per_line=not is_events(content_type))
        self._ending = Ending()
        self._got: list[bytes] = []
        self._size = self._recorded = 0
        self.collected = False
        _OPEN.add(self)
        if call.scope.step is not None:
            call.scope.before_commit(_prefix_of(weakref.ref(self)))

    # ------------------------------------------------------------ what comes
    def take(self, chunk: bytes) -> bytes:
        """The part of what has come that may be handed on now."""
        return self._keep(chunk) if self._lines is None else self._see(self._lines.feed(chunk))

    def flush(self) -> bytes:
        """The rest, when the connection has ended."""
        rest = self._see(self._lines.flush()) if self._lines else b""
        self._see_last_event()
        return rest

    @property
    def over(self) -> bool:
        """Whether its end has come and is to be written, though the connection may be open."""
        return self._ending.over and not self.call.ended

    @property
    def broken(self) -> str | None:
        """Why the end of the connection is not the end of the answer, if the reader cannot see that from an event."""
        return None if self._ending.error else self._why_not_whole()

    # ------------------------------------------------------------ its rows
    def end(self) -> None:
        """Write its last row: the terminator or the end of the connection has come."""
        if self._size > MAX_BODY_BYTES:
            self.fail(too_large(self._size), tell=True)
        elif why := self._why_not_whole():
            self.fail(why, tell=self._ending.error is None)
        else:
            self.call.done(self._body(), status=self._status, headers=self._headers)

    def fail(self, why: str, *, tell: bool = False) -> None:
        """Write that it is no answer."""
        self.call.fail(why, status=self._status, headers=self._headers, tell=tell)

    def close(self, error: BaseException | None) -> None:
        """Write its last row: the caller closes it.

        Args:
            error: what is in flight then; SDKs close in a `finally`. It says that something broke, unless it was being
                handled when the call began.
        """
        if error is None or error is self.call.background or isinstance(error, (GeneratorExit, StopAsyncIteration)):
            self.leave()
        else:
            self.fail(f"interrupted: {type(error).__name__}")

    def leave(self) -> None:
        """The caller reads no further: the prefix is the answer. It is whole if only its last empty line is missing.

        If its step is over by now, the step has committed and recorded the prefix, or it broke off while it read.
        """
        self._see_last_event()
        if self.over:
            self.end()
        elif self._size > MAX_BODY_BYTES:
            self.fail(too_large(self._size), tell=True)
        elif self._recorded and (self._recorded == self._size or not self._is_in_its_step):
            self.call.ended = True  # what the step had of it is in the store already
        elif self._is_in_its_step:
            self.call.leave(self._body(), status=self._status, headers=self._headers)
        else:
            self.fail("its step broke off while it was read")

    def record_prefix(self) -> None:
        """Write what has come so far, if that is more than what was written before. The stream may go on."""
        if not self.call.ended and self._recorded < self._size <= MAX_BODY_BYTES:
            self._recorded = self._size
            body = self._body()
            row = self.call.completing("partial", body, status=self._status, headers=self._headers, why=LEFT_OPEN)
            passing("http.receive.before")
            self.call.scope.append(row)
            passing("http.receive.after")

    @property
    def _is_in_its_step(self) -> bool:
        return self.call.scope is current_scope()

    def _see_last_event(self) -> None:
        for event in self._parser.flush():
            self._ending.see(event)

    def _why_not_whole(self) -> str | None:
        if self._lines is None:
            return None
        why = self._ending.why_not_whole(strict=self.call.question.kind == "llm")
        return why if why is None or self._ending.error else f"the stream broke off: {why} ({self._size:,} bytes came)"

    def _body(self) -> bytes:
        body = b"".join(self._got)
        return body if self._lines else self.call.clean(body)

    def _see(self, lines: bytes) -> bytes:
        clean = self.call.clean(lines) if lines else b""
        if not self.call.ended:
            for event in self._parser.feed(clean):
                self._ending.see(event)
        return self._keep(clean)

    def _keep(self, part: bytes) -> bytes:
        if not self.call.ended:
            self._size += len(part)
            self._got.append(part)
            if self._size > MAX_BODY_BYTES:
                self._got.clear()
        return part


# ---------------------------------------------------------------- streams that nobody reads on
_OPEN: weakref.WeakSet[StreamRecord] = weakref.WeakSet()
_LEFT: deque[StreamRecord] = deque()


def leave_later(record: StreamRecord) -> None:
    """Its reader is gone. The garbage collector says so anywhere, also inside the journal's lock: no time to write."""
    record.collected = True
    _LEFT.append(record)


def left_streams(call: Call) -> list[StreamRecord]:
    """Streams whose prefixes are to be written before this call: the same flow of control has left them behind.

    `for x in stream: break` closes nothing before the garbage collector comes: the OpenAI SDK's stream is a reference
    cycle. Without its prefix, a crash after this call would find another answer to the stream, and pay this call twice.
    """
    left = [record for record in _take_left() if not record.call.ended]
    for record in _open_records():
        other = record.call
        if not record.collected and other.scope is call.scope and (other.flow is call.flow or _has_ended(other.flow)):
            left.append(record)
    return left


def record_prefixes(left: list[StreamRecord]) -> None:
    """Write them; those that the garbage collector has closed get their last row."""
    for record in left:
        record.leave() if record.collected else record.record_prefix()


def _take_left() -> list[StreamRecord]:
    taken = []
    while True:
        try:
            taken.append(_LEFT.popleft())
        except IndexError:
            return taken


def _open_records() -> list[StreamRecord]:
    while True:
        try:
            return [record for record in _OPEN if not record.call.ended]
        except RuntimeError:  # another thread opened one meanwhile
            continue


def _has_ended(flow: object) -> bool:
    if isinstance(flow, threading.Thread):
        return not flow.is_alive()
    return isinstance(flow, asyncio.Task) and flow.done()


def _prefix_of(record: weakref.ref[StreamRecord]) -> Callable[[], None]:
    """What the commit of a step calls; it keeps no stream alive."""

    def record_prefix() -> None:
        record_prefixes(_take_left())
        if (still := record()) is not None:
            still.record_prefix()

    return record_prefix
