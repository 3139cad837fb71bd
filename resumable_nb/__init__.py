"""Notebook research that survives a dead kernel.

The public names are imported when they are first used: `import resumable_nb` and `%load_ext resumable_nb` cost a kernel
that starts anew after a crash next to nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from resumable_nb.calls.approval import approval, approve
    from resumable_nb.calls.effect import effect
    from resumable_nb.calls.function import durable
    from resumable_nb.calls.resource import resource
    from resumable_nb.llm.ask import ask, context_message
    from resumable_nb.llm.clients import AsyncOpenAI, OpenAI
    from resumable_nb.llm.http_clients import async_http_client, http_client
    from resumable_nb.notebook.timeline import threads
    from resumable_nb.opening import open
    from resumable_nb.progress import map, track
    from resumable_nb.pruning import prune
    from resumable_nb.state import ResearchState, State
    from resumable_nb.transfer import export_thread, import_thread

__version__ = "0.1.0"

_HOME = {
    "open": "resumable_nb.opening",
    "OpenAI": "resumable_nb.llm.clients",
    "AsyncOpenAI": "resumable_nb.llm.clients",
    "http_client": "resumable_nb.llm.http_clients",
    "async_http_client": "resumable_nb.llm.http_clients",
    "ask": "resumable_nb.llm.ask",
    "context_message": "resumable_nb.llm.ask",
    "approve": "resumable_nb.calls.approval",
    "approval": "resumable_nb.calls.approval",
    "durable": "resumable_nb.calls.function",
    "resource": "resumable_nb.calls.resource",
    "effect": "resumable_nb.calls.effect",
    "track": "resumable_nb.progress",
    "map": "resumable_nb.progress",
    "prune": "resumable_nb.pruning",
    "export_thread": "resumable_nb.transfer",
    "import_thread": "resumable_nb.transfer",
    "threads": "resumable_nb.notebook.timeline",
    "State": "resumable_nb.state",
    "ResearchState": "resumable_nb.state",
}

__all__ = [
    "AsyncOpenAI",
    "OpenAI",
    "ResearchState",
    "State",
    "approval",
    "approve",
    "ask",
    "async_http_client",
    "context_message",
    "durable",
    "effect",
    "export_thread",
    "http_client",
    "import_thread",
    "map",
    "open",
    "prune",
    "resource",
    "threads",
    "track",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'resumable_nb' has no attribute {name!r}")
    notebook = sys.modules.get("resumable_nb.notebook")
    if notebook is not None:
        notebook.load_in_full()
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext resumable_nb`: give a notebook its magics."""
    from resumable_nb import notebook  # speaks to IPython

    notebook.load_ipython_extension(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext resumable_nb`: close the thread and take the magics away."""
    from resumable_nb import notebook  # speaks to IPython

    notebook.unload_ipython_extension(shell)
