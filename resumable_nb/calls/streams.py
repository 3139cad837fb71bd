"""Streamed answers as they come: what may be handed on, what is written of them, and streams that nobody reads on."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable

from resumable_nb.calls.recording import LEFT_OPEN, MAX_BODY_BYTES, Call, Headers, content_type_of, too_large
from resumable_nb.calls.sse import Ending, EventParser, WholeLines, has_lines, is_events
from resumable_nb.failpoints import passing


class StreamRecord:
    """What came of one streamed answer so far.

    Lines are handed on whole, and without the request's own credentials: what is stored is what the caller saw.
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
        _OPEN.add(self)
        if call.scope.step is not None:
            call.scope.before_commit(_prefix_of(weakref.ref(self)))

    # ------------------------------------------------------------ what comes
    def take(self, chunk: bytes) -> bytes:
        """The part of what has come that may be handed on now."""
        if self._lines is None:
            return self._keep(chunk)
        return self._see(self._lines.feed(chunk))

    def flush(self) -> bytes:
        """The rest, when the connection has ended."""
        rest = self._see(self._lines.flush()) if self._lines else b""
        for event in self._parser.flush():
            self._ending.see(event)
        return rest

    @property
    def over(self) -> bool:
        """Whether its end has come, though the connection may be open."""
        return self._ending.over

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
        """The caller reads no further: the prefix is the answer. It is whole if only its last empty line is missing."""
        if self.call.ended:
            return
        for event in self._parser.flush():
            self._ending.see(event)
        if self._ending.done and not self._ending.error:
            self.end()
        elif self._size and self._recorded == self._size:
            self.call.ended = True  # all of it is in the store already
        else:
            self.call.leave(self._body(), status=self._status, headers=self._headers)

    def record_prefix(self) -> None:
        """Write what has come so far, if that is more than what was written before. The stream may go on."""
        if not self.call.ended and self._size and self._size != self._recorded:
            self._recorded = self._size
            body = self._body()
            row = self.call.completing("partial", body, status=self._status, headers=self._headers, why=LEFT_OPEN)
            passing("http.receive.before")
            self.call.scope.append(row)
            passing("http.receive.after")

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
        for event in self._parser.feed(clean):
            self._ending.see(event)
        return self._keep(clean)

    def _keep(self, part: bytes) -> bytes:
        self._size += len(part)
        if self._size <= MAX_BODY_BYTES:
            self._got.append(part)
        else:
            self._got.clear()
        return part


# ---------------------------------------------------------------- streams that nobody reads on
_OPEN: weakref.WeakSet[StreamRecord] = weakref.WeakSet()
_LEFT: deque[StreamRecord] = deque()


def leave_later(record: StreamRecord) -> None:
    """Its reader is gone. The garbage collector says so anywhere, also inside the journal's lock: no time to write."""
    _LEFT.append(record)


def record_left_streams(call: Call) -> None:
    """Before a step asks on: write the prefixes of streams that the same flow of control has left behind.

    `for x in stream: break` closes nothing before the garbage collector comes: the OpenAI SDK's stream is a reference
    cycle. Without its prefix, a crash after this call would find another answer to the stream, and pay this call twice.
    """
    _write_left()
    for record in _open_records():
        other = record.call
        if other.scope.step == call.scope.step and (other.flow is call.flow or _has_ended(other.flow)):
            record.record_prefix()


def _write_left() -> None:
    while True:
        try:
            record = _LEFT.popleft()
        except IndexError:
            return
        record.leave()


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
        _write_left()
        if (still := record()) is not None:
            still.record_prefix()

    return record_prefix
