"""One story for all: plan, let a person approve, four research calls, close a ticket, report.

What is outside stands here: questions to a model, and a ticket desk. Both are local processes of the verifier, and both
sides of each call are points where the teller can be killed. The desk is as careless as many services: asked twice, it
closes a ticket twice; it can be asked what it did. A login is good until it is revoked.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.request
from collections.abc import Mapping
from typing import Any

from resumable_nb.failpoints import passing

QUERY = "Which tickets about our sensors can be closed?"
PLAN = ["Which sensors drifted?", "When did it begin?", "Who was told?", "Is it fixed?"]
FINDINGS = [
    "Sensors 3 and 8.",
    "In the night of 4 May.",
    "The team of the north station.",
    "Since version 2 of the data.",
]
REPORT = "Ticket 41 was closed: sensors 3 and 8 drifted from 4 May on, and version 2 of the data corrects it."
TICKET, KEY = 41, "close-41"
PATH, MODEL = "/v1/chat/completions", "m"
ASK_PLAN = f"{QUERY} Write four questions, one on a line."
ASK_REPORT = "Write a report of these findings:\n" + "\n".join(FINDINGS)

Kept = dict[str, Any]
"""What a teller has on disk: `plan`, `asked`, `decision`, `findings`, `ticket`, `report`, as far as it came."""


def body_of(prompt: str) -> dict[str, Any]:
    """A question as it is sent."""
    return {"messages": [{"role": "user", "content": prompt}], "model": MODEL}


def exchanges() -> list[tuple[str, str]]:
    """Every question of the story with its answer, in order."""
    return [(ASK_PLAN, "\n".join(PLAN)), *zip(PLAN, FINDINGS, strict=True), (ASK_REPORT, REPORT)]


def completion(text: str) -> str:
    """An answer as a model's server gives it."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60}
    made = {"id": "x", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice], "usage": usage}
    return json.dumps(made)


def digest_of(answer: str) -> str:
    """By what the verifier's world knows an answer that was kept (`verify/stored.py` makes the same)."""
    return hashlib.md5(answer.encode()).hexdigest() + "-" + hashlib.md5(b"").hexdigest()


def state_of(kept: Kept) -> dict[str, Any]:
    """The research state in what is kept."""
    return {field: kept[field] for field in ("plan", "findings", "ticket", "report") if kept.get(field)}


# ---------------------------------------------------------------- what a teller does outside
def ask(prompt: str) -> str:
    """Ask the model; gives its text."""
    passing("http.send.before")
    url = os.environ["STORY_MODEL"] + PATH
    request = urllib.request.Request(url, json.dumps(body_of(prompt)).encode(), {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        text = json.load(answer)["choices"][0]["message"]["content"]
    passing("http.receive.after")
    return str(text)


def ask_plan() -> list[str]:
    """The questions to look into."""
    return ask(ASK_PLAN).splitlines()


def ask_report(findings: list[str]) -> str:
    """The report."""
    return ask("Write a report of these findings:\n" + "\n".join(findings))


def close_ticket() -> Mapping[str, Any]:
    """Close the ticket; gives the desk's receipt. With STORY_LOOK_UP the desk is asked first, as one does by hand."""
    from resumable_nb.verify import ledger

    desk = ledger()
    assert desk is not None
    if os.environ.get("STORY_LOOK_UP") and (found := desk.find(KEY)) is not None:
        return dict(found)
    token = desk.token()
    passing("effect.call.before")
    receipt = desk.act("close_ticket", key=KEY, arguments={"number": TICKET}, token=token)
    passing("effect.call.after")
    return dict(receipt)


def committed() -> None:
    """A point between two steps: the one before has been handed to the store."""
    passing("step.commit.after")
