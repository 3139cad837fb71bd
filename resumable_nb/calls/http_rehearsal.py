"""Calls under `resumable-nb verify`: they go to recorded answers, whatever host they name.

`RESUMABLE_NB_ANSWERS` is the URL of the answers. A request keeps its method, path, query and body: it is the same
question as before. A header says which of several equal questions of a step it is: each has an answer of its own.
"""

from __future__ import annotations

import os
from urllib.parse import quote

import httpx2

TIMEOUT_S = 60
PLACE = "x-resumable-nb-place"


def place(step: str | None, occurrence: int | None) -> str:
    """Which of several equal questions it is."""
    return f"{quote(step or '-')}/{occurrence}"


def answering(inner: httpx2.Client) -> httpx2.Client:
    """The client that really sends: `inner`, or one that asks the recorded answers."""
    url = os.environ.get("RESUMABLE_NB_ANSWERS")
    return httpx2.Client(transport=_Readdressed(url), headers=inner.headers, timeout=TIMEOUT_S) if url else inner


def answering_async(inner: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """The same for async clients."""
    url = os.environ.get("RESUMABLE_NB_ANSWERS")
    if not url:
        return inner
    return httpx2.AsyncClient(transport=_AsyncReaddressed(url), headers=inner.headers, timeout=TIMEOUT_S)


def _readdressed(request: httpx2.Request, base: str, body: bytes) -> httpx2.Request:
    url = httpx2.URL(base)
    url = url.copy_with(raw_path=url.raw_path.rstrip(b"/") + request.url.raw_path)
    headers = httpx2.Headers(request.headers)
    headers["host"] = f"{url.host}:{url.port}"
    if PLACE in request.extensions:
        headers[PLACE] = request.extensions[PLACE]
    return httpx2.Request(request.method, url, headers=headers, content=body, extensions=request.extensions)


class _Readdressed(httpx2.BaseTransport):
    def __init__(self, base: str) -> None:
        self._base, self._transport = base, httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._transport.handle_request(_readdressed(request, self._base, request.read()))

    def close(self) -> None:
        self._transport.close()


class _AsyncReaddressed(httpx2.AsyncBaseTransport):
    def __init__(self, base: str) -> None:
        self._base, self._transport = base, httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._transport.handle_async_request(_readdressed(request, self._base, await request.aread()))

    async def aclose(self) -> None:
        await self._transport.aclose()
