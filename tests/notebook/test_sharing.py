"""Names that hold one object, in a notebook: when a step runs again for it, and what is said then."""

from __future__ import annotations

from pathlib import Path

from tests.notebook.screen import OPEN, Screen, screen


def put_above(nb: Screen, place: str, **new: str) -> None:
    """A new cell, or another text of one, above a cell of the notebook; saved."""
    rest = {name: text for name, text in nb.cells.items() if name not in new}
    at = list(rest).index(place)
    nb.cells = dict([*list(rest.items())[:at], *new.items(), *list(rest.items())[at:]])
    nb.save()


def test_a_widget_more_makes_no_step_run_again(tmp_path: Path) -> None:
    """Widgets of one kernel have their connection in common, and that leads to every name: it is nothing they share."""
    cells = {
        "open": OPEN,
        "widgets": "import ipywidgets as widgets\nout, slider = widgets.Output(), widgets.IntSlider()",
        "rows": "%%resumable rows\nrows = [out]\nwith out:\n    print('caught')\nstate.update(findings=['x'])",
        "words": "%%resumable words\nwords = ['a']\nwords.append('b')",
    }
    with screen(tmp_path, **cells, last="words") as nb:
        nb.run_all()
        put_above(nb, "rows", more="more, words_of = widgets.Output(), ['of no step']")
        again = nb.run_all()

        assert "restored" in again["rows"].said
        assert "restored" in again["words"].said
        shared = nb.value("{r.step: thread.fold.record(r.seq).shared for r in thread.fold.checkpoints() if r.step}")
        assert shared == {"rows": {"rows": ["out"]}, "words": {}}
        nb.cells["last"] = "rows[0] is out"
        nb.save()
        read = nb.run_all()
        assert "to rebuild `rows`" in read["rows"].said
        assert read["last"].results == ["True"]


def test_a_step_that_runs_again_for_what_names_share_says_which(tmp_path: Path) -> None:
    """A list that two names came to hold, or hold no more: which names, then and now, and what to do."""
    cells = {
        "open": OPEN,
        "lists": "found = ['a']\nlisted = ['a']",
        "adds": "%%resumable adds\nfound.append('b')\nstate.update(findings=found)",
    }
    with screen(tmp_path, **cells) as nb:
        nb.run_all()
        put_above(nb, "adds", lists="found = ['a']\nlisted = found")
        new = nb.run_all()["adds"].said
        nb.run_all()
        put_above(nb, "adds", lists="found = ['a']\nlisted = ['a']")
        gone = nb.run_all()["adds"].said

        assert "`found` and `listed` hold one object now, and held none then: copy it for one of them" in new
        assert "`found` and `listed` held one object then, and hold none together now: make them share it again" in gone


def test_a_finished_progress_bar_stops_no_cell(tmp_path: Path) -> None:
    """Its box outlives it and holds a weak proxy to it; steps and other cells run all the same."""
    cells = {
        "open": OPEN,
        "bar": "from tqdm.notebook import tqdm\nbox = tqdm(range(2)).container\nimport gc\ngone = gc.collect()",
        "step": "%%resumable step\nboxes = [box]\nstate.update(findings=['x'])",
    }
    with screen(tmp_path, **cells) as nb:
        assert [shown.status for shown in nb.run_all().values()] == ["ok"] * 3
        threads = nb.execute("%resumable threads", "tool")

        assert (threads.status, threads.error) == ("ok", "")
        assert nb.value("list(state.findings)") == ["x"]
