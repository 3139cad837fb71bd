"""A notebook under test: cells with stable ids, run by `resumable-nb run` in a kernel of its own.

The command itself runs in the test's process, as in `tests/cli`: to start another one takes as long as the run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
import pytest

from resumable_nb.cli import main
from resumable_nb.journal import lease
from tests.support.model_server import ModelServer

OPENING = '%load_ext resumable_nb\n%resumable open t --db t.duckdb --query "q"'
HIT = (
    "import json as _json, os as _os, urllib.request as _request\n"
    "def hit(name):\n"
    "    data = _json.dumps({'name': name}).encode()\n"
    "    _request.urlopen(_os.environ['LEDGER'] + '/ledger', data=data).read()\n"
)


@dataclass
class Ran:
    """What one run of the command did."""

    code: int
    stdout: str
    stderr: str
    notebook: Any

    @property
    def said(self) -> str:
        """All that a person sees: the terminal and the notebook's outputs."""
        return "\n".join([self.stdout, self.stderr, *(text for cell in self.cells for text in texts(cell))])

    @property
    def cells(self) -> list[Any]:
        return [cell for cell in self.notebook.cells if cell.cell_type == "code"] if self.notebook else []

    def shown(self, cell_id: str) -> str:
        """What a cell shows, as text."""
        return "\n".join(text for cell in self.cells if cell.id == cell_id for text in texts(cell))


def texts(cell: Any) -> list[str]:
    """The outputs of a cell as text."""
    found = []
    for output in cell.outputs:
        if output.output_type == "stream":
            found.append(output.text)
        elif output.output_type == "error":
            found.append("\n".join([output.ename, output.evalue, *output.traceback]))
        else:
            found.append(str(output.data.get("text/plain", "")))
    return found


@dataclass
class Book:
    """Cells by id, in order; the folder that they run in; the server that counts.

    Each cell is its source; a step begins with `%%resumable NAME`.
    """

    folder: Path
    server: ModelServer
    cells: dict[str, str] = field(default_factory=dict)
    tags: dict[str, list[str]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    opening: str = OPENING

    def write(self) -> Path:
        """Save the notebook, as an editor would."""
        cell = nbformat.v4.new_code_cell
        cells = [cell(self.opening, id="open"), cell(HIT, id="hit")]
        for cell_id, source in self.cells.items():
            cells.append(cell(source, id=cell_id, metadata={"tags": self.tags.get(cell_id, [])}))
        path = self.folder / "nb.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        return path

    def run(self, *options: str, kill: str | None = None, thread: str = "t", **env: str) -> Ran:
        """`resumable-nb run` with a fresh kernel; with `kill`, until that failpoint."""
        path, out = self.write(), self.folder / "out.ipynb"
        command = ["run", str(path), "--thread", thread, "--db", "t.duckdb", "--output", str(out), *options]
        if kill:
            env["RESUMABLE_NB_FAILPOINT"] = kill
            command += ["--max-restarts", "0"]
        done = self._call(command, env)
        notebook = nbformat.read(out, as_version=4) if out.exists() else None
        return Ran(done.returncode, done.stdout, done.stderr, notebook)

    def command(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Another `resumable-nb` command, on the same store."""
        return self._call([*arguments, "--db", "t.duckdb"], env)

    def sql(self, query: str, **env: str) -> list[dict[str, Any]]:
        """Rows of `resumable-nb sql`."""
        done = self.command("sql", query, "--format", "json", **env)
        assert done.returncode == 0, done.stderr
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    def process(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`resumable-nb` in a process of its own."""
        command = [sys.executable, "-m", "resumable_nb", *arguments]
        environment = os.environ | self._environment(env)
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    def _call(self, arguments: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        if "TZ" in env:  # a process looks at it once
            return self.process(*arguments, **env)
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self._environment(env)),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main(arguments)
        lease._close_all()  # as at the end of a process
        return subprocess.CompletedProcess(arguments, int(str(ended.value.code)), out.getvalue(), err.getvalue())

    def _environment(self, env: dict[str, str]) -> dict[str, str]:
        ours = {
            "OPENAI_BASE_URL": self.server.base_url,
            "OPENAI_API_KEY": "sk-test-SECRET",
            "RESUMABLE_NB_MODEL": "stub",
            "LEDGER": self.server.url,
        }
        return ours | self.env | env
