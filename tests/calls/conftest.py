"""A model's server, and a journal, for every test of the transport."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.calls.clients import Clients
from tests.calls.fake_scope import MemoryJournal
from tests.support.model_server import ModelServer


@pytest.fixture(scope="session")
def _one_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def server(_one_server: ModelServer) -> ModelServer:
    _one_server.reset()
    return _one_server


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def clients(server: ModelServer) -> Clients:
    return Clients(server)
