"""The texts that are on every machine, with where each is to be read on the web.

Nobody here wrote them: Python's own language reference (`pydoc_data.topics`) and the descriptions that the installed
packages come with (`importlib.metadata`).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import string
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

REFERENCE, PACKAGES = "Python reference", "package"
# Which page of Python's documentation has the label that a topic is made of: see pydoc_topics.py in CPython's Doc/tools
# and the labels in Doc/reference and Doc/library. A label is an anchor of its page.
_PAGES = {
    "reference/compound_stmts": "async class compound else for function if try while with",
    "reference/datamodel": "attribute-access callable-types context-managers customization numeric-types objects "
    "sequence-types specialnames types",
    "reference/executionmodel": "dynamic-features exceptions execmodel naming",
    "reference/expressions": "assignment-expressions atom-identifiers atom-literals attribute-references await binary "
    "bitwise booleans calls comparisons conversions dict exprlists in lambda lists operator-summary power shifting "
    "slicings subscriptions unary",
    "reference/lexical_analysis": "floating id-classes identifiers imaginary integers numbers strings",
    "reference/simple_stmts": "assert assignment augassign break continue del global import nonlocal pass raise return "
    "yield",
    "library/pdb": "debugger",
    "library/stdtypes": "bltin-code-objects bltin-ellipsis-object bltin-null-object bltin-type-objects specialattrs "
    "string-methods truth typesfunctions typesmapping typesmethods typesmodules typesseq typesseq-mutable",
    "library/string": "formatstrings",
}
_PAGE_OF = {topic: page for page, topics in _PAGES.items() for topic in topics.split()}
# Labels of a package's links, best first, as normalised by
# https://packaging.python.org/en/latest/specifications/well-known-project-urls/
_LABELS = ("documentation", "docs", "homepage", "home", "source", "repository", "sourcecode", "github")
_NO_LETTERS = str.maketrans("", "", string.punctuation + string.whitespace)


def texts() -> Iterator[tuple[str, str, str]]:
    """Name, text and link of each, in the order of their kinds and names."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    yield from ((f"{REFERENCE}: {name}", text, topic_link(name)) for name, text in sorted(topics.items()))
    yield from sorted(_descriptions())


def topic_link(topic: str) -> str:
    """Where this Python's documentation says it; of an unknown topic, what its search finds."""
    documentation = f"https://docs.python.org/{sys.version_info.major}.{sys.version_info.minor}"
    page = _PAGE_OF.get(topic)
    return f"{documentation}/{page}.html#{topic}" if page else f"{documentation}/search.html?q={quote(topic)}"


def _descriptions() -> Iterator[tuple[str, str, str]]:
    for distribution in importlib.metadata.distributions():
        about = distribution.metadata
        text = about.json.get("description")
        if text and about["Name"]:
            yield f"{PACKAGES} {about['Name']} {about['Version']}", str(text), project_link(about)


def project_link(about: Any) -> str:
    """Documentation, home page or source of a package, as its metadata tell; "" if they tell none."""
    told = [tuple(part.strip() for part in line.split(",", 1)) for line in about.get_all("Project-URL") or []]
    links = {label.translate(_NO_LETTERS).lower(): link for label, link in filter(lambda one: len(one) == 2, told)}
    links.setdefault("homepage", about["Home-page"] or "")
    return next((link for label in _LABELS if is_web(link := links.get(label, ""))), "")


def is_web(link: str) -> bool:
    """Whether it is an address of a web page."""
    try:
        parts = urlsplit(link)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)
