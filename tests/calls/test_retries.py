"""When a request is sent again, how long that waits, and what it costs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import hypothesis
import hypothesis.strategies as st
import openai
import pytest

from resumable_nb import http_client
from resumable_nb.calls import retries
from tests.calls.clients import Clients, said
from tests.calls.fake_scope import MemoryJournal, last, phases, running

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer


@pytest.fixture(autouse=True)
def _no_time_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_FIRST_WAIT_S", 0.001)


def ask(clients: Clients, **options: Any) -> str | None:
    client = clients.openai(**options)
    return client.chat.completions.create(model="m", messages=said("Q1")).choices[0].message.content


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_an_error_of_the_moment_is_tried_again(
    status: int, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """One question, one answer: the attempts before it are a number in its row, and replay from it."""
    server.script({"status": status, "times": 2})

    with running(journal):
        assert ask(clients, max_retries=2) == "AQ1-3"
    with running(journal):
        assert ask(clients, max_retries=2) == "AQ1-3"

    assert phases(journal) == ["started", "done"]
    assert json.loads(last(journal).data or "")["attempts"] == 3


def test_a_dropped_connection_is_tried_again(clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """A connection that breaks before or within an answer costs an attempt, not the answer."""
    server.script({"end": "drop", "times": 2})

    with running(journal):
        assert ask(clients, max_retries=2) == "AQ1-3"
    with running(journal), pytest.raises(openai.APIConnectionError):
        clients.openai(max_retries=1, base_url="http://127.0.0.1:9/v1").models.list()

    assert phases(journal) == ["started", "done", "started", "failed"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_an_error_of_the_request_is_not(
    status: int, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """What the server will refuse again is asked once."""
    server.script({"status": status, "times": 9})

    with running(journal), pytest.raises(openai.APIStatusError):
        ask(clients, max_retries=5)

    assert server.asked("Q1") == 1


def test_attempts_end(clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """With n retries there are n + 1 requests, then the server's error is raised; the SDK adds none of its own."""
    server.script({"status": 500, "times": 99})

    for number in (0, 1, 3):
        with running(journal), pytest.raises(openai.InternalServerError):
            ask(clients, max_retries=number)
        with running(journal), pytest.raises(openai.InternalServerError):
            clients.openai().with_options(max_retries=number).chat.completions.create(model="m", messages=said("Q1"))

    assert server.asked("Q1") == 2 * (1 + 2 + 4)
    assert phases(journal) == ["started", "failed"] * 6


@pytest.mark.parametrize(("said_so", "requests"), [("true", 2), ("false", 1)])
def test_a_server_may_say_whether_to_retry(
    said_so: str, requests: int, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """`x-should-retry` outranks the status."""
    status = 400 if said_so == "true" else 500
    server.script({"status": status, "headers": {"x-should-retry": said_so}, "times": 9})

    with running(journal), pytest.raises(openai.APIStatusError):
        ask(clients, max_retries=1)

    assert server.asked("Q1") == requests


def test_a_server_that_wants_an_hour_is_not_waited_for(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """Too long a wait is the caller's business: the error is raised at once."""
    server.script({"status": 429, "headers": {"retry-after": "3600"}})

    with running(journal), pytest.raises(openai.RateLimitError):
        ask(clients, max_retries=5)

    assert server.asked("Q1") == 1


@hypothesis.given(st.integers(1, 30))
def test_waits_grow_and_have_a_limit(attempt: int) -> None:
    """Without a word from the server, waits double up to eight seconds."""
    wait = retries.wait_s(attempt, {})

    assert 0 < wait <= 8


@hypothesis.given(st.floats(0, 100))
def test_the_server_says_how_long(seconds: float) -> None:
    """`Retry-After` in seconds or as a date, and OpenAI's milliseconds, are kept to."""
    assert retries.wait_s(1, {"retry-after": f"{seconds:.3f}"}) == pytest.approx(seconds, abs=1e-3)
    assert retries.wait_s(1, {"retry-after-ms": f"{seconds * 1000:.3f}"}) == pytest.approx(seconds, abs=1e-3)
    began = datetime.now(UTC)
    date = format_datetime(began + timedelta(seconds=seconds), usegmt=True)  # without fractions of a second
    wait_s = retries.wait_s(1, {"retry-after": date})
    passed_s = (datetime.now(UTC) - began).total_seconds()
    assert max(0, seconds - 1 - passed_s) - 1e-3 <= wait_s <= seconds + 1e-3


@pytest.mark.parametrize("value", ["soon", "-", "1,5", "Mon, 99 Foo", ""])
def test_nonsense_about_waiting_is_ignored(value: str) -> None:
    """A header that says nothing leaves the usual wait."""
    assert 0 < retries.wait_s(1, {"retry-after": value}) <= 1


def test_other_sdks_have_their_retries_here(server: ModelServer, journal: MemoryJournal) -> None:
    """`http_client(max_retries=…)` is the number for an SDK that is told to retry nothing."""
    server.script({"status": 500, "times": 2})

    with running(journal):
        answer = http_client(max_retries=2).post(f"{server.base_url}/chat/completions", json={"model": "m"})

    assert answer.status_code == 200
    assert server.asked() == 3
