"""`%load_ext` imports next to nothing, and what is used first brings the rest, as if it had been there from the start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.notebook.screen import OPEN, screen

SESSION = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for code in sys.argv[1:]:
    result = shell.run_cell(code, store_history=True)
print(">>", type(shell.resumable_nb).__name__, sorted({'duckdb', 'pydantic', 'filelock'} & {*sys.modules}))
"""
LOAD = "%load_ext resumable_nb"


@pytest.fixture
def session(tmp_path: Path):
    env = os.environ | {"IPYTHONDIR": str(tmp_path / "ipython"), "RESUMABLE_NB_SECRET_DIR": str(tmp_path / "secret")}

    def run(*cells: str) -> str:
        command = [sys.executable, "-c", SESSION, *cells]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    return run


def test_loading_imports_neither_journal_nor_state(session):
    """After `%load_ext` and ordinary cells, DuckDB and pydantic are not imported."""
    assert ">> Loader []" in session(LOAD, "x = 1", "import resumable_nb")


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%resumable status", "no thread is open"),
        ("%resumable?", "Make this cell a step"),
        ("%%resumable_sql\nSELECT 1", "no thread is open"),
        ("%%resumable_sql\nSELECT $thread", "no thread is open"),
        ("%%resumable_sql class\nSELECT 1", "'class' is no name to bind"),
        ("%%resumable_sql thread\nSELECT 1", "'thread' is no name to bind"),
        ("%%resumable a\nx = 1", "No thread is open: this step has no journal"),
        ("print(get_ipython().complete('st', '%resumable st')[1])", "['status']"),
        ("print(get_ipython().resumable_nb.kernel)", "None"),
        ("from resumable_nb import approval", ""),
    ],
)
def test_whatever_is_used_first_loads_the_rest(session, cell, said):
    """A magic, its help and completion, a step, the attribute of the shell, a name of the package."""
    shown = session(LOAD, cell)

    assert said in shown
    assert ">> Extension" in shown


def test_a_thread_is_opened_in_a_cell_after_loading(session):
    """The cell that opens the thread is known as a cell, though the extension was loaded in its middle."""
    shown = session(LOAD, "y = 1", "%resumable open t\nz = 2", "%%resumable a\nx = y + z", "print('x is', x)")

    assert "x is 3" in shown
    assert "Error" not in shown


def test_a_forgotten_extension_is_not_loaded_by_a_name(session):
    """After `%unload_ext`, using the package brings no magics back."""
    shown = session(LOAD, "%unload_ext resumable_nb", "from resumable_nb import durable", LOAD)

    assert ">> Loader" in shown


def test_taken_away_it_says_that_nothing_is_kept_from_here_on(session):
    """`%reload_ext` closes the thread, too: ordinary cells would change the state, and nobody would write it down."""
    shown = session(LOAD, "%resumable open t", "%reload_ext resumable_nb")

    assert "Thread t is closed. To go on:" in shown


def test_no_widgets_for_progress_bars(tmp_path):
    """In a kernel, opening a thread and a step bring no ipywidgets along; the user's own connections still do."""
    widgets = "'ipywidgets' in __import__('sys').modules"
    with screen(tmp_path, open=OPEN, one="%%resumable one\nx = 1") as nb:
        nb.run("open", "one")
        assert nb.value(widgets) is False
        nb.restart()
        nb.run("open", "one")
        assert nb.value(widgets) is False

        assert nb.execute("import duckdb; duckdb.connect(':memory:').close()").status == "ok"
        assert nb.value(widgets) is True
