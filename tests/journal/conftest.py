"""A store in a temporary folder, and nothing left open after a test."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from resumable_nb.journal import Session, Store, lease

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "research.duckdb"


@pytest.fixture
def store(path: Path) -> Store:
    return Store.open(path, idle_s=5, wait_s=3)


@pytest.fixture
def session(store: Store) -> Session:
    return store.open_session("t", about={"notebook": "a.ipynb"})


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    yield
    lease._close_all()
    for thread in threading.enumerate():
        if thread.name == "resumable_nb lease":
            thread.join(timeout=10)
            assert not thread.is_alive()
