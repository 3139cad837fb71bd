"""The outside world of notebooks under test, in a process of its own: recorded answers, and a ledger of what was done.

It outlives the kernels that are killed, and sees what they really sent. `python -m resumable_nb.verify.world` serves
on loopback until its standard input closes; `World` starts that, and asks it. Each trial has a name and its own counts.
"""

from __future__ import annotations

import base64
import copy
import json
import secrets
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

from resumable_nb.calls.matching import question

PLACE = "x-resumable-nb-place"  # as in `calls.http_rehearsal`, which imports what takes long to import

Json = dict[str, Any]
_TIMEOUT_S = 60


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A recorded answer.

    Attributes:
        key: what was asked, as `calls.matching` has it.
        path: of the request.
        place: which of several equal questions it was, as `calls.http_rehearsal` has it; "" for any.
        content_type: of the answer.
        body: the answer's bytes.
        digest: a short form of the body; the journal of a trial knows its answers by it.
    """

    key: str
    path: str
    place: str = ""
    content_type: str
    body: bytes
    digest: str


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A question that a trial sent.

    Attributes:
        key: what was asked.
        at: when it came, in seconds since 1970.
        done_at: when its answer was out; None if its sender was gone.
        known: whether the recording has an answer to just this question.
        life: how many processes of the trial had died or ended before.
    """

    key: str
    at: float
    done_at: float | None
    known: bool
    life: int


@dataclass(frozen=True, kw_only=True)
class Log:
    """What one trial did outside.

    Attributes:
        acts: acts of the ledger, oldest first: effect, key, arguments, life.
        sent: questions, oldest first.
        tokens: credentials that were given out.
        refused: acts with a credential that was not valid.
    """

    acts: tuple[Json, ...]
    sent: tuple[Sent, ...]
    tokens: int
    refused: int


class World:
    """The running server, seen from the verifier. Use it as a context manager."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        port, _, secret = self._process.stdout.readline().strip().partition(" ")
        self.url = f"http://127.0.0.1:{port}/{secret}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def answers_url(self, trial: str) -> str:
        """Where the calls of a trial are answered."""
        return f"{self.url}/{trial}/answers"

    def ledger_url(self, trial: str) -> str:
        """Where the effects of a trial act."""
        return f"{self.url}/{trial}/ledger"

    def record(self, answers: Iterable[Answer]) -> None:
        """Know these answers, in the order in which they were given."""
        told = [{**vars(a), "body": base64.b64encode(a.body).decode()} for a in answers]
        self._control("record", {"answers": told})

    def copy(self, trial: str, to: str) -> None:
        """A new trial that has done what another one has done so far."""
        self._control("copy", {"trial": trial, "to": to})

    def resume(self, trial: str, answered: Mapping[str, list[str]]) -> None:
        """A process of the trial is gone, and another one comes.

        Args:
            trial: its name.
            answered: by key, digests of the answers that it kept. What was lost is answered as before.
        """
        self._control("resume", {"trial": trial, "answered": dict(answered)})

    def revoke(self, trial: str) -> None:
        """No credential that was given out is valid any more."""
        self._control("revoke", {"trial": trial})

    def log(self, trial: str) -> Log:
        """What the trial did so far."""
        found = self._control("log", {"trial": trial})
        sent = tuple(Sent(**one) for one in found["sent"])
        return Log(acts=tuple(found["acts"]), sent=sent, tokens=found["tokens"], refused=found["refused"])

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _control(self, what: str, body: Json) -> Json:
        request = urllib.request.Request(f"{self.url}/control/{what}", json.dumps(body).encode())  # noqa: S310 - ours
        with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
            found: Json = json.load(answer)
        return found


# ---------------------------------------------------------------- the server's own process
@dataclass
class _Trial:
    acts: list[Json] = field(default_factory=list)
    sent: list[Json] = field(default_factory=list)
    tokens: dict[str, bool] = field(default_factory=dict)
    refused: int = 0
    life: int = 0
    given: dict[str, list[str]] = field(default_factory=dict)


class _Desk:
    """What the server knows."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answers: dict[str, list[Json]] = {}
        self.in_order: list[Json] = []
        self.trials: dict[str, _Trial] = {}

    def trial(self, name: str) -> _Trial:
        return self.trials.setdefault(name, _Trial())

    # ------------------------------------------------------------ control
    def control(self, what: str, body: Json) -> Json:
        with self.lock:
            done: Json = getattr(self, f"_do_{what}")(**body) or {}
        return done

    def _do_record(self, answers: list[Json]) -> None:
        for answer in answers:
            answer["body"] = base64.b64decode(answer["body"])
            self.answers.setdefault(answer["key"], []).append(answer)
            self.in_order.append(answer)

    def _do_copy(self, trial: str, to: str) -> None:
        self.trials[to] = copy.deepcopy(self.trial(trial))

    def _do_resume(self, trial: str, answered: dict[str, list[str]]) -> None:
        known = self.trial(trial)
        known.life, known.given = known.life + 1, answered

    def _do_revoke(self, trial: str) -> None:
        self.trial(trial).tokens = dict.fromkeys(self.trial(trial).tokens, False)

    def _do_log(self, trial: str) -> Json:
        known = self.trial(trial)
        return {"acts": known.acts, "sent": known.sent, "tokens": len(known.tokens), "refused": known.refused}

    # ------------------------------------------------------------ answers
    def answer(self, trial: str, path: str, key: str, place: str) -> tuple[Json | None, Json]:
        """The recorded answer to a question, and the entry that says that it came.

        That to the same question in the same place; else the next one to the same question that was not given yet.
        """
        with self.lock:
            known = self.trial(trial)
            recorded = self.answers.get(key, [])
            entry = {"key": key, "at": time.time(), "done_at": None, "known": bool(recorded), "life": known.life}
            known.sent.append(entry)
            choice = recorded or self._like(known, path)
            given = list(known.given.get(key, []))
            free = [one for one in recorded if one["place"] == place]
            free = free or [one for one in choice if not _taken(given, one["digest"])] or choice[-1:]
            if free:
                known.given.setdefault(key, []).append(free[0]["digest"])
            return (free[0] if free else None), entry

    def _like(self, known: _Trial, path: str) -> list[Json]:
        """For a question that nobody recorded: answers to others of its kind, those that are not yet given first."""
        given = {digest for digests in known.given.values() for digest in digests}
        same = [one for one in self.in_order if one["path"] == path]
        return [one for one in same if one["digest"] not in given] or same

    # ------------------------------------------------------------ ledger
    def act(self, trial: str, effect: str, key: str, token: str | None, body: Json) -> tuple[int, Any]:
        with self.lock:
            known = self.trial(trial)
            if token is not None and not known.tokens.get(token):
                known.refused += 1
                return 401, {"error": "the credential is not valid"}
            key = key or json.dumps([effect, body.get("arguments")], sort_keys=True)
            seen = next((act for act in known.acts if act["key"] == key), None)
            if seen is not None and body.get("honours_keys"):
                return 200, seen["receipt"]
            receipt = body.get("receipt")
            receipt = {"effect": effect, "key": key} if receipt is None else receipt
            act = {"effect": effect, "key": key, "arguments": body.get("arguments"), "receipt": receipt}
            known.acts.append(act | {"life": known.life, "at": time.time()})
            return 200, receipt

    def find(self, trial: str, key: str) -> Any:
        with self.lock:
            return next((act["receipt"] for act in self.trial(trial).acts if act["key"] == key), None)

    def token(self, trial: str) -> Json:
        with self.lock:
            tokens = self.trial(trial).tokens
            made = f"token-{len(tokens) + 1}"
            tokens[made] = True
            return {"token": made}


def _taken(given: list[str], digest: str) -> bool:
    """Whether an answer was given already; each time that it was counts for one."""
    if digest in given:
        given.remove(digest)
        return True
    return False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    desk: _Desk
    secret: str

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        secret, trial, kind, path = ([*self.path.lstrip("/").split("/", 3), "", "", ""])[:4]
        if not secrets.compare_digest(secret, self.secret):
            self._json(403, {"error": "not for you"})
        elif trial == "control":
            self._json(200, self.desk.control(kind, json.loads(body)))
        elif kind == "answers":
            self._answer(trial, f"/{path}", body)
        elif kind == "ledger":
            self._ledger(trial, path, body)
        else:
            self._json(404, {"error": "no such thing"})

    do_GET = do_PUT = do_DELETE = do_PATCH = do_POST  # noqa: N815 - as http.server has it

    def _ledger(self, trial: str, path: str, body: bytes) -> None:
        what, _, name = path.partition("/")
        if self.command == "DELETE":
            self._json(200, self.desk.control("revoke", {"trial": trial}))
        elif self.command == "GET" and what == "acts":
            self._json(200, self.desk.trial(trial).acts)
        elif self.command == "GET":
            known = self.desk.trial(trial).tokens
            found = self.desk.find(trial, unquote(name)) if what == "keys" else known.get(unquote(name)) or None
            self._json(404 if found is None else 200, found)
        elif what == "tokens":
            self._json(200, self.desk.token(trial))
        else:
            token = self.headers.get("authorization", "").removeprefix("Bearer ") or None
            key = self.headers.get("idempotency-key", "")
            self._json(*self.desk.act(trial, unquote(path), key, token, json.loads(body or b"{}")))

    def _answer(self, trial: str, target: str, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = question(self.command, target.encode(), headers=headers, body=body)
        answer, entry = self.desk.answer(trial, target.partition("?")[0], asked.key, headers.get(PLACE, ""))
        if answer is None:
            self._json(400, {"error": {"message": "nothing like this was recorded"}})
            return
        try:
            self._send(200, answer["body"], answer["content_type"])
        except ConnectionError:  # its sender was killed
            self.close_connection = True
        else:
            entry["done_at"] = time.time()

    def _json(self, status: int, value: Any) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        if "event-stream" in content_type:
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for event in body.split(b"\n\n"):
                part = event + b"\n\n" if event.strip() else b""
                if part:
                    self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are gone are what this is about."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def serve() -> None:
    """Listen until the verifier is gone: its end of the pipe closes then."""
    _Handler.desk, _Handler.secret = _Desk(), secrets.token_urlsafe(16)
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port} {_Handler.secret}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve()
