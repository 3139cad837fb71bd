"""httpx2 clients whose calls are durable, with the defaults of the SDKs' own clients.

A bare `httpx2.Client(transport=…)` would ignore the proxies of the environment, time out after 5 s and follow no
redirects. So a plain client stays inside, which has all that, and the one around it journals.
"""

from __future__ import annotations

import contextlib
from typing import Any

import httpx2

from resumable_nb.calls.accounts import EMBEDDED_HOST
from resumable_nb.calls.http import AsyncJournalTransport, JournalTransport
from resumable_nb.calls.retries import DEFAULT_MAX_RETRIES
from resumable_nb.llm.embedded import AsyncEmbeddedTransport, EmbeddedTransport

TIMEOUT = httpx2.Timeout(600, connect=10)
LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
_OF_THE_CONNECTION = frozenset(
    {"verify", "cert", "http1", "http2", "proxy", "mounts", "limits", "transport", "trust_env", "follow_redirects"}
    | {"max_redirects"}
)


def http_client(*, max_retries: int = DEFAULT_MAX_RETRIES, **options: Any) -> DurableClient:
    """A client for any SDK that takes one: its calls inside a step are journaled, and answered from there on replay.

    Tell the SDK to retry nothing itself, or one call may be paid up to nine times:
    `Anthropic(http_client=http_client(), max_retries=0)`.

    Args:
        max_retries: how often a request is sent again after a broken connection, 408, 409, 429 or 5xx.
        **options: of `httpx2.Client`.
    """
    connection = {name: options.pop(name) for name in _OF_THE_CONNECTION & options.keys()}
    return DurableClient(_Inner(**_connection(connection, EmbeddedTransport())), max_retries=max_retries, **options)


def async_http_client(*, max_retries: int = DEFAULT_MAX_RETRIES, **options: Any) -> AsyncDurableClient:
    """The same for async SDKs.

    Args:
        max_retries: how often a request is sent again after a broken connection, 408, 409, 429 or 5xx.
        **options: of `httpx2.AsyncClient`.
    """
    connection = {name: options.pop(name) for name in _OF_THE_CONNECTION & options.keys()}
    inner = httpx2.AsyncClient(**_connection(connection, AsyncEmbeddedTransport()))
    return AsyncDurableClient(inner, max_retries=max_retries, **options)


def _connection(given: dict[str, Any], embedded: object) -> dict[str, Any]:
    defaults = {"limits": LIMITS, "follow_redirects": True, "timeout": TIMEOUT}
    return defaults | given | {"mounts": {f"all://{EMBEDDED_HOST}": embedded, **given.get("mounts", {})}}


class _Inner(httpx2.Client):
    """Closes its connections when nobody uses it any more, as the SDKs' own clients do."""

    def __del__(self, suppress: Any = contextlib.suppress) -> None:
        with suppress(Exception):  # at the interpreter's exit its parts may be gone, and this module's names are
            self.close()


class DurableClient(httpx2.Client):
    """A client around another one: what goes through it is journaled.

    Args:
        inner: really sends; its proxies, certificates and redirects hold. Its timeout holds unless another is given.
        max_retries: how often a request is sent again.
        **options: of `httpx2.Client`, as far as they are not about the connection.
    """

    def __init__(self, inner: httpx2.Client, *, max_retries: int = DEFAULT_MAX_RETRIES, **options: Any) -> None:
        transport = JournalTransport(inner, max_retries=max_retries)
        self._journaling = transport
        super().__init__(transport=transport, **_around(inner, options))

    def with_retries(self, max_retries: int) -> DurableClient:
        """A client over the same connections that retries differently."""
        return DurableClient(self._journaling.inner, max_retries=max_retries, **_same(self))


class AsyncDurableClient(httpx2.AsyncClient):
    """The same for async clients.

    Args:
        inner: really sends.
        max_retries: how often a request is sent again.
        **options: of `httpx2.AsyncClient`, as far as they are not about the connection.
    """

    def __init__(self, inner: httpx2.AsyncClient, *, max_retries: int = DEFAULT_MAX_RETRIES, **options: Any) -> None:
        transport = AsyncJournalTransport(inner, max_retries=max_retries)
        self._journaling = transport
        super().__init__(transport=transport, **_around(inner, options))

    def with_retries(self, max_retries: int) -> AsyncDurableClient:
        """A client over the same connections that retries differently."""
        return AsyncDurableClient(self._journaling.inner, max_retries=max_retries, **_same(self))


def _around(inner: httpx2.Client | httpx2.AsyncClient, options: dict[str, Any]) -> dict[str, Any]:
    """The inner client follows redirects, so that one question stays one row; the outer one never sees any."""
    return {"timeout": inner.timeout, "follow_redirects": inner.follow_redirects, **options}


def _same(client: httpx2.Client | httpx2.AsyncClient) -> dict[str, Any]:
    return {
        "auth": client.auth,
        "base_url": client.base_url,
        "cookies": client.cookies,
        "event_hooks": client.event_hooks,
        "headers": client.headers,
        "params": client.params,
        "timeout": client.timeout,
    }
