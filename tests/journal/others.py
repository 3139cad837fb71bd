"""Other processes that use a store while a test looks on.

A process runs the source it is given, in which `say(value)` sends a line to the test and `hear()` waits for one. It has
`Store`, `Row`, `duckdb`, `os`, `sys`, `time`, `signal`, and the arguments as `args`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

_PRELUDE = """
import json, os, signal, sys, time
import duckdb
from resumable_nb.journal import Row, Store
args = json.loads(sys.argv[1])
def say(value):
    os.write(1, (json.dumps(value) + "\\n").encode())
def hear():
    return json.loads(sys.stdin.readline())
"""


class Other:
    """A process that runs `source`."""

    def __init__(
        self, source: str, *args: Any, env: Mapping[str, str] | None = None, new_session: bool = False
    ) -> None:
        command = [
            sys.executable,
            "-c",
            _PRELUDE + textwrap.dedent(source),
            json.dumps([str(a) if not isinstance(a, (int, float)) else a for a in args]),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            start_new_session=new_session,
        )
        self.pid = self._process.pid

    def hear(self) -> Any:
        """The next thing it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"it ended: {self.end()}")
        return json.loads(line)

    def say(self, value: Any = None) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> tuple[int, list[Any], str]:
        """Exit code, what it said since, and its error output; waits for its end."""
        out, err = self._process.communicate(timeout=200)
        return self._process.returncode, [json.loads(line) for line in out.splitlines()], err

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self._process.kill()
        self._process.communicate()


def run(source: str, *args: Any, env: Mapping[str, str] | None = None) -> list[Any]:
    """What a process says that ends well."""
    with Other(source, *args, env=env) as other:
        code, said, err = other.end()
    assert code == 0, err
    return said


def killed(source: str, *args: Any, env: Mapping[str, str] | None = None) -> list[Any]:
    """What a process says that is killed by itself with SIGKILL."""
    with Other(source, *args, env=env) as other:
        code, said, err = other.end()
    assert code == -signal.SIGKILL, err
    return said
