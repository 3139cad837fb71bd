"""Group D of the public cases: nothing without a yes."""

from __future__ import annotations

import json
import shutil

import pytest

SEND = """%%resumable send
from resumable_nb import approve
asked = approve("Send?", payload={"to": "lab", "amount": 100})
hit(f"sent {asked.payload['amount']}")
"""


def approvals(book, **env):
    return book.sql("SELECT * FROM approvals ORDER BY seq", **env)


@pytest.fixture
def waiting(book):
    """The notebook of D1, run until it waits."""
    book.cells = {"send": SEND}
    ran = book.run()
    assert ran.code == 3, ran.said
    assert "resumable-nb approve send" in ran.said
    assert book.server.hits("sent 100") == 0
    return book


def test_what_was_approved_is_what_runs(waiting):
    """D1: the order of the payload's keys is no other question; another amount is, and nothing is done before a yes."""
    book = waiting
    assert book.command("approve", "send").returncode == 0
    shutil.copytree(book.folder, book.folder.parent / "copy")
    other = type(book)(book.folder.parent / "copy", book.server, {"send": SEND})

    again = book.run()
    assert (again.code, book.server.hits("sent 100")) == (0, 1), again.said
    book.cells = {"send": SEND.replace('{"to": "lab", "amount": 100}', '{"amount": 100, "to": "lab"}')}
    assert book.run().code == 0
    assert len(approvals(book)) == 1

    other.cells = {"send": SEND.replace("100}", "50}")}
    edited = other.run()
    assert (edited.code, book.server.hits("sent 50")) == (3, 0), edited.said
    assert [row["phase"] for row in approvals(other)] == ["approved", "waiting"]


def test_an_edited_payload_is_what_runs(waiting):
    """D1: approved with another amount, the effect gets that one; the payload asked about is kept beside it."""
    book = waiting
    refused = book.command("approve", "send", "--payload", '{"to": "lab", "amount": "seventy"}')
    assert refused.returncode == 2
    assert "payload.amount: this was a whole number" in refused.stderr
    assert book.command("approve", "send", "--payload", "@missing.json").returncode == 2
    edited = {"to": "lab", "amount": 70}
    (book.folder / "edited.json").write_text(json.dumps(edited))
    assert book.command("approve", "send", "--payload", "@edited.json", "--comment", "less").returncode == 0

    again = book.run()
    (row,) = approvals(book)
    assert again.code == 0, again.said
    assert (book.server.hits("sent 70"), book.server.hits("sent 100")) == (1, 0)
    assert json.loads(row["payload"]) == {"amount": 100, "to": "lab"}
    assert json.loads(row["approved_payload"]) == edited
    assert (row["phase"], row["comment"]) == ("approved", "less")


def test_a_decision_too_early_twice_or_against_the_first(book):
    """D2: what nobody asked cannot be decided, a second decision is told who was first, and the effect happens once."""
    book.cells = {"send": SEND}
    early = book.command("approve", "send")
    assert early.returncode not in (0, 3)
    assert book.run().code == 3

    wrong = book.command("approve", "snd")
    first = book.command("approve", "send", JUPYTERHUB_USER="ada")
    second = book.command("approve", "send")
    again = book.run()
    late = book.command("reject", "send")

    assert wrong.returncode == 1
    assert "What waits: `send`" in wrong.stderr
    assert first.returncode == 0
    assert second.returncode == late.returncode == 1
    assert "approved by ada at 20" in second.stderr
    assert "approved by ada at 20" in late.stderr
    assert again.code == book.run().code == 0
    assert book.server.hits("sent 100") == 1
    assert [row["phase"] for row in approvals(book)] == ["approved"]
