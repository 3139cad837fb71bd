"""The clients are the SDK's own, over a transport that journals."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest

from resumable_nb import AsyncOpenAI, OpenAI, async_http_client, http_client
from resumable_nb.llm.http_clients import AsyncDurableClient, DurableClient
from tests.calls.fake_scope import MemoryJournal, phases, running

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer

MESSAGES: list[Any] = [{"role": "user", "content": "Q1"}]


def ask(client: openai.OpenAI) -> str | None:
    return client.chat.completions.create(model="m", messages=MESSAGES).choices[0].message.content


def test_they_are_the_sdk_s_own(server: ModelServer) -> None:
    """`isinstance` holds; the environment is read as the SDK reads it; the SDK itself retries nothing."""
    client, async_client = OpenAI(), AsyncOpenAI()

    assert isinstance(client, openai.OpenAI)
    assert isinstance(async_client, openai.AsyncOpenAI)
    assert str(client.base_url).rstrip("/") == server.base_url
    assert client.api_key == "sk-test-SECRET"
    assert client.max_retries == async_client.max_retries == 0


@pytest.mark.parametrize("change", [{}, {"timeout": 5}, {"max_retries": 4}, {"default_headers": {"x-team": "a"}}])
def test_a_copy_is_durable_too(change: dict[str, Any], server: ModelServer, journal: MemoryJournal) -> None:
    """`copy` and `with_options` keep the journal, and the SDK's retries stay at 0."""
    for how in ("copy", "with_options"):
        with running(journal):
            copy = getattr(OpenAI(), how)(**change)
            ask(copy)
        assert type(copy) is OpenAI
        assert copy.max_retries == 0

    assert server.asked("Q1") == 1
    assert phases(journal) == ["started", "done"]


def test_a_copy_of_an_async_client_is_durable_too(server: ModelServer, journal: MemoryJournal) -> None:
    """The same for `AsyncOpenAI`."""

    async def work() -> None:
        async with AsyncOpenAI().with_options(max_retries=1, timeout=9) as client:
            await client.chat.completions.create(model="m", messages=MESSAGES)

    for _ in range(2):
        with running(journal):
            asyncio.run(work())

    assert server.asked("Q1") == 1


def test_a_dropped_copy_closes_nothing(server: ModelServer) -> None:
    """A copy shares its connections: when it is gone, the client that it came from still works."""
    client = OpenAI()
    ask(client.with_options(max_retries=1))

    assert ask(client) == "AQ1-2"


def test_a_client_of_yours_is_journaled_as_well(server: ModelServer, journal: MemoryJournal) -> None:
    """`http_client=` keeps its settings, and what goes through it is durable."""
    yours = httpx2.Client(headers={"x-mine": "1"}, timeout=7)

    for _ in range(2):
        with running(journal):
            client = OpenAI(http_client=yours)
            ask(client)

    assert client.timeout == httpx2.Timeout(7)
    assert server.asked("Q1") == 1


def test_defaults_are_those_of_the_sdk() -> None:
    """Long timeout, many connections, redirects followed: not httpx2's five seconds."""
    client, async_client = http_client(), async_http_client()

    assert isinstance(client, DurableClient)
    assert isinstance(async_client, AsyncDurableClient)
    assert client.timeout.read == async_client.timeout.read == 600
    assert client.follow_redirects
    assert OpenAI(api_key="k").timeout == httpx2.Timeout(600, connect=10)
    assert OpenAI(api_key="k", timeout=3).timeout == 3


class Proxy:
    """Counts who connects."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.first_line = ""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            self.first_line = connection.recv(65536).split(b"\r\n")[0].decode()
            connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
        self._socket.close()

    def wait(self) -> str:
        self._thread.join(10)
        return self.first_line


@pytest.mark.parametrize("how", ["environment", "argument"])
def test_proxies_are_used(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment or of an argument is used, as by the SDK's own client."""
    proxy, options = Proxy(), {}
    if how == "environment":
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
    else:
        options = {"proxy": proxy.url}

    response = http_client(max_retries=0, **options).get("http://example.invalid/page")

    assert response.status_code == 502
    assert proxy.wait() == "GET http://example.invalid/page HTTP/1.1"


def test_a_bare_base_url_needs_no_key(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers such as Ollama want no key: a URL alone will do, from the environment or as an argument."""
    monkeypatch.delenv("OPENAI_API_KEY")
    assert ask(OpenAI()) == "AQ1-1"

    monkeypatch.delenv("OPENAI_BASE_URL")
    assert ask(OpenAI(base_url=server.base_url)) == "AQ1-2"
