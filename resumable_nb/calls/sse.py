"""Streamed answers: whole lines out of chunks, events out of lines, and whether the answer is whole.

Event streams follow the WHATWG HTML standard, section 9.2.6; `application/x-ndjson` (Ollama's own API) is read as one
event per line. What ends an answer is the providers' own convention, see `TERMINAL`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TERMINAL = frozenset(
    {
        "response.completed",
        "response.incomplete",  # the limit of tokens was reached: an answer
        "message_stop",
        "speech.audio.done",
        "transcript.text.done",
        "image_generation.completed",
        "image_edit.completed",
    }
)
FAILED = frozenset({"error", "response.failed"})
_WHOLE_EVENT = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r)|.+", re.DOTALL)


def is_streamed(content_type: str) -> bool:
    """Whether somebody may want to read such a body as it comes."""
    return content_type.startswith(("audio/", "video/", "application/octet-stream")) or has_lines(content_type)


def has_lines(content_type: str) -> bool:
    """Whether such a body is a stream of lines: events, or one JSON object per line."""
    return is_events(content_type) or content_type.startswith(("application/x-ndjson", "application/jsonl"))


def is_events(content_type: str) -> bool:
    """Whether such a body is an event stream."""
    return content_type.startswith("text/event-stream")


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name (empty if it has none) and its data."""

    name: str
    data: str

    @property
    def json(self) -> Any:
        """The data as JSON; None if it is none."""
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError):
            return None


class WholeLines:
    """Cuts chunks, which may end anywhere, into whole lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._cr = b""

    def feed(self, chunk: bytes) -> bytes:
        """The lines that are whole now, with their ends. A last CR waits: its LF may be in the next chunk."""
        chunk = self._cr + chunk
        self._cr = chunk[-1:] if chunk.endswith(b"\r") else b""
        chunk = chunk[: len(chunk) - len(self._cr)]
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if not end:
            self._parts.append(chunk)
            return b""
        whole = b"".join([*self._parts, chunk[:end]])
        self._parts = [chunk[end:]]
        return whole

    def flush(self) -> bytes:
        """What is left when nothing more comes."""
        rest = b"".join(self._parts) + self._cr
        self._parts, self._cr = [], b""
        return rest


@dataclass
class EventParser:
    """Reads events out of whole lines.

    Args:
        per_line: every line is one event (ndjson).
    """

    per_line: bool = False
    _name: str = ""
    _data: list[str] = field(default_factory=list)

    def feed(self, lines: bytes) -> Iterator[Event]:
        """The events that these lines complete."""
        for line in lines.splitlines():
            text = line.decode("utf-8", "replace")
            if self.per_line:
                if text.strip():
                    yield Event("", text)
            elif text:
                self._take(text.removeprefix("\ufeff"))
            else:
                yield from self.flush()

    def flush(self) -> Iterator[Event]:
        """The event that only lacks the empty line after it."""
        if self._data or self._name:
            event = Event(self._name, "\n".join(self._data))
            self._name, self._data = "", []
            yield event

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        elif name == "event":
            self._name = value.strip()


def events(body: bytes, *, per_line: bool = False) -> Iterator[Event]:
    """All events of a whole body."""
    parser = EventParser(per_line)
    yield from parser.feed(body)
    yield from parser.flush()


def pieces(body: bytes, *, content_type: str) -> list[bytes]:
    """A recorded body cut so that its reader sees one event after the other again."""
    if not is_events(content_type):
        return body.splitlines(keepends=True) if has_lines(content_type) else [body]
    cut: list[bytes] = _WHOLE_EVENT.findall(body)
    if cut and not cut[-1].endswith((b"\n\n", b"\r\n\r\n", b"\r\r")):
        cut[-1] += b"\n\n"  # else the last event, complete but for the empty line, would never be seen
    return cut


class Ending:
    """Judges by its events whether a streamed answer is whole.

    Attributes:
        done: its terminator has come.
        error: what an error event said; the answer is none then, even if a terminator follows.
    """

    def __init__(self) -> None:
        self.done = False
        self.error: str | None = None
        self._reasons: dict[tuple[str, int], bool] = {}

    def see(self, event: Event) -> None:
        """Take one more event into account."""
        if event.data.strip() == "[DONE]":
            self.done = True
            return
        value = event.json
        fields: dict[str, Any] = value if isinstance(value, dict) else {}
        kinds = {event.name, str(fields.get("type", ""))}
        if self.error is None and (kinds & FAILED or fields.get("error")):
            self.error = event.data or event.name
        self.done = self.done or bool(kinds & TERMINAL) or fields.get("done") is True
        self._see_reasons(fields)

    def _see_reasons(self, fields: dict[str, Any]) -> None:
        if "done" in fields:
            self._reasons["ndjson", 0] = bool(fields["done"])
        for group, reason in (("choices", "finish_reason"), ("candidates", "finishReason")):
            several = fields.get(group)
            for place, one in enumerate(several if isinstance(several, list) else ()):
                if isinstance(one, dict):
                    slot = group, one.get("index", place)
                    self._reasons[slot] = self._reasons.get(slot, False) or bool(one.get(reason))

    @property
    def over(self) -> bool:
        """Whether what follows does not matter any more."""
        return self.done or self.error is not None

    def why_not_whole(self, *, strict: bool) -> str | None:
        """Why the answer is not whole although the connection has ended well; None: it is whole.

        Gemini sends no terminator, and some servers no `[DONE]`: a finish reason for every choice will do.

        Args:
            strict: a clean end alone will not do (model answers; other event streams just end).
        """
        if self.error is not None:
            return f"error event: {self.error}"
        if self.done or (self._reasons and all(self._reasons.values())):
            return None
        return "it ended without its terminator" if strict or self._reasons else None
