"""Group C of the public cases: the state over failures, forks and changes of its class."""

from __future__ import annotations

import nbformat

from tests.cases.book import Book

SCORES = """import operator
from typing import Annotated
from resumable_nb import ResearchState
class S(ResearchState):
    score: Annotated[int, operator.add] = 10
    seen: Annotated[list[str], operator.add] = ["seed"]"""


def test_defaults_count_and_a_failed_step_adds_nothing(book: Book) -> None:
    """C1: reducers start from the defaults; a step that raises leaves no update, and its repetition one."""
    book.opening = '%load_ext resumable_nb\n%resumable open t --db t.duckdb --query "q" --state S'
    book.cells = {
        "class": SCORES,
        "a": "%%resumable a\nstate.update(score=5, seen=['a'])",
        "b": "%%resumable b\nimport os\nstate.update(seen=['b'])\nif os.path.exists('bad'): raise ValueError('bad')",
        "end": "print(state.score, state.seen)",
    }
    (book.folder / "bad").touch()
    failed = book.run()
    assert failed.code == 1
    stored = book.sql("SELECT field, value::VARCHAR AS value FROM state_at('t', (SELECT max(seq) FROM checkpoints))")
    values = {row["field"]: row["value"] for row in stored}
    assert (values["score"], values["seen"]) == ("15", '["seed","a"]')
    (book.folder / "bad").unlink()
    for _ in range(2):
        done = book.run()
        assert done.code == 0, done.said
        assert "15 ['seed', 'a', 'b']" in done.shown("end")
    first = book.sql("SELECT field, value::VARCHAR AS value FROM state_at('t', (SELECT min(seq) FROM checkpoints))")

    values = {row["field"]: row["value"] for row in first}
    assert (values["score"], values["seen"]) == ("10", '["seed"]')


def test_forks_do_not_leak_into_each_other(book: Book) -> None:
    """C3: two forks of one checkpoint skip what it holds, and neither sees what the other or the origin added."""
    ask = "from resumable_nb import ask"
    one = "%%resumable one\nstate.update(findings=[ask('Q1')])"
    book.cells = {
        "imports": ask,
        "one": one,
        "two": "%%resumable two\nstate.update(findings=[ask('Q2')])",
        "three": "%%resumable three\nstate.update(findings=[ask('Q3')])",
    }
    assert book.run().code == 0
    original = dict(book.cells)
    seq = book.sql("SELECT seq FROM checkpoints WHERE step = 'one'")[0]["seq"]
    for new in ("u", "v"):
        assert book.command("fork", str(seq), new, "--thread", "t").returncode == 0
    for new, marker in (("u", "Q4"), ("v", "Q5")):
        book.cells = {"imports": ask, "one": one, "own": f"%%resumable own\nstate.update(findings=[ask('{marker}')])"}
        book.cells["end"] = "print(state.findings)"
        forked = book.run(thread=new)
        assert forked.code == 0, forked.said
        assert "restored" in forked.shown("one")
        assert f"['AQ1-1', 'A{marker}-1']" in forked.shown("end")
    assert book.server.asked("Q1") == 1
    book.cells = original | {"end": "print(state.findings)"}
    again = book.run()

    assert book.server.asked() == 5
    assert "['AQ1-1', 'AQ2-1', 'AQ3-1']" in again.shown("end")


def test_a_field_that_disappears_is_not_dropped(book: Book) -> None:
    """C4: a class that lacks a stored field stops and names it; the content is there when the field comes back."""
    with_field = "from resumable_nb import ResearchState\nclass S(ResearchState):\n    sources: list[str] = []"
    without = "from resumable_nb import ResearchState\nclass S(ResearchState):\n    pass"
    book.opening = '%load_ext resumable_nb\n%resumable open t --db t.duckdb --query "q" --state S'
    book.cells = {"class": with_field, "one": "%%resumable one\nstate.sources = ['a', 'b']"}
    assert book.run().code == 0
    book.cells |= {"class": without, "two": "%%resumable two\nstate.update(findings=['f'])"}
    stopped = book.run()

    assert stopped.code == 1
    assert "sources" in stopped.said

    book.cells |= {"class": with_field, "end": "print(state.sources, state.findings)"}
    back = book.run()

    assert back.code == 0, back.said
    assert "['a', 'b'] ['f']" in back.shown("end")


def test_a_notebook_with_the_state_class_before_open(book: Book) -> None:
    """The class may be defined before the thread is opened, in the same cell."""
    book.opening = f"{SCORES}\n%load_ext resumable_nb\n%resumable open t --db t.duckdb --state S"
    book.cells = {"a": "%%resumable a\nstate.update(score=1)", "end": "print(state.score)"}

    assert "11" in book.run().shown("end").splitlines()
    assert nbformat.read(book.folder / "out.ipynb", as_version=4)
