"""A scripted model, a corpus, and a thread for the stages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import resumable_nb
from tests.support.research_model import ResearchModel

ISLAND = Path(__file__).parents[2] / "data" / "island"


@pytest.fixture(scope="session")
def _one_model() -> Iterator[ResearchModel]:
    with ResearchModel() as server:
        yield server


@pytest.fixture
def model(_one_model: ResearchModel, monkeypatch: pytest.MonkeyPatch) -> ResearchModel:
    """Where the environment says that models answer."""
    _one_model.reset()
    monkeypatch.setenv("OPENAI_BASE_URL", _one_model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-SECRET")
    return _one_model


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[resumable_nb.thread.Thread]:  # type: ignore[name-defined]  # a submodule
    with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as opened:
        yield opened
