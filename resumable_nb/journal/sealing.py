"""Encryption at rest with DuckDB's own AES-256-GCM: where the key comes from, and how a file is opened with it.

Tried with DuckDB 2.0.1; figures in docs/internals.md:

- Reading needs nothing more. *Writing* needs the extension `httpfs`, for its OpenSSL: the random numbers of what DuckDB
  brings along are not good enough for GCM. So it is loaded from where it was installed, never downloaded, and without
  it nothing is written. DuckDB's setting `force_mbedtls_unsafe` is not used here.
- Loading it takes 0.2 s, so the instance that has it is kept while the file itself is let go (`Access`).
- The key goes to DuckDB as a parameter: it stands in no SQL text, setting, error or plan. Only a key with a character
  that cannot be in a BLOB literal would be shown, in the error about it; such keys are refused before.
- DuckDB hashes it once (SHA-256 with a salt), which slows nobody who guesses: it has to be random, not a password.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from resumable_nb.errors import KeyRefused, StoreUnwritable

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "RESUMABLE_NB_KEY"
FILE_VARIABLE = "RESUMABLE_NB_KEY_FILE"
MAKE = """`python -c "import secrets; print(secrets.token_urlsafe(32))"` makes a good one"""
_GOOD = re.compile(r"[\x21-\x5b\x5d-\x7e]{32,}")
_DISTINCT = 8

CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "allow_community_extensions": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "temp_directory": "",  # DuckDB does not encrypt what it swaps out by itself
}


class Key(str):
    """A key. A debugger, or a traceback with the values of variables, does not show it.

    Attributes:
        source: the variable that it comes from.
    """

    __slots__ = ("source",)
    source: str

    def __repr__(self) -> str:
        return f"<key from {self.source}>"


def key_of(variable: str = VARIABLE, file_variable: str = FILE_VARIABLE) -> Key | None:
    """The key that the environment gives now; None if it gives none.

    Raises:
        KeyRefused: it is empty, too weak, given twice, or its file cannot be read.
    """
    if variable == VARIABLE and (instead_of := _instead.get()):
        return instead_of[0]
    text, file = os.environ.get(variable), os.environ.get(file_variable)
    if text is not None and file is not None:
        raise KeyRefused(f"{variable} and {file_variable} are both set. Unset one of them")
    if file is not None:
        try:
            text = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeError) as error:
            raise KeyRefused(f"{file_variable} names {file!r}, which cannot be read: {error}") from error
    if text is None:
        return None
    key = Key(text)
    key.source = variable if file is None else file_variable
    if not _GOOD.fullmatch(key) or len(set(key)) < _DISTINCT:
        raise KeyRefused(
            f"The key in {key.source} is too weak: it takes 32 random letters, digits or signs at least, no blanks "
            f"or backslashes; this one has {len(key)}, {len(set(key))} of them different. {MAKE}; to work "
            f"without encryption, unset {key.source}"
        )
    return key


_instead: ContextVar[tuple[Key | None] | None] = ContextVar("the key that is used instead", default=None)


@contextmanager
def instead(key: Key | None) -> Iterator[None]:
    """Meanwhile this is the key, or none, whatever the environment says: it has the one that comes next."""
    before = _instead.set((key,))
    try:
        yield
    finally:
        _instead.reset(before)


def attach(con: duckdb.DuckDBPyConnection, path: Path, name: str, *options: str, key: Key | None) -> None:
    """Attach a DuckDB file, with the key if there is one; for writing if `READ_ONLY` is not among the options.

    Other errors of DuckDB pass.

    Raises:
        KeyRefused: the file is encrypted with another key, or there is one too many or too few.
        StoreUnwritable: the extension that encrypts is not installed.
    """
    if key is not None and "READ_ONLY" not in options:
        _load_crypto(con)
    options = ("TYPE duckdb", *options, *(() if key is None else ("ENCRYPTION_KEY $key",)))
    with _telling(path, key):
        con.execute(f"ATTACH '{quoted(path)}' AS {name} ({', '.join(options)})", None if key is None else {"key": key})


def quoted(path: Path) -> str:
    """A path inside a quoted SQL string; ATTACH takes no parameter for it."""
    return str(path).replace("'", "''")


class Access:
    """How one store is opened for writing again and again.

    A plain file gets an instance of its own, which others in the process share. An encrypted one is attached to an
    instance in memory, which is kept for the next time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: duckdb.DuckDBPyConnection | None = None
        self._is_attached = False

    def open(self) -> duckdb.DuckDBPyConnection:
        """A connection in whose search path the store stands. DuckDB's errors pass, but for those about the key."""
        key = key_of()
        if key is None:
            with _telling(self._path, key):
                return duckdb.connect(str(self._path))
        if self._kept is None:
            self._kept = duckdb.connect(config=CONFIG)
        attach(self._kept, self._path, "store", key=key)
        self._is_attached = True
        return self.cursor(self._kept)

    def cursor(self, con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        """One more connection to the same."""
        cursor = con.cursor()
        if self._is_attached:
            cursor.execute("USE store")
        return cursor

    def close(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let go of the file; whatever goes wrong, the connection is closed."""
        kept, self._kept = self._kept, None
        is_attached, self._is_attached = self._is_attached, False
        con.close()
        if kept is not None and is_attached:
            try:
                kept.execute("DETACH store")
            except duckdb.Error:  # what could not be merged stays in the log
                kept.close()
                return
        self._kept = kept

    def forget(self) -> None:
        """Keep no instance: before a fork, and when one can do nothing more or was told not to merge its log."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()


def _load_crypto(con: duckdb.DuckDBPyConnection) -> None:
    with suppress(duckdb.Error):  # without it, DuckDB refuses to write by itself
        con.execute("LOAD httpfs")


@contextmanager
def _telling(path: Path, key: Key | None) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        text = str(error)
        if "without a key" in text:
            raise KeyRefused(
                f"{path} is encrypted, and {VARIABLE} is not set. Set it, or {FILE_VARIABLE}, to the key of this store "
                "and go on; nothing was changed"
            ) from error
        if "Wrong encryption key" in text and key is not None:
            raise KeyRefused(
                f"{path} is encrypted with another key than the one in {key.source}, or the head of the file is "
                "damaged. Set the key that it was made with; nothing was changed"
            ) from error
        if "is not encrypted" in text and key is not None:
            raise KeyRefused(
                f"{path} is not encrypted, and {key.source} is set. `resumable-nb encrypt --db {path}` encrypts it; to "
                f"go on without, unset {key.source}. Nothing was changed"
            ) from error
        if "read-only crypto module" in text:
            raise StoreUnwritable(_no_crypto()) from error
        raise


def _no_crypto() -> str:
    with duckdb.connect(config=CONFIG) as con:
        (platform,) = con.execute("PRAGMA platform").fetchall()[0]
        try:
            con.execute("LOAD httpfs")
            why = "it is there, but encrypts nothing"
        except duckdb.Error as error:
            why = str(error).partition("\n")[0].rstrip(".")
    return (
        "Nothing was written: DuckDB writes encrypted files with its extension httpfs only (for OpenSSL), and that "
        f"cannot be loaded: {why}. Install it once, with a network: `python -c \"import duckdb; duckdb.sql('INSTALL "
        f"httpfs')\"`; or without: `INSTALL '/path/to/httpfs.duckdb_extension'`, with the file of DuckDB "
        f"v{duckdb.__version__} for {platform}. Reading works without it"
    )
