"""A language model's server for tests, in a process of its own. It counts requests; it can be told to misbehave.

    with ModelServer() as server:
        server.script({"marker": "Q1", "status": 500})            # the next request with Q1 in it fails
        client = OpenAI(base_url=server.base_url, api_key="sk-test-SECRET")
        …
        assert server.asked("Q1") == 2

It answers `A<marker>-<nth>` by the marker (`Q1`, `Q2`, …) in the last user message, and bills 100 input and 10 output
tokens for each answer that it gives in full. `/ledger` counts what a test reports to it. It ends when the test's
process does, however that ends.

A rule of `script` is used for the next request (`times`: more) that has its `marker` and `path`, if it names them:

    delay_s       wait before the answer                     status, headers    of the answer
    hold          wait until the test says `release`
    text          what the model says                        json, raw          a whole body instead of the answer
    finish_reason of the answer                              content_type       of a raw body
    encoding      gzip, or a name that is only claimed       echo_auth          say the caller's key
    chunk_delay_s between the pieces of a stream             split              pieces of so many bytes
    keep          only so many events of a stream            end                clean, drop (break the connection)
    events        raw events in place of a stream's own      redirect           where to, with status 307
    reasoning     tell the reasoning in deltas               tool               call a tool of this name
    untold        tell no tokens                             longest            at most so many characters of prompt
    die           end the server's process
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

INPUT_TOKENS, OUTPUT_TOKENS = 100, 10
Json = dict[str, Any]
TOO_LONG: Json = {
    "status": 400,
    "json": {
        "error": {
            "message": "This model's maximum context length is 4097 tokens. However, you requested 4120 tokens. Please "
            "reduce the length of the messages or completion.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    },
}


# ---------------------------------------------------------------- the side of the test
class ModelServer:
    """The running server, seen from a test."""

    program = __file__

    def __init__(self) -> None:
        command = [sys.executable, "-S", self.program]  # the standard library will do, and starts at once
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    @property
    def base_url(self) -> str:
        """For the OpenAI SDK."""
        return f"{self.url}/v1"

    def stats(self) -> Json:
        """All that it counted, see `State.stats`."""
        return self._call("/stats")

    def asked(self, marker: str = "") -> int:
        """How many requests had this marker; without one: how many there were in all."""
        stats = self.stats()
        count: int = stats["asked"].get(marker, 0) if marker else stats["total"]
        return count

    def last(self) -> Json:
        """Headers, path and body of the last request."""
        last: Json = self.stats()["last"]
        return last

    def script(self, *rules: Json) -> None:
        """What to do with coming requests."""
        self._call("/script", list(rules))

    def release(self) -> None:
        """Let the answers go that a rule holds, and those that it would hold from now on."""
        self._call("/release", {})

    def reset(self) -> None:
        """Forget everything."""
        self._call("/reset", {})

    def hit(self, name: str) -> int:
        """Count something, as a notebook would; how often it was counted now."""
        count: int = self._call("/ledger", {"name": name})["count"]
        return count

    def hits(self, name: str) -> int:
        """How often it was counted."""
        count: int = self._call("/ledger").get(name, 0)
        return count

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _call(self, path: str, body: Any = None) -> Json:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data=data), timeout=120) as response:
            value: Json = json.load(response)
        return value


# ---------------------------------------------------------------- the server's own process
@dataclass
class State:
    """What it has counted, and what it is told to do."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    asked: Counter[str] = field(default_factory=Counter)
    paths: Counter[str] = field(default_factory=Counter)
    ledger: Counter[str] = field(default_factory=Counter)
    billed: Counter[str] = field(default_factory=Counter)
    rules: list[Json] = field(default_factory=list)
    last: Json = field(default_factory=dict)
    released: threading.Event = field(default_factory=threading.Event)

    def stats(self) -> Json:
        """Requests by marker and by path, in all, tokens billed, the ledger, and the last request."""
        return {
            "asked": self.asked,
            "paths": self.paths,
            "total": sum(self.paths.values()),
            "billed": {"input_tokens": self.billed["input"], "output_tokens": self.billed["output"]},
            "ledger": self.ledger,
            "last": self.last,
        }

    def count(self, path: str, marker: str) -> tuple[int, Json]:
        """Count a request; its number among those with its marker, and the rule for it."""
        with self.lock:
            self.paths[path] += 1
            self.asked[marker] += 1
            for rule in self.rules:
                if rule.get("marker", marker) == marker and rule.get("path", path) in path and rule.get("times", 1) > 0:
                    rule["times"] = rule.get("times", 1) - 1
                    return self.asked[marker], rule
            return self.asked[marker], {}


STATE = State()
_request_ids = itertools.count(1)


class _Dropped(Exception):
    """The connection is to break here."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    billed: Counter[str]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/stats":
                self.reply(200, STATE.stats())
            case "/ledger":
                self.reply(200, dict(STATE.ledger))
            case path:
                self.answer(path, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("transfer-encoding", "") == "chunked":
            body = self._dechunked()
        match self.path.partition("?")[0]:
            case "/script":
                STATE.rules += json.loads(body)
                self.reply(200, {})
            case "/release":
                STATE.released.set()
                self.reply(200, {})
            case "/reset":
                STATE.released.set()
                STATE.__init__()  # type: ignore[misc]  # as new
                self.reply(200, {})
            case "/ledger":
                with STATE.lock:
                    STATE.ledger[json.loads(body or b"{}").get("name", "")] += 1
                self.reply(200, {"count": STATE.ledger[json.loads(body or b"{}").get("name", "")]})
            case path:
                self.answer(path, body)

    do_DELETE = do_GET

    def answer(self, path: str, body: bytes) -> None:
        """Answer one request to a model, by the rule for it if there is one."""
        try:
            asked = json.loads(body) if body[:1] == b"{" else {}
        except ValueError:
            asked = {}
        marker = marker_of(asked)
        STATE.last = {
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": asked,
            "size": len(body),
        }
        nth, rule = STATE.count(path, marker)
        self.billed, released = STATE.billed, STATE.released
        if rule.get("die"):
            os._exit(1)
        if "longest" in rule and sum(len(m["content"]) for m in asked["messages"]) > rule["longest"]:
            rule = TOO_LONG
        time.sleep(rule.get("delay_s", 0))
        if rule.get("hold"):
            released.wait()
        try:
            if not self._as_told(rule):
                self._as_model(path, asked, rule, f"A{marker}-{nth}", nth)
        except (BrokenPipeError, ConnectionResetError, _Dropped):
            self.close_connection = True

    def bill(self) -> None:
        """One answer was given in full: to the account of the test that asked, which may have ended since."""
        with STATE.lock:
            self.billed.update(input=INPUT_TOKENS, output=OUTPUT_TOKENS)

    def _as_told(self, rule: Json) -> bool:
        if "redirect" in rule:
            self.reply(307, {}, {"location": rule["redirect"]})
        elif "raw" in rule:
            self._send(rule.get("status", 200), rule["raw"].encode(), {"content-type": rule["content_type"]}, rule)
        elif "json" in rule:
            self.reply(rule.get("status", 200), rule["json"], rule.get("headers"), rule)
        elif rule.get("status", 200) != 200:
            self.reply(rule["status"], {"error": {"message": f"told to fail: {rule['status']}"}}, rule.get("headers"))
        else:
            return False
        return True

    def _as_model(self, path: str, asked: Json, rule: Json, text: str, nth: int) -> None:
        text = rule.get("text", text)
        if rule.get("echo_auth"):
            text = f"your key is {self.headers['authorization']}"
        if path.endswith("/chat/completions"):
            wanted = asked.get("response_format", {}).get("json_schema", {}).get("schema")
            text = json.dumps(instance(wanted, wanted, text, nth)) if wanted and "text" not in rule else text
            events, whole = chat(asked, rule, text, nth)
        elif path.endswith("/responses"):
            events, whole = responses(asked, text, nth)
        elif path.endswith("/messages"):
            events, whole = messages(asked, text, nth)
        elif path.endswith("/embeddings"):
            events, whole = [], embeddings(asked, nth)
        elif path.endswith("/speech"):
            self.bill()
            self._stream([bytes([nth, i]) * 5000 for i in range(20)], rule, "audio/mpeg")
            return
        else:
            events, whole = [], {"id": f"file-{nth}", "object": "file", "nth": nth, "bytes": STATE.last["size"]} | _FILE
        if asked.get("stream"):
            self._stream([event.encode() for event in rule.get("events", events)[: rule.get("keep")]], rule)
            self.bill() if not {"keep", "end", "events"} & rule.keys() else None
        else:
            self.bill() if path.endswith(("completions", "responses", "messages")) else None
            self.reply(200, whole, rule.get("headers"), rule)

    # ------------------------------------------------------------ sending
    def reply(self, status: int, value: Any, headers: Json | None = None, rule: Json | None = None) -> None:
        """A JSON answer."""
        self._send(
            status, json.dumps(value).encode(), {"content-type": "application/json"} | (headers or {}), rule or {}
        )

    def _send(self, status: int, body: bytes, headers: Json, rule: Json) -> None:
        if encoding := rule.get("encoding"):
            body, headers = gzip.compress(body), headers | {"content-encoding": encoding}
        missing = 10 if rule.get("end") == "drop" else 0
        self._head(status, headers | {"content-length": str(len(body) + missing)})
        self.wfile.write(body)
        self.wfile.flush()
        if missing:
            raise _Dropped

    def _stream(self, parts: list[bytes], rule: Json, content_type: str = "text/event-stream; charset=utf-8") -> None:
        headers = {"content-type": content_type, "transfer-encoding": "chunked"}
        if size := rule.get("split"):
            whole = b"".join(parts)
            parts = [whole[i : i + size] for i in range(0, len(whole), size)]
        if encoding := rule.get("encoding"):
            parts, headers = [gzip.compress(b"".join(parts))], headers | {"content-encoding": encoding}
        self._head(200, headers | rule.get("headers", {}))
        for part in parts:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()
            time.sleep(rule.get("chunk_delay_s", 0))
        if rule.get("end") == "drop":
            raise _Dropped
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _head(self, status: int, headers: Json) -> None:
        self.send_response(status)
        own = {"x-request-id": f"req_{next(_request_ids)}", "set-cookie": "__cf_bm=SECRETCOOKIE1234567; path=/"}
        for name, value in (own | {"openai-organization": "org-secret"} | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def _dechunked(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


# ---------------------------------------------------------------- what a model answers
_FILE = {"created_at": 1, "filename": "a.txt", "purpose": "assistants", "status": "processed"}


def marker_of(asked: Json) -> str:
    """The marker in the last user message, wherever the API puts that."""
    said = asked.get("input") or asked.get("prompt") or ""
    for message in asked.get("messages", ()):
        if message.get("role") == "user":
            said = message.get("content") or ""
    found = re.search(r"Q\d+", said if isinstance(said, str) else json.dumps(said))
    return found[0] if found else ""


def data(value: Json, name: str = "") -> str:
    """One event."""
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(value)}\n\n"


def chat(asked: Json, rule: Json, text: str, nth: int) -> tuple[list[str], Json]:
    """Chat Completions: the events of the stream, and the whole answer."""
    head = {"id": f"chatcmpl-{nth}", "created": 1, "model": asked.get("model", "m")}
    usage = {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }
    tool = {"id": "call_1", "type": "function", "function": {"name": rule.get("tool"), "arguments": '{"x": 1}'}}
    reason = rule.get("finish_reason", "tool_calls" if "tool" in rule else "stop")

    def chunk(delta: Json, finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return data({**head, "object": "chat.completion.chunk", "choices": [choice]})

    events = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"reasoning_content": word}) for word in rule.get("reasoning", "").split()]
    if "tool" in rule:
        events += [chunk({"tool_calls": [{"index": 0, **tool, "function": {"name": rule["tool"], "arguments": ""}}]})]
        events += [chunk({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}) for part in ('{"x"', ": 1}")]
    else:
        events += [chunk({"content": text[i : i + 4]}) for i in range(0, len(text), 4)]
    events += [chunk({}, reason)]
    if (asked.get("stream_options") or {}).get("include_usage") and not rule.get("untold"):
        events += [data({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})]
    said = {"content": None, "tool_calls": [tool]} if "tool" in rule else {"content": text}
    message = {"role": "assistant", "refusal": None, **said}
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    told = {} if rule.get("untold") else {"usage": usage}
    return [*events, "data: [DONE]\n\n"], {**head, "object": "chat.completion", "choices": [choice], **told}


def responses(asked: Json, text: str, nth: int) -> tuple[list[str], Json]:
    """The Responses API."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS, "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS}
    whole = {"id": f"resp_{nth}", "object": "response", "created_at": 1, "status": "completed", "model": asked["model"]}
    whole |= {
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage | details,
    }
    started = {**whole, "status": "in_progress", "output": [], "usage": None}
    place = {"item_id": "m1", "output_index": 0, "content_index": 0}
    parts: list[Json] = [
        {"type": "response.created", "response": started},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []},
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.completed", "response": whole},
    ]
    return [data({"sequence_number": i, **one}, one["type"]) for i, one in enumerate(parts)], whole


def messages(asked: Json, text: str, nth: int) -> tuple[list[str], Json]:
    """Anthropic's Messages API."""
    head = {"id": f"msg_{nth}", "type": "message", "role": "assistant", "model": asked["model"], "stop_sequence": None}
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    start = {**head, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    deltas = [{"type": "text_delta", "text": text[i : i + 4]} for i in range(0, len(text), 4)]
    parts: list[Json] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *[{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas],
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": OUTPUT_TOKENS}},
        {"type": "message_stop"},
    ]
    whole = {**head, "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": usage}
    return [data(one, one["type"]) for one in parts], whole


def embeddings(asked: Json, nth: int) -> Json:
    """Embeddings: a vector that tells the number of the request."""
    vector: Any = [1.0, 2.0, float(nth)]
    if asked.get("encoding_format") == "base64":
        vector = base64.b64encode(struct.pack("<3f", *vector)).decode()
    one = {"object": "embedding", "index": 0, "embedding": vector}
    return {"object": "list", "data": [one], "model": asked["model"], "usage": {"prompt_tokens": 7, "total_tokens": 7}}


def instance(schema: Json, root: Json, text: str, nth: int) -> Any:
    """A value that fits a JSON schema, with the answer in its texts and the number in its numbers."""
    if "$ref" in schema:
        return instance(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, text, nth)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if "anyOf" in schema:
        return instance(schema["anyOf"][0], root, text, nth)
    match schema.get("type"):
        case "object":
            return {name: instance(part, root, text, nth) for name, part in schema.get("properties", {}).items()}
        case "array":
            items, least = schema.get("items", {}), max(1, schema.get("minItems", 1))
            return items["enum"][:least] if "enum" in items else [instance(items, root, text, nth)] * least
        case "integer" | "number":
            return nth
        case "boolean":
            return True
        case "null":
            return None
    return text


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are gone are what many tests are about."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def serve() -> None:
    """Listen until the test's process is gone: its end of the pipe closes then."""
    server = _Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve()
