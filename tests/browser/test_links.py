"""The links of a report in JupyterLab open the files that it cites: in the notebook, and in the saved report."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.lab import Lab, lab, write

pytestmark = pytest.mark.browser

NAMES = ["a b.md", "c#d 50%.txt", "x](y) [z].md"]
SHOW = f"""from resumable_nb.research import Folder, Report
from resumable_nb.research.findings import accept
corpus = Folder("../corpus 1")
documents = [corpus.fetch(name) for name in {NAMES!r}]
quote = "The bridge was opened in 1931."
findings = [accept(d, quote, claim="", question="When?", confidence="high") for d in documents]
report = Report(question="When?", findings=findings, links={{d.ref: d.link for d in documents}})
report.save("out/report.md")
report"""


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), {}) as running:
        for folder in ("book/out", "corpus 1"):
            (running.work / folder).mkdir(parents=True)
        for name in NAMES:
            (running.work / "corpus 1" / name).write_text("The bridge was opened in 1931.")
        write(running.work / "book" / "links.ipynb", {"show": SHOW})
        yield running


def opened(jupyter: Lab, path: str) -> None:
    """Wait until a document is open, then close it."""
    jupyter.page.wait_for_function(
        "(path) => [...window.jupyterapp.shell.widgets('main')].some(w => w.context?.path === path)", arg=path
    )
    jupyter.page.evaluate(
        "(path) => [...window.jupyterapp.shell.widgets('main')].find(w => w.context?.path === path).close()", path
    )


def test_a_click_on_a_citation_opens_the_file(jupyter: Lab) -> None:
    """Whatever signs its name has; from the notebook's folder, and from that of the saved report."""
    jupyter.open("book/links.ipynb")
    jupyter.run_all()
    jupyter.wait_for(0, "Sources")
    for name in NAMES:
        jupyter.cell(0).locator(".jp-RenderedMarkdown ol a", has_text=name).click()
        opened(jupyter, f"corpus 1/{name}")

    jupyter.command("docmanager:open", path="book/out/report.md", factory="Markdown Preview")
    preview = jupyter.page.locator(".jp-MarkdownViewer")
    preview.locator("ol a", has_text=NAMES[0]).wait_for()
    jupyter.screenshot("report-saved.png")
    for name in NAMES:
        preview.locator("ol a", has_text=name).click()
        opened(jupyter, f"corpus 1/{name}")
