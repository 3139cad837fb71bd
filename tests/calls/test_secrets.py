"""No credential of a request is in any row, nor in an error that a notebook would show."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest

from resumable_nb import http_client
from tests.calls.clients import KEY, Clients, chat, said, streamed
from tests.calls.fake_scope import MemoryJournal, running

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer

BODY = {"model": "m", "messages": said("Q1")}


def written(journal: MemoryJournal) -> str:
    """All that is in the rows, as text."""
    return "\n".join(repr(row) for row in journal.read())


def assert_absent(text: str, *secrets: str) -> None:
    for secret in secrets:
        assert secret not in text
        assert base64.b64encode(secret.encode()).decode() not in text


ODD_PLACES: dict[str, dict[str, Any]] = {
    "api-key": {"headers": {"API-KEY": "SECRET-in-a-header"}},
    "x-goog-api-key": {"headers": {"x-goog-api-key": "SECRET-in-a-header"}},
    "x-api-key": {"headers": {"x-api-key": "SECRET-in-a-header"}},
    "subscription key": {"headers": {"Ocp-Apim-Subscription-Key": "SECRET-in-a-header"}},
    "authorization without a scheme": {"headers": {"authorization": "SECRET-in-a-header"}},
    "cookie": {"headers": {"cookie": "session=SECRET-in-a-header-1"}},
    "query": {"params": {"key": "SECRET-in-a-query"}},
    "an unknown query": {"params": {"who": "SECRET-in-a-query"}},
    "basic": {"auth": ("someone", "SECRET-in-basic")},
    "body": {"json": {**BODY, "tools": [{"type": "mcp", "authorization": "SECRET-in-a-body"}]}},
    "body's header": {"json": {**BODY, "tools": [{"headers": {"Authorization": "Bearer SECRET-in-a-body"}}]}},
    "body's field": {"json": {**BODY, "extra": {"api_key": "SECRET-in-a-body"}}},
}


@pytest.mark.parametrize("place", ODD_PLACES)
def test_a_credential_is_in_no_row_wherever_it_stands(place: str, server: ModelServer, journal: MemoryJournal) -> None:
    """Whatever carries a credential, and although the server repeats it, no row has it, plain or in base64."""
    options = {"json": BODY} | ODD_PLACES[place]
    flat = json.dumps(options)
    secret = next(word for word in flat.replace('"', " ").replace("=", " ").split() if word.startswith("SECRET"))
    server.script({"text": f"you said {secret} and {base64.b64encode(secret.encode()).decode()}", "times": 2})

    with running(journal):
        first = http_client().post(f"{server.base_url}/chat/completions", **options)
    with running(journal):
        again = http_client().post(f"{server.base_url}/chat/completions", **options)

    assert first.text == again.text  # what the caller got is what is stored
    assert_absent(written(journal), secret)
    assert server.asked() == 1


def test_a_credential_in_the_url_is_in_no_row_and_no_error(server: ModelServer, journal: MemoryJournal) -> None:
    """`user:password@` and `?key=` reach the server, but neither the journal nor what `raise_for_status` says."""
    url = server.base_url.replace("//", "//user:SECRET5@") + "/chat/completions?key=SECRET3&alt=sse"
    server.script({"json": {"error": {"message": "no such user: SECRET5, SECRET3"}}, "status": 401})

    with running(journal):
        response = http_client().post(url, json=BODY)
        with pytest.raises(httpx2.HTTPStatusError) as caught:
            response.raise_for_status()

    assert "key=SECRET3" in server.last()["path"]
    assert server.last()["headers"]["authorization"] == "Basic " + base64.b64encode(b"user:SECRET5").decode()
    assert_absent(written(journal), "SECRET3", "SECRET5", "user:SECRET5")
    assert_absent(str(caught.value) + response.text, "SECRET3", "SECRET5")


def test_an_error_that_repeats_the_key_is_cleaned(server: ModelServer, journal: MemoryJournal) -> None:
    """A 401 that quotes the key neither stores it nor shows it: notebooks keep what a traceback says."""
    key = "sk-test-SECRET"
    server.script({"status": 401, "json": {"error": {"message": f"Incorrect API key provided: {key}"}}})

    with running(journal), pytest.raises(openai.AuthenticationError) as caught:
        Clients(server).openai(api_key=key).chat.completions.create(**BODY)

    assert "Incorrect API key provided" in str(caught.value)
    assert_absent(written(journal) + str(caught.value), key)


@pytest.mark.parametrize("ask", [chat, lambda clients: "".join(streamed(clients))])
def test_an_answer_that_repeats_the_key_is_cleaned(
    ask: Any, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """Live and replayed, an answer that quotes the key has a gap there; cookies and organisations are not kept."""
    event = json.dumps({"choices": [{"index": 0, "delta": {"content": f"it is {KEY}"}, "finish_reason": "stop"}]})
    server.script({"echo_auth": True, "events": [f"data: {event}\n\n", "data: [DONE]\n\n"], "split": 5})

    with running(journal):
        live = ask(clients)
    with running(journal):
        assert ask(clients) == live

    assert "[redacted]" in live
    assert_absent(written(journal), KEY, "SUPERSECRET", "SECRETCOOKIE", "org-secret")


def test_another_key_is_the_same_question(server: ModelServer, journal: MemoryJournal) -> None:
    """A rotated key, another host name and a token in the prompt do not make a new question."""
    tokens = ["ghp_" + "a1B2" * 9, "ghp_" + "c3D4" * 9]
    keys = ["sk-first-first-first", "sk-second-second-second"]
    urls = [server.base_url, server.base_url.replace("127.0.0.1", "localhost")]

    for key, url, token in zip(keys, urls, tokens, strict=True):
        with running(journal):
            client = Clients(server).openai(api_key=key, base_url=url)
            client.chat.completions.create(model="m", messages=said(f"Q1 look into {token}"))

    assert server.asked() == 1
    assert_absent(written(journal), *tokens, *keys)


@pytest.mark.parametrize("key", ["none", "ollama", "EMPTY", "lm-studio", "not-needed"])
def test_the_word_that_stands_for_no_key_is_no_secret(key: str, server: ModelServer, journal: MemoryJournal) -> None:
    """Local servers take any key: an answer about `ollama` must not lose the word."""
    server.script({"text": f"{key} is a word, {key.lower()} too"})

    with running(journal):
        answer = Clients(server).openai(api_key=key).chat.completions.create(model="m", messages=said("Q1"))

    assert answer.choices[0].message.content == f"{key} is a word, {key.lower()} too"
