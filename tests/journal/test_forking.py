"""Copying the beginning of a thread to a new one."""

from __future__ import annotations

import json

import pytest

from resumable_nb.errors import ThreadNotFound, UsageError
from resumable_nb.journal import Row, Session, Store, rows
from tests.journal.others import Other, killed


def values(row: Row) -> dict[str, object]:
    return {c: getattr(row, c) for c in rows.COLUMNS if c != "thread_id"}


def test_a_fork_is_the_beginning_word_for_word(store: Store, session: Session) -> None:
    """Rows up to the fork are the same in every column; the last row says where from; the source is untouched."""
    for i in range(5):
        session.append(
            Row(kind="value", key=str(i), data=f' {{"n" :  {i}.0}}', body=bytes([i, 0, 255])),
            Row(kind="notice", ref_seq=-1),
        )
    source = session.read()
    count = store.fork("t", 6, "u")

    copy = store.visitor("u").read()
    assert count == len(copy) == 7
    assert [values(r) for r in copy[:6]] == [values(r) for r in source[:6]]
    assert (copy[6].kind, copy[6].phase, json.loads(copy[6].data or "")) == (
        "thread",
        "forked",
        {"from": "t", "seq": 6},
    )
    assert session.refresh() == []
    assert session.read() == source


def test_what_was_open_is_closed_in_the_copy(store: Store, session: Session) -> None:
    """Calls in flight are lost and undecided approvals dropped, in the copy only; what was completed stays."""
    session.append(
        Row(kind="step", phase="started", step="s"),
        Row(kind="llm", phase="started", step="s", key="k", occurrence=1, run_seq=-1, request="1"),
        Row(kind="approval", phase="requested", step="s", key="gate", data="{}"),
        Row(kind="approval", phase="requested", step="s", key="decided"),
        Row(kind="approval", phase="approved", ref_seq=-1),
        Row(kind="call", phase="started"),
    )
    at = session.head
    session.append(
        Row(kind="llm", phase="done", ref_seq=4),
        Row(kind="approval", phase="approved", ref_seq=5),
        Row(kind="checkpoint", ref_seq=3),
    )
    store.fork("t", at, "u")

    closing = store.visitor("u").read(after=at)
    assert [(r.kind, r.phase, r.ref_seq) for r in closing] == [
        ("step", "lost", 3),
        ("llm", "lost", 4),
        ("approval", "dropped", 5),
        ("call", "lost", 8),
        ("thread", "forked", None),
    ]
    assert (closing[1].step, closing[1].key, closing[1].occurrence, closing[1].run_seq, closing[1].request) == (
        "s",
        "k",
        1,
        3,
        None,
    )
    assert closing[2].data is None
    assert store.rows("SELECT thread_id, payload_hash, phase FROM approvals ORDER BY ALL")[1] == [
        ("t", "decided", "approved"),
        ("t", "gate", "approved"),
        ("u", "decided", "approved"),
        ("u", "gate", "dropped"),
    ]


def test_a_fork_is_owned_by_nobody(store: Store, session: Session) -> None:
    """The owner of the source does not own the copy: both can be open at once, and a fork follows no dead session."""
    store.fork("t", session.head, "u")
    fork = store.open_session("u", about={})
    again = store.open_session("t", take_over=True, about={})

    assert fork.died is None
    assert fork.append(Row(kind="notice")) == [5]
    assert again.append(Row(kind="notice")) == [4]


def test_a_fork_can_be_forked(store: Store, session: Session) -> None:
    """A copy of a copy, made before or after where the first was made, is complete."""
    session.append(Row(kind="notice", name="one"), Row(kind="notice", name="two"))
    store.fork("t", 4, "u")
    store.fork("u", 3, "v")
    store.fork("u", 5, "w")

    assert [r.name or r.phase for r in store.visitor("v").read()] == ["created", "opened", "one", "forked"]
    assert [r.phase for r in store.visitor("w").read()][-2:] == ["forked", "forked"]
    assert {r[0] for r in store.rows("SELECT is_complete FROM threads")[1]} == {True}


@pytest.mark.parametrize("seq", [0, -1, 3, 99])
def test_a_row_that_is_not_there(store: Store, session: Session, seq: int) -> None:
    """Forking at a row that the thread does not have names those that it has."""
    with pytest.raises(ThreadNotFound, match=f"has no row {seq}: it has 1 to 2"):
        store.fork("t", seq, "u")

    assert store.threads() == ["t"]


def test_names_of_forks(store: Store, session: Session) -> None:
    """An unknown source, a name that is taken, and no name at all are refused; nothing is written."""
    with pytest.raises(ThreadNotFound, match="no thread 'x'"):
        store.fork("x", 1, "u")
    with pytest.raises(UsageError, match="has a thread 't' already"):
        store.fork("t", 1, "t")
    with pytest.raises(UsageError):
        store.fork("t", 1, " ")

    assert session.refresh() == []


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_fork_is_whole_or_not_there(store: Store, session: Session, side: str) -> None:
    """Killed at either side of its INSERT, a fork is there with every row, or not at all."""
    session.append(*(Row(kind="notice") for _ in range(20)))
    session.close()
    store.close()
    killed(
        "Store.open(args[0]).fork('t', 10, 'u')", store.path, env={"RESUMABLE_NB_FAILPOINT": f"journal.append.{side}"}
    )

    assert store.rows("SELECT thread_id, last_seq, is_complete FROM threads ORDER BY ALL")[1] == [
        ("t", 23, True),
        *([("u", 11, True)] if side == "after" else []),
    ]


def test_forking_a_thread_that_another_process_has(store: Store) -> None:
    """A fork needs no ownership: the thread of a living process can be forked, and goes on undisturbed."""
    source = """
store = Store.open(args[0])
session = store.open_session("t", about={})
store.close()
say(1); hear()
say(session.append(Row(kind="notice")))
"""
    with Other(source, store.path) as owner:
        owner.hear()
        store.fork("t", 2, "u")
        store.close()
        owner.say()
        assert owner.hear() == [3]
        owner.end()
