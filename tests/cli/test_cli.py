"""The command line, as a process, on real stores."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import duckdb
import nbformat
import pytest

import resumable_nb
from resumable_nb.cli import main
from resumable_nb.errors import Paused, StoreUntrusted
from resumable_nb.journal import Row, Store

CODE = nbformat.v4.new_code_cell
TRICK = "\x1b]0;owned\x07\x1b[2Jcafé\u202egnp.exe"


def fill(session, text: str = "x") -> None:
    """A start, and one step with a call and a finding."""
    start = json.dumps({"set": {"query": "q", "findings": []}})
    found = json.dumps({"append": {"findings": [{"quote": text}]}, "set": {"plan": [text]}})
    session.append(Row(kind="checkpoint", phase="start", parent_seq=0, changes=start))
    parent = session.head
    session.append(Row(kind="step", phase="started", step="look", cell_id="c", parent_seq=parent))
    session.append(Row(kind="llm", phase="started", step="look", key="k", occurrence=0, run_seq=-1))
    tokens = {"gen_ai_usage_input_tokens": 100, "gen_ai_usage_output_tokens": 10}
    session.append(
        Row(kind="llm", phase="done", step="look", key="k", occurrence=0, ref_seq=-1, response='"a"', **tokens)
    )
    session.append(
        Row(
            kind="checkpoint",
            phase="step",
            step="look",
            cell_id="c",
            parent_seq=parent,
            duration_ms=1500,
            changes=found,
        )
    )


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store.open(tmp_path / "research.duckdb")
    session = store.open_session("bees", about={})
    fill(session, TRICK)
    session.close()
    store.close()
    return store


def call(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command, in this process: starting one takes longer than most commands."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, env),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main(arguments)
    return subprocess.CompletedProcess(arguments, int(str(ended.value.code)), out.getvalue(), err.getvalue())


def said(*arguments: str, **env: str) -> str:
    """What a command that must end well says."""
    done = call(*arguments, **env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(*arguments: str, code: int = 1, **env: str) -> str:
    """The one line that a command that must fail says."""
    done = call(*arguments, **env)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("Error: ")
    return done.stderr


def test_status_shows_threads_and_the_steps_of_one(store):
    """Without a thread: one line per thread; with one: one line per step, with its calls and tokens."""
    threads, steps = said("status").split("\n"), said("status", "--thread", "bees").split("\n")

    names = "thread last_at waits in_doubt llm_calls input_tokens output_tokens dollars open_in"
    assert threads[0].split() == names.split()
    assert threads[2].split()[0] == "bees"
    assert "  1           100             10" in threads[2]
    assert steps[2].split() == ["look", "done", "7", "1", "100", "10", "1.5"]


def test_history_and_diff_show_what_each_checkpoint_changed(store):
    """The only thread of a store need not be named."""
    shown, difference = said("history").split("\n"), said("diff", "3", "7")

    assert shown[0].split() == ["seq", "at", "step", "origin", "in_lineage", "changed"]
    assert shown[2].endswith("set findings, set query")
    assert shown[3].endswith("set plan, append findings")
    assert difference.startswith("From 3 to 7\n")
    assert "  plan: added\n" in difference
    assert "  findings: 1 added\n" in difference
    assert "are the same" in said("diff", "3", "3")
    assert said("diff", "-2", "look").split("\n")[1:] == difference.split("\n")[1:]


@pytest.mark.parametrize(
    "query",
    ["SELECT * FROM read_text('/etc/hostname')", "COPY threads TO 'x.csv'", "DELETE FROM journal", "FROM 'x.csv'"],
)
def test_sql_reads_the_store_and_nothing_else(store, query):
    """What would write, or reach a file, is refused in words."""
    ended = call("sql", query)

    assert ended.returncode != 0
    assert any(words in ended.stderr for words in ("cannot be asked", "Only one SELECT", "looks like a file"))
    assert not Path("x.csv").exists()


def test_sql_prints_an_aligned_table_csv_and_json(store):
    """Three forms of the same answer; CSV and JSON can be read by other programs."""
    query = "SELECT thread_id, step, llm_calls, NULL AS nothing FROM steps"

    assert said("sql", query).split("\n")[:3] == [
        "thread_id  step  llm_calls  nothing",
        "---------  ----  ---------  -------",
        "bees       look          1",
    ]
    assert list(csv.reader(io.StringIO(said("sql", query, "--format", "csv"))))[1] == ["bees", "look", "1", ""]
    assert json.loads(said("sql", query, "--format", "json")) == [
        {"thread_id": "bees", "step": "look", "llm_calls": 1, "nothing": None}
    ]


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_text_from_a_model_cannot_command_the_terminal(store, form):
    """Escape sequences and marks that turn the writing direction are left out; in JSON they are escaped, and exact."""
    text = said("sql", "SELECT finding->>'quote' AS quote FROM findings", "--format", form)

    assert "café" in text
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    if form == "json":
        assert json.loads(text) == [{"quote": TRICK}]


def test_sql_knows_the_thread(store, monkeypatch):
    """`$thread` is the thread of `--thread` or the environment, or the only one; elsewhere nobody asks for one."""
    query = "SELECT $thread AS it, max(seq) AS newest FROM journal WHERE thread_id = $thread"
    assert "bees" in said("sql", query)
    said("fork", "3", "wasps")

    assert "wasps" in said("sql", query, "--thread", "wasps")
    assert "holds wasps, bees: give one with --thread" in refused("sql", query, code=2)
    assert "There is no thread 'ants' in" in refused("sql", query, "--thread", "ants")
    assert "$thread" in said("sql", "SELECT '$thread' AS it")
    monkeypatch.setenv("RESUMABLE_NB_THREAD", "wasps")
    assert "wasps" in said("sql", query)


def test_long_values_of_a_table_are_cut_unless_asked(store):
    """A table stays readable; `--wide` shows all."""
    query = f"SELECT '{'x' * 200}' AS long"

    assert "…" in said("sql", query)
    assert "x" * 200 in said("sql", query, "--wide")


def test_fork_makes_a_thread_that_starts_with_the_rows_of_another(store):
    """The original is unchanged, and both are there."""
    assert "holds rows 1 to 3 of bees" in said("fork", "3", "wasps")
    assert json.loads(said("sql", "SELECT thread_id, last_checkpoint FROM threads ORDER BY 1", "--format", "json")) == [
        {"thread_id": "bees", "last_checkpoint": 7},
        {"thread_id": "wasps", "last_checkpoint": 3},
    ]


def test_a_fork_goes_up_to_a_step_too(store):
    """A step's name means the end of its last run."""
    assert "holds rows 1 to 7 of bees" in said("fork", "look", "wasps")


def test_fresh_retires_the_answers_of_a_step(store):
    """Also while a kernel has the thread: that one sees it before its next cell."""
    session = store.open_session("bees", about={})
    assert "will run and ask anew" in said("fresh", "look")
    seen = session.refresh()
    session.close()

    assert [(row.kind, row.phase, row.step) for row in seen] == [("step", "retired", "look")]
    assert "There is no step `lok`" in refused("fresh", "lok")


def test_reading_does_not_disturb_a_session_at_work(store):
    """While a kernel has the thread, commands answer and write nothing into it."""
    session = store.open_session("bees", about={})
    before = said("sql", "SELECT max(seq) FROM journal")
    for command in (["status", "--thread", "bees"], ["history"], ["diff", "3", "7"]):
        said(*command)
    after = said("sql", "SELECT max(seq) FROM journal")
    session.append(Row(kind="notice", data="{}"))
    session.close()

    assert before == after


def test_a_thread_has_to_be_named_where_there_are_several(store):
    """The message lists them; a wrong name is told what there is."""
    said("fork", "3", "wasps")

    assert "holds wasps, bees: give one with --thread" in refused("history", code=2)
    assert "There is no thread 'ants' in" in refused("history", "--thread", "ants")
    assert "bees" in refused("status", "--thread", "ants")


def test_thread_and_store_come_from_the_environment_too(store, tmp_path, monkeypatch):
    """RESUMABLE_NB_DB and RESUMABLE_NB_THREAD stand for --db and --thread."""
    env = {"RESUMABLE_NB_DB": str(tmp_path / "research.duckdb"), "RESUMABLE_NB_THREAD": "bees"}
    monkeypatch.chdir("/")

    assert "look" in said("status", **env)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["sql", "SELECT 1", "--db", "none.duckdb"], 1, "There is no store at"),
        (["sql", "DROP TABLE journal"], 1, "SELECT"),
        (["sql", "SELEC"], 1, "SELEC"),
        (["diff", "1", "99"], 1, "99"),
        (["fork", "99", "new"], 1, "has no row 99"),
        (["fork", "3", "bees"], 2, "has a thread 'bees' already"),
        (["diff", "one", "2"], 1, "There is no step `one` in thread 'bees'. Its steps: `look`"),
        (["sql"], 2, "Missing argument 'QUERY'"),
        (["nosuch"], 2, "No such command 'nosuch'"),
        (["sql", "SELECT 1", "--formt", "csv"], 2, "--formt"),
        (["run", "none.ipynb"], 2, "none.ipynb"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(store, arguments, code, message):
    """On the error stream, with an exit code that is not 0, and without a traceback."""
    assert message in refused(*arguments, code=code)


COMMANDS = {
    "status": ["status"],
    "the steps of one thread": ["status", "--thread", "bees"],
    "history": ["history"],
    "diff": ["diff", "1", "2"],
    "timeline": ["timeline"],
    "sql": ["sql", "SELECT 1"],
    "approve": ["approve", "look"],
    "reject": ["reject", "look"],
    "settle": ["settle", "key", "--did-not-happen"],
    "fresh": ["fresh", "look"],
    "fork": ["fork", "1", "new"],
    "prune": ["prune", "--keep", "1", "--yes"],
    "export": ["export", "bees", "bees.thread"],
    "doctor": ["doctor"],
}
NO_STORES = {
    "missing": "no store at",
    "empty": "cannot be read: it is damaged, or no DuckDB file",
    "a text": "cannot be read: it is damaged, or no DuckDB file",
    "a DuckDB file of others": "no store of this library",
    "a folder": "is a directory",
}


def place(kind: str, path: Path) -> None:
    """Something that is no store, or nothing."""
    if kind == "a folder":
        path.mkdir()
    elif kind == "a DuckDB file of others":
        with duckdb.connect(str(path)) as con:
            con.execute("CREATE TABLE mine AS SELECT 1 AS x")
    elif kind != "missing":
        path.write_text("" if kind == "empty" else "These are my notes, and not a store.\n")


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, byte for byte."""
    return {p.name: p.read_bytes() if p.is_file() else None for p in folder.iterdir()}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", NO_STORES)
def test_what_is_no_store_is_named_and_nothing_is_left_beside_it(kind, command, tmp_path, monkeypatch):
    """A command that is given a file that is no store says so in a line, fails, and leaves the folder as it was."""
    monkeypatch.chdir(tmp_path)
    place(kind, tmp_path / "notes.duckdb")
    before = contents(tmp_path)

    done = call(*COMMANDS[command], "--db", "notes.duckdb")

    assert NO_STORES[kind] in done.stderr
    assert done.returncode == (2 if kind == "a folder" or (kind, command) == ("missing", "doctor") else 1)
    assert contents(tmp_path) == before


def test_a_thread_is_not_opened_in_what_is_no_store(tmp_path):
    """Opening a thread in somebody else's DuckDB file is refused, and leaves the folder as it was."""
    place("a DuckDB file of others", tmp_path / "notes.duckdb")
    before = contents(tmp_path)
    with pytest.raises(StoreUntrusted, match="no store of this library"):
        resumable_nb.open("bees", db=tmp_path / "notes.duckdb")

    assert contents(tmp_path) == before


def test_a_reader_that_has_seen_enough_is_no_error(store):
    """`| head -1` ends the command without a word."""
    query = "SELECT repeat('x', 1000) FROM range(10000)"
    pipe = f"{sys.executable} -c 'from resumable_nb.cli import main; main()' sql \"{query}\" | head -1 >/dev/null"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True)

    assert done.stderr == ""


def test_help_names_every_command():
    """`--help` shows what there is, and each command explains itself."""
    text = said("--help")

    for command in ("demo", "run", "status", "history", "diff", "sql", "fork", "fresh"):
        assert command in text
        assert "Usage: resumable-nb" in said(command, "--help")


def notebook(path: Path, *cells: str) -> Path:
    path.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=[CODE(cell) for cell in cells])))
    return path


def test_run_passes_its_options_on(tmp_path):
    """Parameters, output and time limit reach the notebook; progress is on the terminal; exit code 0."""
    path = notebook(tmp_path / "nb.ipynb", "n = 1", "print(n, repr(text))")
    done = call("run", str(path), "-p", "n", "-5", "-p", "text", "007", "--output", str(tmp_path / "out.ipynb"))
    cells = nbformat.read(tmp_path / "out.ipynb", as_version=4).cells

    assert done.returncode == 0
    assert "cell 3 of 3" in done.stdout
    assert f"done: {tmp_path / 'out.ipynb'}" in done.stdout
    assert "".join(o.text for o in cells[2].outputs) == "1 '007'\n"


def test_run_tells_how_it_ended_by_its_exit_code(tmp_path):
    """1 where a cell fails, 3 where one waits for a person, 2 where the notebook cannot be read."""
    wait = "from resumable_nb.errors import Paused; raise Paused('say yes')"
    failed = call("run", str(notebook(tmp_path / "a.ipynb", "1/0")))
    waiting = call("run", str(notebook(tmp_path / "b.ipynb", wait)))
    (tmp_path / "c.ipynb").write_text("{")
    unreadable = call("run", str(tmp_path / "c.ipynb"))
    names = call("run", str(tmp_path / "a.ipynb"), "-p", "a b", "1")

    assert (failed.returncode, waiting.returncode, unreadable.returncode, names.returncode) == (1, 3, 2, 2)
    assert "ZeroDivisionError: division by zero" in failed.stderr
    assert "say yes" in waiting.stdout
    assert "c.ipynb is no notebook" in unreadable.stderr
    assert "'a b'" in names.stderr


def test_doctor_rebuilds_a_store_with_foreign_code(tmp_path: Path) -> None:
    """`doctor` names what is wrong and changes nothing; with --rebuild the rows are in a clean store, the old one is kept."""
    import duckdb

    store = tmp_path / "s.duckdb"
    with resumable_nb.open("t", db=store, query="q", say=lambda line: None) as thread:
        thread.step("one", lambda state: state.update(findings=["f"]))
    thread.store.close()
    with duckdb.connect(str(store)) as foreign:
        foreign.execute("CREATE MACRO sum(x) AS 42")
    command = [sys.executable, "-m", "resumable_nb", "doctor", "--db", str(store)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    rebuilt = subprocess.run([*command, "--rebuild"], capture_output=True, text=True, timeout=60)
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert (told.returncode, rebuilt.returncode, again.returncode) == (1, 0, 0), told.stderr + rebuilt.stderr
    assert "sum" in told.stderr
    assert "nothing is the matter" in again.stdout
    with resumable_nb.open("t", db=store, say=lambda line: None) as thread:
        assert thread.state.findings == ["f"]


def phase_of(step: str) -> str:
    """How a step stands, in `status`."""
    lines = said("status", "--thread", "t").splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{step} "))


def test_what_is_to_be_approved_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` has a block per gate and per effect in doubt, with the command that answers; `approve` says to what."""
    monkeypatch.chdir(tmp_path)
    lines = [f"line {number}" for number in range(1, 31)]

    def send(state: resumable_nb.ResearchState) -> None:
        resumable_nb.approve("Send it?", {"to": "ann", "text": lines})

    @resumable_nb.effect(key="close-{n}")
    def close(n: int) -> None:
        raise OSError("broken off")

    with resumable_nb.open("t", db="research.duckdb", query="q", say=lambda line: None) as thread:
        with contextlib.suppress(Paused):
            thread.step("send", send)
        with contextlib.suppress(OSError):
            thread.step("close", lambda state: close(7))
    thread.store.close()
    status, rest = said("status"), "SELECT payload FROM approvals WHERE thread_id = 't'"

    gate = next(line for line in status.splitlines() if line.startswith("`send` (Send it?) waits for a decision: "))
    assert "`resumable-nb approve send --thread t --db" in gate
    assert '"to": "ann"' in status
    assert "line 17" in status
    assert "line 25" not in status
    assert "… 15 more lines; all of it: `resumable-nb sql" in status
    assert rest in status
    assert (
        "`close` with the key `close-7` in step `close` is in doubt: `resumable-nb settle close-7 --thread t" in status
    )
    assert phase_of("send") == "waiting"
    assert "close(n=7)" in status
    assert '"to": "bob"' in said("approve", "send", "--payload", '{"to": "bob", "text": []}')
    assert "waits for a decision" not in said("status", "--thread", "t")
    assert phase_of("send") == "decided"
