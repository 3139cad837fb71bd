"""A ticket service in a process of its own, with a ledger of what really happened. Standard library only.

`POST /tickets/ID/close` closes a ticket; `GET /events/KEY` looks a key up; `GET /ledger` lists what happened, oldest
first. With `honours_keys`, a request whose `Idempotency-Key` was seen before gets the first answer and does nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote


class _Desk:
    """What the service knows. `next` is what happens to the next requests: "drop" (it acts, no answer), "refuse"."""

    def __init__(self, *, honours_keys: bool) -> None:
        self.honours_keys = honours_keys
        self.lock = threading.Lock()
        self.ledger: list[dict[str, Any]] = []
        self.next: list[str] = []
        self.delay_s = 0.0

    def close(self, ticket: str, key: str) -> dict[str, Any]:
        with self.lock:
            seen = next((e for e in self.ledger if e["key"] == key), None)
            if self.honours_keys and seen is not None:
                return seen
            event = {"event": len(self.ledger) + 1, "ticket": ticket, "key": key}
            self.ledger.append(event)
            return event


def _handler(desk: _Desk) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/ledger":
                self._answer(200, desk.ledger)
                return
            key = unquote(self.path.removeprefix("/events/"))
            with desk.lock:
                found = next((event for event in desk.ledger if event["key"] == key), None)
            self._answer(200 if found else 404, found)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            if self.path == "/script":
                desk.next, desk.delay_s = list(body.get("next", [])), body.get("delay_s", 0.0)
                if body.get("reset"):
                    desk.ledger.clear()
                self._answer(200, {})
                return
            what = desk.next.pop(0) if desk.next else ""
            if what == "refuse":
                self._answer(409, {"error": "refused"})
                return
            event = desk.close(self.path.split("/")[2], self.headers.get("Idempotency-Key") or "")
            time.sleep(desk.delay_s)
            if what == "drop":
                self.close_connection = True
                return
            self._answer(200, event)

        def _answer(self, status: int, value: Any) -> None:
            body = json.dumps(value).encode()
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
        honours_keys: whether it acts once for each idempotency key.
    """

    def __init__(self, *, honours_keys: bool = False) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(int(honours_keys))], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{self._process.stdout.readline().strip()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def script(self, *following: str, delay_s: float = 0.0) -> None:
        """What happens to the next requests."""
        _post(f"{self.url}/script", {"next": following, "delay_s": delay_s})

    def reset(self) -> None:
        """Begin with an empty ledger."""
        _post(f"{self.url}/script", {"reset": True})

    @property
    def closed(self) -> list[str]:
        """The tickets that were closed, in their order, each as often as it happened."""
        with urllib.request.urlopen(f"{self.url}/ledger") as answer:
            return [event["ticket"] for event in json.load(answer)]


def _post(url: str, value: Any, **headers: str) -> Any:
    request = urllib.request.Request(
        url, json.dumps(value).encode(), {k.replace("_", "-"): v for k, v in headers.items()}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


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
    desk = _Desk(honours_keys=sys.argv[1] == "1")
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(desk)) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
