"""Where a cell stands: what the runner, the front end, the file and the order of execution say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from resumable_nb.notebook.order import Notebook, Request
from resumable_nb.notebook.source import Parser, Rewrite


@pytest.fixture
def parser() -> Parser:
    manager = TransformerManager()
    manager.cleanup_transforms.append(Rewrite())
    return Parser(manager.transform_cell)


class Saved:
    """A notebook file, and what a kernel that runs in its folder makes of it."""

    def __init__(self, folder: Path, parser: Parser) -> None:
        self.path, self.parser, self.ticks = folder / "nb.ipynb", parser, 0

    def save(self, cells: dict[str, str] | list[str], path: Path | None = None) -> None:
        """Cells by id, or texts without ids; texts that begin with `~` are Markdown."""
        found = (
            [{"id": i, "source": t} for i, t in cells.items()]
            if isinstance(cells, dict)
            else [{"source": t} for t in cells]
        )
        for cell in found:
            cell["cell_type"] = "markdown" if cell["source"].startswith("~") else "code"
            cell["source"] = cell["source"].splitlines(keepends=True)
        path = path or self.path
        path.write_text(json.dumps({"cells": found, "nbformat": 4, "nbformat_minor": 5}))
        self.ticks += 1
        os.utime(path, ns=(self.ticks * 10**9, self.ticks * 10**9))

    def notebook(self, path: str | None = None) -> Notebook:
        return Notebook(self.parser, path=path or str(self.path), folder=self.path.parent)


@pytest.fixture
def saved(tmp_path: Path, parser: Parser) -> Saved:
    return Saved(tmp_path, parser)


def ids(order: Any) -> list[str]:
    return [cell.cell_id for cell in order.cells]


def test_the_file_gives_order_names_and_code(saved: Saved) -> None:
    """A cell of the saved notebook is found there, with the code cells around it as steps and Python."""
    saved.save({"a": "x = 1", "m": "~ text", "b": "%%resumable plan --approve 'go?'\ny = x", "c": "!ls"})
    cell, order = saved.notebook().place(Request("%%resumable plan --approve 'go?'\ny = x", "b"))

    assert ids(order) == ["a", "b", "c"]
    assert (order.origin, order.exact, order.path) == ("file", False, str(saved.path))
    assert (cell.step, cell.approve, cell.source.strip()) == ("plan", "go?", "y = x")
    assert order.cells[2].source == "get_ipython().system('ls')\n"


def test_a_cell_counts_as_it_was_executed(saved: Saved) -> None:
    """What was executed outranks what the file has of the same cell."""
    saved.save({"a": "x = 1", "b": "y = 1"})
    cell, order = saved.notebook().place(Request("x = 2", "a"))

    assert cell.source == order.cells[0].source == "x = 2\n"


def test_an_unsaved_cell_is_left_to_the_rules(saved: Saved) -> None:
    """A cell that the file does not know is not in the order: the rules put it after the cell run before."""
    saved.save({"a": "x = 1"})

    assert ids(saved.notebook().place(Request("y = 1", "new"))[1]) == ["a"]


def test_saving_gives_a_new_version(saved: Saved) -> None:
    """The version changes when the file is saved, and only then."""
    saved.save({"a": "x = 1", "b": "y = 1"})
    notebook = saved.notebook()
    versions = [notebook.place(Request("x = 1", "a"))[1].version for _ in range(2)]
    saved.save({"b": "y = 1", "a": "x = 1"})
    _, order = notebook.place(Request("x = 1", "a"))

    assert versions[0] == versions[1] != order.version
    assert ids(order) == ["b", "a"]


@pytest.mark.parametrize("torn", [b"", b'{"cells": [', b"[]", b'{"cells": 3}', b"\xff\xfe", b'{"cells": [1]}'])
def test_a_half_written_file_keeps_the_order(saved: Saved, torn: bytes) -> None:
    """A file that is just being written, or is none of ours, does not disturb the order that was known."""
    saved.save({"a": "x = 1", "b": "y = 1"})
    notebook = saved.notebook()
    notebook.place(Request("x = 1", "a"))
    saved.path.write_bytes(torn)

    assert ids(notebook.place(Request("y = 1", "b"))[1]) == ["a", "b"]


def test_a_file_that_vanishes_keeps_the_order(saved: Saved) -> None:
    """A deleted file does not disturb the order that was known."""
    saved.save({"a": "x = 1", "b": "y = 1"})
    notebook = saved.notebook()
    notebook.place(Request("x = 1", "a"))
    saved.path.unlink()

    assert ids(notebook.place(Request("y = 1", "b"))[1]) == ["a", "b"]


def test_a_renamed_file_is_followed(saved: Saved) -> None:
    """After a rename under a running kernel the order comes from the new file."""
    saved.save({"a": "x = 1", "b": "y = 1"})
    notebook = saved.notebook()
    notebook.place(Request("x = 1", "a"))
    renamed = saved.path.rename(saved.path.with_name("other.ipynb"))
    saved.save({"other": "z = 1"}, saved.path.with_name("unrelated.ipynb"))
    saved.save({"b": "y = 1", "a": "x = 1"}, renamed)
    _, order = notebook.place(Request("y = 1", "b"))

    assert (ids(order), order.path) == (["b", "a"], str(renamed))


@pytest.mark.parametrize("path", ["nb.ipynb", "some/server/folder/nb.ipynb"])
def test_a_relative_path_is_found(saved: Saved, path: str) -> None:
    """A notebook path relative to the server's folder is found from the kernel's folder."""
    saved.save({"a": "x = 1"})

    assert saved.notebook(path).place(Request("x = 1", "a"))[1].path == str(saved.path)


def test_without_a_cell_id_the_file_is_not_asked(saved: Saved) -> None:
    """A notebook that another one runs inherits the outer one's path; without cell ids it is ignored."""
    saved.save({"a": "x = 1"})
    _, order = saved.notebook().place(Request("x = 1"))

    assert (order.origin, order.path) == ("execution", None)


def test_cells_without_ids_on_disk_are_known_by_their_text(saved: Saved) -> None:
    """Without ids in the file, a front end's cell is the one with its text, and stays it through edits and saves."""
    saved.save(["x = 1", "%%resumable s\ny = 1", "z = 1", "z = 1"])
    notebook = saved.notebook()
    cell, order = notebook.place(Request("%%resumable s\ny = 1", "random-1"))
    assert order.cells[1] == cell
    edited, order = notebook.place(Request("%%resumable s\ny = 2", "random-1"))
    assert order.cells[1] == edited
    saved.save(["new = 1", "x = 1", "%%resumable s\ny = 2", "z = 1", "z = 1"])
    again, order = notebook.place(Request("%%resumable s\ny = 2", "random-1"))

    assert order.cells[2] == again
    assert cell.cell_id == edited.cell_id == again.cell_id
    assert len(set(ids(order))) == 5


def test_the_same_text_without_ids_is_the_same_cell_in_the_next_session(saved: Saved) -> None:
    """Without ids in the file, an unedited cell goes by the same id in every session."""
    saved.save(["x = 1", "y = 1"])
    first, second = (saved.notebook().place(Request("y = 1", front))[0].cell_id for front in ("random-1", "random-2"))

    assert first == second


def test_cells_of_vs_code_are_known_by_their_text(saved: Saved) -> None:
    """VS Code names cells by their place on screen: they go by the id that the file has."""
    saved.save({"a": "x = 1", "b": "y = 1"})
    notebook = Notebook(saved.parser, folder=saved.path.parent)
    cell, order = notebook.place(Request("y = 1", "vscode-notebook-cell:/nb.ipynb#W1"), front_path=str(saved.path))

    assert (cell.cell_id, ids(order)) == ("b", ["a", "b"])


def told(cell_id: str, order: list[str], sources: Any, **more: Any) -> Request:
    return Request("y = 1", cell_id, {"cellOrder": order, "cellSources": sources, "notebookPath": "nb.ipynb", **more})


@pytest.mark.parametrize(("more", "origin"), [({}, "front end"), ({"runner": True}, "runner")])
def test_what_is_told_outranks_the_file(saved: Saved, more: dict[str, Any], origin: str) -> None:
    """The order on screen, sent with the message, counts: with cells that were never saved, as they read now."""
    saved.save({"b": "old = 1", "a": "x = 1"})
    _, order = saved.notebook().place(told("b", ["a", "~m", "new", "b"], ["x = 2", None, "n = 1", "y = 1"], **more))

    assert ids(order) == ["a", "new", "b"]
    assert [cell.source for cell in order.cells] == ["x = 2\n", "n = 1\n", "y = 1\n"]
    assert (order.origin, order.exact, order.path) == (origin, True, str(saved.path))


def test_sources_too_long_to_send_come_from_the_file(saved: Saved) -> None:
    """Where only the order was sent, texts come from what was executed, then from the file."""
    saved.save({"a": "x = 1", "b": "y = 0"})
    notebook = saved.notebook()
    notebook.place(told("b", ["a", "b"], None))
    _, order = notebook.place(Request("z = 1", "c", {"cellOrder": ["b", "a", "c", "d"]}))

    assert [cell.source for cell in order.cells] == ["y = 1\n", "x = 1\n", "z = 1\n", "\n"]


@pytest.mark.parametrize(
    "metadata",
    [
        {"cellOrder": "ab"},
        {"cellOrder": [1, 2]},
        {"cellOrder": ["a"]},
        {"cellOrder": None, "notebookPath": 3},
        {},
    ],
)
def test_metadata_that_is_no_order_is_ignored(saved: Saved, metadata: dict[str, Any]) -> None:
    """Metadata of another shape, or without the cell itself, is not taken for an order."""
    saved.save({"a": "x = 1", "b": "y = 1"})

    assert saved.notebook().place(Request("y = 1", "b", metadata))[1].origin == "file"


def test_the_version_of_what_is_told_is_always_new(saved: Saved) -> None:
    """Each exact order is a version of its own: places guessed under an earlier one do not count."""
    notebook = saved.notebook()
    versions = {notebook.place(told("b", ["b"], ["y = 1"]))[1].version for _ in range(3)}

    assert len(versions) == 3


def test_without_ids_cells_stand_as_they_ran(saved: Saved) -> None:
    """In a console each cell comes after the one before; a step that runs again keeps its place."""
    notebook = Notebook(saved.parser)
    texts = ["x = 1", "%%resumable s\ny = 1", "x = 1", "%%resumable s\ny = 2"]
    placed = [notebook.place(Request(text)) for text in texts]

    assert [cell.cell_id for cell, _ in placed] == ["#0", "#s", "#2", "#s"]
    assert [cell.source for cell in placed[-1][1].cells] == ["x = 1\n", "\ny = 2\n", "x = 1\n"]


def test_with_ids_and_no_file_a_new_cell_stands_after_the_one_before(saved: Saved) -> None:
    """Where no notebook file can be read, cells keep their places and new ones come after the cell run before."""
    notebook = saved.notebook("nb.py")
    for cell_id in ("a", "b", "a", "c"):
        _, order = notebook.place(Request(f"{cell_id} = 1", cell_id))

    assert (ids(order), order.origin) == (["a", "c", "b"], "execution")


def test_opening_a_thread_starts_the_count_over(saved: Saved) -> None:
    """Cells run before the thread was opened have no part in the order of execution."""
    notebook = Notebook(saved.parser)
    notebook.place(Request("x = 1"))
    notebook.start_over()

    assert ids(notebook.place(Request("y = 1"))[1]) == ["#0"]


@pytest.mark.parametrize("broken", ["x = (", "%%resumable\nx = 1", "%%resumable s\nfor"])
def test_a_broken_cell_elsewhere_does_no_harm(saved: Saved, broken: str) -> None:
    """A cell in the file that is no Python, or has a wrong step line, is there without effect."""
    saved.save({"a": broken, "b": "y = 1"})
    _, order = saved.notebook().place(Request("y = 1", "b"))

    assert ids(order) == ["a", "b"]
    assert order.cells[0].code.writes in (frozenset(), frozenset({"x"}))
