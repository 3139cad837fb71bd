"""Event streams: cut anywhere, read the same, and judged by their terminators."""

from __future__ import annotations

import json
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from resumable_nb.calls.sse import Ending, Event, EventParser, WholeLines, events, pieces

ANSWER = 'a 🧠 text with "finish_reason":"stop", data: [DONE] and\nevent: error in it'


def chunk(finish_reason: str | None, index: int = 0, content: str = ANSWER) -> str:
    return json.dumps({"choices": [{"index": index, "delta": {"content": content}, "finish_reason": finish_reason}]})


def stream(*data: str, end: str = "\n", names: dict[int, str] | None = None) -> bytes:
    parts = [
        (f"event: {(names or {})[i]}{end}" if i in (names or {}) else "") + f"data: {d}{end}{end}"
        for i, d in enumerate(data)
    ]
    return (f": a comment{end}{end}" + "".join(parts)).encode()


def judged(body: bytes, **options: Any) -> Ending:
    ending = Ending()
    for event in events(body, **options):
        ending.see(event)
    return ending


@hypothesis.given(st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(1, 40)))
def test_the_borders_of_chunks_do_not_matter(end: str, sizes: list[int]) -> None:
    """Cut anywhere, also within a character or a CRLF, a stream gives the same events and the same bytes."""
    body = stream(chunk(None), chunk("stop"), "[DONE]", end=end, names={0: "first"})
    lines, parser, got, out, at = WholeLines(), EventParser(), [], b"", 0

    for size in [*sizes, len(body)]:
        whole = lines.feed(body[at : at + size])
        got += list(parser.feed(whole))
        out, at = out + whole, at + size
    rest = lines.flush()
    got += [*parser.feed(rest), *parser.flush()]

    assert got == list(events(body))
    assert out + rest == body


def test_an_event_may_have_several_lines() -> None:
    """Data lines of one event are joined; a name is for one event only; a byte order mark is none of it."""
    body = b"\xef\xbb\xbfdata: one\ndata:two\nevent: e\nid: 7\nretry: 1\n\ndata: three\n\n"

    assert list(events(body)) == [Event("e", "one\ntwo"), Event("", "three")]


WHOLE = {
    "[DONE]": stream(chunk(None), "[DONE]"),
    "a finish reason": stream(chunk("stop")),
    "finish reasons of two choices": stream(chunk("stop"), chunk("length", 1)),
    "response.completed": stream('{"type": "response.completed"}', names={0: "response.completed"}),
    "response.completed by its type": stream('{"type": "response.completed"}'),
    "response.incomplete": stream('{"type": "response.incomplete"}'),
    "message_stop": stream('{"type": "message_stop"}', names={0: "message_stop"}),
    "Gemini": stream('{"candidates": [{"content": {}, "finishReason": "STOP"}]}'),
}
BROKEN = {
    "nothing": b"",
    "no end": stream(chunk(None)),
    "the answer speaks of an end": stream(chunk(None), chunk(None)),
    "one of two choices has ended": stream(chunk(None, 1), chunk("stop", 0)),
    "Gemini without a reason": stream('{"candidates": [{"content": {}}]}'),
    "half an event": stream(chunk(None))[:-9],
}
FAILED = {
    "an error object": stream('{"error": {"message": "overloaded"}}', "[DONE]"),
    "an error event": stream("overloaded", names={0: "error"}),
    "an error event by its type": stream('{"type": "error", "message": "overloaded"}'),
    "an error after the reason": stream(chunk("stop"), '{"error": {"message": "overloaded"}}'),
    "response.failed": stream('{"type": "response.failed", "why": "overloaded"}', "[DONE]"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_stream_is_whole(name: str) -> None:
    """Each provider's own end makes a stream an answer."""
    assert judged(WHOLE[name]).why_not_whole(strict=True) is None


@pytest.mark.parametrize("name", BROKEN)
def test_a_stream_without_an_end_is_none(name: str) -> None:
    """No terminator, and not a finish reason for every choice: no answer, whatever its text says."""
    assert judged(BROKEN[name]).why_not_whole(strict=True) == "it ended without its terminator"


@pytest.mark.parametrize("name", FAILED)
def test_an_error_in_a_stream_outranks_its_end(name: str) -> None:
    """An error event makes a stream no answer, even if a terminator follows; what it said is told."""
    assert "overloaded" in (judged(FAILED[name]).why_not_whole(strict=True) or "")


def test_other_event_streams_may_just_end() -> None:
    """A feed that asks no model has no terminator."""
    assert judged(stream("1", "2", '["x"]', '"y"')).why_not_whole(strict=False) is None


def test_lines_of_json_end_with_done() -> None:
    """Ollama's own API sends a JSON object per line; the last one says `done`."""
    body = b'{"message":{"content":"a"},"done":false}\n{"message":{"content":"b"},"done":true}\n'

    assert judged(body, per_line=True).why_not_whole(strict=True) is None
    assert judged(body[: body.index(b"\n") + 1], per_line=True).why_not_whole(strict=True) is not None


@hypothesis.given(st.sampled_from(["\n", "\r\n", "\r"]), st.integers(0, 12))
def test_a_recorded_body_is_cut_into_whole_events(end: str, cut: int) -> None:
    """A replay hands on one event after the other, all of the bytes, and the last one complete."""
    body = stream(chunk(None), chunk("stop"), "[DONE]", end=end)
    body = body[: len(body) - cut]

    cut_up = pieces(body, content_type="text/event-stream; charset=utf-8")

    assert b"".join(cut_up).startswith(body)
    assert len(b"".join(cut_up)) - len(body) in (0, 2)
    assert all(len(list(events(piece))) <= 1 for piece in cut_up)
    assert [e for piece in cut_up for e in events(piece)] == list(events(body))
