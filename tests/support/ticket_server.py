"""A ticket service in a process of its own, with a ledger of what really happened. Standard library only.

`POST /tickets/ID/close` closes a ticket; `GET /events/KEY` looks a key up; `GET /ledger` lists what happened, oldest
first. With `honours_keys`, a request whose `Idempotency-Key` was seen before gets the first answer and does nothing.
The ledger is a file: it outlives the service, which may die in the middle of a request.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import unquote, urlsplit

Fate = Literal["", "refuse", "drop", "late", "late act", "die before", "die after"]
"""What happens to a request: it is refused; it is done, and there is no answer, or one after the client gave up; it is
done after the client gave up; the service dies before or after doing it."""


class _Desk:
    """What the service knows."""

    def __init__(self, ledger: Path, *, honours_keys: bool) -> None:
        self.path, self.honours_keys = ledger, honours_keys
        self.lock, self.idle, self.busy = threading.Lock(), threading.Condition(), 0
        self.next: list[Fate] = []

    @property
    def ledger(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def find(self, key: str) -> dict[str, Any] | None:
        return next((event for event in self.ledger if event["key"] == key), None)

    def close(self, ticket: str, key: str) -> dict[str, Any]:
        with self.lock:
            if self.honours_keys and (seen := self.find(key)) is not None:
                return seen
            event = {"event": len(self.ledger) + 1, "ticket": ticket, "key": key}
            with self.path.open("a") as file:
                file.write(json.dumps(event) + "\n")
            return event

    def work(self, change: int) -> None:
        """One request more, or one less, is being answered."""
        with self.idle:
            self.busy += change
            self.idle.notify_all()


class _Server(ThreadingHTTPServer):
    """Knows when all requests that came before are answered, also those whose client is dead."""

    desk: _Desk

    def process_request(self, request: Any, client_address: Any) -> None:
        self.desk.work(+1)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        super().process_request_thread(request, client_address)
        self.desk.work(-1)


def _handler(desk: _Desk) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/ledger":
                with desk.idle:
                    desk.idle.wait_for(lambda: desk.busy == 1)
                self._answer(200, desk.ledger)
                return
            with desk.lock:
                found = desk.find(unquote(self.path.removeprefix("/events/")))
            self._answer(200 if found else 404, found)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            if self.path == "/script":
                desk.next = list(body["next"])
                self._answer(200, {})
                return
            fate = desk.next.pop(0) if desk.next else ""
            ticket, key = self.path.split("/")[2], self.headers.get("Idempotency-Key") or ""
            if fate == "refuse":
                self._answer(409, {"error": "refused"})
                return
            if fate == "late act":
                self._wait_until_given_up()
            if fate == "die before":
                os._exit(1)
            event = desk.close(ticket, key)
            if fate == "die after":
                os._exit(1)
            if fate == "late":
                self._wait_until_given_up()
            if fate in ("", "late"):
                self._answer(200, event)

        def _wait_until_given_up(self) -> None:
            """Headers go out, so that the client's patience begins only now; then nothing until it hangs up."""
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()
            self.rfile.read(1)

        def _answer(self, status: int, value: Any) -> None:
            body = json.dumps(value).encode()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    return Handler


class TicketServer:
    """The service, started on entering and ended on leaving.

    Args:
        ledger: the file of what happened.
        honours_keys: whether it acts once for each idempotency key.
    """

    def __init__(self, ledger: Path, *, honours_keys: bool = False) -> None:
        self._ledger, self._honours_keys = ledger, honours_keys
        self.start()

    def start(self) -> None:
        """Start it, again if it died. Its address is another one then."""
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self._ledger), str(int(self._honours_keys))],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{self._process.stdout.readline().strip()}"

    def stop(self) -> None:
        """End it, if it did not die."""
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def script(self, *following: Fate) -> None:
        """What happens to the next requests."""
        _post(f"{self.url}/script", {"next": following})

    def reset(self) -> None:
        """Begin with an empty ledger."""
        self._ledger.unlink(missing_ok=True)

    @property
    def closed(self) -> list[str]:
        """The tickets that were closed by all requests made so far, each as often as it happened."""
        with urllib.request.urlopen(f"{self.url}/ledger") as answer:
            return [event["ticket"] for event in json.load(answer)]


def _post(url: str, value: Any, **headers: str) -> Any:
    """The answer; TimeoutError if it has begun, and does not go on."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=20)
    try:
        connection.connect()
        wire = connection.sock
        connection.request("POST", parts.path, json.dumps(value), {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        wire.settimeout(20 if answer.length is not None else 0.2)
        body = json.loads(answer.read() or b"null")
    finally:
        connection.close()
    if answer.status == 409:
        raise Refused(body)
    return body


class Refused(Exception):
    """The service said no, and did nothing."""


def close(url: str, ticket: str, key: str) -> Any:
    """Close a ticket; the receipt."""
    return _post(f"{url}/tickets/{ticket}/close", {}, Idempotency_Key=key)


def look_up(url: str, key: str) -> Any:
    """The receipt of a key, or None."""
    try:
        with urllib.request.urlopen(f"{url}/events/{key}", timeout=20) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:
            return None
        raise


def main() -> None:
    """Serve until this process is ended; the port stands on the first line."""
    desk = _Desk(Path(sys.argv[1]), honours_keys=sys.argv[2] == "1")
    with _Server(("127.0.0.1", 0), _handler(desk)) as server:
        server.desk = desk
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
