"""What an SDK got live it gets again from the journal, with its own types, and nothing is sent."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx2
import pydantic
import pytest

from resumable_nb import http_client
from tests.calls.clients import Clients, said
from tests.calls.fake_scope import MemoryJournal, phases, running

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer


class Named(pydantic.BaseModel):
    name: str
    score: int


def live_then_replayed(server: ModelServer, journal: MemoryJournal, work: Callable[[], Any]) -> tuple[Any, Any, int]:
    """What work gave live, what it gave after a restart, and how many requests the latter sent."""
    with running(journal) as scope:
        live = work()
        scope.commit()
    before = server.asked()
    with running(journal):
        replayed = work()
    return live, replayed, server.asked() - before


# ---------------------------------------------------------------- sync
def chat(c: Clients, **options: Any) -> Any:
    return c.openai().chat.completions.create(model="m", messages=said("Q1"), **options)


def streamed(c: Clients, **options: Any) -> list[Any]:
    return [chunk.model_dump() for chunk in chat(c, stream=True, **options)]


def stream_helper(c: Clients) -> Any:
    with c.openai().chat.completions.stream(model="m", messages=said("Q1"), response_format=Named) as events:
        kinds = [event.type for event in events]
        return kinds, events.get_final_completion().choices[0].message.parsed


def responses_helper(c: Clients) -> Any:
    with c.openai().responses.stream(model="m", input="Q1") as events:
        return [event.type for event in events], events.get_final_response().output_text


def raw(c: Clients) -> Any:
    answer = c.openai().chat.completions.with_raw_response.create(model="m", messages=said("Q1"))
    return answer.headers["x-request-id"], answer.parse().model_dump(), answer.status_code, answer.http_version


def lines(c: Clients) -> Any:
    with c.openai().chat.completions.with_streaming_response.create(model="m", messages=said("Q1")) as answer:
        return list(answer.iter_lines())


def raw_bytes(c: Clients) -> Any:
    with c.openai().chat.completions.with_streaming_response.create(model="m", messages=said("Q1")) as answer:
        return b"".join(answer.http_response.iter_raw())


def streaming_response_of_stream(c: Clients) -> Any:
    api = c.openai().chat.completions.with_streaming_response
    with api.create(model="m", messages=said("Q1"), stream=True) as answer:
        return [chunk.model_dump() for chunk in answer.parse()]


def speech_streamed(c: Clients) -> Any:
    with c.openai().audio.speech.with_streaming_response.create(model="t", voice="a", input="Q1") as answer:
        return b"".join(answer.iter_bytes(4096))


def anthropic_helper(c: Clients) -> Any:
    with c.anthropic().messages.stream(model="c", max_tokens=5, messages=said("Q1")) as events:
        return "".join(events.text_stream), events.get_final_message().usage.output_tokens


def body_from_a_generator(c: Clients) -> Any:
    def parts() -> Iterator[bytes]:
        yield b'{"model":"m",'
        yield b'"messages":[{"role":"user","content":"Q1"}]}'

    headers = {"content-type": "application/json"}
    return http_client().post(f"{c.server.base_url}/chat/completions", content=parts(), headers=headers).json()


SYNC: dict[str, Callable[[Clients], Any]] = {
    "chat": lambda c: chat(c).model_dump(),
    "request id": lambda c: chat(c)._request_id,
    "parse": lambda c: (
        c.openai()
        .chat.completions.parse(model="m", messages=said("Q1"), response_format=Named)
        .choices[0]
        .message.parsed
    ),
    "stream": streamed,
    "stream with usage": lambda c: streamed(c, stream_options={"include_usage": True}),
    "stream helper": stream_helper,
    "responses": lambda c: c.openai().responses.create(model="m", input="Q1").output_text,
    "responses helper": responses_helper,
    "responses stream": lambda c: [
        e.model_dump() for e in c.openai().responses.create(model="m", input="Q1", stream=True)
    ],
    "embeddings": lambda c: c.openai().embeddings.create(model="e", input="Q1").data[0].embedding,
    "upload": lambda c: c.openai().files.create(file=("a.txt", b"hello" * 100), purpose="assistants").id,
    "speech": lambda c: c.openai().audio.speech.create(model="t", voice="a", input="Q1").content,
    "speech streamed": speech_streamed,
    "raw response": raw,
    "streaming response, lines": lines,
    "streaming response, bytes": raw_bytes,
    "streaming response of a stream": streaming_response_of_stream,
    "one prompt, three times": lambda c: [chat(c).choices[0].message.content for _ in range(3)],
    "a copy": lambda c: c.openai().with_options(max_retries=1, timeout=9).models.with_raw_response.list().text,
    "body from a generator": body_from_a_generator,
    "anthropic": lambda c: (
        c.anthropic().messages.create(model="c", max_tokens=5, messages=said("Q1")).content[0].text  # type: ignore[union-attr]
    ),
    "anthropic stream": lambda c: [
        e.model_dump() for e in c.anthropic().messages.create(model="c", max_tokens=5, messages=said("Q1"), stream=True)
    ],
    "anthropic helper": anthropic_helper,
}


@pytest.mark.parametrize("name", SYNC)
def test_a_sync_call_is_replayed_as_it_was(
    name: str, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """Every way to call an SDK gives the same value again from the journal, and sends nothing."""
    live, replayed, requests = live_then_replayed(server, journal, lambda: SYNC[name](clients))

    assert replayed == live
    assert requests == 0
    assert phases(journal) == ["started", "done"] * (len(phases(journal)) // 2)


@pytest.mark.parametrize("rule", [{"split": 7}, {"split": 1}, {"encoding": "gzip"}, {"chunk_delay_s": 0.01}])
def test_a_stream_is_replayed_however_it_came(
    rule: dict[str, Any], clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """Neither the borders of chunks nor the encoding of the wire matter to a replay."""
    server.script({"reasoning": "let me think 🧠", **rule})

    live, replayed, requests = live_then_replayed(server, journal, lambda: streamed(clients))

    assert replayed == live
    assert requests == 0


def test_gzip_headers_and_unknown_fields_survive(clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """A gzipped answer and a gzipped stream with fields that nobody knows come back whole, with the request's id."""
    server.script(
        {"encoding": "gzip", "headers": {"x-request-id": "req_42"}},
        {"encoding": "gzip", "reasoning": "hm hm", "tool": "look_up"},
    )

    live, replayed, requests = live_then_replayed(
        server, journal, lambda: (raw(clients), streamed(clients, stream_options={"include_usage": True}))
    )

    assert replayed == live
    assert requests == 0
    assert live[0][0] == "req_42"
    assert any("reasoning_content" in chunk["choices"][0]["delta"] for chunk in live[1] if chunk["choices"])


def test_a_redirect_is_followed_inside_one_call(clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """A redirected question is one row, and is answered from it."""
    server.script({"redirect": "/moved/v1/chat/completions"})

    live, replayed, requests = live_then_replayed(server, journal, lambda: chat(clients).model_dump())

    assert replayed == live
    assert requests == 0
    assert phases(journal) == ["started", "done"]


def test_calls_of_pool_threads_are_replayed(clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """64 calls in 16 threads, 8 prompts: each prompt's answers come back, in any order, and nothing is sent."""
    client = clients.openai()

    def ask(number: int) -> str | None:
        answer = client.chat.completions.create(model="m", messages=said(f"Q{number % 8}"))
        return answer.choices[0].message.content

    def work() -> list[str | None]:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            return sorted(pool.map(ask, range(64)), key=str)

    live, replayed, requests = live_then_replayed(server, journal, work)

    assert replayed == live
    assert len(set(live)) == 64
    assert requests == 0


# ---------------------------------------------------------------- async
async def async_chat(c: Clients) -> Any:
    async with c.async_openai() as client:
        return (await client.chat.completions.create(model="m", messages=said("Q1"))).model_dump()


async def async_stream(c: Clients) -> Any:
    async with c.async_openai() as client:
        stream = await client.chat.completions.create(model="m", messages=said("Q1"), stream=True)
        return [chunk.model_dump() async for chunk in stream]


async def async_helper(c: Clients) -> Any:
    async with c.async_openai() as client:
        api = client.chat.completions
        async with api.stream(model="m", messages=said("Q1"), response_format=Named) as events:
            kinds = [event.type async for event in events]
            return kinds, (await events.get_final_completion()).choices[0].message.parsed


async def async_anthropic_helper(c: Clients) -> Any:
    api = c.async_anthropic().messages
    async with api.stream(model="c", max_tokens=5, messages=said("Q1")) as events:
        return "".join([text async for text in events.text_stream])


async def gathered(c: Clients) -> Any:
    async with c.async_openai() as client:
        calls = [client.chat.completions.create(model="m", messages=said(f"Q{i % 10}")) for i in range(40)]
        return [answer.choices[0].message.content for answer in await asyncio.gather(*calls)]


async def async_upload(c: Clients) -> Any:
    async with c.async_openai() as client:
        return (await client.files.create(file=("a.txt", b"hello" * 50), purpose="assistants")).id


async def async_speech(c: Clients) -> Any:
    async with c.async_openai() as client:
        api = client.audio.speech.with_streaming_response
        async with api.create(model="t", voice="a", input="Q1") as answer:
            return b"".join([part async for part in answer.iter_bytes()])


ASYNC: dict[str, Callable[[Clients], Awaitable[Any]]] = {
    "chat": async_chat,
    "stream": async_stream,
    "stream helper": async_helper,
    "anthropic helper": async_anthropic_helper,
    "gather of 40, 10 prompts": gathered,
    "upload": async_upload,
    "speech": async_speech,
}


@pytest.mark.parametrize("name", ASYNC)
def test_an_async_call_is_replayed_as_it_was(
    name: str, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """Every way to call an async SDK gives the same value again from the journal, and sends nothing."""

    async def work() -> Any:
        return await ASYNC[name](clients)

    live, replayed, requests = live_then_replayed(server, journal, lambda: asyncio.run(work()))

    assert replayed == live
    assert requests == 0
    assert set(phases(journal)) == {"started", "done"}


# ---------------------------------------------------------------- outside a step
def test_outside_a_step_calls_are_recorded_and_never_replayed(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """A call of an ordinary cell is in the accounts each time, and asked each time."""
    for _ in range(2):
        with running(journal, step=None):
            chat(clients)

    assert server.asked("Q1") == 2
    assert phases(journal) == ["started", "done"] * 2


def test_without_a_thread_the_transport_only_passes_on(clients: Clients, server: ModelServer) -> None:
    """With no thread open nothing is changed about a request, not even its accepted encodings."""
    assert chat(clients).choices[0].message.content == "AQ1-1"
    assert server.last()["headers"]["accept-encoding"] == httpx2.Client().headers["accept-encoding"]
