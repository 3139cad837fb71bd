"""A report as Markdown, in which texts of models and sources stay text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from resumable_nb.research.records import Report, Statement

# What Markdown or HTML would take for more than text; `$` opens a formula in a notebook
_MARKS = re.compile(r"([\\`*_\[\]#|~$])")
_LIST = re.compile(r"^(\s*)([-+>=]|\d+[.)])")


def escaped(text: str) -> str:
    """A text on one line that shows as it is: no HTML, link, image, heading, list or formula."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    marked = _LIST.sub(lambda found: f"{found[1]}\\{found[2]}", _MARKS.sub(r"\\\1", plain))
    return marked.replace("://", ":\u200b//")  # or a bare address becomes a link


def render(report: Report, *, seen_from: Path | None = None) -> str:
    """The report: answer, what was found for each sub-question, disagreements, what is missing, sources.

    Args:
        report: of which the links to files lead from the working directory.
        seen_from: the folder from which they are to lead. None: the working directory, as in a notebook.
    """
    if seen_from is not None:
        links = {source: _moved(link, seen_from) for source, link in report.links.items()}
        report = report.model_copy(update={"links": links})
    parts = [f"# {escaped(report.question)}", *_answer(report)]
    for question in dict.fromkeys(q for one in report.findings for q in (one.question, *one.also_answers)):
        parts += [f"## {escaped(question)}", *_found(report, question)]
    if report.disagreements:
        parts += ["## Where sources disagree", *(_stated(report, statement) for statement in report.disagreements)]
    parts += _listed("Open questions", report.open_questions)
    parts += _listed("Not found", report.not_found)
    parts += _listed("About this report", report.notes)
    if report.findings:
        parts += ["## Sources", "\n".join(_source(report, n) for n in range(1, len(report.findings) + 1))]
    return "\n\n".join(parts) + "\n"


def _answer(report: Report) -> list[str]:
    if report.answer:
        return [_stated(report, statement) for statement in report.answer]
    return [] if report.findings else ["Nothing was found in the sources that answers this question."]


def _stated(report: Report, statement: Statement) -> str:
    return " ".join([escaped(statement.text), *(_citation(report, number) for number in statement.findings)])


def _citation(report: Report, number: int) -> str:
    """`[3]`, a link to the source."""
    link = _link(report.links.get(report.findings[number - 1].source, ""))
    return f"[\\[{number}\\]]({link})" if link else f"\\[{number}\\]"


def _found(report: Report, question: str) -> Iterable[str]:
    for number, finding in enumerate(report.findings, 1):
        if question in (finding.question, *finding.also_answers):
            quoted = f"> {escaped(finding.quote)} {_citation(report, number)}"
            yield quoted if finding.claim == finding.quote else f"{escaped(finding.claim)}\n\n{quoted}"


def _listed(title: str, lines: list[str]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {escaped(line)}" for line in lines)] if lines else []


def _source(report: Report, number: int) -> str:
    finding = report.findings[number - 1]
    name, link = escaped(finding.source), _link(report.links.get(finding.source, ""))
    linked = f"[{name}]({link})" if link else name
    return f"{number}. {linked}, {escaped(finding.location)}, confidence: {finding.confidence}"


def _moved(link: str, folder: Path) -> str:
    """A link to a file as it leads from a folder; any other as it is."""
    path, mark, fragment = link.partition("#")
    if not path or ":" in path or path.startswith("/"):
        return link
    return quote(os.path.relpath(Path.cwd() / unquote(path), folder).replace(os.sep, "/")) + mark + fragment


def _link(link: str) -> str:
    """A link to a web page or to a file beside the notebook, which ends where it should; "" for any other."""
    try:
        scheme = urlsplit(link).scheme
    except ValueError:
        return ""
    return quote(link, safe=":/?#@!$&'*+,;=%~-._") if scheme in ("", "http", "https") and link[:2] != "//" else ""
