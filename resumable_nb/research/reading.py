"""The text of a file: Markdown, plain text, HTML and PDF. What cannot be read is told, and stops nothing."""

from __future__ import annotations

import html
import io
import logging
import re
from collections.abc import Callable
from pathlib import Path

from resumable_nb.research.findings import one_line
from resumable_nb.research.sources import Document

MAX_FILE_BYTES = 10 << 20
"""Of a longer text only the beginning is read: what a person asks of more is a table's or a search engine's work."""

_HEADING = re.compile(r"^#\s+(.+)$", re.MULTILINE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_INSTALL = "install it with `pip install 'resumable-nb[research]'`"


class Unreadable(Exception):
    """A file without text to be had; the message says why."""


def read(path: Path, ref: str, link: str) -> tuple[list[Document], list[str]]:
    """The documents of one file, and what is to be said about it. A PDF is a document for each page.

    Args:
        path: the file; its suffix says what it is, see `SUFFIXES`.
        ref: what the documents are called.
        link: how a person gets to it, as it stands in a URL.
    """
    try:
        content = path.read_bytes()
        return SUFFIXES[path.suffix.lower()](content, ref, link)
    except (Unreadable, OSError) as error:
        return [], [f"{ref} could not be read: {one_line(str(error))}."]


def _text(content: bytes, ref: str, link: str) -> tuple[list[Document], list[str]]:
    text, told = _decoded(content, ref)
    heading = _HEADING.search(text)
    title = heading[1] if heading else Path(ref).stem.replace("_", " ").replace("-", " ")
    return [Document(ref, one_line(title), text, link)], told


def _decoded(content: bytes, ref: str) -> tuple[str, list[str]]:
    told = []
    if len(content) > MAX_FILE_BYTES:
        told.append(f"Of {ref} ({len(content):,} bytes) only the first {MAX_FILE_BYTES:,} were read.")
        content = content[:MAX_FILE_BYTES]
        content = content[: content.rfind(b"\n") + 1] or content
    text = content.decode("utf-8-sig", "replace")
    if "\x00" in text:
        raise Unreadable("it is no text")
    if "\ufffd" in text:
        told.append(f"{ref} is not all UTF-8: characters that are not stand as \ufffd.")
    return text.replace("\r\n", "\n"), told


def _html(content: bytes, ref: str, link: str) -> tuple[list[Document], list[str]]:
    source, told = _decoded(content, ref)
    return [Document(ref, html_title(source) or Path(ref).stem, html_text(source), link)], told


def html_title(source: str) -> str:
    """The title of a page; "" if it has none."""
    found = _TITLE.search(source)
    return one_line(html.unescape(found[1])) if found else ""


def html_text(source: str) -> str:
    """The text of a page without its menus.

    Raises:
        Unreadable: It has none.
    """
    try:
        import trafilatura
    except ModuleNotFoundError as error:
        raise Unreadable(f"HTML needs the package {error.name}: {_INSTALL}") from error
    text = trafilatura.extract(source, include_comments=False, fast=True) or trafilatura.html2txt(source)
    if not text.strip():
        raise Unreadable("there is no text in it")
    return "\n\n".join(text.splitlines())  # a line for each paragraph: a heading is no part of the sentence below it


def _pdf(content: bytes, ref: str, link: str) -> tuple[list[Document], list[str]]:
    try:
        import pypdf
    except ModuleNotFoundError as error:
        raise Unreadable(f"PDF needs the package {error.name}: {_INSTALL}") from error
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what it has to say is said by us
    try:
        pages = [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(content)).pages]
    except Exception as error:  # a broken file makes it raise anything
        raise Unreadable(f"the PDF is broken or locked ({type(error).__name__}: {error})") from error
    stem = Path(ref).stem.replace("_", " ").replace("-", " ")
    found = [
        Document(f"{ref}#page={number}", stem, text, f"{link}#page={number}")
        for number, text in enumerate(pages, 1)
        if text.strip()
    ]
    empty = len(pages) - len(found)
    if not found:
        raise Unreadable(f"no page of {len(pages)} has text; it looks scanned")
    return found, [f"{ref}: pages without text, which look scanned: {empty}."] if empty else []


SUFFIXES: dict[str, Callable[[bytes, str, str], tuple[list[Document], list[str]]]] = {
    ".md": _text,
    ".markdown": _text,
    ".txt": _text,
    ".rst": _text,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
}
