"""J6 for durable functions, and an effect in doubt, in notebooks that are run and killed."""

from __future__ import annotations

from tests.cases.book import Book

DURABLE = """
from resumable_nb import durable, effect
@durable
def pages(n):
    hit("pages")
    for i in range(n):
        yield i
@durable
def load():
    hit("load")
    return {"k": [1]}
@effect(key=lambda ticket: f"close-{ticket}")
def close(ticket, *, idempotency_key):
    hit(idempotency_key)
    return {"closed": ticket}
"""


def test_durable_results_are_given_afresh_in_a_step_that_is_killed(book: Book) -> None:
    """J6: the items of a generator each time, and a record that a caller's change does not alter."""
    body = "items = [list(pages(2)), list(pages(2))]; x = load(); x['k'].append(2); y = load()"
    book.cells = {"defs": DURABLE, "s": f"%%resumable s\n{body}", "show": "print(items, x, y)"}

    book.run(kill="step.commit.before")
    first, again = book.run(), book.run()

    line = "[[0, 1], [0, 1]] {'k': [1, 2]} {'k': [1]}"
    assert (first.shown("show").strip(), again.shown("show").strip()) == (line, line)
    assert {name: book.server.hits(name) for name in ("load", "pages")} == {"load": 2, "pages": 2}


def test_an_effect_in_doubt_stops_the_notebook_until_a_person_settles_it(book: Book) -> None:
    """The run says so and ends as one that waits; the command that it names answers it; nothing is done twice."""
    book.cells = {
        "defs": DURABLE,
        "s": "%%resumable s\nreceipts = [close(t) for t in (1, 2, 3)]",
        "p": "print(receipts)",
    }

    book.run(kill="effect.call.after:2")
    stopped = book.run()
    settled = book.command("settle", "close-2", "--happened", '{"closed": "by hand"}', "--thread", "t")
    ended = book.run()

    assert stopped.code == 3, stopped.said
    assert "resumable-nb settle close-2" in stopped.said
    assert settled.returncode == 0, settled.stderr
    assert ended.code == 0, ended.said
    assert [book.server.hits(f"close-{ticket}") for ticket in (1, 2, 3)] == [1, 1, 1]
    assert ended.shown("p").strip() == "[{'closed': 1}, {'closed': 'by hand'}, {'closed': 3}]"
