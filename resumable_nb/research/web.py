"""Sources on the web: arXiv, Crossref, any search service that answers in JSON. Their calls are durable.

Inside a step a search is asked once and answered from the journal on replay. What a service says of itself: arXiv's
API (https://info.arxiv.org/help/api/user-manual.html), Crossref's (https://api.crossref.org/swagger-ui/index.html).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from resumable_nb.errors import CallError
from resumable_nb.research.findings import one_line
from resumable_nb.research.ranking import STOP_WORDS
from resumable_nb.research.reading import Unreadable, html_text, html_title
from resumable_nb.research.sources import Document, Sentence, Texts

_ATOM = "{http://www.w3.org/2005/Atom}"
_seen: dict[tuple[object, str], Document] = {}


@functools.lru_cache(maxsize=8)
def _client(timeout_s: float) -> Any:
    from resumable_nb.llm.http_clients import http_client

    return http_client(timeout=timeout_s, headers={"user-agent": "resumable-nb"})


@dataclass(frozen=True, kw_only=True)
class _Web:
    """A service that is asked over HTTP."""

    timeout_s: float = 20

    def _documents(self, query: str, count: int) -> list[Document]:
        raise NotImplementedError

    def _document(self, ref: str) -> Document:
        raise NotImplementedError

    def search(self, query: str, count: int = 5) -> list[Sentence]:
        """The sentences of what the service found that have most to do with the query, best first.

        Raises:
            CallError: It answers with an error.
        """
        documents = self._documents(query, count)
        _seen.update({(self._identity, document.ref): document for document in documents})
        texts = Texts.of(documents)
        return texts.search(query, count) or texts.sentences[:count]

    def fetch(self, ref: str) -> Document:
        """A document that a search found; asked for again after a restart.

        Raises:
            LookupError: The service has none of this name.
            CallError: It answers with an error.
        """
        known = _seen.get((self._identity, ref))
        return known if known is not None else self._document(ref)

    @property
    def _identity(self) -> object:
        return type(self).__name__, getattr(self, "url", "")

    def _get(
        self, url: str, parameters: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        response = _client(self.timeout_s).get(url, params=parameters or None, headers=headers or None)
        if response.status_code == 404:
            raise LookupError(f"{url} is not there")
        if response.status_code >= 400:
            raise CallError(f"{url} answered with status {response.status_code}.")
        return response

    def __str__(self) -> str:
        return f"{type(self).__name__} at {getattr(self, 'url', '')}"


@dataclass(frozen=True, kw_only=True)
class ArXiv(_Web):
    """Abstracts of arXiv. A document is called as arXiv does, such as `arXiv:2101.00001v2`.

    Attributes:
        url: of the API.
    """

    url: str = "https://export.arxiv.org/api/query"

    def _documents(self, query: str, count: int) -> list[Document]:
        words = list(dict.fromkeys(re.findall(r"\w+(?:-\w+)*", query)))
        telling = [word for word in words if word.lower() not in STOP_WORDS] or words
        asked = " OR ".join(f'all:"{word}"' for word in telling[:12])  # best first; no abstract has all of a question
        return self._entries({"search_query": asked, "start": 0, "max_results": count})

    def _document(self, ref: str) -> Document:
        if not ref.startswith("arXiv:"):
            raise LookupError(f"{ref!r} is no paper of arXiv")
        found = self._entries({"id_list": ref.removeprefix("arXiv:"), "max_results": 1})
        if not found:
            raise LookupError(f"arXiv has no {ref!r}")
        return found[0]

    def _entries(self, parameters: Mapping[str, Any]) -> list[Document]:
        from lxml import etree

        safe = etree.XMLParser(resolve_entities=False, no_network=True)
        try:
            feed = etree.fromstring(self._get(self.url, parameters).content, parser=safe)
        except etree.XMLSyntaxError as error:
            raise CallError(f"{self.url} answered with what is no Atom feed ({error}).") from error
        if feed.tag != f"{_ATOM}feed":
            raise CallError(f"{self.url} answered with what is no Atom feed but <{feed.tag}>.")
        return [_paper(entry) for entry in feed.iter(f"{_ATOM}entry") if entry.findtext(f"{_ATOM}summary")]


def _paper(entry: Any) -> Document:
    link = one_line(entry.findtext(f"{_ATOM}id") or "")
    ref = f"arXiv:{link.partition('/abs/')[2] or link}"
    return Document(ref, one_line(entry.findtext(f"{_ATOM}title") or ""), entry.findtext(f"{_ATOM}summary"), link)


@dataclass(frozen=True, kw_only=True)
class Crossref(_Web):
    """Abstracts that publishers gave to Crossref. A document is called `doi:…`.

    Attributes:
        url: of the API's works.
        mailto: your address; Crossref serves who tells one better.
    """

    url: str = "https://api.crossref.org/works"
    mailto: str = ""

    def _documents(self, query: str, count: int) -> list[Document]:
        told = {"mailto": self.mailto} if self.mailto else {}
        asked = {"query": query, "rows": count, "filter": "has-abstract:true", **told}
        items = _at(_json(self._get(self.url, asked)), "message.items")
        return [_work(item) for item in items or [] if item.get("abstract") and item.get("DOI")]

    def _document(self, ref: str) -> Document:
        if not ref.startswith("doi:"):
            raise LookupError(f"{ref!r} is no DOI")
        item = _at(_json(self._get(f"{self.url}/{quote(ref.removeprefix('doi:'), safe='')}")), "message")
        if not item or not item.get("abstract"):
            raise LookupError(f"Crossref has no abstract of {ref!r}")
        return _work(item)


def _work(item: Mapping[str, Any]) -> Document:
    from lxml import html

    abstract = html.fromstring(f"<div>{item['abstract']}</div>")  # JATS, a form of XML: its paragraphs are `jats:p`
    paragraphs = [part for part in abstract.iter() if part.tag in ("p", "jats:p")] or [abstract]
    text = "\n\n".join("".join(part.itertext()) for part in paragraphs)
    title = one_line(" ".join(item.get("title") or []))
    return Document(f"doi:{item['DOI']}", title, text, f"https://doi.org/{item['DOI']}")


@dataclass(frozen=True, kw_only=True)
class SearchAPI(_Web):
    """Any search service that answers a GET with JSON, such as SearXNG. A document is the page that it names.

    Attributes:
        url: what is asked.
        query: the name of the parameter with the query.
        parameters: others, such as `{"format": "json"}`.
        headers: such as a key of yours.
        items: where in the answer the list of results is, with dots; "" if it is the answer.
        title: where in a result its title is.
        text: where in a result its text is. "": each page is fetched, and its text is searched.
        link: where in a result the page's address is.
    """

    url: str
    query: str = "q"
    parameters: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    items: str = "results"
    title: str = "title"
    text: str = "content"
    link: str = "url"

    def _documents(self, query: str, count: int) -> list[Document]:
        found = _json(self._get(self.url, {self.query: query, **self.parameters}, self.headers))
        results = _at(found, self.items)
        links = [(one, str(_at(one, self.link) or "")) for one in (results if isinstance(results, list) else [])]
        known = [(one, link) for one, link in links if link.startswith(("http://", "https://"))][:count]
        if not self.text:
            return [self._document(link) for _, link in known]
        return [
            Document(link, one_line(str(_at(one, self.title) or "")), str(_at(one, self.text) or ""), link)
            for one, link in known
        ]

    def _document(self, ref: str) -> Document:
        if not ref.startswith(("http://", "https://")):
            raise LookupError(f"{ref!r} is no web page")
        page = self._get(ref).text
        try:
            return Document(ref, html_title(page), html_text(page), ref)
        except Unreadable as error:
            raise LookupError(f"{ref}: {error}") from error


def _json(response: Any) -> Any:
    try:
        return json.loads(response.content)
    except ValueError as error:
        raise CallError(f"{response.url} answered with what is no JSON ({error}).") from error


def _at(value: Any, path: str) -> Any:
    """What is found in nested dicts along `path`; None if it is not there."""
    for name in filter(None, path.split(".")):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
