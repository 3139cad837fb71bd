"""The SDKs, over durable HTTP clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic

from resumable_nb import AsyncOpenAI, OpenAI, async_http_client, http_client

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer

KEY = "sk-live-SUPERSECRET-0123456789abcdef"


class Clients:
    """Clients of one server."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server

    def openai(self, **options: Any) -> OpenAI:
        return OpenAI(**{"base_url": self.server.base_url, "api_key": KEY, "max_retries": 0} | options)

    def async_openai(self, **options: Any) -> AsyncOpenAI:
        return AsyncOpenAI(**{"base_url": self.server.base_url, "api_key": KEY, "max_retries": 0} | options)

    def anthropic(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(base_url=self.server.url, api_key=KEY, http_client=http_client(), max_retries=0)

    def async_anthropic(self) -> anthropic.AsyncAnthropic:
        client = async_http_client()
        return anthropic.AsyncAnthropic(base_url=self.server.url, api_key=KEY, http_client=client, max_retries=0)


def said(text: str) -> list[Any]:
    """One user message."""
    return [{"role": "user", "content": text}]


def chat(clients: Clients, prompt: str = "Q1", **options: Any) -> str:
    """The text of one answer."""
    answer = clients.openai().chat.completions.create(model="m", messages=said(prompt), **options)
    return str(answer.choices[0].message.content)


def streamed(clients: Clients, prompt: str = "Q1", *, at_most: int | None = None, **options: Any) -> list[str]:
    """The pieces of one streamed answer; the stream is left behind after so many."""
    pieces: list[str] = []
    for chunk in clients.openai().chat.completions.create(model="m", messages=said(prompt), stream=True, **options):
        pieces.append(chunk.choices[0].delta.content or "")
        if len(pieces) == at_most:
            break
    return pieces
