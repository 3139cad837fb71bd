"""Let DuckDB encrypt with what it brings along, in processes under test: its extension cannot be had everywhere.

DuckDB calls that unsafe for its random numbers, not for its cipher; for what is tested, it is the same. With this folder
in `PYTHONPATH`, Python imports this at its start.
"""

from __future__ import annotations

from typing import Any

import duckdb

_connect = duckdb.connect


def connect(*args: Any, **kwargs: Any) -> duckdb.DuckDBPyConnection:
    """As `duckdb.connect`; an instance in memory can write encrypted files."""
    con = _connect(*args, **kwargs)
    if not args:
        con.execute("SET force_mbedtls_unsafe = true")
    return con


if __name__ == "sitecustomize":
    duckdb.connect = connect
