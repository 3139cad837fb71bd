"""What people found who had not seen the code: each as a whole notebook."""

from __future__ import annotations

from tests.cases.book import Book


def test_a_step_with_imports_and_functions_is_skipped(book: Book) -> None:
    """Functions that use a module imported in the same step come back by their statements, not by running the step."""
    book.cells = {
        "s": "%%resumable s\nimport math\nfrom typing import Literal\ndef f(x):\n    return math.sqrt(x)\nx = f(4)\nhit('mail')",
        "end": "print(x, f(9), Literal)",
    }
    first = book.run()
    assert first.code == 0, first.said
    again = book.run()

    assert again.code == 0, again.said
    assert book.server.hits("mail") == 1
    assert again.shown("end") == first.shown("end")


def test_a_class_of_the_state_may_be_defined_below_open(book: Book) -> None:
    """A thread whose newest state holds an object of a notebook class opens before the cell of that class has run."""
    book.cells = {
        "cls": "from pydantic import BaseModel\nclass Paper(BaseModel):\n    title: str",
        "s": "%%resumable s\nstate.update(findings=[Paper(title='one')])",
        "own": "%%resumable own\nclass Note(BaseModel):\n    text: str\nstate.update(findings=[Note(text='two')])",
        "end": "print(state.findings)",
    }
    first = book.run()
    assert first.code == 0, first.said
    again = book.run()

    assert again.code == 0, again.said
    assert "restored" in again.shown("s")
    assert "restored" in again.shown("own")
    assert "[Paper(title='one'), Note(text='two')]" in again.shown("end")
