"""Which model answers: the client that was given, else the environment, else the embedded one, else an error.

`OPENAI_API_KEY` and `OPENAI_BASE_URL` say where, `RESUMABLE_NB_MODEL` says which. The name of the embedded model
chooses it also where a key is set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from resumable_nb.calls.accounts import EMBEDDED_HOST
from resumable_nb.errors import NoModel
from resumable_nb.llm import embedded

DEFAULT_MODEL = "gpt-5.4-mini"
NO_KEY = "none"
"""For servers that want none. The SDK insists on some."""

HOW_TO_GET_ONE = (
    "No language model is configured. One of these gives you one:\n"
    "  set OPENAI_API_KEY, to use OpenAI;\n"
    "  set OPENAI_BASE_URL and RESUMABLE_NB_MODEL, to use another server (Ollama: http://localhost:11434/v1);\n"
    "  pip install 'resumable-nb[local]', for a small model inside this process, offline."
)


@dataclass(frozen=True)
class Endpoint:
    """Where a client sends its questions.

    Attributes:
        api_key: None: the SDK finds it.
        base_url: None: the SDK's own.
    """

    api_key: Any = None
    base_url: Any = None


def endpoint(api_key: Any = None, base_url: Any = None, *, options: Mapping[str, Any] | None = None) -> Endpoint:
    """Where a client sends its questions.

    Args:
        api_key: of the client.
        base_url: of the client.
        options: of the client; some of them bring an endpoint or credentials of their own.

    Raises:
        NoModel: Nothing says where, and no model is embedded.
    """
    given = options or {}
    if any(given.get(name) for name in ("admin_api_key", "workload_identity", "provider", "data_residency")):
        return Endpoint(api_key, base_url)
    key_known = bool(api_key or os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_ADMIN_KEY"))
    if base_url or os.environ.get("OPENAI_BASE_URL"):
        return Endpoint(api_key if key_known else NO_KEY, base_url)
    if key_known:
        return Endpoint(api_key, base_url)
    if embedded.is_installed():
        return EMBEDDED
    raise NoModel(HOW_TO_GET_ONE)


EMBEDDED = Endpoint(NO_KEY, embedded.EMBEDDED_URL)


def settings() -> tuple[str | None, ...]:
    """What of the environment a client reads when it is made."""
    return tuple(os.environ.get(f"OPENAI_{name}") for name in ("API_KEY", "BASE_URL", "ORG_ID", "PROJECT_ID"))


def wants_embedded(model: str | None) -> bool:
    """Whether this name, or else the environment's, is the embedded model's."""
    return (model or os.environ.get("RESUMABLE_NB_MODEL")) == embedded.EMBEDDED_MODEL


def is_embedded(base_url: object) -> bool:
    """Whether a client with this URL asks the embedded model."""
    return urlsplit(str(base_url)).hostname == EMBEDDED_HOST


def model_name(base_url: object, model: str | None = None) -> str:
    """The name that a request gives to its model. For the embedded one it never changes: requests match by it.

    Args:
        base_url: of the client.
        model: what the caller asks for.
    """
    if is_embedded(base_url):
        return embedded.EMBEDDED_MODEL
    return model or os.environ.get("RESUMABLE_NB_MODEL") or DEFAULT_MODEL


def takes_max_completion_tokens(base_url: object) -> bool:
    """Whether the server is OpenAI's own, whose newer models refuse `max_tokens`; the others know just that."""
    host = urlsplit(str(base_url)).hostname or ""
    return host.endswith(("openai.com", "azure.com"))


def description(base_url: object, model: str) -> str:
    """One line for the person: who answers."""
    if is_embedded(base_url):
        return f"{model} answers, embedded in this kernel (offline and small; set OPENAI_API_KEY for another)"
    return f"{model} answers, at {urlsplit(str(base_url)).hostname}"
