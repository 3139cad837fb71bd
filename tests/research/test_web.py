"""Sources on the web, against a local server that answers in the recorded shape of each service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import resumable_nb
from resumable_nb.errors import CallError
from resumable_nb.research import reporter, web
from resumable_nb.research.findings import accept
from resumable_nb.research.sources import Together
from resumable_nb.research.web import ArXiv, Crossref, SearchAPI
from tests.support.model_server import ModelServer
from tests.support.research_model import ResearchModel

FEED = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
  <title type="html">ArXiv Query</title>
  <entry>
    <id>http://arxiv.org/abs/2101.00001v2</id>
    <title>Waggle dances
  revisited</title>
    <summary>  Bees tell the direction of food
by a waggle dance. The angle is that to the sun.
</summary>
    <author><name>A. Author</name></author>
  </entry>
</feed>"""
WORK = {
    "DOI": "10.1000/Bee(1)",
    "title": ["Bees"],
    "abstract": "<jats:title>Abstract</jats:title><jats:p>Bees count up to four &amp; no further.</jats:p>",
}
PAGE = "<html><head><title>Bee page</title></head><body><p>Bees sleep at night, as most of us do.</p></body></html>"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    web._seen.clear()
    with ModelServer() as started:
        yield started


def answer(path: str, body: object, content_type: str = "application/json") -> dict:
    raw = body if isinstance(body, str) else json.dumps(body)
    return {"marker": "", "path": path, "raw": raw, "content_type": content_type, "times": 50}


def sources(server: ModelServer) -> list:
    results = {"data": {"hits": [{"t": "Bee page", "u": f"{server.url}/page"}, {"t": "no page", "u": "javascript:1"}]}}
    server.script(
        answer("/arxiv", FEED, "application/atom+xml"),
        answer("/works/10.1000%2FBee%281%29", {"message": WORK}),
        answer("/works", {"message": {"items": [WORK, {"DOI": "10.1/none"}]}}),
        answer("/search", results),
        answer("/page", PAGE, "text/html"),
    )
    return [
        ArXiv(url=f"{server.url}/arxiv"),
        Crossref(url=f"{server.url}/works", mailto="a@b.org"),
        SearchAPI(url=f"{server.url}/search", items="data.hits", title="t", text="", link="u"),
    ]


FOUND = {
    "Bees tell the direction of food by a waggle dance.": "http://arxiv.org/abs/2101.00001v2",
    "Bees count up to four & no further.": "https://doi.org/10.1000/Bee(1)",
    "Bees sleep at night, as most of us do.": "/page",
}


def test_each_service_gives_sentences_and_documents(server: ModelServer):
    """Titles, texts and links come out of the form that the service has; a document is found again after a restart."""
    for source, (text, link) in zip(sources(server), FOUND.items(), strict=True):
        found = source.search("bees", 5)
        web._seen.clear()

        assert text in [s.text for s in found]
        document = source.fetch(found[0].source)
        assert document.link.endswith(link)
        assert text in " ".join(document.text.split())
        with pytest.raises(LookupError):
            source.fetch("another source's")


def test_a_search_in_a_step_is_asked_once(server: ModelServer, tmp_path: Path):
    """It is durable: a step that runs again gets the recorded answers."""
    given = Together(sources(server))
    attempts = []

    def look() -> None:
        attempts.append([s.text for s in given.search("bees", 9)])
        if len(attempts) == 1:
            raise ValueError

    with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as thread:
        with pytest.raises(ValueError):
            thread.step("look", look)
        thread.step("look", look)

    assert attempts[0] == attempts[1] and set(FOUND) <= set(attempts[0])
    assert [server.stats()["paths"].get(path) for path in ("/arxiv", "/works", "/search", "/page")] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "rule",
    [
        {"status": 403, "json": {}},
        {"raw": "<html>busy</html>", "content_type": "text/html"},
        {"delay_s": 3},
        {"raw": "no feed <", "content_type": "application/atom+xml"},
    ],
    ids=["refused", "another page", "no answer", "half"],
)
def test_a_service_that_fails_is_told_and_stops_nothing(server: ModelServer, rule: dict):
    """An error, an HTML page, silence, half an answer: the other sources are asked."""
    server.script(*[{"marker": "", "path": f"/{name}", "times": 9, **rule} for name in ("arxiv", "works")])
    bad = [ArXiv(url=f"{server.url}/arxiv", timeout_s=0.2), Crossref(url=f"{server.url}/works", timeout_s=0.2)]
    together = Together([*bad, sources(server)[2]])

    assert [s.text for s in together.search("bees")] == ["Bees sleep at night, as most of us do."]
    assert len(together.problems) == 2 and "could not be asked" in together.problems[0]


def test_an_error_says_which_service_and_what_it_said(server: ModelServer):
    """Used alone, a source raises."""
    server.script({"marker": "", "path": "/arxiv", "status": 403, "json": {}})

    with pytest.raises(CallError, match="/arxiv answered with status 403"):
        ArXiv(url=f"{server.url}/arxiv").search("bees")


def test_no_finding_is_lost_because_its_source_was_fetched_before_the_crash(
    server: ModelServer, model: ResearchModel, tmp_path: Path
):
    """Source: Open-Source-Legal/OpenContracts#2219. In a new process the last check fetches each document again."""
    given = sources(server)

    def find(state: Any) -> None:
        together = Together(given)
        for sentence in together.search("bees", 9):
            document = together.fetch(sentence.source)
            finding = accept(document, sentence.text, claim="", question="q", confidence="low")
            state.update(findings=[finding])

    with resumable_nb.open("t", db=tmp_path / "t.duckdb", query="q", say=lambda _: None) as thread:
        thread.step("find", find)
    web._seen.clear()  # as in a new process
    with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as thread:
        thread.step("find", find)
        report = thread.step("report", lambda state: reporter(state, given))

    assert set(FOUND) <= {finding.quote for finding in report.findings}
    assert report.findings == thread.state.findings
    assert not [note for note in report.notes if "left out" in note]


def test_arxiv_is_asked_for_any_of_the_words_that_tell(server: ModelServer):
    """Of a question in words, which no abstract has all of; the best come first."""
    server.script(answer("/arxiv", FEED, "application/atom+xml"))
    ArXiv(url=f"{server.url}/arxiv").search('How do "bees", by a waggle-dance, tell a direction?')

    (asked,) = parse_qs(urlsplit(server.last()["path"]).query)["search_query"]
    assert asked == 'all:"bees" OR all:"waggle-dance" OR all:"tell" OR all:"direction"'
