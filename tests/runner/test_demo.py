"""`resumable-nb demo`: what it shows, what it leaves, and that it never spends money by itself."""

from __future__ import annotations

import importlib.util
import os
import re

import nbformat
import pytest

from resumable_nb import demo
from resumable_nb.errors import StateMismatch, UsageError
from tests.support.model_server import ModelServer


@pytest.fixture(scope="module")
def server():
    with ModelServer() as server:
        yield server


@pytest.fixture
def live(server, monkeypatch):
    server.reset()
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-SECRET")
    return server


def test_the_demo_is_killed_goes_on_and_shows_what_was_not_done_again(live, tmp_path):
    """One step skipped, three answers from the journal, none asked twice; notebook, store and report are left."""
    said: list[str] = []
    code = demo.run_demo(tmp_path / "new", live=True, kill=True, say=said.append)
    text = "\n".join(said)

    assert code == 0
    assert "died in cell 10 of 17 (step `research`, id research) by SIGKILL" in text
    for fact, value in (
        ("steps skipped", 1),
        ("calls of theirs not made again", 1),
        ("calls answered from the journal", 3),
        ("calls sent twice", 0),
    ):
        assert re.search(rf"^{fact} +{value}$", text, re.MULTILINE)
    assert re.search(r"^seconds from crash to going on +\d+\.\d$", text, re.MULTILINE)
    assert re.search(r"^question +quote +source$", text, re.MULTILINE)
    assert live.asked() == 7
    assert {"01_quickstart.ipynb", "research.duckdb", "report.md"} <= {
        path.name for path in (tmp_path / "new").iterdir()
    }
    nbformat.validate(nbformat.read(tmp_path / "new" / "01_quickstart.ipynb", as_version=4))


def test_a_quotation_that_is_not_in_its_source_is_found(live, tmp_path):
    """The check of the demo can fail: a report without a quotation is refused."""
    demo.run_demo(tmp_path / "new", live=True, kill=False, say=lambda _: None)
    report = tmp_path / "new" / "report.md"
    report.write_text(report.read_text().replace("> ", "> Not "), encoding="utf-8")
    report.write_text(re.sub(r"[Ee]xception", "error", report.read_text()), encoding="utf-8")

    with pytest.raises(StateMismatch, match=r"is not in Python reference"):
        demo._checked(tmp_path / "new")


def test_no_key_reaches_the_kernel_without_live(live):
    """A configured key is used only when asked for; other settings of the library stay out too."""
    os.environ["RESUMABLE_NB_MODEL"] = "expensive"
    kept, used = demo._environment(live=False), demo._environment(live=True)
    del os.environ["RESUMABLE_NB_MODEL"]

    assert not [name for name in kept if name.startswith(("OPENAI_", "ANTHROPIC_", "RESUMABLE_NB_"))]
    assert (used["OPENAI_API_KEY"], used["RESUMABLE_NB_MODEL"]) == ("sk-test-SECRET", "expensive")


def test_live_without_a_model_is_refused(tmp_path):
    """Nothing is made then."""
    with pytest.raises(UsageError, match="needs OPENAI_API_KEY"):
        demo.run_demo(tmp_path / "new", live=True, kill=True, say=print)

    assert not (tmp_path / "new").exists()


def test_nothing_is_written_over(tmp_path):
    """A folder that holds something is refused."""
    (tmp_path / "notes.txt").touch()

    with pytest.raises(UsageError, match="exists already"):
        demo.run_demo(tmp_path, live=False, kill=False, say=print)


@pytest.mark.model
@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra `local`")
def test_the_embedded_model_does_it_offline(tmp_path):
    """Without a key and without a network, the small model answers every question in the form asked for."""
    said: list[str] = []
    code = demo.run_demo(tmp_path / "new", live=False, kill=True, say=said.append)
    findings = demo._checked(tmp_path / "new")

    assert code == 0, "\n".join(said)
    assert len(findings) >= 4
    assert re.search(r"^calls sent twice +0$", "\n".join(said), re.MULTILINE), "\n".join(said)
