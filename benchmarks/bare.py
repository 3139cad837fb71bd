"""The floor that durable steps are held against: one row of one finding, committed by DuckDB and nothing else."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb

SIZE_BYTES = 1024


def finding(random: Random) -> dict[str, str]:
    """About 1 KB of words that do not compress to nothing."""
    words = [f"{random.getrandbits(40):x}" for _ in range(SIZE_BYTES // 11)]
    return {"quote": " ".join(words)}


def bare_table(folder: Path) -> duckdb.DuckDBPyConnection:
    """A table of the journal's columns, without anything of ours."""
    connection = duckdb.connect()
    connection.execute(f"ATTACH '{folder / 'bare.duckdb'}' AS bare (STORAGE_VERSION 'v2.0.0')")
    connection.execute("USE bare")
    columns = (
        "thread_id VARCHAR, seq BIGINT, kind VARCHAR, phase VARCHAR, ts TIMESTAMPTZ, session_id VARCHAR, "
        "parent_seq BIGINT, step VARCHAR, cell_id VARCHAR, key VARCHAR, duration_ms DOUBLE, changes JSON, data JSON, "
        "writer VARCHAR"
    )
    connection.execute(f"CREATE TABLE journal ({columns}, PRIMARY KEY (thread_id, seq))")
    return connection


def commit(connection: duckdb.DuckDBPyConnection, seq: int, changes: str, data: str) -> None:
    """One row, one commit."""
    connection.execute(
        "INSERT INTO journal VALUES "
        "('t', ?, 'checkpoint', 'step', now(), 'session', ?, ?, ?, 'key', 1.0, ?, ?, 'writer')",
        [seq, seq - 1, f"step {seq}", f"step {seq}", changes, data],
    )
