"""`OpenAI` and `AsyncOpenAI`: the SDK's own clients, over a transport that journals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import openai

from resumable_nb.calls.retries import DEFAULT_MAX_RETRIES
from resumable_nb.llm import models
from resumable_nb.llm.http_clients import AsyncDurableClient, DurableClient, async_http_client, http_client

if TYPE_CHECKING:
    import httpx2


class OpenAI(openai.OpenAI):
    """`openai.OpenAI` whose calls inside a step are durable.

    Without `api_key` and `base_url` the environment says where to ask, and else the embedded model answers.

    Args:
        api_key: as for `openai.OpenAI`.
        base_url: as for `openai.OpenAI`.
        max_retries: how often a request is sent again. The transport does it, the SDK itself never: a number for each
            would multiply, and so would the bill.
        http_client: a client of yours; its proxies, certificates and timeout hold, and its calls are journaled, too.
        **options: of `openai.OpenAI`.

    Raises:
        NoModel: Nothing says where to ask, and no model is embedded.
    """

    def __init__(
        self,
        *,
        api_key: Any = None,
        base_url: Any = None,
        max_retries: int | None = None,
        http_client: httpx2.Client | None = None,
        **options: Any,
    ) -> None:
        where = models.endpoint(api_key, base_url, options=options)
        self._durable = _durable(http_client, max_retries)
        super().__init__(
            api_key=where.api_key, base_url=where.base_url, max_retries=0, http_client=self._durable, **options
        )

    def copy(self, *, max_retries: Any = openai.not_given, **changes: Any) -> Self:
        """A client with other options over the same connections."""
        if not isinstance(max_retries, openai.NotGiven) and not changes.get("http_client"):
            changes["http_client"] = self._durable.with_retries(max_retries)
        return super().copy(**changes)

    with_options = copy


class AsyncOpenAI(openai.AsyncOpenAI):
    """`openai.AsyncOpenAI` whose calls inside a step are durable. See `OpenAI`.

    Args:
        api_key: as for `openai.AsyncOpenAI`.
        base_url: as for `openai.AsyncOpenAI`.
        max_retries: how often a request is sent again.
        http_client: a client of yours.
        **options: of `openai.AsyncOpenAI`.

    Raises:
        NoModel: Nothing says where to ask, and no model is embedded.
    """

    def __init__(
        self,
        *,
        api_key: Any = None,
        base_url: Any = None,
        max_retries: int | None = None,
        http_client: httpx2.AsyncClient | None = None,
        **options: Any,
    ) -> None:
        where = models.endpoint(api_key, base_url, options=options)
        self._durable = _async_durable(http_client, max_retries)
        super().__init__(
            api_key=where.api_key, base_url=where.base_url, max_retries=0, http_client=self._durable, **options
        )

    def copy(self, *, max_retries: Any = openai.not_given, **changes: Any) -> Self:
        """A client with other options over the same connections."""
        if not isinstance(max_retries, openai.NotGiven) and not changes.get("http_client"):
            changes["http_client"] = self._durable.with_retries(max_retries)
        return super().copy(**changes)

    with_options = copy


def _durable(given: httpx2.Client | None, max_retries: int | None) -> DurableClient:
    """A durable client over what was given. The SDK's `copy` gives ours back, with its own `max_retries` of 0."""
    if isinstance(given, DurableClient):
        return given.with_retries(max_retries) if max_retries else given
    retries = DEFAULT_MAX_RETRIES if max_retries is None else max_retries
    return http_client(max_retries=retries) if given is None else DurableClient(given, max_retries=retries)


def _async_durable(given: httpx2.AsyncClient | None, max_retries: int | None) -> AsyncDurableClient:
    if isinstance(given, AsyncDurableClient):
        return given.with_retries(max_retries) if max_retries else given
    retries = DEFAULT_MAX_RETRIES if max_retries is None else max_retries
    return async_http_client(max_retries=retries) if given is None else AsyncDurableClient(given, max_retries=retries)
