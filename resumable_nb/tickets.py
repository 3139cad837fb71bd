"""A ticket desk in a process of its own: something outside, with a ledger on disk, to try effects on.

It is as careless as many services are: asked twice it acts twice, whatever key it is given. But it keeps the keys, and
can be asked for one. Who acts needs a token, and tokens end. The desk ends with the process that started it; its ledger
stays. Under `resumable-nb verify` the verifier's ledger is the desk. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import secrets
import subprocess
import sys
import threading
import urllib.error
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from resumable_nb.calls import rehearsal

TICKETS = {
    "41": "Sensor 7 drifts since March",
    "42": "Depths of station B are in feet",
    "43": "Rows of 14 May are there twice",
}
_TIMEOUT_S = 30


class Refused(RuntimeError):
    """The desk said no: it surely did nothing."""


class Desk:
    """The desk, as one who uses it sees it. Making one starts its process.

    Args:
        ledger: the file in which it keeps what happened, one JSON object a line.
    """

    def __init__(self, ledger: Path | str) -> None:
        self._rehearsal = rehearsal.ledger()
        if self._rehearsal is not None:
            return
        command = [sys.executable, "-m", "resumable_nb.tickets", str(Path(ledger).absolute())]
        pipe = subprocess.PIPE
        # The desk reads its input to the end: that comes with ours, however we end. Our Ctrl-C is none of its business.
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    def stop(self) -> None:
        """End its process. The ledger stays."""
        if self._rehearsal is None:
            self._process.communicate()

    def open_tickets(self) -> dict[str, str]:
        """Number and title of each ticket that is not closed."""
        closed = {event["ticket"] for event in self.ledger()}
        return {number: title for number, title in TICKETS.items() if number not in closed}

    def log_in(self) -> str:
        """A token, good until the desk forgets it."""
        token: str = self._asked("POST", "/tokens")
        return token

    def is_valid(self, token: str) -> bool:
        """Whether the desk still takes a token."""
        valid: bool = self._asked("GET", f"/tokens/{token}")
        return valid

    def forget_tokens(self) -> None:
        """Let all tokens end, as a night does."""
        self._asked("DELETE", "/tokens")

    def close(self, ticket: str, remark: str, *, key: str, token: str) -> dict[str, Any]:
        """Close a ticket; the entry in the ledger. Asked again, it does it again.

        Raises:
            Refused: there is no such ticket, or the token has ended.
        """
        return self._act("close", ticket, remark, key, token)

    def report(self, text: str, *, key: str, token: str) -> dict[str, Any]:
        """Post a report; the entry in the ledger. Asked again, it does it again.

        Raises:
            Refused: the token has ended.
        """
        return self._act("report", "", text, key, token)

    def look_up(self, key: str) -> dict[str, Any] | None:
        """What happened under a key; None if nothing did."""
        return next((event for event in self.ledger() if event["key"] == key), None)

    def ledger(self) -> list[dict[str, Any]]:
        """What really happened, oldest first."""
        events: list[dict[str, Any]] = self._asked("GET", "/ledger")
        return events

    def _act(self, action: str, ticket: str, text: str, key: str, token: str) -> dict[str, Any]:
        event: dict[str, Any] = self._asked(
            "POST", f"/{action}", {"ticket": ticket, "text": text, "key": key, "token": token}
        )
        return event

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        if self._rehearsal is not None:
            return _rehearsed(self._rehearsal, method, path, body)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, quote(path), json.dumps(body))
            answer = connection.getresponse()
            value = json.load(answer)
        finally:
            connection.close()
        if answer.status != 200:
            raise Refused(f"The desk refused {method} {path}: {value}")
        return value


def _rehearsed(desk: rehearsal.Ledger, method: str, path: str, body: Any) -> Any:
    """What the desk would answer, by the verifier's ledger."""
    match method, path.strip("/").split("/"):
        case "GET", ["ledger"]:
            return [act["receipt"] for act in desk.acts()]
        case "GET", ["tokens", token]:
            return desk.is_valid(token)
        case "POST", ["tokens"]:
            return desk.token()
        case "DELETE", ["tokens"]:
            return desk.revoke()
    action, told = path.strip("/"), {name: body[name] for name in ("ticket", "text", "key")}
    event = {"event": len(desk.acts()) + 1, "action": action, **told}
    try:
        return desk.act(action, key=body["key"], arguments=told, receipt=event, token=body["token"])
    except urllib.error.HTTPError as error:
        raise Refused("the token is not valid, or not valid any more") from error


# ------------------------------------------------------------------------------------------ in the process of the desk
class _Books:
    """The ledger, and the tokens that are good."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock, self.tokens = path, threading.Lock(), set[str]()

    def events(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]

    def enter(self, action: str, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["token"] not in self.tokens:
            raise Refused("the token is not valid, or not valid any more")
        if action == "close" and asked["ticket"] not in TICKETS:
            raise Refused(f"there is no ticket {asked['ticket']!r}")
        with self._lock, self._path.open("a", encoding="utf-8") as ledger:
            event = {"event": len(self.events()) + 1, "action": action}
            event |= {name: asked[name] for name in ("ticket", "text", "key")}
            ledger.write(json.dumps(event) + "\n")
        return event

    def answer(self, method: str, path: str, body: Any) -> Any:
        match method, path.strip("/").split("/"):
            case "GET", ["ledger"]:
                return self.events()
            case "POST", ["tokens"]:
                self.tokens.add(token := secrets.token_hex(8))
                return token
            case "GET", ["tokens", token]:
                return token in self.tokens
            case "DELETE", ["tokens"]:
                return self.tokens.clear()
            case "POST", ["close" | "report" as action]:
                return self.enter(action, body)
        raise Refused("there is nothing of this kind here")


class _Handler(BaseHTTPRequestHandler):
    books: _Books

    def handle_one(self) -> None:
        """Answer one request."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
        try:
            status, value = 200, self.books.answer(self.command, unquote(self.path), body)
        except Refused as no:
            status, value = 403, str(no)
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = handle_one  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve(arguments: Sequence[str]) -> None:
    """Be the desk until standard input ends; the port stands on the first line of standard output."""
    handler = type("Handler", (_Handler,), {"books": _Books(Path(arguments[0]))})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)  # noqa: T201 - for the process that started this one
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    serve(sys.argv[1:])
