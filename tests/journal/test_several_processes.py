"""Several processes and one file: nobody loses a row, nobody starves, and trouble has a name."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest

from resumable_nb.errors import StoreLocked, ThreadError
from resumable_nb.journal import Row, Session, Store, lease
from tests.journal.others import Other, run

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

WRITER = """
store, name, first, count = Store.open(args[0], idle_s=0.02), args[1], args[2], args[3]
session = store.open_session(name, about={})
for i in range(first, count):
    (seq,) = session.append(Row(kind="notice", name=str(i)))
    say([i, seq])
    if i % 40 == 0:
        time.sleep(0.05)
"""


def write_in_spite_of_kills(path: Path, name: str, count: int, seed: int) -> dict[int, int]:
    """Have `count` rows written by a process that is killed at random and begun anew; the acknowledged ones."""
    chance, acknowledged = random.Random(seed), dict[int, int]()
    while len(acknowledged) < count:
        left = chance.randint(80, 220)
        with Other(WRITER, path, name, max(acknowledged, default=-1) + 1, count) as writer:
            while len(acknowledged) < count and left:
                i, seq = writer.hear()
                acknowledged[i] = seq
                left -= 1
            writer.kill()
            said = writer.end()[1]
            acknowledged.update(said)
    return acknowledged


@pytest.mark.slow
def test_four_writers_that_are_killed_lose_nothing(path: Path) -> None:
    """Four processes write 250 rows each and are killed at random: all acknowledged rows are there, without a gap."""
    store = Store.open(path)
    results: dict[str, dict[int, int]] = {}

    def work(name: str, seed: int) -> None:
        results[name] = write_in_spite_of_kills(path, name, 250, seed)

    threads = [threading.Thread(target=work, args=(f"t{seed}", seed)) for seed in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]

    assert sorted(store.threads()) == sorted(results) == ["t0", "t1", "t2", "t3"]
    for name, acknowledged in results.items():
        read = store.visitor(name).read()
        assert [r.seq for r in read] == list(range(1, len(read) + 1))
        names = {r.seq: r.name for r in read if r.kind == "notice"}
        assert {seq: str(i) for i, seq in acknowledged.items()}.items() <= names.items()


def test_no_busy_writer_keeps_the_others_out(store: Store) -> None:
    """Three processes that append without a pause all get their turns."""
    source = """
session = Store.open(args[0]).open_session(args[1], about={})
say("ready")
hear()
count = 0
while not os.path.exists(args[2]):
    session.append(Row(kind="notice"))
    count += 1
    if count == 50:
        say(count)
"""
    enough = store.path.with_name("enough")
    with contextlib.ExitStack() as running:
        writers = [running.enter_context(Other(source, store.path, name, enough)) for name in "abc"]
        assert [writer.hear() for writer in writers] == ["ready"] * 3
        for writer in writers:
            writer.say()
        assert [writer.hear() for writer in writers] == [50] * 3  # whoever has them goes on meanwhile
        enough.touch()
        assert [writer.end()[0] for writer in writers] == [0] * 3


def test_a_reader_is_always_answered_while_others_write(store: Store) -> None:
    """SQL from another process is answered at any time while rows are written; counts never fall, nothing is lost."""
    session = store.open_session("t", about={})
    reader = """
for _ in range(4):
    say(Store.open(args[0]).rows("select count(*) from journal where kind = 'notice'")[1][0][0])
    time.sleep(0.05)
"""
    with Other(reader, store.path) as other:
        deadline, written = time.monotonic() + 200, 0
        while other._process.poll() is None and time.monotonic() < deadline:
            session.append(Row(kind="notice"))
            written += 1
        code, counts, err = other.end()

    assert code == 0, err
    assert counts == sorted(counts)
    assert len(counts) == 4
    assert store.rows("select count(*) from journal where kind = 'notice'")[1] == [(written,)]


HOLDER = "con = duckdb.connect(args[0]); say(1); hear()"


def test_a_foreign_holder_is_waited_for(store: Store, session: Session) -> None:
    """A process that has the file open in DuckDB delays the append; when it ends, the append goes on."""
    store.close()
    with Other(HOLDER, store.path) as holder:
        holder.hear()
        timer = threading.Timer(0.5, holder.say)
        timer.start()
        assert session.append(Row(kind="notice")) == [3]
        timer.join()


def test_a_foreign_holder_that_stays_is_named(store: Store, session: Session) -> None:
    """If it does not end in time, the error names the process that DuckDB names; afterwards nothing is lost."""
    store._lease.wait_s = 0.3
    store.close()
    with Other(HOLDER, store.path) as holder:
        holder.hear()
        with pytest.raises(StoreLocked, match=rf"held by .*python.* \(PID {holder.pid}\).*within 0.3 s"):
            session.append(Row(kind="notice"))
        with pytest.raises(StoreLocked, match=f"PID {holder.pid}"):
            store.rows("select 1")

    assert session.append(Row(kind="notice")) == [3]


def test_a_stopped_process_that_has_the_file_is_named(store: Store, session: Session) -> None:
    """A process of ours that was stopped with the file open keeps it: the error says which one."""
    store._lease.wait_s = 0.3
    store.close()
    source = "store = Store.open(args[0], idle_s=60)\nstore.visitor('t')\nsay(1)\nhear()"
    with Other(source, store.path) as other:
        other.hear()
        other.signal(signal.SIGSTOP)
        with pytest.raises(StoreLocked, match=f"process {other.pid}"):
            session.append(Row(kind="notice"))


def test_a_plain_connection_in_this_kernel_shares_the_file(store: Store, session: Session) -> None:
    """`duckdb.connect(path)` in the same kernel disturbs no append, before or after the lease is closed."""
    session.append(Row(kind="notice"))
    con = duckdb.connect(str(store.path))
    session.append(Row(kind="notice"))
    store.close()
    session.append(Row(kind="notice"))

    assert con.execute("select count(*) from journal where kind = 'notice'").fetchall() == [(3,)]
    con.close()
    assert [r.seq for r in session.read(kinds=["notice"])] == [3, 4, 5]


def test_rows_that_a_plain_connection_wrote_are_noticed(store: Store, session: Session) -> None:
    """A row that somebody puts into the journal through it is neither overwritten nor overlooked."""
    came: list[Row] = []
    session.on_foreign = came.extend
    session.append(Row(kind="notice"))
    with duckdb.connect(str(store.path)) as con:
        con.execute(
            "insert into journal (thread_id, seq, kind, phase, ts, session_id) values ('t', 4, 'odd', '', now(), 's')"
        )
    with pytest.raises(Exception, match="Duplicate key"):
        session.append(Row(kind="notice"))

    assert session.append(Row(kind="notice")) == [5]
    assert [(r.seq, r.kind) for r in came] == [(4, "odd")]


@pytest.mark.parametrize("config", [{"threads": "1"}, {"access_mode": "READ_ONLY"}])
def test_another_kind_of_connection_in_this_kernel_is_explained(
    store: Store, session: Session, config: dict[str, str]
) -> None:
    """A connection with other settings, as JupySQL makes, leads to words about it; when closed, all goes on."""
    store.close()
    con = duckdb.connect(str(store.path), config=config)
    with pytest.raises(StoreLocked, match=r"in this kernel.*Close that connection"):
        session.append(Row(kind="notice"))
    if "threads" in config:  # two readers get along
        with pytest.raises(StoreLocked, match=r"in this kernel.*Close that connection"):
            store.rows("select 1")

    con.close()
    assert session.append(Row(kind="notice")) == [3]


@pytest.mark.parametrize("ending", ["sys.exit", "os._exit", "exec"])
def test_a_forked_child_harms_nothing(path: Path, ending: str) -> None:
    """A child forked under an open lease may end in any way: no row of its parent is lost, and the parent goes on."""
    source = """
session = Store.open(args[0], idle_s=60).open_session("t", about={})
session.append(Row(kind="notice"))
pid = os.fork()
if not pid:
    endings = {"sys.exit": sys.exit, "os._exit": lambda: os._exit(0), "exec": lambda: os.execv("/bin/true", ["true"])}
    endings[args[1]]()
os.waitpid(pid, 0)
for _ in range(20):
    session.append(Row(kind="notice"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    with Other(source, path, ending) as other:
        other.end()

    read = Store.open(path).visitor("t").read()
    assert [r.seq for r in read] == list(range(1, 24))


def test_a_forked_child_is_told_to_open_its_own(store: Store, session: Session) -> None:
    """The parent's session is refused in the child in clear words; a session of its own works there."""
    source = """
from resumable_nb.errors import ThreadError, ThreadInUse
store = Store.open(args[0])
session = store.open_session("parent", about={})
if not os.fork():
    try:
        session.append(Row(kind="notice"))
    except ThreadError as error:
        say(str(error))
    try:
        store.open_session("parent", about={})
    except ThreadInUse as error:
        say("in use")
    say(store.open_session("child", about={}).append(Row(kind="notice")))
    sys.exit()
os.wait()
say(session.append(Row(kind="notice")))
"""
    store.close()
    said = run(source, store.path)

    assert "forked from it" in said[0]
    assert said[1:] == ["in use", [3], [3]]


def test_a_fork_waits_for_an_append(store: Store, session: Session) -> None:
    """Threads that append while the process forks lose nothing, and no child inherits a mutex that is held."""
    stop, before = threading.Event(), session.head
    written: list[int] = []

    def work() -> None:
        while not stop.is_set():
            written.extend(session.append(Row(kind="notice")))

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(10):
        pid = os.fork()
        if not pid:
            free = store._lease.mutex.acquire(timeout=60)
            os._exit(0 if free else 1)
        assert os.waitpid(pid, 0)[1] == 0
        time.sleep(0.02)
    stop.set()
    thread.join()

    assert written == list(range(before + 1, before + len(written) + 1))


def test_a_pool_of_forked_workers(store: Store, session: Session) -> None:
    """`multiprocessing` with fork, which tears down with os._exit, can be used beside an open thread."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, 2]) == [1, 2]
        session.append(Row(kind="notice"))

    assert session.read(kinds=["notice"])[0].seq == 3


def test_ctrl_c_at_any_moment_leaves_the_journal_whole(path: Path) -> None:
    """Interrupted again and again while it appends, a process keeps every row, once and in order, and knows of each.

    After an interrupt, a row with a number up to `head` is in the store; other ones that are come by `on_foreign`.
    """
    source = """
session = Store.open(args[0], idle_s=0.05).open_session("t", about={})
came = []
session.on_foreign = lambda rows: came.extend(r.seq for r in rows)
acknowledged, interrupted, armed, new = [], 0, False, []
def interrupt(signum, frame):  # raises once for each append: a signal may also come while the loop handles the last one
    global armed, interrupted
    if armed:
        armed, interrupted = False, interrupted + 1
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
say("ready")
while interrupted < 40:
    acknowledged += [r.seq for r in new if r.seq and r.seq <= session.head]
    new = [Row(kind="notice"), Row(kind="notice", ref_seq=-1)]
    try:
        armed = True
        session.append(*new)
        time.sleep(0.0005)
        armed = False
    except KeyboardInterrupt:
        pass
signal.signal(signal.SIGINT, signal.SIG_IGN)
acknowledged += [r.seq for r in new if r.seq and r.seq <= session.head]
session.append(Row(kind="notice", name="last"))
say([acknowledged, came])
"""
    with Other(source, path) as other:
        other.hear()
        chance = random.Random(1)
        while other._process.poll() is None:
            time.sleep(chance.uniform(0.002, 0.02))
            other.signal(signal.SIGINT)
        code, said, err = other.end()
    assert code == 0, err
    acknowledged, came = said[0]

    read = Store.open(path).visitor("t").read(kinds=["notice"])
    assert [r.seq for r in read] == list(range(3, 3 + len(read)))
    assert set(acknowledged) | set(came) == {r.seq for r in read if not r.name}
    assert not set(acknowledged) & set(came)
    assert all(second.ref_seq == first.seq for first, second in zip(read[:-1:2], read[1:-1:2], strict=True))


def test_a_kernel_that_ends_leaves_a_whole_file(path: Path) -> None:
    """A process that just ends, with a thread open, closes the store: no log is left, nothing is lost."""
    run("Store.open(args[0], idle_s=60).open_session('t', about={}).append(Row(kind='notice'))", path)

    assert not path.with_name("research.duckdb.wal").exists()
    assert len(Store.open(path).visitor("t").read()) == 3


def test_subprocesses_do_not_disturb(store: Store, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting programs closes nothing: they inherit no file of the store."""
    monkeypatch.setattr(lease, "HOLD_S", 600)
    store._lease.idle_s = 600
    session.append(Row(kind="notice"))
    openings = store._lease._openings
    subprocess.run([sys.executable, "-S", "-c", "pass"], check=True)
    session.append(Row(kind="notice"))

    assert store._lease._openings == openings


def test_a_session_is_refused_after_a_fork_even_to_read(store: Store, session: Session) -> None:
    """Reading, refreshing and closing the parent's session in a child touch nothing."""
    pid = os.fork()
    if not pid:
        session.close()
        try:
            session.read()
        except ThreadError:
            os._exit(0)
        os._exit(1)

    assert os.waitpid(pid, 0)[1] == 0
    assert session.append(Row(kind="notice")) == [3]


def test_who_holds_the_file_idle_lets_go_when_somebody_waits(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that would keep the file open, unused, for minutes closes it for another one that wants to write."""
    monkeypatch.setattr(lease, "HOLD_S", 600)
    store._lease.idle_s = 600
    session.append(Row(kind="notice"))
    assert store._lease.is_open
    source = "session = Store.open(args[0], wait_s=60).open_session('other', about={})\nsay(session.head)"
    with Other(source, store.path) as other:
        code, said, err = other.end()

    assert code == 0, err
    assert said == [2]
    assert session.append(Row(kind="notice"))
