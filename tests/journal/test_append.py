"""Appending rows and reading them back."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from resumable_nb.errors import ThreadError, ValueNotStorable
from resumable_nb.journal import Row, Session, Store, rows

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LONG = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | LONG | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
).map(json.dumps)
ODD_JSON = st.sampled_from(
    ['{"a" :  1.0, "b":1e400}', " [1,\t2]\n", '{"a":1,"a":2}', "123456789012345678901234567890", '"\\u0000"', "0.10"]
)
TYPES = {"str": TEXT, "int": LONG, "float": st.floats(allow_nan=False), "bytes": st.binary(max_size=50)}
SPECIAL = {"occurrence": st.integers(0, 2**31 - 1), **dict.fromkeys(rows.JSON_COLUMNS, JSON | ODD_JSON)}
SET_BY_APPEND = ("thread_id", "seq", "ts", "session_id", "writer")
GIVEN = {
    column: st.none() | SPECIAL.get(column, TYPES[Row.__annotations__[column].removesuffix(" | None")])
    for column in rows.COLUMNS
    if column not in (*SET_BY_APPEND, "kind", "phase", "ref_seq", "parent_seq", "run_seq")
}
ROWS = st.builds(Row, kind=TEXT, phase=TEXT, ref_seq=st.none() | st.integers(0, 2**62), **GIVEN)


def as_dict(row: Row) -> dict[str, object]:
    return {column: getattr(row, column) for column in rows.COLUMNS}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(new=st.lists(ROWS, min_size=1, max_size=4))
def test_rows_come_back_as_they_went_in(session: Session, new: list[Row]) -> None:
    """Every column of a row, JSON text byte for byte, is read as it was appended, and the row knows its place."""
    seqs = session.append(*new)

    read = session.read(seqs=seqs)
    assert [as_dict(r) for r in read] == [as_dict(r) for r in new]
    assert [r.seq for r in new] == seqs == list(range(seqs[0], seqs[0] + len(new)))
    assert {(r.thread_id, r.session_id) for r in read} == {("t", session.session_id)}


def test_references_may_be_relative(session: Session) -> None:
    """A negative reference counts back from the row's own place, in each of the three columns."""
    first, second = session.append(
        Row(kind="step", phase="started"), Row(kind="llm", ref_seq=-1, parent_seq=-2, run_seq=-1)
    )

    (row,) = session.read(seqs=[second])
    assert (row.ref_seq, row.parent_seq, row.run_seq) == (first, first - 1, first)


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        ({"response": "{"}, "response"),
        ({"data": '"\\ud83d"'}, "data"),
        ({"changes": ""}, "changes"),
        ({"name": "\ud83d"}, "name"),
        ({"body": b"x" * (rows.MAX_VALUE_BYTES + 1)}, "body"),
    ],
)
def test_a_value_that_cannot_be_stored_is_named_and_stops_the_whole_append(
    session: Session, bad: dict[str, str], column: str
) -> None:
    """No row of the append is stored, the message names the column, and the session goes on without a gap."""
    head = session.head
    good = Row(kind="notice", ref_seq=-1)
    with pytest.raises(ValueNotStorable, match=f"^{column} of a llm row"):
        session.append(good, Row(kind="llm", **bad))

    assert session.append(good) == [head + 1]
    assert (good.seq, good.ref_seq) == (head + 1, head)


def test_a_large_body_comes_back(session: Session) -> None:
    """64 MB of bytes are stored and read; nothing is cut."""
    body = bytes(range(256)) * (rows.MAX_VALUE_BYTES // 256)
    seqs = session.append(Row(kind="value", body=body))

    assert session.read(seqs=seqs)[0].body == body


def test_reading_can_be_narrowed(session: Session) -> None:
    """`after`, `kinds` and `seqs` narrow what is read, together; `bodies=False` leaves the large columns out."""
    session.append(
        *(Row(kind=k, request="1", response="2", body=b"3", data="4", changes="{}") for k in ("llm", "call", "llm"))
    )
    at = session.head - 2

    assert [r.seq for r in session.read(kinds=["llm"])] == [at, at + 2]
    assert [r.seq for r in session.read(after=at, kinds=["llm", "call"])] == [at + 1, at + 2]
    assert [r.seq for r in session.read(seqs=[at + 2, at, 999])] == [at, at + 2]
    assert session.read(kinds=[]) == session.read(seqs=[]) == []
    light = session.read(seqs=[at], bodies=False)[0]
    assert (light.request, light.response, light.body, light.data, light.changes) == (None, None, None, "4", "{}")


def test_threads_of_a_process_share_a_session(session: Session) -> None:
    """Rows that eight threads append at once get numbers without a gap, each append its own, and are all there."""
    before, numbers = session.head, []

    def work(name: int) -> None:
        for i in range(20):
            numbers.extend(
                session.append(Row(kind="call", name=f"{name}.{i}"), Row(kind="call", ref_seq=-1, name=f"{name}.{i}"))
            )

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]

    assert sorted(numbers) == list(range(before + 1, before + 321))
    read = session.read(after=before)
    assert [r.seq for r in read] == sorted(numbers)
    assert all(b.ref_seq == a.seq and a.name == b.name for a, b in zip(read[::2], read[1::2], strict=True))


def test_times_tell_the_same_order_as_numbers(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is set back by some seconds does not turn the order of rows around; by hours, it is believed."""
    from resumable_nb.journal import session as module

    class Clock(datetime):
        offset = timedelta(0)

        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.now(UTC) + cls.offset

    monkeypatch.setattr(module, "datetime", Clock)
    session.append(Row(kind="notice"))
    Clock.offset = timedelta(seconds=-30)
    session.append(Row(kind="notice"))
    Clock.offset = timedelta(hours=-3)
    session.append(Row(kind="notice"))

    first, second, third = session.read(kinds=["notice"])
    assert first.ts == second.ts
    assert third.ts < first.ts - timedelta(hours=2)
    assert abs(first.ts - datetime.now(UTC)) < timedelta(seconds=60)


def test_appending_nothing_is_nothing(session: Session) -> None:
    """An append without rows writes none."""
    assert session.append() == []
    assert session.refresh() == []


def test_a_closed_session_says_so(store: Store, session: Session) -> None:
    """After `close`, which may be called twice, an append is refused in words and nothing is written."""
    session.close()
    session.close()

    with pytest.raises(ThreadError, match="closed"):
        session.append(Row(kind="notice"))
    assert [r.phase for r in store.visitor("t").read()] == ["created", "opened", "closed"]


def test_the_file_is_let_go_after_a_moment(path) -> None:
    """Without use the store is closed by itself, whole and without its log, and opens again when it is used."""
    store = Store.open(path, idle_s=0.05)
    session = store.open_session("t", about={})
    for thread in threading.enumerate():
        if thread.name == "resumable_nb lease":
            thread.join(timeout=120)

    assert not store._lease.is_open
    assert not path.with_name("research.duckdb.wal").exists()
    assert session.append(Row(kind="notice")) == [3]


def test_a_busy_lease_lets_others_in(path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy a session is, the file is closed and opened again once it was held for the longest time."""
    from resumable_nb.journal import lease

    monkeypatch.setattr(lease, "HOLD_S", 0.0)
    store = Store.open(path, idle_s=600)
    session = store.open_session("t", about={})
    opened = store._lease._openings
    for _ in range(3):
        session.append(Row(kind="notice"))

    assert store._lease._openings >= opened + 2


def test_a_log_that_is_merged_on_the_way_disturbs_nothing(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB merges its log by itself when it has grown: appends go on, on the same opening; the new log is private."""
    from resumable_nb.journal import lease

    monkeypatch.setattr(lease, "HOLD_S", 600)
    store._lease.idle_s = 600
    session.append(Row(kind="notice"))
    opened = store._lease._openings
    for _ in range(6):
        session.append(Row(kind="value", body=bytes(5_000_000)))
        session.append(Row(kind="notice"))
    log = store.path.with_name("research.duckdb.wal")

    assert log.stat().st_size < 25_000_000
    assert log.stat().st_mode & 0o777 == 0o600
    assert [r.seq for r in session.read(bodies=False)] == list(range(1, 16))
    assert store._lease._openings == opened


def test_a_connection_lasts_as_long_as_its_use(store: Store, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest time that the file is held may pass in the middle of an append: it ends on its own connection."""
    from resumable_nb.journal import lease

    store.visitor("t").append(Row(kind="notice"))
    monkeypatch.setattr(lease, "HOLD_S", -1.0)
    session.on_foreign = lambda _: session.read()

    assert session.append(Row(kind="notice")) == [4]
    assert store.open_session("t", take_over=True, about={}).head == 5
