"""Streams that their reader leaves, and calls that a person or a task stops."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import openai
import pytest

from resumable_nb.calls.http import RecordedPrefixOnly
from resumable_nb.calls.recording import LEFT_OPEN
from tests.calls.clients import Clients, chat, said, streamed
from tests.calls.fake_scope import FakeScope, MemoryJournal, last, phases, running

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer

LONG = "an answer that is long enough to come in many small chunks"


@pytest.fixture(autouse=True)
def _long_answers(server: ModelServer) -> None:
    server.script({"text": LONG, "times": 99, "chunk_delay_s": 0.01})


def stream_of(clients: Clients, prompt: str = "Q1") -> Any:
    return clients.openai().chat.completions.create(model="m", messages=said(prompt), stream=True)


def why(journal: MemoryJournal) -> str:
    return str(json.loads(last(journal).data or "")["why"])


# ---------------------------------------------------------------- left by the caller
def closed_after_three(clients: Clients) -> list[str]:
    with stream_of(clients) as stream:
        return [next(stream).choices[0].delta.content for _ in range(3)]


def closed_unread(clients: Clients) -> list[str]:
    stream_of(clients).close()
    return []


def left_after_three(clients: Clients) -> list[str]:
    return streamed(clients, at_most=3)


def left_and_collected(clients: Clients) -> list[str]:
    pieces = streamed(clients, at_most=3)
    gc.collect()
    return pieces


@pytest.mark.parametrize("leave", [closed_after_three, closed_unread, left_after_three, left_and_collected])
def test_the_prefix_of_a_left_stream_is_its_answer(
    leave: Callable[[Clients], list[str]], clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """However a stream is left, what its reader had is what a replay gives, and nothing is sent again."""
    with running(journal) as scope:
        live = leave(clients)
        scope.commit()
    with running(journal):
        assert leave(clients) == live

    assert server.asked("Q1") == 1
    assert phases(journal) == ["started", "partial"]


def test_reading_past_a_recorded_prefix_raises(clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """The journal holds no more than the reader had: to read on raises, and says how to ask anew."""
    with running(journal) as scope:
        left_after_three(clients)
        scope.commit()

    with running(journal), pytest.raises(openai.APIConnectionError) as caught:
        streamed(clients)

    assert isinstance(caught.value.__cause__, RecordedPrefixOnly)
    assert "%resumable fresh s" in str(caught.value.__cause__)
    assert server.asked("Q1") == 1


def test_a_prefix_is_in_the_journal_before_the_next_call(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """A crash right after the call that follows a left stream loses neither: both are answered from the journal."""
    with running(journal):
        live = left_after_three(clients), chat(clients, "Q2")  # no commit: the process dies here

    with running(journal):
        assert (left_after_three(clients), chat(clients, "Q2")) == live
    assert (server.asked("Q1"), server.asked("Q2")) == (1, 1)


def test_streams_that_are_read_in_turns_end_as_done(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """Opening a second stream writes the prefix of the first; both are whole in the end, and tokens count once."""
    with running(journal) as scope:
        first = stream_of(clients)
        start = [next(first) for _ in range(2)]
        second = stream_of(clients, "Q2")
        live = [[*start, *first], list(second)]
        scope.commit()
    with running(journal):
        assert [list(stream_of(clients)), list(stream_of(clients, "Q2"))] == live

    rows = journal.read()
    assert [row.phase for row in rows] == ["started", "partial", "started", "done", "done"]
    assert json.loads(rows[1].data or "")["why"] == LEFT_OPEN
    assert server.asked() == 2


def test_streams_of_other_flows_are_no_left_streams(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """Parallel tasks each read a stream: none of them takes another's for left, so each has one row at its end."""

    async def read(client: openai.AsyncOpenAI, prompt: str) -> int:
        stream = await client.chat.completions.create(model="m", messages=said(prompt), stream=True)
        return len([chunk async for chunk in stream])

    async def work() -> None:
        async with clients.async_openai() as client:
            await asyncio.gather(*[read(client, f"Q{i}") for i in range(6)])

    with running(journal):
        asyncio.run(work())

    assert sorted(phases(journal)) == ["done"] * 6 + ["started"] * 6


def test_a_stream_that_ended_is_whole_though_its_last_line_never_came(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """`[DONE]` without the empty line after it is the end of an answer, when its reader closes, and on replay."""
    server.reset()
    events = ['data: {"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}]}\n\n', "data: [DONE]\n"]
    server.script({"events": events, "marker": "Q1"})

    with running(journal):
        live = streamed(clients)
    with running(journal):
        assert streamed(clients) == live == ["yes"]

    assert phases(journal) == ["started", "done"]


async def _async_left(clients: Clients, how: str) -> list[str]:
    pieces: list[str] = []
    async with clients.async_openai() as client:
        stream = await client.chat.completions.create(model="m", messages=said("Q1"), stream=True)
        async for chunk in stream:
            pieces.append(chunk.choices[0].delta.content or "")
            if len(pieces) == 3:
                break
        if how == "closed":
            await stream.close()
        return pieces


@pytest.mark.parametrize("how", ["left", "closed"])
def test_an_async_stream_may_be_left_as_well(
    how: str, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """The prefix of a left async stream is its answer, too."""
    with running(journal) as scope:
        live = asyncio.run(_async_left(clients, how))
        scope.commit()
    with running(journal):
        assert asyncio.run(_async_left(clients, how)) == live

    assert server.asked("Q1") == 1
    assert phases(journal)[0] == "started"
    assert set(phases(journal)[1:]) == {"partial"}


def test_an_exception_that_was_handled_before_is_no_reason(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """A stream that is closed inside an `except` block was left, not interrupted by what the block handles."""
    with running(journal):
        try:
            raise ValueError("the first source has nothing")
        except ValueError:
            closed_after_three(clients)

    assert phases(journal) == ["started", "partial"]


def test_a_collected_stream_writes_nothing_by_itself(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """The garbage collector may run inside the journal's lock: closing a stream from there only takes a note."""
    with running(journal):
        stream = stream_of(clients)
        next(stream)
        with journal.lock:
            del stream
            gc.collect()  # a write from here would wait for the lock for ever
        assert phases(journal) == ["started"]
        chat(clients, "Q2")

    assert phases(journal) == ["started", "partial", "started", "done"]


@pytest.mark.parametrize("closed", [True, False])
def test_a_stream_that_a_failed_step_was_reading_is_asked_again(
    closed: bool, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """What a step had read when it raised is no answer: the next run, which reads to the end, gets a whole one."""
    for _ in range(2):
        with running(journal):
            stream = stream_of(clients)
            next(stream)  # the step raises here
    if closed:
        stream.close()
    del stream
    gc.collect()

    with running(journal):
        chat(clients, "Q2")
        assert len(streamed(clients)) > 5

    assert server.asked("Q1") == 3
    assert "partial" not in phases(journal)


def test_what_follows_the_terminator_is_handed_on(
    clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """The answer is recorded up to its terminator, and the reader still gets every byte that the server sends."""
    server.reset()
    answer = 'data: {"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    server.script({"events": [answer + ": a tr", "ailer\n", "\n: the end"]})

    with running(journal):
        api = clients.openai().chat.completions.with_streaming_response
        with api.create(model="m", messages=said("Q1"), stream=True) as response:
            got = b"".join(response.iter_bytes())

    assert got.decode() == answer + ": a trailer\n\n: the end"
    assert last(journal).body == answer.encode()


# ---------------------------------------------------------------- stopped
def interrupt_when(condition: Callable[[], bool]) -> threading.Thread:
    """Send this process a Ctrl-C as soon as a condition holds.

    Meanwhile no garbage of other tests is collected: what a Ctrl-C raises within a `__del__` is lost in Python.
    """
    gc.disable()

    def wait() -> None:
        try:
            while not condition():
                threading.Event().wait(0.02)
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            gc.enable()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


SLOW = {
    "before the answer": {"delay_s": 30},
    "within a stream": {"chunk_delay_s": 30},
    "while it waits for a rate limit": {"status": 429, "headers": {"retry-after": "60"}},
    "while it waits for a server": {"status": 503, "headers": {"retry-after-ms": "60000"}},
}


@pytest.mark.parametrize("moment", SLOW)
def test_ctrl_c_ends_a_call_at_once(moment: str, clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """Ctrl-C raises within the call: no answer is recorded, nothing more is sent, and the next run asks once."""
    server.reset()
    server.script({"marker": "Q1", **SLOW[moment]})
    client = clients.openai(max_retries=3)

    with running(journal) as scope:
        thread = interrupt_when(lambda: server.asked("Q1") == 1)
        with pytest.raises(KeyboardInterrupt):
            list(client.chat.completions.create(model="m", messages=said("Q1"), stream=True))
        thread.join()
        assert phases(journal) == ["started", "failed"]
        assert "KeyboardInterrupt" in why(journal)
        assert scope.claimed == 0

    assert server.asked("Q1") == 1
    with running(journal):
        assert "".join(streamed(clients)) == "AQ1-2"


@pytest.mark.parametrize("moment", SLOW)
@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_cancelled_task_ends_its_call(
    how: str, moment: str, clients: Clients, server: ModelServer, journal: MemoryJournal
) -> None:
    """A task that is cancelled, or waited for too long, ends its call whenever that is: `failed`, the number free."""
    server.reset()
    server.script({"marker": "Q1", **SLOW[moment]})

    async def ask(scope: FakeScope) -> None:
        async with clients.async_openai(max_retries=3) as client:
            stream = await client.chat.completions.create(model="m", messages=said("Q1"), stream=True)
            async for _ in stream:
                pass

    async def work(scope: FakeScope) -> None:
        task = asyncio.create_task(ask(scope))
        while server.asked("Q1") == 0:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        if how == "cancel":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(task, 0.05)

    with running(journal) as scope:
        asyncio.run(work(scope))
        assert phases(journal) == ["started", "failed"]
        assert scope.claimed == 0
    assert server.asked("Q1") == 1


def test_cancelling_at_any_moment_tears_no_row(clients: Clients, server: ModelServer, journal: MemoryJournal) -> None:
    """Wherever a cancellation hits, each started row has a row that ends it, and numbers are taken by answers only."""

    async def work(after_s: float) -> None:
        async with clients.async_openai() as client:
            task = asyncio.ensure_future(client.chat.completions.create(model="m", messages=said("Q1")))
            await asyncio.sleep(after_s)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with running(journal) as scope:
        for step in range(25):
            asyncio.run(work(step / 1000))

        rows = journal.read()
        started = {row.seq for row in rows if row.phase == "started"}
        assert started == {row.ref_seq for row in rows if row.phase in ("done", "failed")}
        assert scope.claimed == sum(row.phase == "done" for row in rows)
