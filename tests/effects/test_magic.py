"""`%resumable settle`: a person says in the notebook what became of an effect in doubt."""

from __future__ import annotations

from tests.cases.book import OPENING
from tests.cases.kernel import kernel

DEFS = """
from resumable_nb import effect
calls = []
@effect(key="k")
def act():
    open("acted", "a").write("x")
    raise OSError("the connection broke")
"""


def test_settle_in_the_notebook(tmp_path):
    """One of both answers; after it the cell goes on with the receipt, without a second call."""
    with kernel(tmp_path, {}) as running:
        running.run(OPENING, "open")
        running.run(DEFS, "defs")
        first = running.run("%%resumable s\nr = act()", "s")
        second = running.run("%%resumable s\nr = act()", "s")
        neither = running.run("%resumable settle k", "m")
        settled = running.run("%resumable settle k --happened '{\"n\": 5}'", "m2")
        running.run("%%resumable s\nr = act()", "s")
        shown = running.run("print(r)", "p")

    assert "is in doubt" in first
    assert "%resumable settle k" in second or "resumable-nb settle k" in second
    assert "usage: %resumable settle KEY" in neither
    assert "`k` happened" in settled
    assert shown.strip() == "{'n': 5}"
    assert (tmp_path / "acted").read_text() == "x"


def test_receipts_of_an_earlier_version_stand_above_a_live_effect(tmp_path):
    """In the cell that runs, before the effect is done; it is not kept as an output of the step."""
    with kernel(tmp_path, {}) as running:
        running.run(OPENING, "open")
        running.run(
            "from resumable_nb import effect\n@effect(key='close-{n}')\ndef close(n):\n    print('closing', n)\n    return n",
            "defs",
        )
        running.run("%%resumable s\nclose(41)", "s")
        edited = running.run("%%resumable s\nclose(42)", "s")

    assert "an earlier version of this step did `close-41` (41)" in edited
    assert edited.index("an earlier version") < edited.index("closing 42")
