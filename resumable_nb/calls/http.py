"""Journaling transports for httpx2, sync and async: what makes the calls of every SDK durable.

A call inside a step is answered from the journal if the same was asked before; else it goes out through an inner
`httpx2.Client`, which knows proxies, certificates and redirects, and its answer is in the journal before the caller has
the last byte of it. Without an open thread the transport only passes on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import httpx2
import tenacity

from resumable_nb.calls import accounts, retries
from resumable_nb.calls.http_rehearsal import PLACE, answering, answering_async, place
from resumable_nb.calls.matching import public_query, question
from resumable_nb.calls.off_loop import off_loop
from resumable_nb.calls.protocol import current_scope
from resumable_nb.calls.recording import Call, Headers, why_no_answer
from resumable_nb.calls.sse import is_streamed, pieces
from resumable_nb.calls.streams import StreamRecord, leave_later, left_streams, record_prefixes
from resumable_nb.failpoints import passing
from resumable_nb.stops import nap, refuse_if_stopped

if TYPE_CHECKING:
    from resumable_nb.calls.protocol import Scope
    from resumable_nb.journal import Row

REPLAYED = "x-resumable-nb"
"""Header of an answer from the journal; its value is how many milliseconds it took when it was live."""

_TRUE_OF_THE_WIRE_ONLY = frozenset({"content-encoding", "content-length", "transfer-encoding", "connection"})


class RecordedPrefixOnly(httpx2.ReadError):
    """A recorded stream was left by its reader at this place, and now more is asked of it."""


class JournalTransport(httpx2.BaseTransport):
    """Journals the calls of a step.

    Args:
        inner: the client that really sends.
        max_retries: how often a request is sent again after a broken connection, 408, 409, 429 or 5xx.
    """

    def __init__(self, inner: httpx2.Client, *, max_retries: int = retries.DEFAULT_MAX_RETRIES) -> None:
        self.inner, self.max_retries = answering(inner), max_retries

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """The recorded answer, or the live one, which is recorded then."""
        scope = current_scope()
        if scope is None or "upgrade" in request.headers:
            return self.inner.send(request, stream=True)
        request.read()
        call = _call(scope, request)
        try:
            record_prefixes(left_streams(call))
            call.claim()
            return self._live(call, request) if call.answer is None else _replayed(call.answer)
        except BaseException as error:
            call.fail(_why(error))
            raise

    def _live(self, call: Call, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        request.extensions = {**request.extensions, PLACE: place(call.scope.step, call.occurrence)}
        call.start()
        policy = retries.policy(self.max_retries, transient=_is_transient, name=call.question.name)
        try:
            response: httpx2.Response = tenacity.Retrying(sleep=nap, **policy)(self._send, call, request)
        finally:
            _hide_credentials(request)
        if not response.is_closed:
            return _handed_on(response, _Tap(_record(call, response), response))
        return _judged(call, response)

    def _send(self, call: Call, request: httpx2.Request) -> httpx2.Response:
        """One attempt. What is not streamed is read to its end here, where it can still be tried again."""
        refuse_if_stopped()
        call.attempts += 1
        passing("http.send.before")
        response = self.inner.send(request, stream=True)
        passing("http.send.after")
        try:
            if _is_to_be_read(response, known=self.inner.headers):
                response.read()
        except BaseException:
            response.close()
            raise
        return response

    def close(self) -> None:
        """Close the connections."""
        self.inner.close()


class AsyncJournalTransport(httpx2.AsyncBaseTransport):
    """Journals the calls of a step, for async clients. The journal is written in threads, whole under cancellation.

    Args:
        inner: the client that really sends.
        max_retries: how often a request is sent again after a broken connection, 408, 409, 429 or 5xx.
    """

    def __init__(self, inner: httpx2.AsyncClient, *, max_retries: int = retries.DEFAULT_MAX_RETRIES) -> None:
        self.inner, self.max_retries = answering_async(inner), max_retries

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The recorded answer, or the live one, which is recorded then."""
        scope = current_scope()
        if scope is None or "upgrade" in request.headers:
            return await self.inner.send(request, stream=True)
        await request.aread()
        call = _call(scope, request)
        try:
            if left := left_streams(call):
                await off_loop(partial(record_prefixes, left))
            call.claim()  # here and now: tasks that ask the same get their numbers in the order in which they ask
            return await self._live(call, request) if call.answer is None else _replayed(call.answer)
        except BaseException as error:
            await off_loop(partial(call.fail, _why(error)))
            raise

    async def _live(self, call: Call, request: httpx2.Request) -> httpx2.Response:
        request.headers["accept-encoding"] = "identity"
        request.extensions = {**request.extensions, PLACE: place(call.scope.step, call.occurrence)}
        await off_loop(call.start)
        policy = retries.policy(self.max_retries, transient=_is_transient, name=call.question.name)
        try:
            response: httpx2.Response = await tenacity.AsyncRetrying(**policy)(self._send, call, request)
        finally:
            _hide_credentials(request)
        if not response.is_closed:
            return _handed_on(response, _AsyncTap(_record(call, response), response))
        return await off_loop(partial(_judged, call, response))

    async def _send(self, call: Call, request: httpx2.Request) -> httpx2.Response:
        call.attempts += 1
        passing("http.send.before")
        response = await self.inner.send(request, stream=True)
        passing("http.send.after")
        try:
            if _is_to_be_read(response, known=self.inner.headers):
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()


# ---------------------------------------------------------------- requests
def _call(scope: Scope, request: httpx2.Request) -> Call:
    url = request.url
    asked = question(
        request.method,
        url.raw_path,
        headers={name.lower(): value for name, value in request.headers.multi_items()},
        body=request.content,
        userinfo=url.userinfo,
    )
    return Call(scope, asked, provider=accounts.provider(url.host, url.path, request.headers), host=url.host)


def _hide_credentials(request: httpx2.Request) -> None:
    """Take credentials out of the URL after sending: `raise_for_status` shows it, and notebooks keep what they show."""
    url = request.url
    if url.userinfo or url.query:
        request.url = url.copy_with(userinfo=b"", query=public_query(url.query) or None)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)):
        return False
    return isinstance(error, (httpx2.TransportError, OSError))


def _why(error: BaseException) -> str:
    if isinstance(error, Exception):
        return f"{type(error).__name__}: {error}"
    return f"interrupted: {type(error).__name__}"


# ---------------------------------------------------------------- responses
def _is_to_be_read(response: httpx2.Response, *, known: httpx2.Headers) -> bool:
    """Whether the whole body is read before anything is handed on.

    Args:
        response: to the request.
        known: what the client would have asked for on its own: names the encodings that it can undo.

    Raises:
        httpx2.DecodingError: It came in an encoding that nobody asked for and that cannot be undone here.
    """
    came = _encodings(response.headers.get("content-encoding", ""))
    if unknown := came - _encodings(known.get("accept-encoding", "")) - {"identity", "gzip", "deflate"}:
        raise httpx2.DecodingError(
            f"the answer came with content-encoding {', '.join(sorted(unknown))}, unasked, and no decoder is installed"
        )
    return not (response.is_success and is_streamed(response.headers.get("content-type", "").lower()))


def _encodings(header: str) -> set[str]:
    return {name for part in header.lower().split(",") if (name := part.partition(";")[0].strip())}


def _judged(call: Call, response: httpx2.Response) -> httpx2.Response:
    """The response, read whole, after its row is written: the answer, or why it is none."""
    headers, body = response.headers.multi_items(), call.clean(response.content)
    if not response.is_success:
        excerpt = body[:200].decode("utf-8", "replace")
        call.fail(f"HTTP {response.status_code}: {excerpt}", status=response.status_code, headers=headers)
    elif why := why_no_answer(call.question, headers=headers, body=body):
        call.fail(why, status=response.status_code, headers=headers, tell=True)
    else:
        call.done(body, status=response.status_code, headers=headers)
    return _handed_on(response, _Given([body]))


def _record(call: Call, response: httpx2.Response) -> StreamRecord:
    return StreamRecord(call, status=response.status_code, headers=response.headers.multi_items())


def _handed_on(response: httpx2.Response, stream: _Given | _Tap | _AsyncTap) -> httpx2.Response:
    """The response as its caller gets it: decoded, so without the headers that spoke of its encoding."""
    headers = [(n, v) for n, v in response.headers.multi_items() if n.lower() not in _TRUE_OF_THE_WIRE_ONLY]
    return httpx2.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)


def _replayed(answer: Row) -> httpx2.Response:
    facts = json.loads(answer.data or "{}")
    headers: Headers = [(name, value) for name, value in facts["headers"]]
    content_type = next((value.lower() for name, value in headers if name == "content-type"), "")
    body = answer.body if answer.body is not None else (answer.response or "").encode()
    then = None
    if answer.phase == "partial":
        then = RecordedPrefixOnly(
            f"The recorded stream of {answer.name} was left by its reader here, and the journal holds no more of it. "
            f"`%resumable fresh {answer.step}` asks anew."
        )
    return httpx2.Response(
        facts["status"],
        headers=[*headers, (REPLAYED, f"{answer.duration_ms or 0:.0f}")],
        stream=_Given(pieces(body, content_type=content_type), then),
        extensions={"http_version": b"HTTP/1.1"},
    )


class _Given(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that is at hand, piece by piece; `then` is raised behind its end."""

    def __init__(self, parts: list[bytes], then: Exception | None = None) -> None:
        self._parts, self._then = parts, then

    def __iter__(self) -> Iterator[bytes]:
        yield from self._parts
        if self._then is not None:
            raise self._then

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part


# ---------------------------------------------------------------- streams
class _Tap(httpx2.SyncByteStream):
    """Hands a stream on as it comes, and writes its row before the part that ends it is handed on."""

    def __init__(self, record: StreamRecord, response: httpx2.Response) -> None:
        self._record, self._response = record, response
        self._chunks: Iterator[bytes] | None = None

    def __iter__(self) -> Iterator[bytes]:
        return _Parts(self.read)

    def read(self) -> bytes:
        """The next part.

        Raises:
            StopIteration: There is none.
        """
        if self._chunks is None:
            self._chunks = self._response.iter_bytes()
        else:
            passing("http.stream.after")
        try:
            part = self._next(self._chunks)
        except StopIteration:
            raise
        except BaseException as error:
            self._record.fail(_why(error), tell=isinstance(error, Exception))
            raise
        passing("http.stream.before")
        return part

    def _next(self, chunks: Iterator[bytes]) -> bytes:
        record = self._record
        for chunk in chunks:
            part = record.take(chunk)
            if record.over:
                record.end()
            if part:
                return part
        rest = record.flush()
        if not record.call.ended:
            broken = record.broken
            record.end()
            if broken:  # SDKs take a clean end of the connection for the end of the answer
                raise httpx2.RemoteProtocolError(broken)
        if rest:
            return rest
        raise StopIteration

    def close(self) -> None:
        try:
            if self._record.call.ended:
                return
            error = sys.exc_info()[1]
            if isinstance(error, GeneratorExit):
                leave_later(self._record)
            else:
                self._record.close(error)
        finally:
            self._response.close()


class _Parts:
    """Iterates over a stream, and has no `close`: httpx2 delegates to its stream by `yield from`, and the garbage
    collector would call that of a forgotten generator, without a trace of why.

    No generator either: that one would be finalised late and elsewhere.
    """

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return self._read()


class _AsyncTap(httpx2.AsyncByteStream):
    """The same for async clients."""

    def __init__(self, record: StreamRecord, response: httpx2.Response) -> None:
        self._record, self._response = record, response
        self._chunks: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._chunks is None:
            self._chunks = self._response.aiter_bytes()
        else:
            passing("http.stream.after")
        try:
            part = await self._next(self._chunks)
        except StopAsyncIteration:
            raise
        except BaseException as error:
            await off_loop(partial(self._record.fail, _why(error), tell=isinstance(error, Exception)))
            raise
        passing("http.stream.before")
        return part

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes:
        record = self._record
        async for chunk in chunks:
            part = record.take(chunk)
            if record.over:
                await off_loop(record.end)
            if part:
                return part
        rest = record.flush()
        if not record.call.ended:
            broken = record.broken
            await off_loop(record.end)
            if broken:
                raise httpx2.RemoteProtocolError(broken)
        if rest:
            return rest
        raise StopAsyncIteration

    async def aclose(self) -> None:
        error = sys.exc_info()[1]
        try:
            if not self._record.call.ended:
                await off_loop(partial(self._record.close, error))
        finally:
            await self._response.aclose()
