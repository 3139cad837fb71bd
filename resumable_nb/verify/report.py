"""A verification as Markdown, as one HTML file with its drawings in it, and as JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from resumable_nb.terminal import counted, one_line, plain
from resumable_nb.verify.judge import CHECKS, Judged

if TYPE_CHECKING:
    from resumable_nb.verify.verification import Cost, Verification

History = Sequence[dict[str, Any]]
_COLOURS = {"pass": "#2e7d32", "fail": "#c62828", "n/a": "#cfd8dc"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 }
td, th { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: left }
.number { text-align: right; font-variant-numeric: tabular-nums } code { font-size: 90% }
.fail { color: #c62828 }
svg { display: block; margin: 1em 0; max-width: 100% } svg text { font: 11px system-ui, sans-serif }
"""


def facts(done: Verification) -> list[tuple[str, str]]:
    """Numbers of the whole."""
    equal, tried = done.contexts
    failed = sum(not one.passed for one in done.judged)
    started = f"{datetime.fromtimestamp(done.started_at, UTC):%Y-%m-%d %H:%M} UTC"
    return [
        (
            "result",
            f"{failed} of {len(done.judged)} trials failed" if failed else f"all {len(done.judged)} trials passed",
        ),
        ("boundaries of an uninterrupted run", str(done.points)),
        ("seconds from kill to next call", _cost(done.recovery_s, 1)),
        ("calls done again", _cost(done.calls_again, 0)),
        ("their share of those done", _cost(done.share, 2)),
        ("completeness", f"{equal} of {tried} contexts made again from the store, to the letter"),
        ("freshness", f"one kill lost {counted(done.largest_loss, 'answer')} at most; {done.window} promised"),
        (
            "readability",
            f"{done.readability:.0%} of the state's fields in plain SQL {' '.join(done.unreadable)}".strip(),
        ),
        ("answers", "of the real model, anew in each trial" if done.is_live else "of one recorded run"),
        ("started, seconds", f"{started}, {done.seconds:.0f} (an uninterrupted run: {done.baseline_s:.0f})"),
        ("versions", ", ".join(f"{name} {version}" for name, version in done.versions.items())),
    ]


def _cost(cost: Cost, digits: int) -> str:
    return f"median {cost.median:.{digits}f}, 95 % {cost.p95:.{digits}f}, worst {cost.worst:.{digits}f}"


def failures(done: Verification) -> list[tuple[Judged, str, str]]:
    """Trial, check and reason of all that failed."""
    return [(one, c, why) for one in done.judged for c, (result, why) in one.results.items() if result == "fail"]


# ---------------------------------------------------------------- Markdown
def markdown(done: Verification, history: History) -> str:
    """The report, for people and for pull requests."""
    lines = [f"# Verification of {_md(done.subject)}", "", "| | |", "| --- | --- |"]
    lines += [f"| {_md(name)} | {_md(value)} |" for name, value in facts(done)]
    lines += ["", "| check | passed | failed | n/a |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {check} | {' | '.join(str(n) for n in done.counts(check).values())} |" for check in CHECKS]
    failed = failures(done)
    if failed:
        lines += ["", "## What failed", "", "| killed at | check | why |", "| --- | --- | --- |"]
        lines += [f"| {_md(str(one.injection.point))} | {check} | {_md(why)} |" for one, check, why in failed]
    lines += ["", "## Trials", "", "| killed at | result | seconds to next call | calls again | of |"]
    lines += ["| --- | --- | ---: | ---: | ---: |"]
    for one in done.judged:
        result = ("passed" if one.passed else "FAILED") + ("" if one.injection.was_reached else ", not reached")
        numbers = f"{one.injection.recovery_s:.1f} | {one.calls_again} | {one.calls_done}"
        lines.append(f"| {_md(str(one.injection.point))} | {result} | {numbers} |")
    if len(history) > 1:
        lines += ["", "## History", "", "| when | resumable-nb | passed | trials |", "| --- | --- | ---: | ---: |"]
        for past in history:
            version = _md(str(past["versions"].get("resumable-nb", "")))
            lines.append(
                f"| {past['started_at']:%Y-%m-%d %H:%M} | {version} | {past['trials_passed']} | {past['trials']} |"
            )
    return "\n".join(lines) + "\n"


def _md(text: str) -> str:
    """Text of others in a cell of a table: no markup, no HTML."""
    clean = " ".join(plain(text).split())
    for mark in "\\`*_[]|#":
        clean = clean.replace(mark, f"\\{mark}")
    return clean.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# ---------------------------------------------------------------- HTML
def html(done: Verification, history: History) -> str:
    """The report as one file: pass matrix, recovery times, history of pass rates. It needs no network."""
    rows = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in facts(done))
    checks = "".join(
        f"<tr><td>{check}</td>{''.join(f'<td class=number>{n}</td>' for n in done.counts(check).values())}</tr>"
        for check in CHECKS
    )
    failed = "".join(
        f"<tr class=fail><td><code>{_text(str(one.injection.point))}</code><td>{check}<td>{_text(why)}</tr>"
        for one, check, why in failures(done)
    )
    parts = [
        f"<h1>Verification of {_text(done.subject)}</h1><table>{rows}</table>",
        f"<table><tr><th>check<th>passed<th>failed<th>n/a</tr>{checks}</table>",
        f"<h2>What failed</h2><table><tr><th>killed at<th>check<th>why</tr>{failed}</table>" if failed else "",
        f"<h2>Checks at each kill</h2>{_matrix(done)}",
        f"<h2>Seconds from kill to next call</h2>{_recovery(done)}",
        f"<h2>Pass rate over versions</h2>{_history(history)}",
    ]
    title = _text(f"Verification of {done.subject}")
    head = f"<meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _text(text: str) -> str:
    return escape(plain(text))


def _label(one: Judged) -> str:
    return _text(one_line(str(one.injection.point), 42))


def _matrix(done: Verification) -> str:
    left, top, row = 260, 110, 16
    column = 60
    shapes = [
        f'<text x="{left + n * column + 10}" y="{top - 8}" transform="rotate(-35 {left + n * column + 10} {top - 8})">'
        f"{check}</text>"
        for n, check in enumerate(CHECKS)
    ]
    for place, one in enumerate(done.judged):
        y = top + place * row
        shapes.append(f'<text x="0" y="{y + 11}">{_label(one)}</text>')
        for n, check in enumerate(CHECKS):
            result, why = one.results[check]
            told = _text(f"{one.injection.point}: {check}: {result} {why}")
            shapes.append(
                f'<rect x="{left + n * column}" y="{y}" width="{column - 4}" height="{row - 3}" '
                f'fill="{_COLOURS[result]}"><title>{told}</title></rect>'
            )
    return _svg(left + len(CHECKS) * column + 90, top + len(done.judged) * row + 4, shapes)


def _recovery(done: Verification) -> str:
    left, row, width = 260, 16, 480
    longest = max((one.injection.recovery_s for one in done.judged), default=0) or 1
    shapes = []
    for place, one in enumerate(done.judged):
        y, seconds = place * row, max(0, one.injection.recovery_s)
        size = seconds / longest * width
        shapes.append(f'<text x="0" y="{y + 11}">{_label(one)}</text>')
        shapes.append(f'<rect x="{left}" y="{y}" width="{size:.1f}" height="{row - 3}" fill="#3367a6"></rect>')
        shapes.append(f'<text x="{left + size + 5:.1f}" y="{y + 11}">{seconds:.1f}</text>')
    return _svg(left + width + 60, len(done.judged) * row + 4, shapes)


def _history(history: History) -> str:
    left, height, step = 50, 140, 60
    shapes = [f'<text x="0" y="{14 + height * (1 - share)}">{share:.0%}</text>' for share in (0, 0.5, 1)]
    spots = []
    for place, past in enumerate(history[-15:]):
        share = past["trials_passed"] / past["trials"] if past["trials"] else 0
        x, y = left + 20 + place * step, 10 + height * (1 - share)
        version = _text(str(past["versions"].get("resumable-nb", ""))[:9])
        spots.append(f"{x:.0f},{y:.1f}")
        told = f"{past['started_at']:%Y-%m-%d %H:%M}, {version}: {past['trials_passed']} of {past['trials']}"
        shapes.append(f'<circle cx="{x}" cy="{y:.1f}" r="4" fill="#3367a6"><title>{told}</title></circle>')
        shapes.append(f'<text x="{x - 18}" y="{height + 32}">{version}</text>')
        shapes.append(f'<text x="{x - 18}" y="{height + 46}">{past["started_at"]:%m-%d %H:%M}</text>')
    shapes.append(f'<polyline points="{" ".join(spots)}" fill="none" stroke="#3367a6"></polyline>')
    return _svg(left + 40 + max(1, len(spots)) * step, height + 56, shapes)


def _svg(width: int, height: int, shapes: Sequence[str]) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(shapes)}</svg>'


# ---------------------------------------------------------------- JUnit
def junit(done: Verification) -> str:
    """JUnit XML: a test case for each check of each trial, for CI servers to show."""
    cases, count, failed, skipped = [], 0, 0, 0
    for one in done.judged:
        for check, (result, why) in one.results.items():
            inside = {"pass": "", "n/a": "<skipped/>", "fail": f"<failure message={_attribute(why)}/>"}[result]
            count, failed, skipped = count + 1, failed + (result == "fail"), skipped + (result == "n/a")
            name = _attribute(f"{one.injection.point}: {check}")
            cases.append(f"<testcase classname={_attribute(done.subject)} name={name}>{inside}</testcase>")
    numbers = f'tests="{count}" failures="{failed}" skipped="{skipped}" time="{done.seconds:.1f}"'
    head = f'<?xml version="1.0" encoding="utf-8"?>\n<testsuite name="resumable-nb verify" {numbers}>'
    return "\n".join([head, *cases, "</testsuite>\n"])


def _attribute(text: str) -> str:
    return quoteattr(" ".join(plain(text).split()))
