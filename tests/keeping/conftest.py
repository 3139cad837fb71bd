"""Where the victim puts down what happened; nothing is left open after a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from resumable_nb.journal import lease
from tests.keeping import victim


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("HAPPENED", str(tmp_path / "happened"))
    victim.said.clear()
    yield
    lease._close_all()
