"""What the tests of effects share: a store of their own, and an empty list of calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.effects.ledger import CALLS


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    CALLS.clear()
    yield
    CALLS.clear()


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "t.duckdb"
