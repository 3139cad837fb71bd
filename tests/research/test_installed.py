"""Python's reference and the installed packages as a source: real links, and a step that notices what has changed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest

import resumable_nb
from resumable_nb.fingerprint import fingerprint
from resumable_nb.research import Folder, installed, sources
from resumable_nb.research.sources import Document, Texts, Together

ABOUT = """Metadata-Version: 2.1
Name: zebra-counting
Version: {version}
Home-page: {home}
{links}
Description-Content-Type: text/markdown

Zebras are counted from a balloon at noon in {version} steps.
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package beside the others, in place of its last version."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def put(version: str = "1.0", *, home: str = "", links: tuple[str, ...] = ()) -> None:
        about = tmp_path / "site" / "zebra_counting.dist-info" / "METADATA"
        about.parent.mkdir(parents=True, exist_ok=True)
        told = "\n".join(f"Project-URL: {link}" for link in links) or "License: MIT"
        about.write_text(ABOUT.format(version=version, home=home or "UNKNOWN", links=told))

    return put


def test_each_topic_of_the_reference_has_a_place_in_the_documentation():
    """A page and an anchor, of this Python's version; an unknown topic is looked up by the documentation's search."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    texts = sources.load()
    links = {name: texts.fetch(f"Python reference: {name}").link for name in topics}

    assert links["try"] == f"https://docs.python.org/{version}/reference/compound_stmts.html#try"
    assert links["truth"] == f"https://docs.python.org/{version}/library/stdtypes.html#truth"
    assert [name for name, link in links.items() if "search.html" in link] == []
    assert installed.topic_link("a new one") == f"https://docs.python.org/{version}/search.html?q=a%20new%20one"


@pytest.mark.parametrize(
    ("home", "links", "expected"),
    [
        (
            "https://z.org",
            ("Source, https://git.z.org", "Documentation, https://docs.z.org/en"),
            "https://docs.z.org/en",
        ),
        ("https://z.org", ("Issues, https://git.z.org/issues",), "https://z.org"),
        ("", ("Home-Page,https://z.org/home", "Source Code, https://git.z.org"), "https://z.org/home"),
        ("", ("Documentation, javascript:alert(1)", "GitHub, https://git.z.org"), "https://git.z.org"),
        ("http://[", ("broken",), ""),
        ("", (), ""),
    ],
)
def test_a_package_links_to_what_its_metadata_name(install: Install, home: str, links: tuple, expected: str):
    """Documentation before home page before source, under whatever spelling; what is no web address is no link."""
    install(home=home, links=links)

    assert sources.load().fetch("package zebra-counting 1.0").link == expected


def test_a_step_runs_again_when_a_package_has_changed(install: Install, tmp_path: Path):
    """And is skipped while all are the same, also where several sources were made one."""
    log = tmp_path / "log"

    def run() -> None:
        texts, together = sources.load(), Together([sources.load()])

        def look() -> None:
            with log.open("a") as file:
                print(texts.search("zebras balloon", 1)[0].text, file=file)

        def look_at_all() -> None:
            with log.open("a") as file:
                print(together.search("zebras balloon", 1)[0].text, file=file)

        with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as thread:
            thread.step("look", look)
            thread.step("look at all", look_at_all)

    install("1.0")
    run()
    run()
    install("2.0")
    run()

    told = "Zebras are counted from a balloon at noon in {} steps."
    assert log.read_text().splitlines() == [told.format("1.0")] * 2 + [told.format("2.0")] * 2


def test_every_source_counts_by_what_it_holds(tmp_path: Path):
    """Not by the cell that made it: an equal one is equal, and another text, title or link makes another."""
    (tmp_path / "a.md").write_text("The mill closed in 1902.")

    def digest(value: Any) -> str:
        return fingerprint(value, namespace={}, made_by=str(id(value))).digest

    made = [
        lambda: Texts({"a": "One."}),
        lambda: Texts({"a": "Two."}),
        lambda: Texts({"a": "One."}, links={"a": "https://a.org"}),
        lambda: Texts.of([Document("a", "", "One.")]),
        lambda: Texts.of([Document("a", "title", "One.")]),
        lambda: Folder(str(tmp_path)),
        lambda: Together([Texts({"a": "One."})]),
        lambda: Together([Texts({"a": "One."}), Folder(str(tmp_path))]),
    ]

    assert [digest(make()) for make in made] == [digest(make()) for make in made]
    assert len({digest(make()) for make in made}) == len(made)
