"""What a skipped step shows: what was left on screen, without what cannot live again (case I1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from resumable_nb.notebook.outputs import WIDGET
from tests.notebook.screen import OPEN, Screen, screen

I1 = """%%resumable s
from IPython.display import HTML, clear_output, display
def show():
    import ipywidgets, sys
    from tqdm.notebook import tqdm
    for i in range(50):
        clear_output(wait=True); print(i)
    h = display('s', display_id='p')
    for i in range(50):
        h.update(f'update {i}')
    for i in range(50):
        sys.stderr.write(f'\\r{i}%')
    for _ in tqdm(range(3)):
        pass
    out = ipywidgets.Output()
    display(out)
    with out:
        print('cleared'); clear_output(); print('caught')
    def figure():  # as matplotlib's inline figures come
        display(HTML('<i>figure</i>'))
        get_ipython().events.unregister('post_execute', figure)
    get_ipython().events.register('post_execute', figure)
show()
HTML('<b>table</b>')
"""


@pytest.fixture
def nb(tmp_path: Path) -> Iterator[Screen]:
    with screen(tmp_path, open=OPEN) as found:
        yield found


def test_what_was_left_on_screen_is_shown_again_once(nb: Screen) -> None:
    """Cleared, updated and overwritten output is shown as it ended, widgets as text, figures as they were."""
    nb.cells |= {"s": I1, "own": "own = display('mine', display_id='p')"}
    nb.save()
    nb.run_all()
    nb.restart()
    again = nb.run_all()
    shown = again["s"]

    assert "restored from checkpoint" in shown.said
    assert "2 widgets could not be restored" in shown.said
    texts = [o.get("text") or o["data"].get("text/html") or o["data"]["text/plain"] for o in shown.own]
    assert texts[:3] == ["49\n", "'update 49'", "49%"]
    assert texts[3].startswith("100%")
    assert "3/3" in texts[3]
    assert texts[4:] == ["Output()", "caught\n", "<b>table</b>", "<i>figure</i>"]
    assert not any(WIDGET in o.get("data", {}) for o in shown.own)
    assert shown.updated == {}
    assert not any(o.get("transient", {}).get("display_id") for o in shown.own)
    cell = nbformat.v4.new_code_cell(I1, outputs=[nbformat.from_dict(_saved(o)) for o in shown.outputs])
    nbformat.validate(nbformat.v4.new_notebook(cells=[cell]))


def _saved(output: dict) -> dict:
    return {k: v for k, v in output.items() if k != "transient"}


@pytest.mark.parametrize("wait", [True, False])
def test_a_step_that_clears_its_output_keeps_our_line(nb: Screen, wait: bool) -> None:
    """What the library said above a step is said again below it, once, where the step cleared its output."""
    nb.cells["imports"] = "from IPython.display import clear_output"
    nb.cells["s"] = f"""%%resumable s
for i in range(3):
    clear_output(wait={wait}); print('frame', i)
"""
    nb.run_all()
    nb.cells["s"] += "print('more')"
    nb.save()
    changed = nb.run("s")
    nb.restart()
    again = nb.run_all()["s"]

    assert [o["text"] for o in changed.own] == ["frame 2\nmore\n"]
    assert changed.said.count("its code changed") == 1
    assert changed.outputs[-1] not in changed.own
    assert again.said.count("restored from checkpoint") == 1
    assert [o["text"] for o in again.own] == ["frame 2\nmore\n"]


def test_a_step_that_clears_and_fails_keeps_our_line(nb: Screen) -> None:
    """A traceback, too, takes away what was to be cleared, and the line comes again below it."""
    nb.cells["s"] = "%%resumable s\nfrom IPython.display import clear_output\nprint('frame')"
    nb.run_all()
    nb.cells["s"] += "\nclear_output(wait=True)\n1 / 0"
    nb.save()
    failed = nb.run("s")

    assert failed.error.startswith("ZeroDivisionError")
    assert [o["output_type"] for o in failed.own] == ["error"]
    assert failed.said.count("its code changed") == 1


def test_what_a_thread_shows_is_shown_again(nb: Screen) -> None:
    """A bar that another thread of the step drew last, as rich's are, is shown as it ended."""
    nb.cells["s"] = (
        "%%resumable s\nimport threading\nfrom IPython.display import display\n"
        "_ = display('none yet', display_id='bar')\n"
        "def draw():\n    display('all', display_id='bar', update=True)\n    display('more')\n"
        "thread = threading.Thread(target=draw)\nthread.start()\nthread.join()\ndel thread, draw"
    )
    nb.save()
    nb.run_all()
    nb.restart()
    again = nb.run_all()["s"]

    assert "restored from checkpoint" in again.said
    assert [o["data"]["text/plain"] for o in again.own] == ["'all'", "'more'"]
