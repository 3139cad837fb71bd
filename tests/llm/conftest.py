"""A model's server for every test of the clients and of `ask`; no test reaches another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.calls.fake_scope import MemoryJournal
from tests.support.model_server import ModelServer


@pytest.fixture(scope="session")
def _one_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def server(_one_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    """Where the environment says that models answer."""
    _one_server.reset()
    monkeypatch.setenv("OPENAI_BASE_URL", _one_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-SECRET")
    return _one_server


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resumable_nb.llm.questions._said", set())
