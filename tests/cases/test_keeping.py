"""Notebooks whose thread was pruned, or moved to another store, run to their end as before."""

from __future__ import annotations

import resumable_nb
from resumable_nb.journal import Store, lease

CELLS = {
    "imports": "from resumable_nb import ask, effect",
    "one": "%%resumable one\nx = ask('Q1')\nhit('one')\nstate.update(findings=[x])",
    "plain": "n = len(state.findings)",
    "two": "%%resumable two\ny = ask(f'Q2 {n}')\nhit('two')\nstate.update(findings=[y])",
    "three": (
        "%%resumable three\n@effect(key='mail')\ndef send(*, idempotency_key):\n    hit('mail')\n    return 'sent'\n"
        "z = ask('Q3')\nhit('three')\nsend()\nstate.update(findings=[z])"
    ),
    "last": "print(len(state.findings), x == y, z[:2])",
}
STATE = "SELECT field, value FROM state_at('t', (SELECT last_checkpoint FROM threads WHERE thread_id = 't')) ORDER BY 1"


def counts(book) -> list[int]:
    return [*(book.server.asked(f"Q{n}") for n in (1, 2, 3)), *map(book.server.hits, ("one", "two", "three", "mail"))]


def test_a_pruned_notebook_runs_to_the_same_end(book):
    """Checkpoints gone: steps run again on recorded answers. Answers gone too: paid anew, and said. The mail once."""
    book.cells = dict(CELLS)
    first = book.run()
    assert first.code == 0, first.said
    before = book.sql(STATE)

    told = book.command("prune", "--keep", "1", "--yes")
    assert "run again on their recorded answers: `one`, `two`" in told.stdout, told.stderr
    assert book.sql(STATE) == before
    again = book.run()
    assert again.code == 0, again.said
    assert again.shown("last") == first.shown("last")
    assert "restored from checkpoint" in again.shown("three")
    assert counts(book) == [1, 1, 1, 2, 2, 1, 1]
    assert book.sql(STATE) == before

    assert "Done" in book.command("prune", "--answers-before", "0h", "--yes").stdout
    skipped = book.run()
    assert counts(book) == [1, 1, 1, 2, 2, 1, 1], skipped.said
    assert "recorded answers of this thread went by `prune`" in skipped.said
    book.cells["one"] += "\nother = 1"
    edited = book.run()
    assert "a recorded answer was pruned: asked anew" in edited.shown("one")
    assert edited.code == 0, edited.said
    assert counts(book)[0] == 2
    assert counts(book)[-1] == 1
    checked = book.command("doctor")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_moved_thread_is_skipped_in_another_store(book):
    """Exported and imported, the same notebook skips its steps there: nothing is asked, nothing is sent."""
    book.cells = dict(CELLS)
    first = book.run()
    before = counts(book)
    resumable_nb.export_thread("t", book.folder / "t.thread", db=book.folder / "t.duckdb")
    Store.open(book.folder / "t.duckdb").close()
    for name in ("t.duckdb", "t.duckdb.seen"):
        (book.folder / name).rename(book.folder / f"old.{name}")
    resumable_nb.import_thread(book.folder / "t.thread", db=book.folder / "t.duckdb")
    lease._close_all()
    there = book.run()

    assert there.code == 0, there.said
    assert there.shown("last") == first.shown("last")
    assert all("restored from checkpoint" in there.shown(step) for step in ("one", "two", "three"))
    assert counts(book) == before
