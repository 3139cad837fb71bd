"""Group F of the public cases: others at the file, damage, and time zones."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

from tests.cases.book import OPENING, Book
from tests.cases.kernel import kernel

HOLD = "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('held', flush=True); time.sleep(float(sys.argv[2]))"


def test_reading_along_and_a_holder(book: Book) -> None:
    """F1: a reader always gets an answer and counts never fall; a foreign process that holds the file for 3 s delays only."""
    asks = {f"s{n}": f"%%resumable s{n}\nimport time; r{n} = ask('Q{n}'); time.sleep(0.2)" for n in range(8)}
    book.cells = {"imports": "from resumable_nb import ask", **asks}
    counts, problems, ended = [], [], threading.Event()

    def read() -> None:
        while not ended.is_set():
            if (book.folder / "t.duckdb").exists():
                done = book.process("sql", "select count(*) as n from llm_calls", "--format", "csv", "--db", "t.duckdb")
                if done.returncode:
                    problems.append(done.stderr)
                else:
                    counts.append(int(done.stdout.split()[-1]))
            time.sleep(0.3)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        ran = book.run()
    finally:
        ended.set()
        reader.join()
    assert ran.code == 0, ran.said
    assert not problems
    assert counts == sorted(counts)
    assert book.server.asked() == len(asks)
    book.cells["late"] = "%%resumable late\nr = ask('Q50')"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(book.folder / "t.duckdb"), "3"], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    again = book.run()
    holder.wait()
    holder.stdout.close()

    assert again.code == 0, again.said
    assert book.server.asked("Q50") == 1


def test_an_old_copy_put_back_is_refused(book: Book) -> None:
    """F3 b: a store that went back in time under a living kernel is not written to; both numbers are given."""
    store = book.folder / "t.duckdb"
    env = {"OPENAI_BASE_URL": book.server.base_url, "OPENAI_API_KEY": "sk-test-SECRET", "RESUMABLE_NB_MODEL": "stub"}
    with kernel(book.folder, env) as running:
        running.run(OPENING, "open")
        running.run("%%resumable one\nstate.update(findings=['1'])", "one")
        running.wait_until_let_go(store)
        old = store.read_bytes()
        running.run("%%resumable two\nstate.update(findings=['2'])", "two")
        running.wait_until_let_go(store)
        aside = book.folder / "aside"
        aside.write_bytes(old)
        os.replace(aside, store)
        refused = running.run("%%resumable three\nstate.update(findings=['3'])", "three")

    assert "Store" in refused, refused
    assert store.read_bytes() == old


def test_one_thread_in_three_time_zones(book: Book) -> None:
    """F4: every instant is right within seconds, under any zone of the writer and of the reader."""
    book.cells = {"imports": "from resumable_nb import ask", "s": "%%resumable s\nr = ask('Q1')"}
    before = datetime.now(UTC)
    assert book.run(TZ="Asia/Tokyo").code == 0
    book.cells["s2"] = "%%resumable s2\nr2 = ask('Q2')"
    assert book.run(TZ="America/Los_Angeles").code == 0
    after = datetime.now(UTC)
    seen = set()
    for zone in ("UTC", "Asia/Tokyo", "America/Los_Angeles"):
        rows = book.sql("SELECT seq, ts::VARCHAR AS at, epoch_ms(ts) AS ms FROM journal ORDER BY seq", TZ=zone)
        seen.add(str(rows))
        instants = [row["ms"] / 1000 for row in rows]
        assert instants == sorted(instants)
        assert before.timestamp() - 1 <= instants[0]
        assert instants[-1] <= after.timestamp() + 1

    assert len(seen) == 1
