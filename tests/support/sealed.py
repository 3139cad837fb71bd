"""A key in the environment, and DuckDB able to write with it."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from tests.support.weak_crypto import sitecustomize

KEY = "yGDmbUpPMDTGE5m5MkPSVTgcDMBkNbBSVcjvVfgGtDI"
OTHER_KEY = "b7jFQ8mYV1oRz0cWqXnE4kHsTuLaP3dGi9x6JvNyS2A"


def crypto(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here and in processes started from now on, DuckDB writes encrypted files."""
    folder = str(Path(sitecustomize.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setattr(duckdb, "connect", sitecustomize.connect)
