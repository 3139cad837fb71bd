"""What the cases share: a server that counts, and a notebook in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.book import Book
from tests.support.model_server import ModelServer


@pytest.fixture(scope="session")
def _server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def server(_server: ModelServer) -> ModelServer:
    """The counting server, with nothing counted yet."""
    _server.reset()
    return _server


@pytest.fixture
def book(tmp_path: Path, server: ModelServer) -> Book:
    """An empty notebook."""
    return Book(tmp_path, server)
