"""A table in JupyterLab: sorted, searched, unfolded, in the dark, after a reload; text from models does nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.lab import Lab, lab, write
from tests.notebook.test_panels import HOSTILE

pytestmark = pytest.mark.browser

ASK = f"""%%resumable_sql
SELECT i, '{HOSTILE.replace("'", "''")}' AS "<b>text</b>", '{{"a": [{{"b": 1}}]}}'::JSON AS json FROM range(30) r(i)"""
CELLS = {"open": "%load_ext resumable_nb\n%resumable open t --db t.duckdb --query q", "ask": ASK}


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), {}) as running:
        yield running


def test_a_table_in_jupyterlab(jupyter: Lab) -> None:
    """It is sorted by a click on a name, searched as one types, a cell unfolds, and a reload keeps it; no text runs."""
    spoken: list[str] = []
    jupyter.page.on("dialog", lambda dialog: (spoken.append(dialog.message), dialog.dismiss()))
    write(jupyter.work / "nb.ipynb", CELLS)
    jupyter.open("nb.ipynb")
    jupyter.run_all()
    cell = jupyter.cell(1)
    cell.locator(".dt-container tbody td").first.wait_for()

    assert cell.locator(".dt-container tbody tr").count() == 10
    assert HOSTILE in cell.locator(".dt-container tbody td").nth(1).inner_text()
    json = cell.locator(".dt-container tbody td").nth(2)
    json.click()
    assert json.inner_text() == '{\n  "a": [\n    {\n      "b": 1\n    }\n  ]\n}'
    cell.locator(".dt-container thead .dt-column-order").first.click()
    cell.locator(".dt-container thead .dt-column-order").first.click()
    cell.locator(".dt-container tbody td", has_text="29").first.wait_for()
    cell.locator("input[type=search]").fill("17")
    cell.locator(".dt-info", has_text="1 entry").or_(cell.locator(".dt-info", has_text="1 of 1")).wait_for()
    jupyter.screenshot("table-light.png")
    jupyter.command("apputils:change-theme", theme="JupyterLab Dark")
    jupyter.page.wait_for_selector("html.dark", state="attached")
    jupyter.page.wait_for_timeout(500)
    jupyter.screenshot("table-dark.png")
    jupyter.save()
    jupyter.open("nb.ipynb")
    cell.locator(".dt-container tbody td").first.wait_for()

    assert not spoken
