"""A signature on what this user's cells showed: HTML and JavaScript from a stranger's store must not run unasked.

The secret is a file of the user's own, outside of any store or notebook.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any

ENVIRONMENT = "RESUMABLE_NB_SECRET_DIR"
_SIZE_BYTES = 32


def sign(outputs: list[dict[str, Any]]) -> str:
    """The signature of outputs, made with this user's secret; "" where no secret can be kept."""
    try:
        secret = _secret()
    except OSError:
        return ""
    return hmac.new(secret, _canonical(outputs), hashlib.sha256).hexdigest()


def trusted(outputs: list[dict[str, Any]], signature: str) -> bool:
    """Whether this user's secret made the signature of exactly these outputs."""
    expected = sign(outputs)
    return bool(expected) and hmac.compare_digest(expected.encode(), signature.encode(errors="replace"))


def _canonical(outputs: list[dict[str, Any]]) -> bytes:
    return json.dumps(outputs, sort_keys=True, separators=(",", ":")).encode()


def _folder() -> Path:
    """Where programs keep data of this user: the XDG, macOS or Windows place."""
    if folder := os.environ.get(ENVIRONMENT):
        return Path(folder)
    if sys.platform == "win32":
        base = os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "resumable_nb"


def _secret() -> bytes:
    """This user's secret, made at its first use. One that others could read or write is replaced.

    Raises:
        OSError: The folder can neither be read nor written.
    """
    path = _folder() / "secret"
    with contextlib.suppress(FileNotFoundError):
        if not _is_private(path):
            path.unlink()
        else:
            secret = path.read_bytes()
            if len(secret) == _SIZE_BYTES:
                return secret
            path.unlink()
    return _make(path)


def _is_private(path: Path) -> bool:
    if sys.platform == "win32":  # a profile's folder is private there, and modes mean nothing
        return True
    found = path.lstat()
    return path.is_file() and not path.is_symlink() and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _make(path: Path) -> bytes:
    """Write a new secret whole, or take the one that another process made meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_SIZE_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    return path.read_bytes()
