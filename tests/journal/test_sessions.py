"""Who has a thread, and what happens when somebody else wants it."""

from __future__ import annotations

import json
import os
import signal

import pytest

from resumable_nb.errors import ThreadInUse, ThreadNotFound, ThreadTakenOver, UsageError
from resumable_nb.journal import Row, Session, Store, processes
from tests.journal.others import Other, killed, run

OWNER = """
store = Store.open(args[0])
session = store.open_session("t", about={})
store.close()
say(session.session_id)
"""


def phases(session: Session) -> list[tuple[str, str]]:
    return [(row.kind, row.phase) for row in session.read()]


def test_opening_a_thread_is_in_the_journal(store: Store) -> None:
    """The first opening makes the thread; each one says which host, process, user, versions and notebook it is."""
    first = store.open_session("t", about={"notebook": "a.ipynb"})
    first.close()
    second = store.open_session("t", about={})

    assert phases(second) == [
        ("thread", "created"),
        ("session", "opened"),
        ("session", "closed"),
        ("session", "opened"),
    ]
    about = json.loads(second.read(seqs=[2])[0].data or "")
    assert about["notebook"] == "a.ipynb"
    assert (about["pid"], about["duckdb"]) == (os.getpid(), processes.versions()[1])
    assert about["host"]
    assert about["process_started"]
    assert second.died is None
    assert store.threads() == ["t"]


def test_a_live_thread_is_not_opened_twice(store: Store, session: Session) -> None:
    """A second opening is told who has the thread, where, since when and how to take it over; nothing is written."""
    with pytest.raises(ThreadInUse) as told:
        store.open_session("t", about={})

    for words in (f"process {os.getpid()}", "since 20", "--take-over", "take_over=True"):
        assert words in str(told.value)
    assert session.refresh() == []
    assert session.append(Row(kind="notice")) == [3]


def test_a_session_that_nobody_holds_any_more_is_replaced(store: Store) -> None:
    """A session of this process that was dropped without `close` does not keep the thread."""
    dropped = store.open_session("t", about={}).session_id

    assert store.open_session("t", about={}).died == dropped


def test_a_dead_owner_is_replaced_without_asking(store: Store) -> None:
    """After SIGKILL of its process a thread is opened as if nothing had been, and what was in flight is lost."""
    source = (
        OWNER
        + """
session.append(Row(kind="step", phase="started", step="s", key="f"),
               Row(kind="llm", phase="started", run_seq=-1, step="s"))
session.append(Row(kind="llm", phase="done", ref_seq=4, step="s"))
session.append(Row(kind="llm", phase="started", run_seq=3, step="s", cell_id="c", name="POST /v1", key="k",
                   occurrence=2, gen_ai_request_model="m", request='{"prompt": 1}'))
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    (dead,) = killed(source, store.path)
    session = store.open_session("t", about={})

    assert session.died == dead
    lost = [row for row in session.read() if row.phase == "lost"]
    assert [(row.kind, row.ref_seq, row.step) for row in lost] == [("step", 3, "s"), ("llm", 6, "s")]
    call = lost[1]
    assert (call.run_seq, call.cell_id, call.name, call.key, call.occurrence) == (3, "c", "POST /v1", "k", 2)
    assert (call.gen_ai_request_model, call.request) == ("m", None)


def test_what_was_lost_once_is_not_lost_again(store: Store) -> None:
    """Opening a thread once more adds no second completing row."""
    store.open_session("t", about={}).append(Row(kind="effect", phase="started"))
    store.open_session("t", about={})
    third = store.open_session("t", about={})

    assert phases(third).count(("effect", "lost")) == 1


def test_a_finished_step_is_completed_by_its_checkpoint(store: Store) -> None:
    """A `step started` row that a checkpoint names is not in flight; a row that merely refers completes nothing."""
    session = store.open_session("t", about={})
    session.append(Row(kind="step", phase="started"), Row(kind="checkpoint", phase="step", ref_seq=-1))
    session.append(Row(kind="llm", phase="started"), Row(kind="notice", ref_seq=-1))
    session.close()
    again = store.open_session("t", about={})

    assert [(row.kind, row.ref_seq) for row in again.read() if row.phase == "lost"] == [("llm", 5)]


def test_a_process_that_lives_keeps_its_thread(store: Store) -> None:
    """Another process that has the thread, be it stopped, is respected; its end is noticed."""
    with Other(OWNER + "hear()", store.path) as owner:
        owner.hear()
        owner.signal(signal.SIGSTOP)
        with pytest.raises(ThreadInUse, match=f"process {owner.pid}"):
            store.open_session("t", about={})
        owner.signal(signal.SIGCONT)
        owner.say()
        owner.end()

    assert store.open_session("t", about={}).died


@pytest.mark.parametrize("stopped", [False, True])
def test_a_take_over_fences_the_other_session(store: Store, stopped: bool) -> None:
    """After a take-over the older session's next append is refused with who, where and when; also if it slept."""
    source = (
        OWNER
        + """
from resumable_nb.errors import ThreadTakenOver
hear()
try:
    session.append(Row(kind="notice", name="late"))
except ThreadTakenOver as error:
    say(str(error))
session.close()
"""
    )
    with Other(source, store.path) as owner:
        theirs = owner.hear()
        if stopped:
            owner.signal(signal.SIGSTOP)
        session = store.open_session("t", take_over=True, about={})
        session.append(Row(kind="notice", name="ours"))
        owner.say()
        owner.signal(signal.SIGCONT)
        store.close()
        code, said, err = owner.end()

    assert code == 0, err
    assert f"process {os.getpid()} on " in said[0]
    assert [r.name for r in session.read(kinds=["notice"])] == ["ours"]
    assert phases(session).count(("session", "closed")) == 0
    opened = json.loads(session.read(kinds=["session"])[-1].data or "")
    assert opened["took_over"] == theirs
    assert session.died is None


def test_a_take_over_within_one_process(store: Store, session: Session) -> None:
    """Fencing holds between two sessions of one process and one open file, for every later append."""
    other = store.open_session("t", take_over=True, about={})
    for _ in range(2):
        with pytest.raises(ThreadTakenOver):
            session.append(Row(kind="notice"))
    session.close()

    assert other.append(Row(kind="notice")) == [4]
    assert phases(other)[-1] == ("notice", "")


def test_closing_a_session_that_was_taken_over_is_no_error(store: Store, session: Session) -> None:
    """A session that learns of the take-over only when it is closed writes nothing and says nothing."""
    store.close()
    run("Store.open(args[0]).open_session('t', take_over=True, about={}).append(Row(kind='notice'))", store.path)
    session.close()

    assert session.lost is not None
    assert phases(store.visitor("t"))[-1] == ("notice", "")


def test_a_visitor_owns_nothing(store: Store, session: Session) -> None:
    """A visitor's rows are handed to the owner before its next row, fence nobody, and are not fenced by a take-over."""
    came: list[Row] = []
    session.on_foreign = came.extend
    visitor = store.visitor("t")
    visitor.append(Row(kind="approval", phase="approved", name="gate"))

    assert session.append(Row(kind="notice")) == [4]
    assert [(r.kind, r.name, r.session_id) for r in came] == [("approval", "gate", visitor.session_id)]
    store.open_session("t", take_over=True, about={})
    assert visitor.append(Row(kind="notice")) == [6]
    assert phases(visitor).count(("session", "opened")) == 2


def test_rows_of_other_processes_are_merged(store: Store, session: Session) -> None:
    """What another process appends is seen by `refresh` in order, once, and numbered before what comes after."""
    came: list[int] = []
    session.on_foreign = lambda rows: came.extend(r.seq for r in rows)
    store.close()
    run(
        "v = Store.open(args[0]).visitor('t')\nfor i in range(3): v.append(Row(kind='approval', name=str(i)))",
        store.path,
    )

    assert [r.name for r in session.refresh()] == ["0", "1", "2"]
    assert session.refresh() == []
    assert session.append(Row(kind="notice")) == [6]
    assert came == [3, 4, 5]


def test_a_thread_that_is_not_there(store: Store, session: Session) -> None:
    """Visiting an unknown thread is refused, and the known ones are listed; a name must be one that can be shown."""
    with pytest.raises(ThreadNotFound, match="It has 't'"):
        store.visitor("u")
    for name in ("", "  ", "a\nb", "\x1b[31m"):
        with pytest.raises(UsageError):
            store.open_session(name, about={})


@pytest.mark.parametrize(
    ("elsewhere", "alive"),
    [
        ({"host": "another"}, None),
        ({"machine_id": "another"}, None),
        ({"boot_id": "before"}, False),
        ({"pid_namespace": "before"}, False),
        ({"process_started": "0"}, False),
        ({"pid": 2**22 + 1}, False),
        ({"pid": None}, False),
        ({}, True),
    ],
)
def test_whether_an_owner_lives(elsewhere: dict[str, object], alive: bool | None) -> None:
    """Another machine cannot be seen; a machine or container that began anew, and a pid used again, are no owner."""
    assert processes.is_alive({**processes.describe(), **elsewhere}) is alive


def test_without_proc_the_system_s_ps_is_asked() -> None:
    """Where there is no /proc, as on macOS, `ps` says since when a process runs, and whether it does."""
    with Other("say(1); hear()") as other:
        other.hear()
        began = processes._started_by_ps(other.pid)
        assert began
        assert processes._started_by_ps(other.pid) == began
        other.signal(signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert processes._started_by_ps(other.pid) is None
    assert processes._started_by_ps(other.pid) is None


def test_a_zombie_is_dead() -> None:
    """A killed process that its parent has not waited for yet does not count as alive."""
    with Other("say(1); hear()") as other:
        other.hear()
        assert processes.started(other.pid)
        other.signal(signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert processes.started(other.pid) is None


def test_an_owner_on_another_machine_is_asked_about(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that was opened elsewhere is not taken without being told to; then its session counts as dead."""
    here = processes._machine()
    monkeypatch.setattr(processes, "_machine", lambda: {**here, "host": "far-away"})
    theirs = store.open_session("t", about={}).session_id
    monkeypatch.setattr(processes, "_machine", lambda: here)
    with pytest.raises(ThreadInUse, match=r"far-away.*cannot be seen from here"):
        store.open_session("t", about={})

    assert store.open_session("t", take_over=True, about={}).died == theirs
