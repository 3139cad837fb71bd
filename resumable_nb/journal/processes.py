"""Which process this is, and whether another one is still alive."""

from __future__ import annotations

import functools
import getpass
import os
import platform
import socket
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import duckdb


@functools.cache
def versions() -> tuple[str, str]:
    """Versions of this library and of DuckDB."""
    try:
        return version("resumable-nb"), duckdb.__version__
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0", duckdb.__version__


def writer() -> str:
    """What stands in each row about who wrote it."""
    return "resumable_nb {}/duckdb {}".format(*versions())


def describe() -> dict[str, Any]:
    """This process, for the row that opens a session."""
    ours, duckdbs = versions()
    return {
        **_machine(),
        "pid": os.getpid(),
        "process_started": started(os.getpid()),
        "user": _user(),
        "resumable_nb": ours,
        "duckdb": duckdbs,
        "python": platform.python_version(),
    }


@functools.cache
def _machine() -> dict[str, str]:
    """Host name and machine id say which machine, the other two which of its lives (boot, container)."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return {
        "host": socket.gethostname(),
        "machine_id": _text("/etc/machine-id"),
        "boot_id": _text("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": namespace,
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose uid has no name
        return str(os.getuid())


def started(pid: int) -> str | None:
    """When a process of this machine began, in a form to compare; None if there is none, or only a zombie."""
    if not Path("/proc/self/stat").exists():
        return _started_by_ps(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _started_by_ps(pid: int) -> str | None:
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    try:
        found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    except OSError:
        return "unknown"
    state, _, began = found.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else began.strip()


def is_alive(owner: dict[str, Any]) -> bool | None:
    """Whether the process that `describe` once described still runs; None if that cannot be seen from here.

    A machine that was booted again, or a container that was started again under its old name, has no process of its
    life before. Should two machines share name and id, the worst is that one is told that its thread was taken over.
    """
    here = _machine()
    if any(owner.get(k, "") != here[k] for k in ("host", "machine_id")):
        return None
    if any(owner.get(k, "") != here[k] for k in ("boot_id", "pid_namespace")):
        return False
    began = started(owner["pid"]) if isinstance(owner.get("pid"), int) else None
    return began is not None and began == owner.get("process_started")
