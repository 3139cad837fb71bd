"""One question on its way: its claim, its rows in the journal, and what counts as an answer. Knows no HTTP library.

Rows are written in this order, each in one INSERT: `started` before the request leaves; then one of `done` (before the
caller has the last byte), `failed` (an error, or no answer) and `partial` (the caller left a stream; its prefix is the
answer). A stream that is left open has a `partial` row from when its step asks on or commits, and its last row when it
ends.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resumable_nb.calls import accounts
from resumable_nb.calls.matching import Question, read_json
from resumable_nb.calls.sse import events, has_lines, is_events
from resumable_nb.failpoints import passing
from resumable_nb.resuming import before_live
from resumable_nb.values.secrets import redact

if TYPE_CHECKING:
    from resumable_nb.calls.protocol import Scope
    from resumable_nb.journal import Row

MAX_BODY_BYTES = 64 << 20
KEPT_HEADERS = frozenset(
    {"content-type", "content-disposition", "x-request-id", "request-id", "retry-after"}
    | {"openai-model", "openai-version", "openai-processing-ms"}  # not openai-organization
)
LEFT_OPEN = "left open"
"""Why of a `partial` row whose stream may go on."""

_WHY_LENGTH = 300
_CREDENTIAL_ANSWERS = frozenset({"access_token", "refresh_token", "id_token"})
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")

Headers = Sequence[tuple[str, str]]


class Call:
    """One question in one scope.

    Attributes:
        answer: the recorded answer, if there is one; nothing is sent then.
        occurrence: how often the same was asked before in its step; None outside any.
        attempts: how often it was sent.
        ended: its completing row is written, or being written.
        flow: the task or thread that asked.
        background: the exception that was being handled when it began: no reason for its end.
    """

    def __init__(self, scope: Scope, question: Question, *, provider: str | None, host: str) -> None:
        self.scope, self.question = scope, question
        self.answer: Row | None = None
        self.attempts, self.ended = 0, False
        self.flow = _flow()
        self.background = sys.exc_info()[1]
        self._host = host
        self._redacted = 0
        self.occurrence: int | None = None
        self._started_seq: int | None = None
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._columns: dict[str, Any] = {"kind": question.kind, "name": question.name, "key": question.key}
        if question.kind == "llm":
            self._asked = {"provider_name": provider, "operation_name": question.operation}
            self._columns |= {
                "gen_ai_request_model": accounts.request_model(question.name, question.body),
                "gen_ai": accounts.gen_ai(self._asked),
            }

    def claim(self) -> None:
        """Take a number in the step, and with it the recorded answer if there is one. Outside a step: neither."""
        if self.scope.step is not None:
            claim = self.scope.claim(self.question.key, kind=self.question.kind, request=self.question.text)
            self.occurrence, self.answer = claim.occurrence, claim.answer

    def start(self) -> None:
        """Write the `started` row. The answer is paid for from now on."""
        before_live(self.scope)
        data = _text({"host": self._host, "redacted": self.question.redacted})
        (self._started_seq,) = self.scope.append(self._row("started", request=self.question.text, data=data))

    def clean(self, body: bytes) -> bytes:
        """A part of the answer without secrets. They are counted."""
        clean, hits = redact(body, self.question.secrets)
        self._redacted += hits
        return clean

    def done(self, body: bytes, *, status: int, headers: Headers) -> None:
        """Write the answer, which is clean already. When it returns, the answer is in the store."""
        if self._is_first_to_end():
            self._complete(self.completing("done", body, status=status, headers=headers))

    def leave(self, body: bytes, *, status: int, headers: Headers) -> None:
        """Write the prefix that the caller read, as the answer."""
        if self._is_first_to_end():
            why = "closed by its reader"
            self._complete(self.completing("partial", body, status=status, headers=headers, why=why))

    def fail(self, why: str, *, status: int | None = None, headers: Headers = (), tell: bool = False) -> None:
        """Write a `failed` row if anything was sent, and give the number back: the next attempt is the same question.

        Args:
            why: may hold secrets; they are redacted.
            status: of the response, if one came.
            headers: of the response.
            tell: say it to the person, too. For what the client's own error doesn't say.
        """
        if not self._is_first_to_end():
            return
        try:
            if self._started_seq is not None:
                text = self.clean(why.encode("utf-8", "replace")).decode("utf-8", "replace")[:_WHY_LENGTH]
                data = self._data(status, headers, text)
                self.scope.append(self._row("failed", duration_ms=self._ms, data=data))
                if tell:
                    self.scope.notice(f"{self.question.name}: {text}. Not kept as an answer; the next run asks again.")
        finally:
            self._release()

    def completing(self, phase: str, body: bytes, *, status: int, headers: Headers, why: str | None = None) -> Row:
        """The row for an answer. JSON stands in `response` byte for byte; anything else in `body`."""
        content_type = content_type_of(headers)
        response, value = _response(content_type, body)
        as_it_stands = response is not None and not has_lines(content_type)
        columns: dict[str, Any] = {"response": response, "body": None if as_it_stands else body}
        if self.question.kind == "llm" and why != LEFT_OPEN:  # its last row tells the tokens, once
            columns |= accounts.answered(value).columns(self._asked)
        return self._row(phase, duration_ms=self._ms, data=self._data(status, headers, why), **columns)

    def _is_first_to_end(self) -> bool:
        with self._lock:
            first, self.ended = not self.ended, True
        return first

    def _complete(self, row: Row) -> None:
        passing("http.receive.before")
        try:
            self.scope.append(row)
        except BaseException:
            self._release()
            raise
        passing("http.receive.after")

    def _release(self) -> None:
        if self.occurrence is not None:
            self.scope.release(self.question.key, self.occurrence, kind=self.question.kind)

    def _row(self, phase: str, **columns: Any) -> Row:
        from resumable_nb.journal import Row

        return Row(phase=phase, ref_seq=self._started_seq, occurrence=self.occurrence, **self._columns | columns)

    @property
    def _ms(self) -> float:
        return (time.monotonic() - self._began) * 1e3

    def _data(self, status: int | None, headers: Headers, why: str | None) -> str:
        kept = [[name.lower(), value] for name, value in headers if name.lower() in KEPT_HEADERS]
        facts = {"status": status, "headers": kept, "why": why, "redacted": self._redacted, "attempts": self.attempts}
        return _text({name: value for name, value in facts.items() if value is not None})


def _text(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace").decode()


def content_type_of(headers: Headers) -> str:
    """The content type, in lower case; empty if there is none."""
    return next((value.strip().lower() for name, value in headers if name.lower() == "content-type"), "")


def _flow() -> object:
    """The task, else the thread, that runs this code."""
    try:
        return asyncio.current_task() or threading.current_thread()
    except RuntimeError:
        return threading.current_thread()


# ---------------------------------------------------------------- what is stored of an answer
def _response(content_type: str, body: bytes) -> tuple[str | None, Any]:
    """Text for the column `response`, and its value: a JSON body as it stands, or what a stream amounts to."""
    try:
        if not has_lines(content_type):
            value = read_json(body)
            text = body.decode()
            return (None if _HALF_PAIR.search(text) and not _is_text(value) else text), value
        value = accounts.assembled(events(body, per_line=not is_events(content_type)))
        text = json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace").decode()
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError):
        return None, None  # an unknown form costs the accounts their numbers, never the paid answer
    return (None if value is None else text), value


def _is_text(value: object) -> bool:
    """Whether all of it is UTF-8. JSON can spell half of a surrogate pair; the store's JSON type refuses it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


# ---------------------------------------------------------------- what is an answer
def why_no_answer(question: Question, *, headers: Headers, body: bytes) -> str | None:
    """Why a response with a 2xx status is no answer to keep; None: it is one.

    A gateway's error page or an error object, once recorded, would be replayed for ever.
    """
    content_type = content_type_of(headers).partition(";")[0].strip()
    if len(body) > MAX_BODY_BYTES:
        return too_large(len(body))
    if content_type == "application/json" or content_type.endswith("+json"):
        return _why_no_json_answer(question, body)
    if question.kind == "llm" and content_type in ("text/html", "application/xhtml+xml"):
        return "an HTML page came instead of an answer"
    if question.kind == "llm" and not body:
        return "an empty answer came"
    return None


def too_large(size: int) -> str:
    """Why such a body is not kept."""
    return f"{size:,} bytes are too many to keep (at most {MAX_BODY_BYTES:,})"


def _why_no_json_answer(question: Question, body: bytes) -> str | None:
    try:
        value = read_json(body) if body or question.kind == "llm" else None
    except (ValueError, RecursionError) as error:
        return f"the answer is not the JSON that it says it is ({error})"
    if not isinstance(value, dict):
        return None
    if question.kind == "call":
        held = sorted(_CREDENTIAL_ANSWERS & value.keys())
        return f"the answer holds a credential ({', '.join(held)})" if held else None
    if value.get("error") and not value.get("choices") and value.get("status") not in ("completed", "incomplete"):
        return f"an error came with a status of success: {_text({'error': value['error']})}"
    return None
