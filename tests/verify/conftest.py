"""A model that answers the recordings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.model_server import ModelServer
from tests.verify.books import use_model


@pytest.fixture(scope="session")
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(autouse=True)
def environment(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    """The person's settings: this model."""
    model.reset()
    for name, value in use_model(model.base_url).items():
        monkeypatch.setenv(name, value)
    return model
