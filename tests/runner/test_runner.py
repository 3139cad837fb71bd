"""Notebooks run without a browser, through real kernels that really die."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from resumable_nb.errors import UsageError
from resumable_nb.journal import Store
from resumable_nb.runner import run_notebook

CODE, TEXT = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
KILL = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"


def write(path: Path, *cells, **metadata) -> Path:
    cells = [CODE(cell) if isinstance(cell, str) else cell for cell in cells]
    path.write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells, metadata=metadata)))
    return path


def printed(path: Path) -> list[str]:
    """What each cell printed, of a notebook that must be valid."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    outputs = (cell.get("outputs", []) for cell in notebook.cells)
    return ["".join(o.get("text", "") for o in some if o.get("name") == "stdout") for some in outputs]


@pytest.fixture
def notebook(tmp_path):
    return lambda *cells, **metadata: write(tmp_path / "nb.ipynb", *cells, **metadata)


def test_every_cell_is_sent_with_its_place(notebook):
    """The kernel is told the cell's id, the ids and sources of all cells in order, and the notebook's path."""
    show = "import json\nprint(json.dumps(get_ipython().kernel.get_parent('shell')['metadata']))"
    path = notebook(CODE("1", id="one"), TEXT("# Title", id="text"), CODE(show, id="show"))
    run = run_notebook(path)
    place = json.loads(printed(run.output)[2])

    assert (run.outcome, run.exit_code, run.message) == ("done", 0, "")
    assert place["cellId"] == "show"
    assert place["cellOrder"] == ["one", "~text", "show"]
    assert place["cellSources"] == ["1", None, show]
    assert place["notebookPath"] == str(path)
    assert place["runner"] is True


def test_the_kernel_has_the_folder_python_thread_and_store_that_it_should(notebook, tmp_path):
    """It runs in the notebook's folder with this Python; thread and store reach it as environment variables."""
    path = notebook("import os, sys\nprint(os.getcwd(), sys.executable)", "print(*map(os.environ.get, NAMES), sep='|')")
    names = ("RESUMABLE_NB_THREAD", "RESUMABLE_NB_DB", "JPY_SESSION_NAME")
    run = run_notebook(path, thread="t 1", db=Path("some.duckdb"), parameters={"NAMES": names})

    assert printed(run.output)[1:] == [
        f"{tmp_path} {sys.executable}\n",
        f"t 1|{Path.cwd() / 'some.duckdb'}|{path}\n",
    ]


@pytest.mark.parametrize("kernel", ["python3", "not-installed-here"])
def test_the_kernel_is_this_python_whatever_the_person_has_installed(notebook, tmp_path, kernel):
    """Another Python called `python3` in the person's Jupyter folder, or a name not installed, misleads nobody."""
    other = tmp_path / "data" / "kernels" / "python3"
    other.mkdir(parents=True)
    (other / "kernel.json").write_text(
        json.dumps({"argv": ["/bin/false"], "display_name": "other", "language": "python"})
    )
    path = notebook("import sys\nprint(sys.executable)", kernelspec={"name": kernel, "display_name": "x"})
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from pathlib import Path; from resumable_nb.runner import run_notebook; run_notebook(Path({str(path)!r}), max_restarts=0)",
        ],
        env={**os.environ, "JUPYTER_DATA_DIR": str(tmp_path / "data")},
    )

    assert run.returncode == 0
    assert printed(path.with_suffix(".executed.ipynb")) == [sys.executable + "\n"]


def test_the_notebook_is_saved_after_every_cell_and_the_source_is_left_alone(notebook, tmp_path):
    """While a cell runs, the executed notebook on disk is whole and shows what the cells before it printed."""
    path = notebook(
        "print('first')", "import json\nd = json.load(open('out.ipynb'))\nprint(d['cells'][0]['outputs'][0]['text'])"
    )
    before = path.read_bytes()
    run = run_notebook(path, output=tmp_path / "out.ipynb")

    assert printed(run.output) == ["first\n", "['first\\n']\n"]
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["nb.ipynb", "out.ipynb"]


def test_a_dead_kernel_is_replaced_and_all_cells_run_again(notebook, tmp_path):
    """Killed in two different cells, the run starts at the first cell each time and ends well."""
    once = "import os\nif not os.path.exists('{0}'): open('{0}', 'w').close(); os.kill(os.getpid(), 9)"
    path = notebook("open('log', 'a').write('x')", once.format("a"), once.format("b"), "print(open('log').read())")
    said = []
    run = run_notebook(path, say=said.append)

    assert (run.outcome, run.restarts) == ("done", 2)
    assert printed(run.output)[3] == "xxx\n"
    assert "cell 2 of 4" in run.deaths[0]
    assert "cell 3 of 4" in run.deaths[1]
    assert all("SIGKILL" in death for death in run.deaths)
    assert [line for line in said if "restart 2 of at most 3" in line]


def test_a_resume_is_told_line_by_line_and_stands_in_the_output(notebook):
    """What the panel of the new kernel says, the terminal says as it happens; the file has the panel as it ended."""
    calls = "from resumable_nb import durable\nimport os\n@durable\ndef ask(n): return n"
    die = "if not os.path.exists('a'):\n    open('a', 'w').close(); os.kill(os.getpid(), 9)"
    path = notebook("%load_ext resumable_nb\n%resumable open t", calls, f"%%resumable s\nx = ask(1)\n{die}\ny = ask(2)")
    said = []
    run = run_notebook(path, say=said.append)
    panel = nbformat.read(run.output, as_version=4).cells[0].outputs[0].data["text/plain"]

    told = [line for line in said if line.startswith("resume:")]
    assert [line.split(":")[1] for line in told] == [" checkpoint", " context", " going on"]
    assert said.index(told[1]) < said.index(told[2]) - 1
    assert told[2].endswith("1 call had been answered")
    assert "✓  going on" in panel


def test_a_kernel_that_dies_between_two_cells_is_replaced(notebook):
    """A death that no cell caused, such as by the system's memory guard, is noticed at the next cell."""
    killer = "subprocess.Popen(['sh', '-c', f'sleep 0.2; kill -9 {os.getpid()}'])"
    later = (
        f"import os, subprocess\nis_first = not os.path.exists('a')\nif is_first:\n    open('a', 'w').close(); {killer}"
    )
    run = run_notebook(notebook(later, "import time\ntime.sleep(250 * is_first)\nprint('here')"))

    assert (run.outcome, run.restarts) == ("done", 1)
    assert printed(run.output)[1] == "here\n"


def test_workers_of_a_killed_kernel_end_with_it(notebook, tmp_path):
    """They would go on with what the next kernel does again; what was put into a session of its own lives on."""
    source = """
import multiprocessing, os, signal, subprocess, time
from concurrent.futures import ProcessPoolExecutor
if not os.path.exists("pids"):
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    worker = pool.submit(os.getpid).result()
    pool.submit(time.sleep, 600)
    apart = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
    open("pids", "w").write(f"{worker} {apart}")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    run = run_notebook(notebook(source))
    worker, apart = map(int, (tmp_path / "pids").read_text().split())
    lives_on = psutil.pid_exists(apart)
    os.kill(apart, signal.SIGKILL)

    assert (run.outcome, len(run.deaths)) == ("done", 1)
    assert lives_on
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(worker).status() == psutil.STATUS_ZOMBIE


def test_a_cell_that_always_kills_the_kernel_ends_the_run(notebook):
    """After the last allowed death the message names the cell, and that it died there each time."""
    run = run_notebook(notebook("print('kept')", KILL, "print('never')"), max_restarts=2)

    assert (run.outcome, run.exit_code, run.restarts) == ("failed", 1, 2)
    assert "died 3 times, each time in cell 2 of 3 (`import os, signal`" in run.message
    assert printed(run.output) == ["kept\n", "", ""]
    assert "The kernel died in this cell" in run.output.read_text()


def test_a_failpoint_is_for_the_first_kernel_only(notebook):
    """A kernel that replaces the killed one has no failpoint: it would die there again, for ever."""
    die = "if not os.path.exists('a'):\n    open('a', 'w').write(str(armed)); os.kill(os.getpid(), 9)"
    path = notebook(f"import os\narmed = os.environ.get('RESUMABLE_NB_FAILPOINT')\nprint(armed)\n{die}")
    run = run_notebook(path, env={**os.environ, "RESUMABLE_NB_FAILPOINT": "open.after:9"})

    assert (path.parent / "a").read_text() == "open.after:9"
    assert printed(run.output) == ["None\n"]


def test_a_kernel_that_cannot_start_ends_the_run(notebook):
    """It is tried again as often as a dead one, and what is said tells that it died at its start, and why."""
    said: list[str] = []
    env = {**os.environ, "PYTHONHOME": "/nowhere"}
    run = run_notebook(notebook("1"), env=env, max_restarts=1, say=said.append)

    assert (run.outcome, run.restarts) == ("failed", 1)
    assert said[0].startswith("the kernel died at its start (Kernel died before replying to kernel_info): starting")
    assert "died 2 times, each time at its start" in run.message


def test_a_cell_that_raises_ends_the_run(notebook):
    """The message names the cell and the error, without control characters; later cells do not run."""
    run = run_notebook(notebook("print('a')", "raise ValueError('\\x1b[31mred\\x07')", "print('b')"))

    assert run.exit_code == 1
    assert "cell 2 of 3 (`raise ValueError" in run.message
    assert "failed: ValueError: red\n" in run.message
    assert printed(run.output) == ["a\n", "", ""]


def test_a_cell_that_is_meant_to_fail_does_not_end_the_run(notebook):
    """Tagged `raises-exception`, its error is in the notebook and the run goes on."""
    run = run_notebook(notebook(CODE("1 / 0", metadata={"tags": ["raises-exception"]}), "print('on')"))

    assert run.outcome == "done"
    assert "ZeroDivisionError" in run.output.read_text()
    assert printed(run.output)[1] == "on\n"


def test_a_step_that_waits_for_a_person_gives_exit_code_3(notebook):
    """What the pause says is the message."""
    pause = "from resumable_nb.errors import Paused\nraise Paused('`send` waits: resumable-nb approve send')"
    run = run_notebook(notebook(pause, "print('behind')"))

    assert (run.outcome, run.exit_code) == ("waiting", 3)
    assert "`send` waits: resumable-nb approve send" in run.message
    assert printed(run.output)[1] == ""


def test_what_is_to_be_approved_is_in_the_message(notebook):
    """Exit code 3 shows the payload of the gate beside the command that answers."""
    opening = "%load_ext resumable_nb\n%resumable open t"
    ask = "%%resumable send\nfrom resumable_nb import approve\napprove('Send it?', {'to': 'ann'})"
    run = run_notebook(notebook(opening, ask))

    assert run.exit_code == 3
    assert "resumable-nb approve send" in run.message
    assert '`send` (Send it?) asks about:\n    {\n      "to": "ann"\n    }' in run.message


def test_what_nobody_can_decide_is_a_failure(notebook):
    """An effect's key that was used with other arguments waits for no decision: exit code 1, here and in the store."""
    close = "from resumable_nb import effect\n@effect(key='k')\ndef close(n): return n"
    opening = "%load_ext resumable_nb\n%resumable open t"
    run = run_notebook(notebook(opening, close, "%%resumable s\nclose(1)\nclose(2)"))
    store = Store.open(run.output.with_name("research.duckdb"), create=False)

    assert run.exit_code == 1
    assert "was used before with other arguments" in run.message
    assert store.rows("SELECT phase FROM steps")[1] == [("failed",)]
    store.close()


@pytest.mark.parametrize("wait", ["time.sleep(60)", "await asyncio.sleep(60)"])
def test_a_cell_that_takes_too_long_is_interrupted(notebook, wait):
    """It gets a KeyboardInterrupt, so that it can write down that it failed, before its kernel ends."""
    see = "except BaseException as e:\n    open('seen', 'w').write(type(e).__name__); raise"
    path = notebook("import asyncio, time", f"try:\n    {wait}\n{see}")
    run = run_notebook(path, cell_timeout_s=5)

    assert (run.outcome, run.restarts) == ("failed", 0)
    assert "cell 2 of 2" in run.message and "took longer than 5 s" in run.message
    assert (path.parent / "seen").read_text() in ("KeyboardInterrupt", "CancelledError")


def start(path: Path) -> subprocess.Popen[str]:
    code = f"import sys; from pathlib import Path; from resumable_nb.runner import run_notebook; r = run_notebook(Path({str(path)!r})); print(r.message)"
    code += "; sys.exit(r.exit_code)"
    return subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, text=True, cwd=path.parent)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.02)


def ends(runner: subprocess.Popen[str]) -> tuple[int, str, list[psutil.Process]]:
    """Its exit code, what it said, and the processes that it left."""
    said, _ = runner.communicate(timeout=200)
    return runner.returncode, said.strip(), alive(runner.pid)


def alive(runner_pid: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("JPY_PARENT_PID") == str(runner_pid) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_interrupts_the_cell_and_leaves_a_saved_notebook(notebook, number):
    """The running cell ends by KeyboardInterrupt as in a notebook; exit code 130; no kernel is left."""
    see = "except KeyboardInterrupt:\n    open('seen', 'w').close(); raise"
    body = f"import time\ntry:\n    open('begun', 'w').close(); time.sleep(250)\n{see}"
    path = notebook("print('kept')", body)
    runner = start(path)
    wait_for(path.parent / "begun")
    runner.send_signal(number)
    code, said, left = ends(runner)

    assert (code, left) == (130, [])
    assert said.split("\n")[-1].startswith("Stopped at cell 2 of 2")
    assert "): interrupted, " in said
    assert (path.parent / "seen").exists()
    assert printed(path.with_suffix(".executed.ipynb")) == ["kept\n", ""]


def test_a_second_ctrl_c_ends_a_cell_that_cannot_be_interrupted(notebook):
    """A cell that swallows interrupts does not hold the runner."""
    body = (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nopen('begun', 'w').close()\ntime.sleep(250)"
    )
    path = notebook(body)
    runner = start(path)
    wait_for(path.parent / "begun")
    runner.send_signal(signal.SIGINT)
    assert runner.stdout is not None
    while "Ctrl-C again stops at once" not in (line := runner.stdout.readline()):
        assert line, "it ended without the offer of a second Ctrl-C"
    runner.send_signal(signal.SIGINT)
    code, said, left = ends(runner)

    assert (code, left) == (130, [])
    assert said.split("\n")[-1].startswith("Stopped")
    assert "): interrupted, " in said
    nbformat.validate(nbformat.read(path.with_suffix(".executed.ipynb"), as_version=4))


@pytest.mark.parametrize("delay_s", [0.0, 0.3, 0.6])
def test_ctrl_c_while_the_kernel_starts(notebook, delay_s):
    """Nothing is left running, and the notebook on disk is whole."""
    path = notebook("import time\ntime.sleep(250)")
    runner = start(path)
    wait_for(path.with_suffix(".executed.ipynb"))
    time.sleep(delay_s)
    runner.send_signal(signal.SIGINT)
    code, _, left = ends(runner)

    assert left == []
    assert code == 130
    nbformat.validate(nbformat.read(path.with_suffix(".executed.ipynb"), as_version=4))


def test_a_runner_that_is_killed_leaves_a_whole_notebook(notebook):
    """SIGKILL of the runner itself: what was saved last can be opened, and its kernel ends by itself."""
    path = notebook("print('kept')", "import time\nopen('begun', 'w').close()\ntime.sleep(250)")
    runner = start(path)
    wait_for(path.parent / "begun")
    runner.kill()
    runner.communicate()
    deadline = time.monotonic() + 120
    while alive(runner.pid) and time.monotonic() < deadline:
        time.sleep(0.1)

    assert alive(runner.pid) == []
    assert printed(path.with_suffix(".executed.ipynb")) == ["kept\n", ""]


def test_after_a_killed_runner_the_same_command_goes_on(notebook):
    """The kernel that the dead runner left behind does not keep the thread."""
    wait = "import os, time\nopen('begun', 'w').close()\ntime.sleep(0 if os.path.exists('again') else 250)"
    opening = "%load_ext resumable_nb\n%resumable open t --db t.duckdb"
    path = notebook(opening, "%%resumable a\nopen('log', 'a').write('x')", f"%%resumable b\n{wait}")
    runner = start(path)
    wait_for(path.parent / "begun")
    runner.kill()
    runner.communicate()
    (path.parent / "again").touch()

    assert run_notebook(path).outcome == "done"
    assert (path.parent / "log").read_text() == "x"


def test_a_run_outside_the_main_thread_works(notebook):
    """Where nobody can press Ctrl-C, the run does without signals."""
    runs = []
    thread = threading.Thread(target=lambda: runs.append(run_notebook(notebook("print(1)"))))
    thread.start()
    thread.join()

    assert runs[0].outcome == "done"


def test_cells_without_ids_get_the_same_ones_in_every_run(notebook, tmp_path):
    """In a notebook of format 4.4, equal cells too have ids of their own, and those do not change from run to run."""
    old = {"cell_type": "code", "metadata": {}, "source": "1", "outputs": [], "execution_count": None}
    path = tmp_path / "old.ipynb"
    path.write_text(
        json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [old, old, {**old, "source": "2"}]})
    )
    ids = [[cell.id for cell in nbformat.read(run_notebook(path).output, 4).cells] for _ in range(2)]

    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 3


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", "{}", '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"a": 1}]}']
)
def test_a_file_that_is_no_notebook_is_refused_in_one_line(tmp_path, text):
    """The message names the file."""
    path = tmp_path / "bad.ipynb"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"bad\.ipynb is no notebook") as raised:
        run_notebook(path)

    assert "\n" not in str(raised.value)


def test_a_missing_notebook_and_an_output_that_cannot_be_written_are_named(notebook, tmp_path):
    """Neither ends in a traceback."""
    with pytest.raises(UsageError, match=r"none\.ipynb cannot be read: No such file"):
        run_notebook(tmp_path / "none.ipynb")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        run_notebook(notebook("1"), output=tmp_path / "file" / "out.ipynb")
