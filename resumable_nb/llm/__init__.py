"""Clients of language models whose calls are durable, `ask`, the embedded model. Each name is imported when used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resumable_nb.llm.ask import aask, ask, context_message
    from resumable_nb.llm.clients import AsyncOpenAI, OpenAI
    from resumable_nb.llm.http_clients import async_http_client, http_client

_HOME = {
    "OpenAI": "clients",
    "AsyncOpenAI": "clients",
    "http_client": "http_clients",
    "async_http_client": "http_clients",
    "ask": "ask",
    "aask": "ask",
    "context_message": "ask",
}

__all__ = ["AsyncOpenAI", "OpenAI", "aask", "ask", "async_http_client", "context_message", "http_client"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
