"""Research with a language model: from a question to a cited report. The names are imported when they are first used.

    from resumable_nb.research import Folder, research
    report = research("Why do bees dance?", sources=Folder("papers"))

Each stage is a function over the research state, for a cell of its own: `coordinator`, `planner`, `approve_plan`,
`researcher`, `reporter`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resumable_nb.research.assistant import research
    from resumable_nb.research.chat import Chat, ChatState
    from resumable_nb.research.corpora import Folder, Table, table
    from resumable_nb.research.planning import approve_plan, coordinator, planner
    from resumable_nb.research.records import Brief, Budget, Finding, Report, SubQuestion
    from resumable_nb.research.reporting import reporter
    from resumable_nb.research.researching import researcher
    from resumable_nb.research.sources import Document, Sentence, Source
    from resumable_nb.research.web import ArXiv, Crossref, SearchAPI

_HOME = {
    "assistant": ("research",),
    "chat": ("Chat", "ChatState"),
    "corpora": ("Folder", "Table", "table"),
    "planning": ("approve_plan", "coordinator", "planner"),
    "records": ("Brief", "Budget", "Finding", "Report", "SubQuestion"),
    "reporting": ("reporter",),
    "researching": ("researcher",),
    "sources": ("Document", "Sentence", "Source"),
    "web": ("ArXiv", "Crossref", "SearchAPI"),
}

__all__ = [
    "ArXiv",
    "Brief",
    "Budget",
    "Chat",
    "ChatState",
    "Crossref",
    "Document",
    "Finding",
    "Folder",
    "Report",
    "SearchAPI",
    "Sentence",
    "Source",
    "SubQuestion",
    "Table",
    "approve_plan",
    "coordinator",
    "planner",
    "reporter",
    "research",
    "researcher",
    "table",
]


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOME.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
