"""A store in a temporary folder, and nothing left open after a test."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from resumable_nb.journal import Session, Store, lease

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new store, to be copied: spares each test a third of a second."""
    path = tmp_path_factory.mktemp("empty") / "research.duckdb"
    Store.open(path).close()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "research.duckdb"


@pytest.fixture
def store(path: Path, empty_store: Path) -> Store:
    shutil.copy(empty_store, path)
    return Store.open(path, idle_s=5, wait_s=60)


@pytest.fixture
def session(store: Store) -> Session:
    return store.open_session("t", about={"notebook": "a.ipynb"})


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    yield
    lease._close_all()
    for thread in threading.enumerate():
        if thread.name == "resumable_nb lease":
            thread.join(timeout=60)
            assert not thread.is_alive()
