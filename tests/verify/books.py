"""Notebooks to verify, and broken parts of the library that a kernel loads at its start."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat

from resumable_nb.verify.notebook import NotebookSubject
from resumable_nb.verify.verification import Settings, Verification, verify

OPENING = '%load_ext resumable_nb\n%resumable open t --db t.duckdb --query "q"'


def write(path: Path, *cells: str) -> Path:
    """A notebook of these cells, after the one that opens the thread."""
    made = [nbformat.v4.new_code_cell(source, id=f"c{n}") for n, source in enumerate((OPENING, *cells))]
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return path


def plug(folder: Path, source: str) -> dict[str, str]:
    """Code that each kernel runs before the notebook; the environment that makes it so."""
    startup = folder / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-broken.py").write_text(source)
    return {"IPYTHONDIR": str(folder / "ipython")}


def verified(notebook: Path, *at: str, before: Path | None = None, **settings: object) -> Verification:
    """Killed at these points only, one trial at a time."""
    subject = NotebookSubject(notebook, cell_timeout_s=120)
    if before is not None:
        subject.before = NotebookSubject(notebook, cell_timeout_s=120, text=before)
    wanted = Settings(at=at, jobs=1, **settings)  # type: ignore[arg-type]
    return verify(subject, wanted, say=lambda _: None)


def failed(done: Verification) -> dict[str, str]:
    """Check → why, of the first trial that failed it."""
    found: dict[str, str] = {}
    for judged in done.judged:
        for check, (result, why) in judged.results.items():
            if result == "fail":
                found.setdefault(check, f"{judged.injection.point}: {why}")
    return found


def use_model(base_url: str) -> dict[str, str]:
    """The environment in which a notebook asks this server."""
    return {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "sk-test-SECRET", "RESUMABLE_NB_MODEL": "stub", **_PATH}


_PATH = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
