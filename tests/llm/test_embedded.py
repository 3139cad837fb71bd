"""The embedded model, end to end: it answers, it is started by need only, and nobody else can ask it."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Literal

import httpx2
import psutil
import pydantic
import pytest

from resumable_nb import AsyncOpenAI, OpenAI, ask
from resumable_nb.calls.accounts import EMBEDDED_HOST
from resumable_nb.errors import NoModel
from resumable_nb.llm import embedded
from resumable_nb.llm.ask import aask
from resumable_nb.llm.embedded import EMBEDDED_MODEL
from tests.calls.fake_scope import MemoryJournal, phases, running

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(not embedded.is_installed(), reason="the extra `local` is not installed"),
]


class Choice(pydantic.BaseModel):
    animal: Literal["a cat", "a dog"]
    reasons: list[str]


def test_no_connection_waits_for_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server hangs up after 5 s: a question sent into a connection at that moment would be lost and asked twice."""
    ports: list[int] = []

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            ports.append(self.client_address[1])
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setattr(
            embedded, "_running", embedded.Served(f"http://127.0.0.1:{server.server_port}", "key", server)
        )

        async def ask_async() -> None:
            async with httpx2.AsyncClient(transport=embedded.AsyncEmbeddedTransport()) as client:
                for _ in range(3):
                    await client.get(embedded.EMBEDDED_URL)

        with httpx2.Client(transport=embedded.EmbeddedTransport()) as client:
            for _ in range(3):
                client.get(embedded.EMBEDDED_URL)
        asyncio.run(ask_async())
        server.shutdown()

    assert len(set(ports)) == 6


def test_a_transport_that_was_never_used_makes_nothing_to_close() -> None:
    """Its TLS context takes 30 ms: to make one at the end of every client would be felt."""
    transport, own = embedded.EmbeddedTransport(), embedded.AsyncEmbeddedTransport()
    transport.close()
    asyncio.run(own.aclose())

    assert (vars(transport), vars(own)) == ({}, {})


def test_it_answers_chat_streams_and_forms(journal: MemoryJournal, capsys: pytest.CaptureFixture[str]) -> None:
    """Without any setting, text, a stream and an object come from the model in this process; a replay asks nothing."""

    def work() -> tuple[str, str, Choice]:
        text = ask("Say hello.", max_tokens=8)
        streamed = ask("Say good bye.", stream=True, max_tokens=8)
        return text, streamed, ask("Which pet is quieter?", Choice, max_tokens=400)

    with running(journal):
        live = work()
    with running(journal):
        assert work() == live

    assert live[0]
    assert live[2].animal in ("a cat", "a dog")
    assert capsys.readouterr().out.count(live[1]) == 2
    assert phases(journal) == ["started", "done"] * (len(journal.read()) // 2)
    assert {json.loads(row.gen_ai or "{}").get("provider_name") for row in journal.read()} == {"llama_cpp"}
    assert {row.gen_ai_request_model for row in journal.read()} == {EMBEDDED_MODEL}
    assert all(row.gen_ai_usage_output_tokens for row in journal.read() if row.phase == "done")


def test_the_same_question_has_the_same_answer() -> None:
    """At temperature 0 nothing of what was asked before changes an answer."""
    first = ask("Name one colour.", max_tokens=12)
    ask("Name one number.", max_tokens=12)

    assert ask("Name one colour.", max_tokens=12) == first


def test_async_clients_reach_it(journal: MemoryJournal) -> None:
    """`AsyncOpenAI` and `aask` ask the same server, in parallel."""

    async def work() -> list[str]:
        async with AsyncOpenAI() as client:
            answer = await client.chat.completions.create(
                model=EMBEDDED_MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=4
            )
        both = await asyncio.gather(*[aask(f"Say {word}.", max_tokens=4) for word in ("one", "two")])
        return [str(answer.choices[0].message.content), *both]

    with running(journal):
        live = asyncio.run(work())
    with running(journal):
        assert asyncio.run(work()) == live


def test_nobody_else_can_ask_it() -> None:
    """It listens on loopback only and wants a key that is in no place where one would look."""
    ask("Hi", max_tokens=2)
    server = embedded.served()
    port = int(server.url.rsplit(":", 1)[1])

    listening = [c for c in psutil.Process().net_connections("inet") if c.status == "LISTEN" and c.laddr.port == port]
    assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}
    for headers in ({}, {"authorization": "Bearer none"}, {"authorization": "Bearer "}):
        request = urllib.request.Request(f"{server.url}/v1/chat/completions", data=b"{}", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request)
        assert caught.value.code == 401
    assert server.key not in f"{server!r} {OpenAI()!r} {OpenAI().api_key} {os.environ}"


def test_many_threads_start_one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first use by many threads at once starts one server."""
    monkeypatch.setattr(embedded, "_running", None)
    urls: list[str] = []
    threads = [threading.Thread(target=lambda: urls.append(embedded.served().url)) for _ in range(8)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(urls) == 8
    assert len(set(urls)) == 1


def test_a_replay_does_not_start_it(journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded answers are there although the model is not: on another port, after a restart, or uninstalled."""
    with running(journal):
        live = ask("Say hello.", max_tokens=4)

    def fail() -> embedded.Served:
        raise AssertionError("a replay must not start it")

    monkeypatch.setattr(embedded, "served", fail)
    with running(journal):
        assert ask("Say hello.", max_tokens=4) == live


def test_a_proxy_of_the_environment_is_not_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stays in this process goes through no proxy."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)

    answer = OpenAI().chat.completions.create(
        model=EMBEDDED_MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=2
    )

    assert answer.choices[0].message.content


def test_the_name_of_the_model_chooses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in the environment does not hinder from asking the embedded model by its name."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-SECRET")
    assert ask("Hi", model=EMBEDDED_MODEL, max_tokens=2)

    monkeypatch.setenv("RESUMABLE_NB_MODEL", EMBEDDED_MODEL)
    assert ask("Hi", max_tokens=2)


def test_its_host_is_nowhere_else() -> None:
    """Its name resolves to nothing: a client that is not ours cannot send a question of it elsewhere."""
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"http://{EMBEDDED_HOST}/v1/models", trust_env=False)


def test_it_ends_with_the_process_and_says_nothing() -> None:
    """A killed kernel leaves no server behind; nothing is written to its streams."""
    code = (
        "import os, signal; from resumable_nb import ask; from resumable_nb.llm.embedded import served;"
        "ask('Hi', max_tokens=2); print(served().url, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    who, url = ended.stdout.splitlines()
    assert ended.returncode == -9
    assert who.startswith(EMBEDDED_MODEL)
    assert ended.stderr == ""
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{url}/health", timeout=5)


def _ask_in_a_child(connection: Connection) -> None:
    try:
        connection.send(ask("Hi", max_tokens=2))
    except NoModel as error:
        connection.send(str(error))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking a process with threads is what this is about
def test_a_forked_child_is_told() -> None:
    """A fork has no server's threads, and llama.cpp would hang in it: the child is told what to do instead."""
    ask("Hi", max_tokens=2)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    child = context.Process(target=_ask_in_a_child, args=(sender,))
    child.start()
    said = receiver.recv() if receiver.poll(60) else ""
    child.join(30)
    ended = child.exitcode
    child.kill()
    child.join()

    assert "forked process" in said
    assert ended == 0
