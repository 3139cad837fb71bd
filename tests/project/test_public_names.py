"""The names that others rely on (DESIGN section 9), and what importing them costs."""

from __future__ import annotations

import ast
import gc
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import resumable_nb
from resumable_nb import failpoints
from resumable_nb.errors import StoreError

PUBLIC = {
    "open", "OpenAI", "AsyncOpenAI", "http_client", "async_http_client", "ask", "context_message", "durable", "effect",
    "approve", "approval", "resource", "track", "map", "State", "ResearchState",
    "prune", "export_thread", "import_thread", "threads",
}  # fmt: skip
HEAVY = {"openai", "pandas", "numpy", "nbclient", "nbformat", "ipywidgets", "httpx2", "bm25s", "xllamacpp", "anthropic"}
SHELL = (
    "from IPython.core.interactiveshell import InteractiveShell as S; shell = S(); magic = shell.run_line_magic; "
    "magic('load_ext', 'resumable_nb'); magic('resumable', 'open t --db t.duckdb')"
)


def test_the_public_names_are_those_of_the_design():
    """`__all__` holds the names of DESIGN section 9, what keeps stores small and shows them, and no others."""
    assert sorted(resumable_nb.__all__) == sorted(PUBLIC)


def test_every_public_name_can_be_imported_and_explains_itself():
    """Each has a docstring, and tools that list a module's names see it."""
    for name in resumable_nb.__all__:
        assert getattr(resumable_nb, name).__doc__
        assert name in dir(resumable_nb)


def test_lazy_names_and_types_agree():
    """What type checkers see under TYPE_CHECKING is what is imported at run time."""
    tree = ast.parse(Path(resumable_nb.__file__).read_text())
    typed = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("resumable_nb")
        for alias in node.names
    }

    assert typed == resumable_nb._HOME


def test_an_unknown_name_is_an_attribute_error():
    """A typing error says which name is not there."""
    with pytest.raises(AttributeError, match="resumable_nb' has no attribute 'opne'"):
        resumable_nb.opne


def test_names_are_what_they_say_in_any_order_of_use():
    """`ask` is the function also after another name has loaded the module of the same name."""
    run = "import resumable_nb as r; r.context_message; assert all(map(callable, (r.ask, r.OpenAI, r.open)))"

    assert subprocess.run([sys.executable, "-c", run]).returncode == 0


def test_the_version_is_that_of_the_package():
    """`__version__` and the installed metadata agree."""
    assert resumable_nb.__version__ == importlib.metadata.version("resumable-nb")


def loaded_after(code: str) -> set[str]:
    show = f"{code}\nimport sys\nprint(*{{m.partition('.')[0] for m in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import resumable_nb",
        "import resumable_nb; resumable_nb.open('t', db='t.duckdb').close()",
        "import resumable_nb.cli",
        SHELL,
    ],
)
def test_starting_costs_no_heavy_import(code, tmp_path, monkeypatch):
    """Importing, loading the extension and opening a thread load none of the packages that take long to import."""
    monkeypatch.chdir(tmp_path)

    assert loaded_after(code) & HEAVY == set()


def test_every_failpoint_of_the_design_can_be_armed():
    """Both sides of each durable boundary have a name."""
    assert len(failpoints.POINTS) == len(set(failpoints.POINTS)) == 20


def test_a_failpoint_that_does_not_exist_is_refused():
    """A typing error in RESUMABLE_NB_FAILPOINT stops the process at once instead of killing nothing."""
    for setting in ("journal.apend.before", "open.before:0", "open.before:x"):
        run = subprocess.run(
            [sys.executable, "-c", "import resumable_nb.failpoints"],
            env={"RESUMABLE_NB_FAILPOINT": setting, "PYTHONPATH": str(Path(resumable_nb.__file__).parent.parent)},
            capture_output=True,
            text=True,
        )

        assert run.returncode == 1
        assert f"RESUMABLE_NB_FAILPOINT={setting!r}: expected NAME or NAME:N" in run.stderr


@pytest.mark.parametrize("was_on", [True, False])
def test_opening_leaves_the_garbage_collector_as_it_was(was_on, tmp_path):
    """Opening a thread puts collections off; after it, or where it fails, they are as the user has them."""
    (gc.enable if was_on else gc.disable)()
    try:
        resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None).close()
        assert gc.isenabled() is was_on
        with pytest.raises(StoreError):
            resumable_nb.open("t", db=tmp_path / "none" / "t.duckdb")
        assert gc.isenabled() is was_on
    finally:
        gc.enable()
