"""Other programs that have the file of a store open, in the same kernel and in other processes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from resumable_nb.errors import StoreLocked
from resumable_nb.journal import Row, Session, Store
from tests.journal.others import Other, run
from tests.sql.conftest import Story
from tests.sql.questions import PAGE, QUESTIONS, asked

LAST = "SELECT max(seq) FROM journal"


def _attached(options: str) -> Callable[[Path], duckdb.DuckDBPyConnection]:
    def attach(path: Path) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        connection.execute(f"ATTACH '{path}' AS notes{options}")
        return connection

    return attach


HOLDERS: dict[str, Callable[[Path], duckdb.DuckDBPyConnection]] = {
    "read-only": lambda path: duckdb.connect(path, read_only=True),
    "other settings": lambda path: duckdb.connect(path, config={"threads": 1}),
    "attached": _attached(""),
    "attached read-only": _attached(" (READ_ONLY)"),
}
LET_GO = {name: "held.execute('DETACH notes')" if "attached" in name else "held.close()" for name in HOLDERS}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "research.duckdb", wait_s=60)
    yield opened
    opened.close()


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    opened = store.open_session("t", about={})
    store.close()
    yield opened


@pytest.mark.parametrize("kind", HOLDERS)
def test_a_connection_in_this_process_is_named(
    kind: str, store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write is refused at once and says what to run; after that, nothing is missing and writing goes on."""
    held = HOLDERS[kind](store.path)
    monkeypatch.setattr(sys.modules["__main__"], "held", held, raising=False)
    with pytest.raises(StoreLocked, match="open in this kernel") as told:
        session.append(Row(kind="notice"))
    assert f"Run `{LET_GO[kind]}`" in str(told.value)

    assert held.execute(LAST.replace("journal", "notes.journal" if "attached" in kind else "journal")).fetchall() == [
        (2,)
    ]
    exec(LET_GO[kind], {"held": held})
    assert session.append(Row(kind="notice")) == [3]
    assert store.rows(LAST)[1] == [(3,)]
    held.close()


@pytest.mark.parametrize("kind", ["read-only", "attached read-only"])
def test_beside_a_reader_questions_are_answered(kind: str, store: Store, session: Session) -> None:
    """A connection of this process that only reads gets in the way of writing, not of asking."""
    held = HOLDERS[kind](store.path)
    assert store.rows(LAST)[1] == [(2,)]
    held.close()


def test_a_plain_connection_shares_the_file(store: Store, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """`duckdb.connect(path)` gets along with writing; a question is refused, and says what to run."""
    held = duckdb.connect(store.path)
    monkeypatch.setattr(sys.modules["__main__"], "held", held, raising=False)
    assert session.append(Row(kind="notice")) == [3]
    assert held.execute(LAST).fetchall() == [(3,)]
    with pytest.raises(StoreLocked, match=re.escape("Run `held.close()`")):
        store.rows(LAST)

    held.close()
    store.close()
    assert store.rows(LAST)[1] == [(3,)]


def test_duckdb_s_default_connection_is_named(store: Store, session: Session) -> None:
    """What `duckdb.sql("ATTACH …")` holds has no variable; it is found all the same."""
    duckdb.execute(f"ATTACH '{store.path}' AS notes (READ_ONLY)")
    try:
        with pytest.raises(StoreLocked, match=re.escape("Run `duckdb.execute('DETACH notes')`")):
            session.append(Row(kind="notice"))
    finally:
        duckdb.execute("DETACH notes")
    assert session.append(Row(kind="notice")) == [3]


def test_a_step_goes_on_when_it_is_let_go(tmp_path: Path) -> None:
    """A step whose kernel holds the file fails before its call is sent; run again after letting go, it ends."""
    script = """
    import resumable_nb
    from resumable_nb.errors import StoreLocked
    thread = resumable_nb.open("t", db=args[0], say=lambda _: None)
    ran = []
    def work(state):
        ran.append(1)
        state.update(findings=["f"])
    thread.step("one", work)
    thread.store.close()
    held = duckdb.connect(args[0], read_only=True)
    def more(state):
        ran.append(2)
        state.update(findings=["g"])
    try:
        thread.step("two", more)
    except StoreLocked as error:
        say(str(error))
    held.close()
    thread.step("two", more)
    say([ran, thread.state.findings, thread.sql("SELECT step FROM checkpoints WHERE step IS NOT NULL")["step"].tolist()])
    thread.close()
    """
    told, ended = run(script, tmp_path / "research.duckdb")

    assert "Run `held.close()`" in told
    assert ended[1:] == [["f", "g"], ["one", "two"]]


def test_a_reader_elsewhere_delays_writing_alone(store: Store, session: Session) -> None:
    """While another process reads, questions are answered; a write waits, and goes on when it ends."""
    with Other(
        "held = duckdb.connect(args[0], read_only=True); say(1); hear(); held.close(); say(2); hear()", store.path
    ) as other:
        other.hear()
        assert store.rows(LAST)[1] == [(2,)]
        store._lease.wait_s = 0.3
        with pytest.raises(StoreLocked, match=rf"PID {other.pid}"):
            session.append(Row(kind="notice"))
        store._lease.wait_s = 60
        other.say()
        assert session.append(Row(kind="notice")) == [3]


def test_the_pattern_of_the_page_reads_along(store: Store, session: Session) -> None:
    """A program that asks as the page shows gets every answer while steps are written; counts never fall, no row is lost."""
    (pattern,) = re.findall(r"^```py\n(import time, duckdb.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    reader = (
        f"os.chdir(args[0])\n{pattern}\nsay(0)\nseen = [int(ask('{LAST}').iloc[0, 0]) for _ in range(8)]\nsay(seen)"
    )
    with Other(reader, store.path.parent) as other:
        other.hear()
        wrote = 0
        while other._process.poll() is None and wrote < 2000:
            session.append(Row(kind="notice"))
            wrote += 1
        code, said, err = other.end()

    assert code == 0, err
    assert said[0] == sorted(said[0])
    assert store.rows(LAST)[1] == [(2 + wrote,)]


ASK_ALL = """
held = duckdb.connect(args[0], read_only=True)
held.execute("SET TimeZone = 'UTC'")
for query, values in json.loads(args[1]):
    say(json.loads(json.dumps(held.execute(query, values).fetchall(), default=str)))
"""


def test_other_programs_get_the_same_answers(story: Story) -> None:
    """Every question of the page has the same answer in a program that knows DuckDB and nothing of this library."""
    questions = {n: asked(n) for n in QUESTIONS if "now()" not in QUESTIONS[n]}
    story.store.close()
    theirs = run(ASK_ALL, story.store.path, json.dumps(list(questions.values())))
    ours = [json.loads(json.dumps(story.store.rows(*one)[1], default=str)) for one in questions.values()]

    assert len(theirs) == len(ours) >= 20
    for number, one, other in zip(questions, ours, theirs, strict=True):
        assert one == other, number


def _command_line() -> str | None:
    """DuckDB's own program, if it is new enough for the file."""
    found = shutil.which("duckdb")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout if found else ""
    return found if re.match(r"v?[2-9]\\.", version) else None


@pytest.mark.skipif(_command_line() is None, reason="needs DuckDB's command line, 2.0 or newer")
def test_duckdb_s_command_line(story: Story) -> None:
    """`duckdb -readonly` answers a question of the page."""
    story.store.close()
    command = [str(_command_line()), "-readonly", "-csv", "-noheader", str(story.store.path), QUESTIONS[28]]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert [line.split(",")[:3] for line in said.splitlines()] == [
        ["bells", "ring", "waiting"],
        ["post", "send", "waiting"],
    ]


JUPYSQL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def cell(code):
    return shell.run_cell(code).error_in_exec
store = Store.open(args[0])
frame = store.query("SELECT step, gen_ai_usage_output_tokens AS tokens FROM llm_calls WHERE thread_id = 'island'")
shell.user_ns["calls"] = frame
shell.run_cell("%load_ext sql\\n%config SqlMagic.displaycon = False\\nimport duckdb")
cell("con = duckdb.connect()\\ncon.execute('CREATE TABLE calls AS SELECT * FROM calls')\\n%sql con --alias frames")
cell("%sql found << SELECT step, sum(tokens) AS tokens FROM calls GROUP BY step ORDER BY step")
say([[step, int(tokens)] for step, tokens in shell.user_ns["found"].DataFrame().dropna().itertuples(index=False)])
cell("%sql --close frames")
session = store.open_session("jupysql", about={})
store.close()
cell("notes = duckdb.connect(%r, read_only=True)\\n%%sql notes --alias notes" % args[0])
cell("%sql seen << SELECT count(*) AS n FROM llm_calls")
say(int(shell.user_ns["seen"].DataFrame()["n"][0]))
del shell.user_ns["notes"]
try:
    session.append(Row(kind="notice"))
except Exception as error:
    say(str(error))
cell("%sql --close notes")
say(session.append(Row(kind="notice")))
session.close()
store.close()
os._exit(0)  # its telemetry has threads
"""


def test_jupysql(story: Story, tmp_path: Path) -> None:
    """JupySQL asks a bound answer, or the file itself; while it holds that, a write names what closes it, and goes on after."""
    pytest.importorskip("sql", reason="needs JupySQL")
    story.store.close()
    path = shutil.copy(story.store.path, tmp_path / "research.duckdb")
    env = {"PLOOMBER_STATS_ENABLED": "false", "IPYTHONDIR": str(tmp_path / "ipython"), "HOME": str(tmp_path)}
    with Other(JUPYSQL, path, env=env) as other:
        code, out, err = _ended(other)
    said: list[Any] = [json.loads(line) for line in out.splitlines() if line[:1] in '["0123456789']

    assert code == 0, err
    assert ["title", 20] in said[0]
    assert said[1] == story.store.rows("SELECT count(*) FROM llm_calls")[1][0][0]
    assert "Run `%sql --close notes`" in said[2]
    assert said[3] == [3]


def _ended(other: Other) -> tuple[int, str, str]:
    """How it ended, with output that is not all the test's."""
    out, err = other._process.communicate(timeout=200)
    return other._process.returncode, out, err
