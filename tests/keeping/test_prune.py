"""Pruning: what may go goes, what must stay stays, and it is said before."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import resumable_nb
from resumable_nb.cli import cli
from resumable_nb.errors import ThreadError, ThreadInUse, ThreadNotFound, UsageError
from resumable_nb.fold import Fold
from resumable_nb.journal import Row, Store, lease, repair
from resumable_nb.pruning import moment
from tests.keeping import victim

POINTS = ["store.replace.before", "store.replace.after"]


def happened() -> list[str]:
    """What was really asked and sent since this was called last."""
    path = Path(os.environ["HAPPENED"])
    found = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "r.duckdb"
    victim.work(path)
    return path


def rows_of(db: Path) -> list[Row]:
    return [row for name in Store.open(db).threads() for row in Store.open(db).visitor(name).read()]


def test_without_yes_nothing_is_changed_and_all_of_it_is_said(db: Path) -> None:
    """What would go is told by checkpoints, steps and answers, with what stays; the file stays as it was."""
    before = rows_of(db)
    plan = resumable_nb.prune(db, keep=3, answers_before="0h")

    assert not plan.is_done
    assert rows_of(db) == before
    assert "checkpoints: 6 to go, 4 to stay" in str(plan)
    assert "contents of answers: 8 to go" in str(plan)
    assert "paid anew: `s0`" in str(plan)
    assert "kept: 1 receipt, 1 open question" in str(plan)
    assert "Nothing was changed" in str(plan)


def test_checkpoints_that_only_going_back_could_reach_are_named(tmp_path: Path) -> None:
    """A branch that an edit has left is counted by itself: who wants to go back to it keeps more."""
    path = tmp_path / "r.duckdb"
    for text in ("first", "second"):
        with resumable_nb.open("t", db=path) as thread:
            thread.step("a", lambda state, text=text: state.update(plan=[text]))
            thread.step("b", lambda state: state.update(findings=["x"]))

    assert "on other branches: 2, which `%resumable back` cannot reach" in str(resumable_nb.prune(path, keep=1))
    assert "on other branches" not in str(resumable_nb.prune(path, keep=4))


def test_a_pruned_thread_has_its_newest_state_and_nothing_is_done_twice(db: Path) -> None:
    """The newest state is exact; kept steps are skipped; others run on recorded answers; the effect is not repeated."""
    with resumable_nb.open("t", db=db, say=victim.said.append) as t:
        newest = t.state
    assert resumable_nb.prune(db, keep=3, yes=True).is_done
    assert victim.work(db) == newest

    assert happened() == [*map(str, range(8)), "mail-ann"]
    assert any("checkpoints of this thread went by `prune`; 6 steps will run again, on" in line for line in victim.said)
    assert repair.examine(db).troubles == []


def test_an_answer_that_was_dropped_is_asked_anew_only_after_saying_so(db: Path) -> None:
    """Done steps are skipped without it; a step that runs says first that it pays anew; the accounts still count it."""
    resumable_nb.prune(db, answers_before="0h", yes=True)
    happened()
    victim.work(db)
    assert happened() == []

    with resumable_nb.open("t", db=db, say=victim.said.append) as t:
        t.fresh("s5")
    resumable_nb.prune(db, keep=1, yes=True)
    victim.said.clear()
    victim.work(db)
    told = [line for line in victim.said if "asked anew" in line]
    assert happened() == [*map(str, range(8))]
    assert [line.partition(":")[0] for line in told] == [f"`s{i}`" for i in range(8)]


def test_receipts_gates_tokens_and_numbers_stay(db: Path) -> None:
    """Of the typed columns nothing goes: every row is there, sums are equal, the gate still waits."""
    with resumable_nb.open("t", db=db, say=victim.said.append) as t:
        started = Row(kind="llm", phase="started", name="POST /v1/chat/completions", key="k", request='{"a":1}')
        done = Row(kind="llm", phase="done", ref_seq=-1, key="k", response='{"b":2}', gen_ai_usage_input_tokens=7)
        t.append(started, done)
    asks = ("SELECT * EXCLUDE (response, data) FROM llm_calls", "SELECT * FROM effects", "SELECT * FROM approvals")
    asks += ("SELECT thread_id, last_seq, llm_calls, input_tokens, last_checkpoint, is_complete FROM threads",)
    before = [Store.open(db).rows(sql)[1] for sql in asks]
    resumable_nb.prune(db, keep=1, answers_before="0h", yes=True)

    assert [Store.open(db).rows(sql)[1] for sql in asks] == before
    assert Store.open(db).rows("SELECT request, response FROM llm_exchange('t', ?)", [done.seq])[1] == [(None, None)]
    assert Store.open(db).rows("SELECT count(*) FROM approvals WHERE phase = 'waiting'")[1] == [(1,)]


@pytest.mark.parametrize("seed", range(4))
def test_every_state_that_is_left_is_exact(tmp_path: Path, seed: int) -> None:
    """Over random branches with progress: a state after pruning is what it was, or asking for it is an error."""
    draw = random.Random(seed)
    store = Store.open(tmp_path / "r.duckdb")
    session = store.open_session("t", about={})
    fold = Fold()

    def put(*rows: Row) -> None:
        session.append(*rows)
        fold.apply_all(rows)

    put(Row(kind="checkpoint", phase="start", parent_seq=0, changes='{"set":{"n":0,"list":[]}}'))
    for number in range(40):
        parent = draw.choice(fold.chain[-4:])
        put(Row(kind="step", phase="started", step=f"s{number}", cell_id=f"c{number}", key="k", parent_seq=parent))
        run = session.head
        gained = draw.randrange(3)
        for i in range(gained):
            progress = f'{{"append":{{"list":[{number * 10 + i}]}}}}'
            call = {"step": f"s{number}", "run_seq": run, "key": str(i), "name": "f"}
            put(Row(kind="call", phase="started", **call))
            put(Row(kind="call", phase="done", ref_seq=-1, parent_seq=parent, changes=progress, **call))
        items = ",".join(str(number * 10 + i) for i in range(gained))
        changes = f'{{"set":{{"n":{number}}},"append":{{"list":[{items}]}}}}' if draw.random() < 0.8 else None
        done = {"step": f"s{number}", "cell_id": f"c{number}", "key": "k", "ref_seq": run, "run_seq": run}
        put(Row(kind="checkpoint", phase="step", parent_seq=parent, changes=changes, data='{"kept":{}}', **done))
    session.close()
    was = {seq: fold.image(fold.newest(seq)) for seq in range(2, fold.head + 1)}
    for keep in (9, 3):
        resumable_nb.prune(store.path, keep=keep, yes=True)
        now = Fold()
        now.apply_all(store.visitor("t").read())
        oldest = max(now.pruned)
        for seq, image in was.items():
            try:
                found = now.newest(seq)
            except ThreadNotFound:
                assert seq < min(s for s in now.chain_set | set(was) if s > oldest and now.row(s) is not None)
                continue
            assert now.image(found) == image
        for seq in draw.sample(sorted(was), 8):
            sql = f"SELECT field, value FROM state_at('t', {seq})"
            try:
                found = dict(store.rows(sql)[1])
            except resumable_nb.errors.QueryRefused as error:
                assert "was pruned" in str(error)
                continue
            image = was[seq]
            assert {n: json.loads(v) for n, v in found.items()} == {n: json.loads(image.json(n)) for n in image.fields}
        assert len(now.checkpoints()) <= keep + 1


def test_large_values_go_with_the_last_row_that_names_them(tmp_path: Path) -> None:
    """A value that only a pruned checkpoint kept goes; one that is named elsewhere stays, and is stored no second time."""
    path, blob, other = tmp_path / "r.duckdb", b"\x01" * 100_000, b"\x02" * 100_000
    with resumable_nb.open("t", db=path, say=victim.said.append) as t:
        for i in range(3):
            t.step(f"s{i}", lambda i=i: {0: blob, 1: other, 2: blob}[i])
    plan = resumable_nb.prune(path, keep=1, yes=True)
    assert plan.threads[0].freed.values == 1
    assert plan.threads[0].freed.size_bytes > 100_000

    with resumable_nb.open("t", db=path, say=victim.said.append) as t:
        again = [t.step(f"s{i}", lambda i=i: {0: blob, 1: other, 2: blob}[i]) for i in range(3)]
    assert again == [blob, other, blob]
    with Store.open(path) and resumable_nb.open("t", db=path, say=victim.said.append) as t:
        assert t.step("s0", lambda i=0: {0: blob, 1: other, 2: blob}[i]) == blob


def test_a_store_that_somebody_has_open_is_left_alone(db: Path) -> None:
    """The file is replaced under nobody: who has a thread is named, and nothing is changed."""
    before = rows_of(db)
    with resumable_nb.open("other", db=db, say=victim.said.append):
        with pytest.raises(ThreadInUse, match=r"Thread 'other' is open in process \d+ on"):
            resumable_nb.prune(db, thread="t", keep=1, yes=True)
        assert rows_of(db)[-len(before) :] == before or len(rows_of(db)) > len(before)


def test_a_whole_thread_goes_unless_forks_need_its_receipts(db: Path) -> None:
    """What a fork must not do again is not forgotten; both can go together, and the others stay whole."""
    with resumable_nb.open("t", db=db, say=victim.said.append) as t:
        t.fork("s0", "f")
    victim.work(db, thread="u", steps=1)
    with pytest.raises(ThreadError, match="1 receipt of effects that f must not do again"):
        resumable_nb.prune(db, drop="t", yes=True)
    plan = resumable_nb.prune(db, drop=["t", "f"], yes=True)

    assert "would be done again" in str(plan)
    assert Store.open(db).threads() == ["u"]
    assert repair.examine(db).troubles == []
    victim.work(db, thread="u", steps=1)


def test_a_fork_that_brought_no_receipts_of_its_own_can_go(db: Path) -> None:
    """Nothing outside was done in it that its thread does not know of: dropped, it takes nothing along."""
    with resumable_nb.open("t", db=db, say=victim.said.append) as t:
        t.fork("newest", "f")
        before = t.state.receipts
    resumable_nb.prune(db, drop="f", yes=True)

    assert Store.open(db).threads() == ["t"]
    assert before
    assert victim.work(db).receipts == before


def test_a_fork_that_needs_a_pruned_state_is_refused(db: Path) -> None:
    """Nothing starts silently from another state."""
    with resumable_nb.open("t", db=db, say=victim.said.append) as t:
        old, step = t.history()[3]["seq"], t.history()[3]["step"]
    resumable_nb.prune(db, keep=2, yes=True)
    with pytest.raises(ThreadNotFound, match=f"row {old} was pruned"):
        Store.open(db).fork("t", old, "f")
    with resumable_nb.open("t", db=db, say=victim.said.append) as t:
        with pytest.raises(ThreadNotFound, match="The oldest state from which on all are left is at row"):
            t.state_at(old)
        with pytest.raises(ThreadNotFound, match=f"`{step}` left in thread 't' were pruned"):
            t.state_at(step)
        t.fork(t.history()[-1]["seq"], "f")


def killed(db: Path, *, point: str = "", after_s: float = 0) -> int:
    environment = {**os.environ, **({"RESUMABLE_NB_FAILPOINT": point} if point else {})}
    process = subprocess.Popen([sys.executable, "-m", "tests.keeping.victim", str(db)], env=environment)
    if not point:
        time.sleep(after_s)
        process.kill()
    return process.wait(timeout=120)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_the_rename_the_old_or_the_new_store_is_there_whole(db: Path, point: str) -> None:
    """Before the rename all is as it was, after it all is done; the next one clears what lies about."""
    before = rows_of(db)
    Store.open(db).close()
    assert killed(db, point=point) == -9
    lease._close_all()
    assert repair.examine(db).troubles == []
    assert (rows_of(db) == before) == (point == POINTS[0])
    Store.open(db).close()

    resumable_nb.prune(db, keep=1, yes=True)
    assert [p.name for p in db.parent.iterdir() if "prune-" in p.name] == []


@pytest.mark.parametrize("part", range(3))
def test_killed_at_any_time_the_store_is_whole(db: Path, part: int) -> None:
    """Wherever SIGKILL comes, the store opens, with the old rows or the new ones."""
    before = rows_of(db)
    Store.open(db).close()
    killed(db, after_s=0.4 + 0.2 * part)
    lease._close_all()
    assert repair.examine(db).troubles == []
    found = rows_of(db)
    assert len(found) == len(before)
    assert found == before or any(row.phase == "pruned" for row in found)
    victim.work(db)
    assert happened().count("mail-ann") == 1


def test_the_command_says_what_would_go_and_asks(db: Path, tmp_path: Path) -> None:
    """Without --yes and a terminal it only tells; with --backup the old file is kept and opens."""
    run = CliRunner().invoke
    told = run(cli, ["prune", "--db", str(db), "--keep", "2"])
    assert "checkpoints: 7 to go" in told.output
    assert "add --yes" in told.output
    before = rows_of(db)
    done = run(cli, ["prune", "--db", str(db), "--keep", "2", "--yes", "--backup"])
    assert "Done: r.duckdb has" in done.output
    (kept,) = [p for p in tmp_path.iterdir() if p.name.startswith("r.duckdb.2")]
    assert rows_of(kept) == before
    unsaid = run(cli, ["prune", "--db", str(db)]).exception
    assert isinstance(unsaid, UsageError) and "--keep N" in str(unsaid)
    nothing = run(cli, ["prune", "--db", str(db), "--keep", "2"])
    assert "nothing to prune" in nothing.output


@pytest.mark.parametrize("text", ["yesterday", "30", "-3d", ""])
def test_what_is_no_date_and_no_age_is_refused(text: str) -> None:
    """A wrong word drops nothing."""
    with pytest.raises(UsageError, match="no date"):
        moment(text)
