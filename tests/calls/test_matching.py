"""Which requests are the same question, and what is said of two that are not."""

from __future__ import annotations

import json
import string
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from resumable_nb.calls.matching import MAX_DEPTH, Question, describe_difference, nearest, public_query, question

CHAT = b"/v1/chat/completions"
BASE: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Earlier question"},
        {"role": "assistant", "content": "Earlier answer"},
        {"role": "user", "content": "Q1"},
    ],
    "temperature": 0,
    "seed": 1,
    "num_ctx": 2048,
    "tools": [{"type": "function", "function": {"name": "look_up", "parameters": {}}}],
}


def ask(body: Any, *, target: bytes = CHAT, content_type: str = "application/json", **headers: str) -> Question:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return question("POST", target, headers={"content-type": content_type, **headers}, body=data)


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    copy: Any = json.loads(json.dumps(BASE))
    place = copy
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return copy  # type: ignore[no-any-return]


SMALL_CHANGES: list[tuple[list[Any], Any, str]] = [
    (["num_ctx"], 8192, "num_ctx 2048 → 8192"),
    (["seed"], 2, "seed 1 → 2"),
    (["temperature"], 0.5, "temperature 0 → 0.5"),
    (["messages", 0, "content"], "Be long.", "messages[0].content 'Be brief.' → 'Be long.'"),
    (["messages", 1, "content"], "Another one", "messages[1].content 'Earlier question' → 'Another one'"),
    (["tool_choice"], "none", "tool_choice is new: 'none'"),
    (["tools", 0, "function", "name"], "find", "tools[0].function.name 'look_up' → 'find'"),
]


@pytest.mark.parametrize(("path", "value", "sentence"), SMALL_CHANGES)
def test_one_small_thing_makes_another_question(path: list[Any], value: Any, sentence: str) -> None:
    """Requests that differ in one field are two questions, and the sentence names the field and both values."""
    recorded, new = ask(BASE), ask(changed(path, value))

    assert recorded.key != new.key
    assert describe_difference(recorded.text, new.text) == [sentence]


def test_the_clock_in_a_prompt_is_shown() -> None:
    """Of two long texts the differing part is shown, with where it begins."""
    prompt = "[2026-11-29T{}] Q1 list the risks of solar power in a few words for a reader who knows nothing of it"
    old, new = (ask(changed(["messages", 3, "content"], prompt.format(t))) for t in ("10:15:59", "11:20:01"))

    (sentence,) = describe_difference(old.text, new.text)

    assert sentence.startswith("messages[3].content differs at character 13: ")
    assert "10:15:59" in sentence
    assert "11:20:01" in sentence


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def written_otherwise(value: Any) -> bytes:
    """The same JSON value with another order of keys, other white space and other escapes."""
    if isinstance(value, dict):
        parts = [json.dumps(k).encode() + b" : " + written_otherwise(v) for k, v in reversed(value.items())]
        return b"{ " + b" ,\n".join(parts) + b" }"
    if isinstance(value, list):
        return b"[" + b" , ".join(written_otherwise(v) for v in value) + b"]"
    return json.dumps(value).encode()


@hypothesis.given(json_values)
def test_how_json_is_written_does_not_count(value: Any) -> None:
    """Order of keys, white space and escapes make no other question; `1`, `1.0` and `true` do."""
    body = {"model": "m", "x": value}

    one = ask(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"))

    assert ask(written_otherwise(body)).key == one.key
    assert len({ask({"x": x}).key for x in (1, 1.0, True, "1", [1], None)}) == 6


@hypothesis.given(json_values, json_values)
def test_differences_are_said_if_and_only_if_there_are_any(old: Any, new: Any) -> None:
    """Two texts have no difference to describe exactly when they are equal; sentences are short and plain."""
    one, other = ask({"x": old}).text, ask({"x": new}).text

    sentences = describe_difference(one, other)

    assert bool(sentences) == (one != other)
    assert len(sentences) <= 6
    for sentence in sentences:
        assert len(sentence) < 400
        assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in sentence)


@hypothesis.given(st.lists(st.sampled_from(SMALL_CHANGES), min_size=1), st.integers(0, 6))
def test_the_nearest_request_is_the_one_with_the_least_difference(
    others: list[tuple[list[Any], Any, str]], place: int
) -> None:
    """Among requests with more changes, the one that differs in one text's last word is found."""
    far = [ask({**changed(path, value), "model": "other", "n": 3}).text for path, value, _ in others]
    near = ask(changed(["messages", 3, "content"], "Q1 please")).text
    candidates = [*far[:place], near, *far[place:]]

    assert nearest(ask(BASE).text, candidates) == candidates.index(near)
    assert nearest(ask(BASE).text, []) is None


def test_a_request_of_another_path_is_never_nearer() -> None:
    """Method and path outrank everything else."""
    elsewhere = ask(BASE, target=b"/v1/embeddings").text
    here = ask({"model": "other"}).text

    assert nearest(ask(BASE).text, [elsewhere, here]) == 1


# ---------------------------------------------------------------- what does not count
def test_where_and_by_whom_does_not_count() -> None:
    """Credentials and volatile headers are not part of a question."""
    keys = {
        ask(BASE).key,
        ask(BASE, authorization="Bearer sk-one-one-one-one").key,
        ask(BASE, **{"idempotency-key": "abc-123-def", "x-stainless-retry-count": "1", "user-agent": "x"}).key,
        ask(BASE, target=CHAT + b"?key=AIzaSyD-1234567890").key,
    }

    assert len(keys) == 1


def test_a_query_counts_where_it_is_the_question() -> None:
    """`?q=solar` and `?q=wind` are two questions to a catalogue; a page's token counts, an access token does not."""

    def get(query: bytes) -> str:
        return question("GET", b"/search?" + query, headers={}, body=b"").key

    assert get(b"q=solar") != get(b"q=wind")
    assert get(b"q=solar&page_token=abc") != get(b"q=solar&page_token=def")
    assert get(b"q=solar&api_key=abc12345") == get(b"q=solar&api_key=def67890")
    assert get(b"a=1&b=2") == get(b"b=2&a=1")


def multipart(boundary: str, content: bytes, file_name: str = "a.txt") -> Question:
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{file_name}"\r\n'
    body = head.encode() + b"Content-Type: text/plain\r\n\r\n" + content + f"\r\n--{boundary}--\r\n".encode()
    return ask(body, target=b"/v1/files", content_type=f"multipart/form-data; boundary={boundary}")


def test_an_upload_is_matched_by_its_parts() -> None:
    """The boundary is random and does not count; names, types and contents do; the content itself is not stored."""
    one = multipart("abc123", b"hello\x00\xff\r\nworld")

    assert multipart("other-boundary-9", b"hello\x00\xff\r\nworld").key == one.key
    assert multipart("abc123", b"hello\x00\xff\r\nworlds").key != one.key
    assert multipart("abc123", b"hello\x00\xff\r\nworld", "b.txt").key != one.key
    assert "hello" not in one.text


odd_bytes = st.lists(st.sampled_from([b"\r", b"\n", b"a", b" ", b"\x00", b"\xff", b"=3D", b"-"]), max_size=5).map(
    b"".join
)


@hypothesis.given(odd_bytes, odd_bytes)
def test_uploads_are_equal_if_and_only_if_their_bytes_are(one: bytes, other: bytes) -> None:
    """Line ends, NULs and bytes that are no text count like any others."""
    assert (multipart("abc123", one).key == multipart("abc123", other).key) == (one == other)


@pytest.mark.parametrize(
    "body",
    [
        b'{"x": ' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b"}",
        b"[" * 200_000,
        b'{"x": NaN}',
        b'{"x": 1e999}',
        b'{"x": "\\ud800"}',
        b'{"x": "\xff"}',
        b'{"x": ' + b"9" * 5000 + b"}",
        b"{not json",
        b"\x00\x01\x02",
    ],
)
def test_a_body_that_is_no_storable_json_is_matched_by_its_bytes(body: bytes) -> None:
    """Deep, broken or unstorable JSON is an opaque body: no crash, one key, and a text that the store takes."""
    asked = ask(body)

    assert asked.key == ask(body).key
    assert asked.key != ask(body + b" ").key
    assert json.loads(asked.text)["body"]["$bytes"] == len(body)


def test_brackets_in_texts_are_not_depth() -> None:
    """A prompt full of brackets is an ordinary prompt."""
    asked = ask({"model": "m", "prompt": '[{"' * 1000 + "\\"})

    assert json.loads(asked.text)["body"]["prompt"].startswith('[{"[{"')


@hypothesis.given(st.text(string.ascii_letters + string.digits + "-_", min_size=6, max_size=60))
def test_the_public_form_of_a_query_has_no_credential(secret: str) -> None:
    """What a message may show of a URL lacks the values of credentials and keeps the rest."""
    shown = public_query(f"q=solar&key={secret}xy9&api_key={secret}xy9&page=2".encode())

    assert shown == b"q=solar&key=redacted&api_key=redacted&page=2"


@pytest.mark.parametrize(
    ("method", "path", "kind", "operation"),
    [
        ("POST", "/v1/chat/completions", "llm", "chat"),
        ("POST", "/openai/deployments/gpt/chat/completions", "llm", "chat"),
        ("POST", "/v1/completions", "llm", "text_completion"),
        ("POST", "/v1/responses", "llm", "chat"),
        ("POST", "/v1/embeddings", "llm", "embeddings"),
        ("POST", "/v1/messages", "llm", "chat"),
        ("POST", "/v1/audio/speech", "llm", "speech"),
        ("POST", "/v1/images/generations", "llm", "image_generation"),
        ("POST", "/v1beta/models/gemini-3:generateContent", "llm", "generate_content"),
        ("POST", "/v1beta/models/gemini-3:streamGenerateContent", "llm", "generate_content"),
        ("POST", "/api/chat", "llm", "chat"),
        ("POST", "/model/anthropic.claude/converse", "llm", "chat"),
        ("GET", "/v1/responses/resp_1", "call", None),
        ("GET", "/v1/models", "call", None),
        ("POST", "/v1/files", "call", None),
        ("POST", "/v1/messages/batches", "call", None),
        ("POST", "/v1/threads/t1/messages", "call", None),
        ("POST", "/forms/7/responses", "call", None),
        ("POST", "/search", "call", None),
    ],
)
def test_what_asks_a_model_is_known_by_its_path(method: str, path: str, kind: str, operation: str | None) -> None:
    """Calls to models have their accounts; anything else is a call like any other."""
    asked = question(method, path.encode(), headers={}, body=b"")

    assert (asked.kind, asked.operation, asked.name) == (kind, operation, f"{method} {path}")
