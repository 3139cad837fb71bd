"""A notebook whose store is encrypted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.book import Book
from tests.support.sealed import KEY, OTHER_KEY, crypto


def test_a_killed_notebook_resumes_in_an_encrypted_store(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked twice; the key is in no file and on no screen, and what was answered is not in the store's."""
    crypto(monkeypatch)
    monkeypatch.setenv("RESUMABLE_NB_KEY", KEY)
    book.cells["a"] = "%%resumable a\nimport resumable_nb\nfirst = resumable_nb.ask('Say: tide mills')"
    book.cells["b"] = "%%resumable b\nsecond = resumable_nb.ask('Say: salt pans')"
    killed = book.run(kill="journal.append.after:6")
    assert killed.code == 1
    ran = book.run()
    wrong = book.run(RESUMABLE_NB_KEY=OTHER_KEY)
    status = book.command("status")
    exported = book.command("export", "t", "t.thread")
    imported = book.command("import", "t.thread", "--as", "u")
    files = {path: path.read_bytes() for path in Path(book.folder).rglob("*") if path.is_file()}

    assert ran.code == 0, ran.said
    assert (status.returncode, exported.returncode, imported.returncode) == (0, 0, 0)
    assert "t.thread is NOT encrypted" in exported.stderr
    assert wrong.code == 1
    assert "encrypted with another key" in wrong.said
    assert [
        row["phase"] for row in book.sql("SELECT phase FROM llm_calls WHERE phase = 'done' AND thread_id = 't'")
    ] == ["done", "done"]
    assert not [path for path, content in files.items() if KEY.encode() in content or OTHER_KEY.encode() in content]
    assert not [path for path, content in files.items() if "t.duckdb" in path.name and b"tide mills" in content]
    assert KEY not in killed.said + ran.said + wrong.said + status.stdout + status.stderr
