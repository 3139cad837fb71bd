"""A thread as one HTML file that opens anywhere: it asks no network, and its policy forbids it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from resumable_nb.timeline.details import Details
from resumable_nb.timeline.picture import picture

if TYPE_CHECKING:
    from resumable_nb.journal import Store

Json = dict[str, Any]

ROWS_AT_MOST = 20_000
"""A file cannot ask for older rows."""
DETAILS_AT_MOST = 8_000_000
"""Characters of changes and of what models saw, in one file."""
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{css}</style>
</head>
<body class="rnb-page">
<main id="timeline"><noscript>This page draws the timeline with JavaScript, which is off.</noscript></main>
<script type="application/json" id="data">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""
_START = """
mountPage(document.getElementById('timeline'), JSON.parse(document.getElementById('data').textContent));
"""


def script() -> str:
    """The module that draws."""
    return _text("timeline.js")


def style() -> str:
    """How it looks."""
    return _text("timeline.css")


def page(store: Store, thread_id: str, *, limit: int = DETAILS_AT_MOST) -> str:
    """The file.

    Args:
        store: where the thread is.
        thread_id: its name.
        limit: characters that states and contexts may take; what is left out is said in the page.
    """
    drawn = picture(store, thread_id, at_most=ROWS_AT_MOST)
    data = json.dumps({"picture": drawn, **_details(Details(store, thread_id), drawn, limit)}, ensure_ascii=False)
    css, code = f"\n{style()}", f"\n{script()}{_START}"
    sources = f"script-src {_hash(code)}; style-src {_hash(css)}"
    return _PAGE.format(
        policy=html.escape(f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"),
        title=html.escape(f"{thread_id} · timeline"),
        css=css,
        script=code,
        # `</script>` and `<!--` would end or bend the element; JSON knows the escape
        data=data.replace("<", "\\u003c"),
    )


def _details(details: Details, drawn: Json, limit: int) -> Json:
    """What a click shows: the changes of all checkpoints first, the newest first; then what models saw."""
    runs = sorted((run for row in drawn["rows"] for run in row["runs"]), key=lambda run: -run["seq"])
    changed = details.changes([run["checkpoint"] for run in runs if "checkpoint" in run], limit=limit)
    limit -= len(json.dumps(changed["changes"], ensure_ascii=False))
    seen = details.exchanges([run["seq"] for run in runs], limit=max(limit, 0))
    return {"changes": changed["changes"], "calls": seen["calls"], "left": [changed["left"], seen["left"]]}


def _text(name: str) -> str:
    return files("resumable_nb.timeline").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
