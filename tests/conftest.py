"""What holds for every test: no key, no settings and no files of the person who runs them; no process left behind."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent
sys.path.append(
    str(ROOT)
)  # at the end: `tests.support` is found, and the installed package goes before the source folder

# Before anything is imported that reads them. No test may spend money, pass a failpoint, or write to the person's home.
for name in list(os.environ):
    if name.startswith(("RESUMABLE_NB_", "OPENAI_", "ANTHROPIC_", "JUPYTER", "JPY_", "IPYTHON", "XDG_")):
        del os.environ[name]
_home = tempfile.TemporaryDirectory(prefix="resumable-nb-home-")
os.environ["HOME"] = _home.name
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
os.environ["NO_PROXY"] = "127.0.0.1,localhost"
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # started by a shell with `&`: kernels would ignore it as well
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, however slow the machine is. To look for others: --hypothesis-profile=search
_unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("search", _unhurried)
settings.register_profile("fixed", _unhurried, derandomize=True, database=None)
settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _no_credentials_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test acquired as a token, such as the word "token", must not be hidden in the messages of another."""
    from resumable_nb.values import secrets

    monkeypatch.setattr(secrets, "_held", set())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail when a kernel or a server outlives the tests."""
    _, going = psutil.wait_procs([p for p in psutil.Process().children(recursive=True) if _is_left(p)], timeout=30)
    left = [process for process in going if _is_left(process)]
    for process in left:
        print(f"\nleft behind by the tests: {process}")
        process.kill()
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_left(process: psutil.Process) -> bool:
    """Whether it still runs, and is none of those of multiprocessing, which end with us."""
    try:
        command = " ".join(process.cmdline())
        return process.status() != psutil.STATUS_ZOMBIE and not any(
            t in command for t in ("resource_tracker", "forkserver")
        )
    except psutil.Error:
        return False
