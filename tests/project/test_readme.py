"""What the README shows works, and what it lists is what there is.

`python tests/project/test_readme.py` writes the list of the views anew.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import duckdb
import nbformat
import pytest
from packaging.specifiers import SpecifierSet

from resumable_nb.cli import cli
from resumable_nb.journal import Store, statements

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
BEGIN = "<!-- views: written by tests/project/test_readme.py from the comments in the store -->\n"
END = "<!-- end of views -->"
VIEWS = (
    "threads", "sessions", "steps", "checkpoints", "state_changes", "findings", "llm_calls", "calls", "effects",
    "approvals", "recoveries", "verifications", "verification_runs",
)  # fmt: skip


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def described(store: Path) -> str:
    """The views and their columns, as the store itself explains them."""
    with duckdb.connect(store, read_only=True) as connection:
        views = dict(connection.execute("SELECT view_name, comment FROM duckdb_views() WHERE NOT internal").fetchall())
        columns = connection.execute(
            "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal ORDER BY column_index"
        ).fetchall()
    parts = []
    for view in VIEWS:
        shown = [f"| `{column}` | {comment} |" for table, column, comment in columns if table == view]
        summary = f"<details><summary><code>{view}</code>: {views[view]}</summary>\n"
        parts += [summary, "| column | |", "| --- | --- |", *shown, "\n</details>\n"]
    return "\n".join(parts)


def new_store(folder: Path) -> Path:
    store = Store.open(folder / "new.duckdb")
    store.threads()
    store.close()
    return store.path


def test_the_views_and_their_columns_are_documented(tmp_path):
    """The README lists every view with every column, in the words of the comments in the store."""
    section = README.read_text().partition(BEGIN)[2].partition(END)[0]

    assert section == described(new_store(tmp_path)), "run: python tests/project/test_readme.py"


def notebooks(folder: Path) -> list[str]:
    """The cells of the README, as notebooks: a new one where a state is defined, and where another thread is opened."""
    cells = [block for block in blocks("python") if block not in scripts()]
    own = next(place for place, cell in enumerate(cells) if "class Survey" in cell)
    effects = next(place for place, cell in enumerate(cells) if "%resumable open tickets" in cell)
    parts = {"bees.ipynb": cells[:own], "survey.ipynb": cells[own:effects], "tickets.ipynb": cells[effects:]}
    for name, some in parts.items():
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.rstrip()) for cell in some])
        (folder / name).write_text(nbformat.writes(notebook))
    return list(parts)


def scripts() -> list[str]:
    return [block for block in blocks("python") if "with resumable_nb.open(" in block]


def test_the_examples_run(tmp_path, monkeypatch):
    """Cells in kernels, the script in a process of its own, the queries and commands on the store that they leave."""
    from tests.support.model_server import ModelServer
    from tests.support.research_model import ResearchModel

    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "resumable_nb"]
    with ModelServer() as server:
        env = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-test-SECRET"}
        for name in notebooks(tmp_path):
            ran = subprocess.run([*command, "run", name], env=env, capture_output=True, text=True)
            assert ran.returncode == (3 if name == "tickets.ipynb" else 0), ran.stdout + ran.stderr
        count, research = scripts()
        subprocess.run([sys.executable, "-c", count + "assert words == 4"], env=env, check=True)
    with ResearchModel() as model:
        shutil.copytree(ROOT / "data", "data")
        env["OPENAI_BASE_URL"] = model.base_url
        told = subprocess.run(
            [sys.executable, "-c", research], env=env, check=True, capture_output=True, text=True
        ).stdout
        assert "[tide-mill.md](data/island/tide-mill.md)" in told
    store = Store.open("research.duckdb", create=False)
    for query in blocks("sql"):
        assert store.rows(query, statements.with_thread(query, None, lambda: "bees"))[1], query
    for line in "".join(blocks("console")).splitlines():
        arguments = shlex.split(line.removeprefix("$ resumable-nb"))
        subprocess.run([*command, *arguments], check=True, capture_output=True)
    subprocess.run([*command, "run", "tickets.ipynb"], check=True, capture_output=True)
    assert store.rows("SELECT idempotency_key FROM effects ORDER BY seq")[1] == [("close-41",), ("close-42",)]


def test_the_two_commands_are_single_lines_for_a_bare_machine():
    """Each makes a virtual environment, installs the tested versions into it, and runs one thing."""
    demo, tests = (line for block in blocks("sh") for line in block.splitlines())

    for line in (demo, tests):
        assert line.startswith("python3 -m venv .venv && .venv/bin/pip install ")
        assert line.count("-c constraints.txt") == 2
    assert demo.endswith("&& .venv/bin/resumable-nb demo")
    assert "&& .venv/bin/pytest" in tests


def test_the_tested_versions_install_on_every_python_3_11():
    """A system's own Python 3.11 may be its first release: no version that is pinned asks for a later one."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    installed = {name: found for name in pins for found in metadata.distributions(name=name)}

    asks = {name: found.metadata["Requires-Python"] for name, found in installed.items() if found.version == pins[name]}
    assert {name: python for name, python in asks.items() if python and "3.11.0" not in SpecifierSet(python)} == {}


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_command_is_in_the_readme(command):
    """A command that nobody is told about is not there."""
    assert f"resumable-nb {command}" in README.read_text() or f"`{command}`" in README.read_text()


def test_every_environment_variable_is_in_the_readme():
    """Those that the library reads, and no others."""
    source = "".join(path.read_text() for path in (ROOT / "resumable_nb").rglob("*.py"))
    read = set(re.findall(r"RESUMABLE_NB_[A-Z_]*[A-Z]", source))

    assert read == set(re.findall(r"`(RESUMABLE_NB_[A-Z_]*[A-Z])`", README.read_text()))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        before, _, rest = README.read_text().partition(BEGIN)
        README.write_text(before + BEGIN + described(new_store(Path(made))) + END + rest.partition(END)[2])
