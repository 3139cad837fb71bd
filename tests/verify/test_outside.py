"""What comes from outside: a kernel that is stopped and wakes up too late, and a disk that is full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resumable_nb.journal import Store
from resumable_nb.runner import run_notebook
from tests.support.model_server import ModelServer
from tests.verify.books import verified, write

ASKS = "%%resumable research\nfrom resumable_nb import ask\nfor n in range(1, 4):\n    state.update(findings=[ask(f'Q{n}?')])"
pytestmark = pytest.mark.slow


def rows(db: Path, query: str) -> list[tuple[object, ...]]:
    store = Store.open(db, create=False)
    found = store.rows(query)[1]
    store.close()
    return found


def until(found: Callable[[], object]) -> object:
    deadline = time.monotonic() + 120
    while not (seen := found()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return seen


def test_a_stopped_kernel_that_wakes_up_after_a_take_over_writes_no_more(environment: ModelServer, tmp_path):
    """Its next write is refused, with who took the thread; what the other one made stands, and is whole."""
    environment.script({"marker": "Q2", "hold": True})
    path, db = write(tmp_path / "nb.ipynb", ASKS), tmp_path / "t.duckdb"
    first = subprocess.Popen(
        [sys.executable, "-m", "resumable_nb", "run", str(path)], stdout=subprocess.PIPE, text=True
    )
    until(lambda: environment.asked("Q2"))
    # reading it waits until the kernel, which waits for its answer, has let go of the file
    ((pid,),) = rows(db, "SELECT pid FROM sessions")
    os.kill(int(str(pid)), signal.SIGSTOP)
    try:
        taking = path.read_text().replace("--db t.duckdb", "--db t.duckdb --take-over")
        path.with_name("taking.ipynb").write_text(taking)
        second = run_notebook(path.with_name("taking.ipynb"), output=tmp_path / "out.ipynb", say=lambda _: None)
        stands = rows(db, "SELECT seq, session_id FROM journal ORDER BY seq")
    finally:
        os.kill(int(str(pid)), signal.SIGCONT)
        environment.release()
    said, _ = first.communicate(timeout=200)

    assert second.outcome == "done", second.message
    assert first.returncode == 1
    assert "ThreadTakenOver" in said + path.with_suffix(".executed.ipynb").read_text()
    assert rows(db, "SELECT seq, session_id FROM journal ORDER BY seq") == stands
    assert rows(db, "SELECT count(*), bool_and(is_current) FROM findings") == [(3, True)]
    assert (environment.asked("Q1"), environment.asked("Q2")) == (1, 2)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_stops_clearly_and_it_goes_on_once_there_is_room(environment: ModelServer, small_disk, tmp_path):
    """The message says that the disk is full; nothing acknowledged is lost, nothing is asked again."""
    fill = """
import os
if not os.path.exists("DONE"):
    with open("DISK/filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass
""".replace("DISK", str(small_disk)).replace("DONE", str(tmp_path / "room"))
    step = f"%%resumable research\nfrom resumable_nb import ask\nstate.update(findings=[ask('Q1?')])\n{fill}\n"
    step += "state.update(findings=[ask('Q2?') + 'x' * 200_000, ask('Q3?')])"
    path, db = write(tmp_path / "nb.ipynb", step), small_disk / "t.duckdb"
    full = run_notebook(path, db=db, say=lambda _: None)
    (small_disk / "filler").unlink()
    (tmp_path / "room").touch()
    answered = rows(db, "SELECT count(*) FROM llm_calls WHERE phase = 'done'")
    ended = run_notebook(path, db=db, say=lambda _: None)

    assert full.outcome == "failed"
    assert "disk" in full.message.lower() or "space" in full.message.lower(), full.message
    assert ended.outcome == "done", ended.message
    assert environment.asked("Q1") == 1
    assert environment.asked("Q2") <= 2
    assert int(str(answered[0][0])) >= 1
    assert rows(db, "SELECT count(*) FROM findings WHERE is_current") == [(3,)]


def test_killed_by_the_clock_anywhere(tmp_path):
    """At moments drawn over the whole run it passes too. By hand, 200: `resumable-nb verify … --sample 0 --random 200`."""
    done = verified(write(tmp_path / "nb.ipynb", ASKS), sample=0, random=4, seed=20)

    assert done.passed, [one.results for one in done.judged if not one.passed]
    assert [one.injection.point.name for one in done.judged] == ["time"] * 4
    assert any(one.injection.was_reached for one in done.judged)
