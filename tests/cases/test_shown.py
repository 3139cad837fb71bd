"""Group I of the public cases: what a skipped cell shows, and that text is no HTML."""

from __future__ import annotations

import nbformat
import pytest

from tests.cases.book import Book, Ran
from tests.support.model_server import ModelServer

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


EVIL = "<img src=x onerror=alert(1)><script>1</script> [x](javascript:alert(1))"
CELLS = {
    "s": SHOW,
    "plain": "own = display('mine', display_id='p')",
    "bar": "%%resumable bar\nfrom tqdm.notebook import tqdm\nfor x in tqdm(range(3)): pass\nprint('done')",
    "imports": "from resumable_nb import ask",
    "found": "%%resumable found\nstate.update(findings=[ask('Q1')])\nstate.query = '<b>go</b>'",
    "status": "%resumable status",
    "history": "%resumable history",
    "diff": "%resumable diff 2 99",
    "bad": "%%resumable bad\nraise ValueError(state.findings[0])",
}
Twice = tuple[Ran, Ran]


@pytest.fixture(scope="module")
def ran(_server: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Twice:
    """A notebook run twice: the second time its steps are skipped."""
    _server.reset()
    _server.script({"marker": "Q1", "text": EVIL, "times": 9})
    book = Book(tmp_path_factory.mktemp("shown"), _server, CELLS)
    book.tags = {"bad": ["raises-exception"], "diff": ["raises-exception"]}
    first, again = book.run(), book.run()

    assert (first.code, again.code) == (0, 0), first.said + again.said
    nbformat.validate(again.notebook)
    return first, again


def test_a_skipped_cell_shows_what_was_left_at_the_end(ran: Twice) -> None:
    """I1: updates and cleared outputs are shown once as they ended; another display with the same id is left alone."""
    shown = ran[1].shown("s")

    assert "restored" in shown
    assert shown.splitlines().count("49") == 1, shown  # a line: "649 ms" holds a 49 as well
    assert "   x\n0  1\n1  2" in shown
    assert ran[1].shown("plain").strip() == "'mine'"


def test_widgets_leave_their_text(ran: Twice) -> None:
    """I1: a progress bar of a notebook is shown as text after a skip, without a view whose model is gone."""
    outputs = [o for cell in ran[1].cells if cell.id == "bar" for o in cell.outputs]

    assert not any("application/vnd.jupyter.widget-view+json" in o.get("data", {}) for o in outputs)
    assert "done" in ran[1].shown("bar").splitlines()


def test_text_from_a_model_is_no_html(ran: Twice) -> None:
    """I2: tags and script links in findings are escaped in every HTML or Markdown output, and readable in full."""
    outputs = [output for done in ran for cell in done.cells for output in cell.outputs]

    for output in outputs:
        for mime in ("text/html", "text/markdown"):
            text = output.get("data", {}).get(mime, "")
            assert "<img" not in text
            assert "<script" not in text
            assert "javascript:" not in text or mime == "text/html"
            assert 'href="javascript:' not in text
    for done in ran:
        assert EVIL in done.shown("bad")
