"""Findings: word for word in their source or refused, merged, and columns of their own in SQL."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resumable_nb
from resumable_nb.research import Folder
from resumable_nb.research.findings import accept, locate, merge, one_line, still_stands
from resumable_nb.research.records import Finding, Report, Statement
from resumable_nb.research.sources import Document

BRIDGE = Document(
    "bridge.md", "The bridge", "The bridge\n\nwas opened\n   in 1931,   by the mayor.\nIt is a toll-free bridge."
)


def found(quote: str, *, question: str = "When?", confidence: str = "low", document: Document = BRIDGE) -> Finding:
    finding = accept(document, quote, claim=quote, question=question, confidence=confidence)  # type: ignore[arg-type]
    assert finding is not None
    return finding


def test_only_white_space_may_differ_from_the_source():
    """Line breaks and indents count as spaces; a letter, its case, a hyphen or a missing space makes it another text."""
    assert locate("was opened in 1931, by the mayor.", BRIDGE.text) == (12, 50)

    changed = [
        "was Opened in 1931",
        "was opened in 1932",
        "toll free bridge",
        "tollfree",
        "wasopened",
        "opened in in 1931",
    ]
    assert [locate(quote, BRIDGE.text) for quote in [*changed, "", " ", "…", ","]] == [None] * 10


@given(st.text(alphabet="ab .,\n\t(*é", max_size=60), st.data())
def test_every_piece_of_a_text_is_in_it(text: str, data: st.DataObject):
    """Whatever is cut from a text is found in it, where it says the same."""
    start = data.draw(st.integers(0, len(text)))
    quote = text[start : data.draw(st.integers(start, len(text)))]
    place = locate(quote, text)

    assert (place is None) == (not any(c.isalnum() for c in quote))
    assert place is None or one_line(text[slice(*place)]) == one_line(quote)


def test_what_is_not_in_the_source_is_no_finding():
    """A quotation that the model made up is refused, and one whose source has changed stands no longer."""
    finding = found("was opened in 1931")

    assert accept(BRIDGE, "was opened in 1932", claim="c", question="q", confidence="high") is None
    assert still_stands(finding, BRIDGE)
    assert not still_stands(finding, Document("bridge.md", "", BRIDGE.text.replace("1931", "1932")))
    assert not still_stands(finding.model_copy(update={"location": "somewhere"}), BRIDGE)


def test_the_same_quotation_is_one_finding():
    """It keeps its place and first claim, the highest confidence, and all the questions that it answers."""
    first, again = found("was opened in 1931"), found("was  opened\nin 1931", question="By whom?", confidence="high")
    other = found("It is a toll-free bridge.")

    merged = merge([first, other, again, again])

    assert [f.quote for f in merged] == ["was opened in 1931", "It is a toll-free bridge."]
    assert (merged[0].question, merged[0].also_answers, merged[0].confidence) == ("When?", ["By whom?"], "high")


def test_findings_have_columns_in_sql(tmp_path: Path):
    """Typed findings show as columns of `findings`; any other finding has NULL there and is whole in `finding`."""
    with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as thread:
        thread.step(
            "find", lambda state: state.update(findings=[found("was opened in 1931"), "a text", {"claim": "c"}, 7])
        )
        rows = thread.sql("SELECT claim, quote, source, location, question, confidence FROM findings WHERE is_current")
        whole = thread.sql("SELECT finding FROM findings WHERE is_current")

    rows = rows.astype(object).where(rows.notna(), None).values.tolist()
    assert rows[0] == ["was opened in 1931"] * 2 + ["bridge.md", "characters 12 to 33", "When?", "low"]
    assert rows[1:] == [[None] * 6, ["c", *[None] * 5], [None] * 6]
    assert len(whole) == 4


def test_a_kernel_that_imported_nothing_can_load_findings(tmp_path: Path):
    """After a crash the state is opened before any cell has imported the assistant."""
    with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as thread:
        thread.step("find", lambda state: state.update(findings=[found("was opened in 1931")]))

    code = (
        "import resumable_nb, sys\n"
        "t = resumable_nb.open('t', db='t.duckdb', start='newest', say=lambda _: None)\n"
        "print(t.state.findings[0].quote, 'resumable_nb.research.sources' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)

    assert ended.stdout == "was opened in 1931 False\n", ended.stderr


def test_text_of_a_report_is_never_markup():
    """HTML, images, links and headings of models and sources show as text; a link that is none is not made."""
    nasty = "<img src=x onerror=alert(1)> ![i](http://e.vil/i) [l](javascript:x)\n# Head `code` $x$ http://e.vil"
    document = Document("a](x).md", "", nasty)
    finding = found(nasty, question=nasty, document=document)
    report = Report(
        question=nasty,
        answer=[Statement(text=nasty, findings=[1])],
        findings=[finding],
        links={document.ref: "javascript:alert(1)"},
        notes=["1. no list"],
    )

    shown = report.markdown

    assert "<" not in shown.replace("&lt;", "")
    assert "![" not in shown
    assert "](" not in shown.replace("\\](", "").replace("\\]\\(", "")
    assert "http://" not in shown
    assert [line for line in shown.splitlines() if line.startswith("#")][1].startswith("## &lt;img")


def test_each_citation_is_a_link_to_its_source():
    """A web page or a file beside the notebook."""
    finding = found("was opened in 1931")
    answer = [Statement(text="In 1931.", findings=[1])]
    for link, shown in (("data/the bridge.md", "data/the%20bridge.md"), ("https://x.org/a?b=c", "https://x.org/a?b=c")):
        report = Report(question="When?", answer=answer, findings=[finding], links={"bridge.md": link})

        assert f"In 1931. [\\[1\\]]({shown})" in report.markdown
        assert f"1. [bridge.md]({shown}), characters 12 to 33, confidence: low" in report.markdown


def test_links_of_a_folder_lead_to_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From the notebook's folder, or from where the report is saved; also where a name has signs of URLs or Markdown."""
    book, names = tmp_path / "book", ["a b.md", "50%.md", "c#d?.md", "x](y) [z].md", "http:e.md", "page.txt"]
    (tmp_path / "corpus 1").mkdir()
    for name in names:
        (tmp_path / "corpus 1" / name).write_text("The bridge was opened in 1931.")
    (book / "out").mkdir(parents=True)
    monkeypatch.chdir(book)

    for path in ("../corpus 1", str(tmp_path / "corpus 1")):
        corpus = Folder(path)
        documents = [corpus.fetch(name) for name in names]
        findings = [found("was opened in 1931", document=document) for document in documents]
        report = Report(question="When?", findings=findings, links={d.ref: d.link for d in documents})
        report.save("out/report.md")

        for text, folder in ((report.markdown, book), ((book / "out/report.md").read_text(), book / "out")):
            linked = re.findall(r"\[\\\[\d\\]\]\(([^)]*)\)", text)
            assert [(folder / unquote(link)).resolve().name for link in linked] == names
            assert all((folder / unquote(link)).is_file() and not link.startswith("/") for link in linked)


def test_a_page_of_a_pdf_and_a_web_page_keep_their_links_when_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The page number stays behind the file's path, and a web address is no path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    finding = found("was opened in 1931")
    for link, saved in (("corpus/a.pdf#page=2", "../corpus/a.pdf#page=2"), ("https://x.org/a#b", "https://x.org/a#b")):
        Report(question="When?", findings=[finding], links={"bridge.md": link}).save("out/r.md")

        assert f"]({saved}), characters" in Path("out/r.md").read_text()
