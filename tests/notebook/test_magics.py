"""The magics: what they say, show and complete, in real kernels and in a plain shell."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebook.screen import OPEN, Screen, screen
from tests.notebook.test_panels import HOSTILE, Page

STEP = "%%resumable one\nstate.update(findings=['f1'])\nx = 1"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screen]:
    """One kernel with an open thread that has one finished step."""
    with screen(tmp_path_factory.mktemp("magics"), open=OPEN, one=STEP, edit="state.query = 'other'") as found:
        assert found.run("open", "one", "edit").status == "ok"
        yield found


@pytest.fixture
def nb(tmp_path: Path) -> Iterator[Screen]:
    with screen(tmp_path, open=OPEN) as found:
        yield found


def test_status_names_the_steps(shared: Screen) -> None:
    """`%resumable status`, or `%resumable` alone, shows each step and whether it is done."""
    for line in ("%resumable status", "%resumable"):
        said = shared.execute(line, "tool").said
        assert "Thread t" in said
        assert "one" in said
        assert "done" in said


def test_the_timeline_and_the_list_of_threads_are_shown(shared: Screen) -> None:
    """`%resumable timeline` and `%resumable threads` show views, with a table where there are no widgets."""
    timeline, threads = (shared.execute(f"%resumable {line}", "tool") for line in ("timeline", "threads"))

    assert "Timeline of thread t" in timeline.said
    assert "one" in timeline.said
    assert "Threads of " in threads.said
    assert "application/vnd.jupyter.widget-view+json" in timeline.outputs[-1]["data"]


def test_history_shows_the_checkpoints(shared: Screen) -> None:
    """`%resumable history` shows what each checkpoint changed."""
    said = shared.execute("%resumable history", "tool").said

    assert "findings" in said
    assert "query" in said
    assert "edit" in said


def test_diff_shows_what_changed(shared: Screen) -> None:
    """`%resumable diff` shows a field before and after."""
    first, last = shared.value("[h['seq'] for h in thread.history()][::len(thread.history()) - 1]")
    said = shared.execute(f"%resumable diff {first} {last}", "tool").said

    assert "findings: 1 added" in said
    assert "+ [0] f1" in said
    assert "+ other" in said


def test_sql_gives_a_frame(shared: Screen) -> None:
    """`%resumable sql` and `%%resumable_sql` give a DataFrame, or bind it; `$` and braces stay as they are."""
    assert shared.execute("type(_got).__name__, len(_got)", "t0").status == "error"
    line = shared.execute(
        "got = get_ipython().run_line_magic('resumable', 'sql select count(*) as n from steps')", "t1"
    )
    assert line.status == "ok", line.text()
    cell = shared.execute("%%resumable_sql kept\nselect '{x} $y' as words", "t2")
    assert cell.status == "ok", cell.text()
    shown = shared.execute("%%resumable_sql\nselect step from steps", "t3")

    assert shared.value("(type(got).__name__, int(got.n[0]) >= 1, list(kept.words))") == ("DataFrame", True, ["{x} $y"])
    assert "one" in shown.text()


@pytest.mark.parametrize("ask", ["%%resumable_sql\n", "%resumable sql "])
def test_sql_knows_the_open_thread(shared: Screen, ask: str) -> None:
    """`$thread` in a query is the thread that is open."""
    shown = shared.execute(f"{ask}select 'it is ' || $thread as told from threads where thread_id = $thread", "t4")

    assert f"it is {shared.value('thread.thread_id')}" in shown.text()


@pytest.mark.parametrize(
    ("line", "complaint", "usage"),
    [
        ("%resumable opn t", "'opn' is no subcommand", "%resumable open|"),
        ("%resumable open", "required: thread", "usage: %resumable open THREAD"),
        ("%resumable open t --dbx y", "unrecognized arguments: --dbx y", "usage: %resumable open THREAD"),
        ("%resumable open 't", "quote is not closed", "usage: %resumable open THREAD"),
        ("%resumable diff 1", "required: B", "usage: %resumable diff A B"),
        ("%resumable diff one two", "There is no step `two`", "Its steps: `one`"),
        ("%resumable status now", "unrecognized arguments", "usage: %resumable status"),
        ("%resumable fresh", "required: NAME", "usage: %resumable fresh NAME"),
        ("%resumable fork x y", "There is no step `x`", "`newest`"),
        ("%%resumable --help\nx = 1", "`%resumable?` explains it", "usage: %%resumable"),
        ("%resumable sql", "what to ask", "usage: %resumable sql SELECT"),
        ("%%resumable_sql 2x\nselect 1", "no name to bind", "usage: %%resumable_sql"),
        ("%resumable fresh nobody", "There is no step `nobody`", "`one`"),
        ("%resumable sql drop table journal", "", ""),
    ],
)
def test_a_wrong_line_is_one_clear_block(shared: Screen, line: str, complaint: str, usage: str) -> None:
    """A magic that was called wrongly says how, in one block, with the right usage."""
    shown = shared.execute(line, "tool")

    assert shown.status == "error"
    assert complaint in shown.text()
    assert usage in shown.text()
    assert [len(o["traceback"]) for o in shown.outputs if "traceback" in o] == [1]


def test_words_of_a_line_are_expanded(nb: Screen) -> None:
    """The words of `%resumable open` may name variables, as in any magic; a value with spaces stays one word."""
    shown = nb.execute(
        "name, q = 'a b', 'what is {this}?'\n%load_ext resumable_nb\n%resumable open {name} --db t.duckdb --query $q",
        "c",
    )

    assert shown.status == "ok", shown.text()
    assert nb.value("(thread.thread_id, state.query)") == ("a b", "what is {this}?")


def test_the_environment_outranks_the_line(tmp_path: Path) -> None:
    """`RESUMABLE_NB_THREAD` and `RESUMABLE_NB_DB` outrank what the notebook says."""
    nb = Screen(tmp_path, open=OPEN)
    nb.env |= {"RESUMABLE_NB_THREAD": "from outside", "RESUMABLE_NB_DB": str(tmp_path / "outside.duckdb")}
    nb.start()
    try:
        assert nb.run("open").status == "ok"
        assert nb.value("thread.thread_id") == "from outside"
        assert (tmp_path / "outside.duckdb").exists()
        assert nb.run("open").status == "ok"
    finally:
        nb.stop()


def test_the_opening_cell_can_run_again(nb: Screen) -> None:
    """Running the cell that opens the thread once more changes nothing: Run All twice in one kernel works."""
    nb.cells |= {"one": STEP, "x": "x += 1\nx"}
    nb.save()
    first, again = nb.run_all(), nb.run_all()

    assert [s.status for s in again.values()] == ["ok"] * 3, [s.text() for s in again.values()]
    assert "restored" in again["one"].said
    assert first["x"].results == ["2"]
    assert "checkpoint" in again["open"].said


def test_another_thread_can_be_opened(nb: Screen) -> None:
    """Opening another thread closes the first; each keeps its own."""
    nb.cells["one"] = STEP
    nb.save()
    nb.run("open", "one")
    shown = nb.execute("%resumable open u --db t.duckdb", "two")
    assert shown.status == "ok", shown.text()
    assert nb.value("(thread.thread_id, list(state.findings))") == ("u", [])
    closed = nb.execute("%resumable close", "three")

    assert "Thread u is closed" in closed.said
    assert "No thread is open" in nb.execute(STEP, "one").text()
    assert nb.execute("y = 1\ny", "four").results == ["1"]


def test_a_fork_goes_its_own_way(nb: Screen) -> None:
    """A thread made by `%resumable fork` has the steps so far, opens as the line says, and leaves the first one alone."""
    nb.cells |= {"one": STEP, "two": "%%resumable two\nstate.update(findings=['f2'])"}
    nb.save()
    nb.run("open", "one")
    seq = nb.value("thread.history()[-1]['seq']")
    nb.run("two")
    assert "`%resumable open 'u 2'`" in nb.execute(f"%resumable fork {seq} 'u 2'", "tool").said
    nb.cells["open"] = OPEN.replace("open t", "open 'u 2'")
    nb.save()
    nb.restart()
    assert nb.run("open").status == "ok"

    assert nb.value("list(thread.state.findings)") == ["f1"]
    assert "restored" in nb.run("one").said


def test_a_thread_can_be_taken_over_and_back(nb: Screen, tmp_path: Path) -> None:
    """A thread that a live kernel has is refused, unless it is taken over; then the first can write no more."""
    nb.cells["one"] = STEP
    nb.save()
    nb.run("open")
    other = Screen(tmp_path, **nb.cells)
    other.start()
    try:
        assert other.run("open").error.startswith("ThreadInUse")
        assert other.execute(f"{OPEN} --take-over", "open").status == "ok"
        assert other.run("one").status == "ok"
        assert nb.execute("state.query = 'mine'", "edit").error.startswith("ThreadTakenOver")
        assert nb.run("open").error.startswith("ThreadInUse")
        assert nb.execute(f"{OPEN} --take-over", "open").status == "ok"

        assert "restored" in nb.run("one").said
        assert other.execute("state.query = 'x'", "one").error.startswith("ThreadTakenOver")
    finally:
        other.stop()


def test_loading_twice_and_unloading(nb: Screen) -> None:
    """Loading or reloading again does no harm, and unloading leaves the shell as it was."""
    state = (
        "[len(get_ipython().input_transformers_cleanup), len(get_ipython().ast_transformers)] + "
        "[len(c) for c in get_ipython().events.callbacks.values()]"
    )
    before = nb.value(state) + nb.value("get_ipython().custom_exceptions == ()") * [0]
    nb.run("open")
    loaded = nb.value(state)
    for line in (
        "%load_ext resumable_nb",
        "import resumable_nb; resumable_nb.load_ipython_extension(get_ipython())",
        "%reload_ext resumable_nb",
    ):
        assert nb.execute(line, "c").status == "ok"
        assert nb.value("get_ipython().resumable_nb.kernel is None") is ("reload" in line)
        assert nb.value(state) == loaded
    assert nb.execute("%unload_ext resumable_nb", "c").status == "ok"

    assert nb.value(state) + nb.value("get_ipython().custom_exceptions == ()") * [0] == before
    assert nb.value("hasattr(get_ipython(), 'resumable_nb')") is False
    assert "not found" in nb.execute("%%resumable a\n1", "c").text()


def complete(found: Screen, code: str) -> list[str]:
    msg_id = found.client.complete(code)
    while True:
        reply = found.client.get_shell_msg(timeout=120)
        if reply["parent_header"]["msg_id"] == msg_id:
            return list(reply["content"]["matches"])


@pytest.mark.parametrize(
    ("code", "match"),
    [
        ("%resumable st", "status"),
        ("%resumable fresh o", "one"),
        ("%resumable open t --ta", "--take-over"),
        ("%resumable open t --state Res", "ResearchState"),
        ("%resumable open t --db t", "t.duckdb"),
        ("%%resumable o", "one"),
        ("%%resumable one --ap", "--approve"),
    ],
)
def test_completion(shared: Screen, code: str, match: str) -> None:
    """Subcommands, step names, options and state classes are completed."""
    shared.execute("from resumable_nb import ResearchState", store_history=False)

    assert match in [m.strip() for m in complete(shared, code)]


@pytest.mark.parametrize(
    ("code", "words"), [("%resumable?", "--take-over"), ("%%resumable?", "--approve"), ("%%resumable_sql?", "VARIABLE")]
)
def test_help(shared: Screen, code: str, words: str) -> None:
    """`?` behind a magic explains it."""
    msg_id = shared.send(code, "tool")
    shared.result(msg_id)
    found = shared.client.session.msg(
        "inspect_request", {"code": code.strip("?"), "cursor_pos": len(code) - 1, "detail_level": 0}
    )
    shared.client.shell_channel.send(found)
    while True:
        reply = shared.client.get_shell_msg(timeout=120)
        if reply["parent_header"]["msg_id"] == found["header"]["msg_id"]:
            break

    assert words in reply["content"]["data"]["text/plain"]


def test_help_of_one_subcommand(shared: Screen) -> None:
    """`--help` behind a subcommand shows its usage and does nothing."""
    shown = shared.execute("%resumable open --help", "tool")

    assert shown.status == "ok"
    assert "usage: %resumable open THREAD [--db PATH]" in shown.text()


# ---------------------------------------------------------------------------------------------------------- trust
def test_text_of_a_model_is_no_html(nb: Screen) -> None:
    """I2: hostile text in the state, a name or an error is readable in every panel, and does nothing."""
    nb.cells["one"] = f"%%resumable '<b>one'\nstate.update(findings=[{HOSTILE!r}])"
    nb.cells["edit"] = f"state.query = {HOSTILE!r}"
    nb.save()
    nb.run_all()
    shown = [nb.execute(f"%resumable {line}", "tool") for line in ("status", "history", "diff 1 99", "fresh nobody")]
    nb.restart()
    shown.append(nb.run("open"))
    pages = [Page(o["data"]["text/html"]) for s in shown for o in s.outputs if "data" in o]

    assert pages
    assert all(page.tags <= {"div", "b", "table", "tr", "th", "td"} for page in pages)
    assert not any("text/markdown" in o.get("data", {}) for s in shown for o in s.outputs)
    assert HOSTILE in shown[-1].said


def test_outputs_of_a_stranger_are_text_until_trusted(nb: Screen) -> None:
    """HTML in a store that somebody else wrote is not shown until the person says so."""
    nb.cells["one"] = "%%resumable one\nfrom IPython.display import HTML\nHTML('<b>mine</b>')"
    nb.save()
    nb.run_all()
    nb.env["RESUMABLE_NB_SECRET_DIR"] += "-of-another-user"
    nb.restart()
    stranger = nb.run_all()["one"]
    assert "text/html" not in stranger.own[0]["data"]
    assert "%resumable trust" in stranger.said
    trusted = nb.execute("%resumable trust", "tool")
    assert "1 step" in trusted.said

    assert nb.run("one").own[0]["data"]["text/html"] == "<b>mine</b>"


# ---------------------------------------------------------------------------------------------------------- a terminal
SESSION = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for code in sys.argv[1:]:
    result = shell.run_cell(code, store_history=True)
    print(">>", result.success, result.result)
"""


def test_a_plain_shell_works(tmp_path: Path) -> None:
    """Without ipykernel (a terminal) steps run, are skipped, and say so."""
    import subprocess

    env = os.environ | {"IPYTHONDIR": str(tmp_path / "ipython"), "RESUMABLE_NB_SECRET_DIR": str(tmp_path / "secret")}
    command = [sys.executable, "-c", SESSION, OPEN, "%%resumable a\nprint('ran')\n40 + 2", "state.query"]
    first, again = (
        subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60) for _ in range(2)
    )

    assert first.stdout.count(">> True") == 3, first.stdout + first.stderr
    assert ">> True 42" in first.stdout
    assert ">> True q" in again.stdout
    assert "restored from checkpoint" in again.stdout, again.stdout + again.stderr
    assert "ran\n" not in again.stdout


def test_loading_is_cheap(tmp_path: Path) -> None:
    """Loading the extension and opening a thread import no heavy library."""
    import subprocess

    code = (
        SESSION
        + "print('heavy', {'openai', 'pandas', 'numpy', 'nbclient', 'ipywidgets', 'httpx2'} & sys.modules.keys())"
    )
    env = os.environ | {"IPYTHONDIR": str(tmp_path / "ipython"), "RESUMABLE_NB_SECRET_DIR": str(tmp_path / "secret")}
    command = [sys.executable, "-c", code, OPEN, "%%resumable a\nx = 1", "%resumable status"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)

    assert "heavy set()" in done.stdout, done.stdout + done.stderr
