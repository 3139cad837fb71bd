"""Folders and tables as sources: every kind of file, what cannot be read, what has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pandas as pd
import pytest

import resumable_nb
from resumable_nb.errors import StoreLocked, ThreadTakenOver, UsageError
from resumable_nb.research.corpora import Folder, table
from resumable_nb.research.findings import one_line
from resumable_nb.research.reading import MAX_FILE_BYTES
from resumable_nb.research.sources import Document, Sentence, Together
from tests.research.pages import pdf


def write(folder: Path, name: str, content: str | bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "corpus"
    write(
        made,
        "mill.md",
        "# The tide mill\nIt closed in 1902 after a fire.\n\n- It ground barley.\n- It had two wheels.\n",
    )
    write(made, "notes/bell.txt", "\ufeffThe bell was cast\r\nin Delft.")
    write(made, "lamp.html", "<title>The &amp; lamp</title><nav>Home</nav><p>The lamp burned whale oil until 1870.</p>")
    write(made, "log.pdf", pdf("The keeper kept a log of every storm.", "", "He left in 1911."))
    return made


def first(folder: Path, query: str) -> tuple[str, str]:
    found = Folder(str(folder)).search(query, 1)[0]
    return found.source, found.text


def test_every_kind_of_file_can_be_searched_and_quoted(folder: Path):
    """Markdown, text, HTML and each page of a PDF, with the place of each sentence in its document."""
    assert first(folder, "When did the mill close after a fire?") == ("mill.md", "It closed in 1902 after a fire.")
    assert first(folder, "Where was the bell cast?") == ("notes/bell.txt", "The bell was cast in Delft.")
    assert first(folder, "whale oil") == ("lamp.html", "The lamp burned whale oil until 1870.")
    assert first(folder, "keeper storm") == ("log.pdf#page=1", "The keeper kept a log of every storm.")

    corpus = Folder(str(folder))
    for found in corpus.search("the mill bell lamp keeper barley wheels fire 1911 whale", 20):
        assert one_line(corpus.fetch(found.source).text[found.start : found.end]) == found.text
    assert corpus.fetch("log.pdf#page=3").link.endswith("corpus/log.pdf#page=3")
    assert corpus.fetch("lamp.html").title == "The & lamp"
    assert corpus.problems == ["log.pdf: pages without text, which look scanned: 1."]


def test_what_cannot_be_read_is_told_and_stops_nothing(folder: Path):
    """A broken PDF, a scanned one, an empty page, bytes under the name of a text; hidden files are not looked at."""
    write(folder, "broken.pdf", pdf("x")[:60])
    write(folder, "scan.pdf", pdf("", ""))
    write(folder, "empty.html", "<html></html>")
    write(folder, "image.txt", b"\x89PNG\x00\x01")
    write(folder, "latin.md", "Café au lait was served here.".encode("latin-1"))
    write(folder, ".git/x.md", "Hidden words are not found.")

    corpus = Folder(str(folder))

    told = "\n".join(corpus.problems)
    assert "broken.pdf could not be read: the PDF is broken or locked" in told
    assert "scan.pdf could not be read: no page of 2 has text; it looks scanned" in told
    assert "empty.html could not be read: there is no text in it" in told
    assert "image.txt could not be read: it is no text" in told
    assert "latin.md is not all UTF-8" in told
    assert corpus.search("hidden") == []
    assert corpus.search("bell cast")
    with pytest.raises(UsageError, match="no such folder"):
        Folder(str(folder / "nowhere"))


def test_of_an_endless_text_the_beginning_is_read(tmp_path: Path):
    """50 MB in one file do not stop the search; that something is left out is said."""
    write(tmp_path, "long.txt", b"Zebras graze at noon.\n" + b"word " * 10_000_000)

    corpus = Folder(str(tmp_path))

    assert corpus.fetch("long.txt").text.startswith("Zebras graze at noon.")
    assert f"Of long.txt (50,000,022 bytes) only the first {MAX_FILE_BYTES:,} were read." in corpus.problems


def test_a_changed_file_is_noticed(folder: Path):
    """A search in the same kernel reads it anew, and the version, which a step depends on, is another one."""
    corpus = Folder(str(folder))
    before = corpus.search("fire", 1)

    write(folder, "mill.md", "# The tide mill\nIt closed in 1903 after a fire, they say.\n")
    os.utime(folder / "mill.md", (1, 1))

    assert [before[0].text[:17], corpus.search("fire", 1)[0].text[:17]] == ["It closed in 1902", "It closed in 1903"]
    assert Folder(str(folder)) != corpus
    assert Folder(str(folder)) == Folder(str(folder))


def test_a_document_is_fetched_as_its_file_is_now(folder: Path):
    """Changed, new, or gone since the folder was read, without a search between."""
    corpus = Folder(str(folder))
    assert "1902" in corpus.fetch("mill.md").text

    write(folder, "mill.md", "It closed in 1903 after a fire, they say.")
    write(folder, "new.md", "A new bell hangs in the tower.")
    assert "1903" in corpus.fetch("mill.md").text
    assert "new bell" in corpus.fetch("new.md").text

    (folder / "log.pdf").unlink()
    with pytest.raises(LookupError):
        corpus.fetch("log.pdf#page=1")


def test_a_step_runs_again_when_a_file_has_changed(folder: Path, tmp_path: Path):
    """And is skipped while the corpus is the same."""
    log = tmp_path / "log"

    def run() -> None:
        corpus = Folder(str(folder))

        def find() -> None:
            with log.open("a") as file:
                print(corpus.search("fire", 1)[0].text, file=file)

        with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as thread:
            thread.step("find", find)

    run()
    run()
    write(folder, "mill.md", "It closed in 1903 after a fire.")
    run()

    assert log.read_text().splitlines() == ["It closed in 1902 after a fire.", "It closed in 1903 after a fire."]


def test_ten_thousand_documents(tmp_path: Path):
    """Many small files are one corpus."""
    for number in range(10_000):
        (tmp_path / f"{number}.txt").write_text(f"House number {number} has {number * 7} windows in all.")

    corpus = Folder(str(tmp_path))

    assert corpus.search("house number 4711", 1)[0].text == "House number 4711 has 32977 windows in all."


@pytest.mark.parametrize("kind", ["duckdb", "pandas"])
def test_rows_of_a_table_are_documents(kind: str):
    """A DuckDB table or a DataFrame, by key; rows without text are left out; a changed row is another version."""
    frame = pd.DataFrame({"id": ["a", "b", "c"], "df": ["The mill closed in 1902.", None, "The bell is from Delft."]})
    with duckdb.connect() as con:
        con.register("frame", frame)
        con.execute("CREATE TABLE notes AS FROM frame")
        notes = table(con.table("notes") if kind == "duckdb" else frame, text="df", key="id", name="notes")
    other = table(
        frame.replace("The mill closed in 1902.", "The mill closed in 1903."), text="df", key="id", name="notes"
    )

    assert [(s.source, s.text) for s in notes.search("Delft bell")] == [("notes: c", "The bell is from Delft.")]
    assert notes.fetch("notes: a").text == "The mill closed in 1902."
    assert notes != other
    assert notes.search("1902") and not notes.search("1903") and other.search("1903")
    for wrong, why in (({"text": "nowhere"}, "Its columns: id, df"), ({"text": "id", "key": "x"}, "'x'")):
        with pytest.raises(UsageError, match=why):
            table(frame, **wrong)
    with pytest.raises(UsageError, match="same 'id'"):
        table(pd.concat([frame, frame]), text="df", key="id")


def test_rows_of_a_table_lead_to_where_a_column_says():
    """Rows without an address have no link; another address is another version."""
    frame = pd.DataFrame(
        {"text": ["The mill closed in 1902.", "The bell is from Delft."], "at": ["https://a.example/1", None]}
    )
    papers = table(frame, text="text", link="at")

    assert [papers.fetch(f"row: {number}").link for number in (1, 2)] == ["https://a.example/1", ""]
    assert papers != table(frame.fillna("b.html"), text="text", link="at")
    with pytest.raises(UsageError, match="no column 'url'"):
        table(frame, text="text", link="url")


class Broken:
    def search(self, query: str, count: int) -> list:
        raise TimeoutError("no answer after 20 s")

    def fetch(self, ref: str):
        raise TimeoutError("no answer after 20 s")


def test_several_sources_are_asked_as_one_and_one_may_fail(folder: Path):
    """The best of each in turn; a source that raises is left out, and that is told once."""
    frame = pd.DataFrame({"text": ["The fire of 1902 began in the kiln."]})
    together = Together([Broken(), Folder(str(folder)), table(frame, text="text", name="log")])

    assert [s.source for s in together.search("fire 1902", 2)] == ["mill.md", "log: 1"]
    assert together.search("fire 1902", 1)
    assert together.fetch("log: 1").text.startswith("The fire")
    with pytest.raises(LookupError):
        together.fetch("nowhere")
    assert [p for p in together.problems if "Broken" in p] == [
        "Broken could not be asked (TimeoutError: no answer after 20 s)."
    ]


def test_what_is_wrong_with_the_machine_is_no_failing_source(folder: Path):
    """After Ctrl-C in an import, with a package missing or the store locked: an error, not a report that counts as done."""
    broken = (
        "import sys, numpy; [sys.modules.pop(name) for name in list(sys.modules) if name.startswith('numpy')]\n"
        "from resumable_nb.research import Folder\nfrom resumable_nb.research.sources import Together\n"
        f"Together([Folder({str(folder)!r})]).search('anything')"
    )
    ended = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, check=False)
    assert "Restart the kernel" in ended.stderr and "UsageError" in ended.stderr, ended.stderr

    class Unusable:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def search(self, query: str, count: int = 5) -> list[Sentence]:
            raise self.error

        def fetch(self, ref: str) -> Document:
            raise self.error

    for error, raised, words in (
        (ModuleNotFoundError("No module named 'lxml'"), UsageError, "Install it"),
        (StoreLocked("held"), StoreLocked, "held"),
        (ThreadTakenOver("there"), ThreadTakenOver, "there"),
    ):
        together = Together([Unusable(error), Folder(str(folder))])
        for ask in (together.search, together.fetch):
            with pytest.raises(raised, match=words):
                ask("anything")
        assert together.failures == []


def test_an_empty_corpus_finds_nothing(tmp_path: Path):
    """No file, no sentence, no error."""
    assert Folder(str(tmp_path)).search("anything") == []
    assert Together([]).search("anything") == []


def test_without_the_extra_other_files_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """What needs a package that is not installed is told with the command that installs it."""
    for package in ("pypdf", "trafilatura"):
        monkeypatch.setitem(sys.modules, package, None)
    corpus = Folder(str(folder))

    assert corpus.search("bell cast")
    assert [p.partition(" could")[0] for p in corpus.problems] == ["lamp.html", "log.pdf"]
    assert all("pip install 'resumable-nb[research]'" in problem for problem in corpus.problems)


SCRIPTS = {
    "Russian": ("Когда погасла лампа маяка?", "Лампа маяка погасла в 1931 году.", " "),
    "German": ("Wann schloss die Mühle?", "Ältere Leute sagen, die Mühle schloss im Jahr 1931.", " "),
    "Chinese": ("灯塔的灯何时电气化", "灯塔的灯于1926年电气化。", ""),
    "Japanese": ("ランプはいつ電化されましたか", "灯台のランプは1926年に電化されました。", ""),
    "Hindi": ("दीपक कब बुझ गया", "पुराना दीपक 1931 में बुझ गया।", " "),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_sentence_is_found_in_any_script_and_in_a_long_paragraph(script: str, tmp_path: Path):
    """Sentences end where the script ends them, not only before one of the letters A to Z."""
    question, answer, space = SCRIPTS[script]
    other = {
        "Russian": "Этот корабль стоит здесь.",
        "German": "Über das Schiff ist nichts bekannt.",
        "Hindi": "यह जहाज़ यहाँ है।",
    }
    write(tmp_path, "a.txt", space.join([other.get(script, "船在港口停了很久。")] * 60 + [answer]))
    corpus = Folder(str(tmp_path))

    found = corpus.search(question, 1)[0]

    assert found.text == answer
    assert corpus.fetch("a.txt").text[found.start : found.end] == answer


def test_a_text_without_sentence_ends_is_found_in_parts(tmp_path: Path):
    """What is too long to be quoted as a whole is cut between clauses or words, and nothing of it is lost."""
    told = [f"then he told of ship {number}" for number in range(400)]
    write(tmp_path, "talk.txt", " ".join([*told[:200], "and the zebra came,", *told[200:]]))
    corpus = Folder(str(tmp_path))
    parts = corpus.search("ship zebra", 100)

    assert "the zebra came" in parts[0].text
    assert " ".join(part.text for part in sorted(parts, key=lambda part: part.start)) == corpus.fetch("talk.txt").text


def test_documents_in_which_nothing_can_be_found_are_named(tmp_path: Path):
    """A table or single words hold no sentence: that is told, and not only that nothing was found."""
    write(tmp_path, "years.md", "# Years\n\n| lamp | 1926 |\n| --- | --- |\n")
    write(tmp_path, "word.txt", "Lamp.")
    write(tmp_path, "bell.txt", "The bell was cast in Delft.")

    (told,) = Folder(str(tmp_path)).problems
    assert told.startswith("Nothing can be found in word.txt, years.md: ")
    assert (
        table(pd.DataFrame({"text": ["Lamp."]}), text="text").problems[0].startswith("Nothing can be found in row: 1: ")
    )
