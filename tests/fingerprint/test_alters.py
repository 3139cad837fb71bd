"""What a cell above alters in place is not there before it has run."""

from __future__ import annotations

import pytest

from resumable_nb.cells import Cell, Order
from resumable_nb.errors import RunFirst
from resumable_nb.opening import open_notebook


@pytest.mark.parametrize("change", ["a.append('y')", "a[:] = ['y']", "a += ['y']", "a.clear()", "del a[0]"])
def test_a_cell_above_that_alters_an_input_has_to_run_first(tmp_path, change):
    """A step that is run before the cell above which changes its input stops and names that cell."""
    names: dict[str, object] = {"__name__": "__main__"}
    kernel = open_notebook("t", namespace=names, db=tmp_path / "t.duckdb", query="q")
    cells = (Cell("one", None, "a = ['x']"), Cell("two", None, change), Cell("three", "s", "r = list(a)"))
    order = Order(cells, 1, "runner", None, exact=True)
    try:
        kernel.begin(cells[0], order)
        exec(cells[0].source, names)
        kernel.commit()

        with pytest.raises(RunFirst) as stop:
            kernel.begin(cells[2], order)
        assert stop.value.cell_id == "two"
    finally:
        kernel.close()
