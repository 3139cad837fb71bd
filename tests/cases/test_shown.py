"""Group I of the public cases: what a skipped cell shows, and that text is no HTML."""

from __future__ import annotations

import nbformat

from tests.cases.book import Book

SHOW = """%%resumable s
from IPython.display import clear_output, display, update_display
display("s", display_id="p")
for i in range(50):
    update_display(i, display_id="p")
for i in range(50):
    clear_output(wait=True)
    print(i)
import pandas as pd
pd.DataFrame({"x": [1, 2]})"""


def test_a_skipped_cell_shows_what_was_left_at_the_end(book: Book) -> None:
    """I1: updates and cleared outputs are shown once as they ended; another display with the same id is left alone."""
    book.cells = {"s": SHOW, "plain": "own = display('mine', display_id='p')"}
    first = book.run()
    assert first.code == 0, first.said
    again = book.run()

    assert again.code == 0, again.said
    assert "restored" in again.shown("s")
    assert again.shown("s").splitlines().count("49") == 1, again.shown("s")  # a line: "649 ms" holds a 49 as well
    assert "   x\n0  1\n1  2" in again.shown("s")
    assert again.shown("plain").count("mine") == 1
    nbformat.validate(again.notebook)


def test_widgets_leave_their_text(book: Book) -> None:
    """I1: a progress bar of a notebook is shown as text after a skip, without a view whose model is gone."""
    book.cells = {
        "s": "%%resumable s\nfrom tqdm.notebook import tqdm\nfor x in tqdm(range(3)): pass\nprint('done')",
    }
    assert book.run().code == 0
    again = book.run()

    assert again.code == 0, again.said
    outputs = [o for cell in again.cells if cell.id == "s" for o in cell.outputs]
    assert not any("application/vnd.jupyter.widget-view+json" in o.get("data", {}) for o in outputs)
    assert "done" in again.shown("s")
    nbformat.validate(again.notebook)


def test_text_from_a_model_is_no_html(book: Book) -> None:
    """I2: tags and script links in findings are escaped in every HTML or Markdown output, and readable in full."""
    evil = "<img src=x onerror=alert(1)><script>1</script> [x](javascript:alert(1))"
    book.server.script({"marker": "Q1", "text": evil, "times": 9})
    book.cells = {
        "imports": "from resumable_nb import ask",
        "s": "%%resumable s\nstate.update(findings=[ask('Q1')])\nstate.query = '<b>go</b>'",
        "status": "%resumable status",
        "history": "%resumable history",
        "diff": "%resumable diff 2 99",
        "bad": "%%resumable s2\nraise ValueError(state.findings[0])",
    }
    book.tags = {"bad": ["raises-exception"], "diff": ["raises-exception"]}
    ran = book.run()
    again = book.run()

    for done in (ran, again):
        assert done.notebook is not None
        for cell in done.cells:
            for output in cell.outputs:
                for mime in ("text/html", "text/markdown"):
                    text = output.get("data", {}).get(mime, "")
                    assert "<img" not in text
                    assert "<script" not in text
                    assert "javascript:" not in text or mime == "text/html"
                    assert 'href="javascript:' not in text
