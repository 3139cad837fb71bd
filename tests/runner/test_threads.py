"""One notebook run for several threads at once, and what a run tells while it works."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from resumable_nb.errors import UsageError
from resumable_nb.journal import Store
from resumable_nb.parameters import for_threads
from tests.support.model_server import ModelServer

OPENING = "%load_ext resumable_nb\n%resumable open t --db t.duckdb"
ASK = "%%resumable search\nfrom resumable_nb import ask\nstate.update(findings=[ask(f'Q{n}?'), ask(f'Q{n}?')])"


@pytest.fixture(scope="module")
def model():
    with ModelServer() as server:
        yield server


@pytest.fixture
def run(model, tmp_path):
    """`resumable-nb run` on a notebook with a parameter `n` and a step that asks about it twice."""
    model.reset()
    new = nbformat.v4.new_code_cell
    cells = [new(OPENING), new("n = 1", metadata={"tags": ["parameters"]}), new(ASK), new("print(n)")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "nb.ipynb")
    env = os.environ | {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "sk-test-SECRET"}

    def start(*options: str, **more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-u", "-m", "resumable_nb", "run", "nb.ipynb", *options]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=tmp_path, env=env | more, stdout=pipe, stderr=pipe, text=True)

    return start


def findings(folder: Path) -> dict[str, int]:
    store = Store.open(folder / "t.duckdb", create=False)
    found = store.rows("SELECT thread_id, count(*) FROM findings GROUP BY ALL")[1]
    store.close()
    return {str(thread): int(count) for thread, count in found}


def billed(folder: Path) -> tuple[int, int]:
    """Calls and tokens, as `resumable-nb status` has them."""
    store = Store.open(folder / "t.duckdb", create=False)
    found = store.rows("SELECT llm_calls, input_tokens + output_tokens FROM threads")[1]
    store.close()
    return tuple(map(int, found[0]))


def test_several_threads_run_at_once_on_one_store(run, model, tmp_path):
    """Each has its own values and its own executed notebook; the same command again asks nothing."""
    options = ["--thread", "a/b", "--set", "c", "n", "2", "-p", "n", "3", "--jobs", "2", "--db", "t.duckdb"]
    first = run(*options)
    said, problems = first.communicate(timeout=200)
    again = run(*options)
    said_again, _ = again.communicate(timeout=200)

    assert (first.returncode, again.returncode) == (0, 0), said + problems
    assert (model.asked("Q3"), model.asked("Q2")) == (2, 2)
    assert findings(tmp_path) == {"a/b": 2, "c": 2}
    assert len([line for line in said.splitlines() if line.startswith("c: cell")]) == 5
    assert re.search(r"^c: done: .*/nb\.c\.executed\.ipynb \(2 calls, 220 tokens, \d restarts?\)$", said, re.MULTILINE)
    assert said_again.count("(0 calls, 0 tokens, 0 restarts)") == 2
    executed = sorted(tmp_path.glob("nb.*.executed.ipynb"))
    assert [nbformat.read(path, 4).cells[-1].outputs[0].text for path in executed] == ["3\n", "2\n"]


def test_each_line_tells_calls_tokens_and_restarts(run, tmp_path):
    """Answers from the journal cost nothing; at the end stands what the store has, that of a killed kernel included."""
    said, _ = run(RESUMABLE_NB_FAILPOINT="http.receive.after:1").communicate(timeout=200)
    again, _ = run().communicate(timeout=200)

    lines = [line for line in said.splitlines() if "step `search`" in line and ", id " in line]
    assert re.search(r": the kernel died, [\d.]+ s, 1 call, 110 tokens$", lines[0])
    assert re.search(r": ok, [\d.]+ s, 1 call, 110 tokens \(restart 1\)$", lines[-1])
    assert said.rstrip().endswith("(2 calls, 220 tokens, 1 restart)")
    assert billed(tmp_path) == (2, 220)
    assert re.search(r"step `search`.*: skipped, [\d.]+ s$", again, re.MULTILINE)
    assert re.search(r"`print\(n\)`.*: ok, [\d.]+ s$", again, re.MULTILINE)


@pytest.mark.parametrize(
    ("end", "told"), [("1 / 0", "failed"), ("import os; os.kill(os.getpid(), 9)", "the kernel died")]
)
def test_what_a_broken_step_spent_is_told(run, tmp_path, end, told):
    """A step that fails, or dies for good, after two answers: they stand in its line and at the end, as in the store."""
    book = nbformat.read(tmp_path / "nb.ipynb", 4)
    book.cells[2].source += f"\n{end}"
    nbformat.write(book, tmp_path / "nb.ipynb")
    said, problem = run("--max-restarts", "0").communicate(timeout=200)

    assert re.search(rf"step `search`.*: {told}, [\d.]+ s, 2 calls, 220 tokens$", said, re.MULTILINE)
    assert problem.rstrip().endswith("2 calls, 220 tokens, 0 restarts")
    assert billed(tmp_path) == (2, 220)


def test_ctrl_c_ends_all_threads_and_the_same_command_goes_on(run, model, tmp_path):
    """The kernels that run are interrupted, those that wait for their turn never start; nothing is left running."""
    model.script({"marker": "Q1", "delay_s": 60}, {"marker": "Q2", "delay_s": 60})
    options = [
        "--set",
        "a",
        "n",
        "1",
        "--set",
        "b",
        "n",
        "2",
        "--set",
        "c",
        "n",
        "3",
        "--jobs",
        "2",
        "--db",
        "t.duckdb",
    ]
    first = run(*options)
    deadline = time.monotonic() + 100
    while model.asked("Q1") + model.asked("Q2") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    _, problems = first.communicate(timeout=100)
    again = run(*options)
    again.communicate(timeout=200)

    assert first.returncode == 130
    assert problems.count("Stopped") == 3
    assert model.asked("Q3") == 2
    assert again.returncode == 0
    assert findings(tmp_path) == {"a": 2, "b": 2, "c": 2}


def test_values_of_threads():
    """Those of all, and over them its own; a name that is given twice for one thread is refused."""
    sets = for_threads(["a", "b"], [("n", "1")], [("b", "n", "2"), ("c", "x", "y")])

    assert sets == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 1, "x": "y"}}
    assert for_threads([], [("n", "1")], []) == {}
    with pytest.raises(UsageError, match="given twice"):
        for_threads([], [], [("b", "n", "2"), ("b", "n", "3")])
