"""What is no answer: it is passed on, never recorded as one, and asked again."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from resumable_nb import http_client
from resumable_nb.calls import recording
from resumable_nb.errors import StoreLocked
from tests.calls.clients import Clients, chat, said, streamed
from tests.calls.fake_scope import MemoryJournal, last, phases, running
from tests.support.model_server import ModelServer, data

EVENT_ERROR = [data({"error": {"message": "overloaded", "type": "server_error"}}), "data: [DONE]\n\n"]
DEEP = "[" * 300 + "]" * 300

BROKEN: dict[str, tuple[Callable[[Clients], Any], dict[str, Any]]] = {
    "400": (chat, {"status": 400}),
    "500": (chat, {"status": 500}),
    "an HTML page": (chat, {"raw": "<html>gateway</html>", "content_type": "text/html"}),
    "half a JSON text": (chat, {"raw": '{"choices": [{"mess', "content_type": "application/json"}),
    "deep JSON": (chat, {"raw": f'{{"choices": {DEEP}}}', "content_type": "application/json"}),
    "nothing": (chat, {"raw": "", "content_type": "application/json"}),
    "an error object": (chat, {"json": {"error": {"message": "no such model"}}}),
    "an encoding that nobody asked for": (chat, {"encoding": "lzma"}),
    "an error event before [DONE]": (streamed, {"events": EVENT_ERROR}),
    "a stream that just ends": (streamed, {"keep": 3}),
    "a stream that breaks": (streamed, {"keep": 3, "end": "drop"}),
    "a stream of nothing": (streamed, {"keep": 0}),
    "a 500 for a stream": (streamed, {"status": 500}),
    "a page for a stream": (streamed, {"raw": "<html>gateway</html>", "content_type": "text/html"}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_answer_is_asked_again(
    name: str, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """An error, a page, half an answer: its row is `failed`, its number is free, the next run gets a real answer."""
    work, rule = BROKEN[name]
    server.script({"marker": "Q1", **rule})

    with running(journal) as scope:
        with contextlib.suppress(openai.OpenAIError, ValueError, AttributeError, TypeError, RecursionError):
            work(clients)  # whatever the SDK makes of it
        assert phases(journal) == ["started", "failed"]
        assert scope.claimed == 0

    with running(journal):
        answer = work(clients)
    with running(journal):
        assert work(clients) == answer
    assert "".join(answer) == "AQ1-2"
    assert server.asked("Q1") == 2


@pytest.mark.parametrize("rule", [{"keep": 3}, {"keep": 8}, {"keep": 3, "end": "drop"}])
def test_a_broken_stream_raises(
    rule: dict[str, Any], clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """A stream that ends before its end raises, where the SDK alone would return the half text; the person is told."""
    server.script(rule | {"text": "a long answer that takes many chunks"})

    with running(journal) as scope, pytest.raises(openai.APIConnectionError):
        streamed(clients)

    assert len(scope.notices) == 1
    assert "POST /v1/chat/completions" in scope.notices[0]


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
def test_a_clean_end_after_a_finish_reason_is_an_end(
    reason: str, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """Some servers send no `[DONE]`; a finish reason and a clean end of the connection will do."""
    server.script({"text": "yes", "finish_reason": reason, "keep": -1})

    with running(journal):
        assert "".join(streamed(clients)) == "yes"

    assert phases(journal) == ["started", "done"]


def test_an_error_event_of_anthropic_fails_the_call(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """`event: error` makes a call fail, also after much of the answer has come."""
    start = {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": []}}
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    server.script({"events": [data(start, "message_start"), data(error, "error")]})

    with running(journal), pytest.raises(anthropic.APIError):
        list(clients.anthropic().messages.create(model="c", max_tokens=5, messages=said("Q1"), stream=True))

    assert phases(journal) == ["started", "failed"]
    assert "Overloaded" in json.loads(last(journal).data or "")["why"]


def test_a_failed_response_of_openai_fails_the_call(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """`response.failed` makes a call fail, and so does a response whose status is `failed`."""
    failed = {"id": "r", "object": "response", "status": "failed", "error": {"code": "server_error", "message": "x"}}
    server.script(
        {"events": [data({"type": "response.failed", "response": failed}, "response.failed")]}, {"json": failed}
    )

    with running(journal):
        list(clients.openai().responses.create(model="m", input="Q1", stream=True))
        clients.openai().responses.create(model="m", input="Q1")

    assert phases(journal) == ["started", "failed"] * 2


def test_a_page_is_an_answer_where_no_model_was_asked(server: ModelServer, journal: MemoryJournal) -> None:
    """Sources are fetched through the same client: there an HTML page or an `error` field is what was asked for."""
    server.script(
        {"path": "/page", "raw": "<html>solar</html>", "content_type": "text/html"},
        {"path": "/api", "json": {"error": None, "hits": 3}},
    )

    def work() -> list[str]:
        client = http_client()
        return [client.get(f"{server.url}/page").text, client.post(f"{server.url}/api", json={"q": 1}).text]

    with running(journal):
        live = work()
    with running(journal):
        assert work() == live

    assert {row.kind for row in journal.read()} == {"call"}
    assert server.asked() == 2


def test_an_answer_that_is_too_large_is_passed_on_and_not_kept(
    clients: Clients, server: ModelServer, journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit an answer or a stream reaches its caller, the person is told, and a replay asks again."""
    monkeypatch.setattr(recording, "MAX_BODY_BYTES", 1000)
    monkeypatch.setattr("resumable_nb.calls.streams.MAX_BODY_BYTES", 1000)
    server.script({"text": "x" * 2000, "times": 2})

    with running(journal) as scope:
        assert chat(clients) == "x" * 2000
        assert "".join(streamed(clients)) == "x" * 2000

    assert phases(journal) == ["started", "failed"] * 2
    assert all("too many to keep" in notice for notice in scope.notices)
    assert scope.claimed == 0


def test_a_credential_is_no_answer_to_keep(server: ModelServer, journal: MemoryJournal) -> None:
    """A token endpoint's answer reaches its caller and is never in the journal."""
    server.script({"path": "/token", "json": {"access_token": "eyJ-very-secret-token", "expires_in": 3600}})

    with running(journal):
        answer = http_client().post(f"{server.url}/token", data={"client_secret": "hush-hush-hush"})

    assert answer.json()["access_token"] == "eyJ-very-secret-token"
    assert phases(journal) == ["started", "failed"]
    assert not any("secret-token" in str(row) or "hush-hush" in str(row) for row in journal.read())


async def _async_chat(clients: Clients, **options: Any) -> str:
    async with clients.async_openai(**options) as client:
        answer = await client.chat.completions.create(model="m", messages=said("Q1"))
        return str(answer.choices[0].message.content)


async def _async_stream(clients: Clients) -> str:
    async with clients.async_openai() as client:
        stream = await client.chat.completions.create(model="m", messages=said("Q1"), stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


@pytest.mark.parametrize("name", BROKEN)
def test_async_clients_take_nothing_for_an_answer_either(
    name: str, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """The same for async clients: `failed`, the number free, and a real answer next time."""
    work = _async_chat if BROKEN[name][0] is chat else _async_stream
    server.script({"marker": "Q1", **BROKEN[name][1]})

    with running(journal) as scope:
        with contextlib.suppress(openai.OpenAIError, ValueError, AttributeError, TypeError, RecursionError):
            asyncio.run(work(clients))
        assert phases(journal) == ["started", "failed"]
        assert scope.claimed == 0

    for _ in range(2):
        with running(journal):
            assert asyncio.run(work(clients)) == "AQ1-2"


def test_an_async_client_tries_again_as_well(clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """A connection that breaks within an answer costs an attempt, not the answer."""
    server.script({"end": "drop"})

    with running(journal):
        assert asyncio.run(_async_chat(clients, max_retries=1)) == "AQ1-2"

    assert phases(journal) == ["started", "done"]


def test_a_journal_that_cannot_be_written_fails_an_async_call(
    clients: Clients, server: ModelServer, journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's error reaches async code, too, out of the thread where the journal is written."""

    def refuse(*_rows: Any) -> list[int]:
        raise StoreLocked("somebody else holds it")

    monkeypatch.setattr(journal, "append", refuse)

    with running(journal) as scope, pytest.raises(StoreLocked):
        asyncio.run(_async_chat(clients))

    assert scope.claimed == 0
    assert server.asked() == 0


def test_a_url_that_is_none_is_not_tried_again(journal: MemoryJournal) -> None:
    """What can never be sent fails at once."""
    with running(journal), http_client(max_retries=9) as client, pytest.raises(httpx2.UnsupportedProtocol):
        client.post("gopher://example.invalid/v1/chat/completions", json={"model": "m"})

    assert phases(journal) == ["started", "failed"]


@pytest.mark.parametrize("phase", ["started", "done", "failed"])
def test_a_journal_that_cannot_be_written_fails_the_call(
    phase: str, clients: Clients, server: ModelServer, journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that cannot be written is no small matter: the caller gets the store's error, and the number is free."""
    append = journal.append

    def refuse(*rows: Any) -> list[int]:
        if rows[0].phase == phase:
            raise StoreLocked("somebody else holds it")
        return append(*rows)

    monkeypatch.setattr(journal, "append", refuse)
    server.script({"status": 400} if phase == "failed" else {})

    with running(journal) as scope, pytest.raises(StoreLocked):
        chat(clients)

    assert scope.claimed == 0
    assert server.asked("Q1") == (0 if phase == "started" else 1)


def test_half_a_surrogate_pair_is_kept_as_bytes(clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """JSON can spell what no UTF-8 text and no JSON column holds: the answer is replayed from its bytes."""
    message = {"role": "assistant", "content": "\ud83d"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    server.script({"json": {"id": "\ud800", "choices": [choice]}})

    with running(journal):
        live = clients.openai().chat.completions.with_raw_response.create(model="m", messages=said("Q1")).content
    with running(journal):
        again = clients.openai().chat.completions.with_raw_response.create(model="m", messages=said("Q1")).content

    assert again == live
    assert last(journal).response is None
    str(last(journal).gen_ai).encode()
