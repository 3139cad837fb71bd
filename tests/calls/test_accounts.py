"""What the accounts say: providers, models, tokens, of answers and of streams alike."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import hypothesis
import hypothesis.strategies as st
import pytest

from resumable_nb.calls import accounts
from resumable_nb.calls.sse import Event, events
from tests.calls.clients import Clients, chat, said
from tests.calls.fake_scope import MemoryJournal, last, running
from tests.support import model_server

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer

ASKED = {"model": "m"}


@pytest.mark.parametrize("api", [model_server.responses, model_server.messages])
def test_a_stream_amounts_to_the_answer_without_one(api: Any) -> None:
    """Put together, a stream is the object that the same API gives without streaming."""
    parts, whole = api(ASKED, "a text that comes in pieces", 1)

    assert accounts.assembled(events("".join(parts).encode())) == whole


@pytest.mark.parametrize("rule", [{}, {"tool": "look_up"}])
def test_a_chat_stream_amounts_to_the_answer_without_one(rule: dict[str, Any]) -> None:
    """Text, tool calls, finish reason and usage are put together."""
    asked = {**ASKED, "stream_options": {"include_usage": True}}
    parts, whole = model_server.chat(asked, rule, "a text that comes in pieces", 1)

    answer = accounts.assembled(events("".join(parts).encode()))

    assert answer is not None
    message, expected = answer["choices"][0]["message"], whole["choices"][0]["message"]
    assert answer["usage"] == whole["usage"]
    assert accounts.answered(answer) == accounts.answered(whole)
    assert (message.get("content") or None) == expected["content"]
    calls = [{k: v for k, v in call.items() if k != "index"} for call in message.get("tool_calls", [])]
    assert calls == expected.get("tool_calls", [])


def test_streams_of_gemini_and_ollama_amount_to_their_answers() -> None:
    """Parts of several candidates, and lines of JSON, are put together; their accounts are those of the whole."""
    gemini = [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}], "modelVersion": "g"}
        for text in ("Hel", "lo")
    ]
    gemini[-1] |= {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3}}
    ollama = [
        {"model": "l", "message": {"role": "assistant", "content": "Hel"}, "done": False},
        {"model": "l", "message": {"role": "assistant", "content": "lo"}, "done": True, "prompt_eval_count": 5}
        | {"eval_count": 3, "done_reason": "stop"},
    ]

    one = accounts.assembled(Event("", json.dumps(value)) for value in gemini) or {}
    other = accounts.assembled(Event("", json.dumps(value)) for value in ollama) or {}

    assert "".join(part["text"] for part in one["candidates"][0]["content"]["parts"]) == "Hello"
    assert other["message"] == {"role": "assistant", "content": "Hello"}
    for answer, model in ((one, "g"), (other, "l")):
        found = accounts.answered(answer)
        assert (found.input_tokens, found.output_tokens) == (5, 3)
        assert found.response_model == model


ANSWERS: list[tuple[dict[str, Any], tuple[int | None, int | None, str | None]]] = [
    ({"usage": {"prompt_tokens": 5, "completion_tokens": 3}, "choices": [{"finish_reason": "stop"}]}, (5, 3, "stop")),
    ({"usage": {"prompt_tokens": 7, "total_tokens": 7}}, (7, None, None)),
    (
        {"object": "response", "status": "incomplete", "usage": {"input_tokens": 5, "output_tokens": 3}},
        (5, 3, "incomplete"),
    ),
    (
        {
            "usage": {
                "input_tokens": 5,
                "cache_read_input_tokens": 90,
                "cache_creation_input_tokens": 4,
                "output_tokens": 3,
            }
        }
        | {"stop_reason": "end_turn"},
        (99, 3, "end_turn"),
    ),
    (
        {"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3, "thoughtsTokenCount": 20}}
        | {"candidates": [{"finishReason": "STOP"}, {"finishReason": "MAX_TOKENS"}]},
        (5, 23, "STOP, MAX_TOKENS"),
    ),
    ({"prompt_eval_count": 5, "eval_count": 3, "done_reason": "stop"}, (5, 3, "stop")),
    ({"usage": {"inputTokens": 5, "outputTokens": 3}, "stopReason": "end_turn"}, (5, 3, "end_turn")),
    ({"usage": None, "choices": None}, (None, None, None)),
]


@pytest.mark.parametrize(("answer", "expected"), ANSWERS)
def test_tokens_and_reasons_of_each_api(
    answer: dict[str, Any], expected: tuple[int | None, int | None, str | None]
) -> None:
    """Input tokens include cached ones, output tokens include reasoning, as OpenTelemetry has it."""
    found = accounts.answered(answer)

    assert (
        found.input_tokens,
        found.output_tokens,
        found.response_finish_reasons,
    ) == expected


@pytest.mark.parametrize(
    ("host", "path", "headers", "name"),
    [
        ("api.openai.com", "/v1/responses", {}, "openai"),
        ("x.openai.azure.com", "/openai/deployments/d/chat/completions", {}, "azure.ai.openai"),
        ("api.anthropic.com", "/v1/messages", {}, "anthropic"),
        ("proxy.corp", "/v1/messages", {"anthropic-version": "2023-06-01"}, "anthropic"),
        ("generativelanguage.googleapis.com", "/v1beta/models/g:generateContent", {}, "gcp.gemini"),
        ("proxy.corp", "/v1beta/models/g:streamGenerateContent", {}, "gcp.gemini"),
        ("localhost", "/api/chat", {}, "ollama"),
        ("localhost", "/v1/chat/completions", {}, "openai"),
        (accounts.EMBEDDED_HOST, "/v1/chat/completions", {}, "llama_cpp"),
        ("notopenai.com", "/search", {}, None),
    ],
)
def test_providers(host: str, path: str, headers: dict[str, str], name: str | None) -> None:
    """A provider is known by its host, else by the form of the request."""
    assert accounts.provider(host, path, headers) == name


@hypothesis.given(
    st.lists(
        st.recursive(
            st.none() | st.integers() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["choices", "candidates", "done", "type", "index", "delta", "usage", "response", "text"]
                    ),
                    inner,
                    max_size=4,
                )
            ),
        )
    )
)
def test_a_stream_of_an_unknown_form_costs_no_paid_answer(values: list[Any]) -> None:
    """Whatever a stream holds, its row can be made: the accounts may stay empty, the answer is kept."""
    from resumable_nb.calls.recording import _response

    body = "".join(f"data: {json.dumps(value)}\n\n" for value in values).encode()
    text, value = _response("text/event-stream", body)

    accounts.answered(value)
    assert text is None or json.loads(text) == value


def test_the_accounts_equal_the_bill(clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """Calls, streams, a retried 500, failures and replays: the journal's sums are what the server billed."""
    with_usage = {"stream_options": {"include_usage": True}}
    server.script({"marker": "Q3", "status": 500}, {"marker": "Q4", "status": 400})

    def work() -> None:
        chat(clients, "Q1")
        clients.openai(max_retries=1).chat.completions.create(model="m", messages=said("Q3"))
        clients.openai().responses.create(model="m", input="Q5")
        clients.anthropic().messages.create(model="c", max_tokens=5, messages=said("Q6"))
        list(clients.anthropic().messages.create(model="c", max_tokens=5, messages=said("Q7"), stream=True))
        list(clients.openai().chat.completions.create(model="m", messages=said("Q8"), stream=True, **with_usage))
        list(clients.openai().responses.create(model="m", input="Q9", stream=True))

    for _ in range(3):
        with running(journal):
            work()
            try:
                chat(clients, "Q4")
            except Exception:
                continue

    rows = [row for row in journal.read() if row.phase == "done"]
    assert sum(row.gen_ai_usage_input_tokens or 0 for row in rows) == server.stats()["billed"]["input_tokens"]
    assert sum(row.gen_ai_usage_output_tokens or 0 for row in rows) == server.stats()["billed"]["output_tokens"]
    assert json.loads(next(r for r in rows if 'attempts":2' in (r.data or "")).data or "")["attempts"] == 2


def test_a_row_tells_all_that_otel_names(clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """Provider, operation, both models, the answer's id, its reason, its tokens and how long it took."""
    with running(journal):
        chat(clients)

    started, done = journal.read()
    assert started.gen_ai_request_model == done.gen_ai_request_model == "m"
    assert done.ref_seq == started.seq
    assert (done.name, done.key) == ("POST /v1/chat/completions", started.key)
    asked = {"provider_name": "openai", "operation_name": "chat"}
    assert json.loads(started.gen_ai or "") == asked
    told = {"response_model": "m", "response_id": "chatcmpl-1", "response_finish_reasons": "stop"}
    assert json.loads(done.gen_ai or "") == asked | told
    assert (done.gen_ai_usage_input_tokens, done.gen_ai_usage_output_tokens) == (100, 10)
    assert (done.duration_ms or 0) > 0
    assert json.loads(started.request or "")["body"]["messages"][0]["content"] == "Q1"
    assert started.response is done.request is None
    assert json.loads(done.response or "")["choices"][0]["message"]["content"] == "AQ1-1"


def test_a_stream_row_has_its_bytes_and_its_answer(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """The exact bytes are there for a replay, and the answer put together for people who read SQL."""
    with running(journal):
        asyncio.run(_read(clients))

    row = last(journal)
    assert (row.body or b"").endswith(b"data: [DONE]\n\n")
    assert json.loads(row.response or "")["choices"][0]["message"]["content"] == "AQ1-1"
    assert [e for e in events(row.body or b"") if e == Event("", "[DONE]")]


async def _read(clients: Clients) -> None:
    async with clients.async_openai() as client:
        async for _ in await client.chat.completions.create(model="m", messages=said("Q1"), stream=True):
            pass


def test_a_negative_count_of_tokens_is_none() -> None:
    """What no server can have counted is not in the journal: it is as if nothing had been told."""
    found = accounts.answered({"usage": {"prompt_tokens": -1, "completion_tokens": 7}})
    cached = accounts.answered({"usage": {"input_tokens": 5, "cache_read_input_tokens": -1}})

    assert (found.input_tokens, found.output_tokens) == (None, 7)
    assert cached.input_tokens == 5
