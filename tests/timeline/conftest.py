"""A thread that lived through everything: kills, a failure, a gate, an effect in doubt; each part a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from resumable_nb import gates
from resumable_nb.journal import Store
from resumable_nb.timeline import picture
from tests.browser.lab import _FLAGS, CHROMIUM
from tests.support.model_server import ModelServer
from tests.timeline import research

REPORT = f"report <b>{research.EVIL[:14]}</b>"
PARTS = {"kill": -9, "fail": 1, "gate": 3, "doubt": -9, "after": 3}


def run(db: Path, part: str, url: str, thread: str = "bees") -> int:
    """One process of the research; gives its exit code."""
    command = [sys.executable, "-m", "tests.timeline.research", str(db), thread, part, url]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=280)
    return done.returncode


@pytest.fixture(scope="session")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of that thread, to be read only."""
    path = tmp_path_factory.mktemp("timeline") / "bees.duckdb"
    with ModelServer() as server:
        for part, code in PARTS.items():
            if part == "doubt":
                gates.decide(Store.open(path), "bees", REPORT, approve=True, comment="go <b>on</b>")
            assert run(path, part, server.base_url) == code
    Store.open(path).close()
    return path


@pytest.fixture(scope="session")
def drawn(db: Path) -> dict[str, Any]:
    """Its picture."""
    return picture(Store.open(db), "bees")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a server; the test is skipped where there is none."""
    if not Path(CHROMIUM).exists():
        pytest.skip("needs Debian's package chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a page as a file, with all that it asked, said and raised: `asked`, `said`."""
    with chromium() as browser:

        def open_page(text: str, **options: Any) -> Any:
            path = tmp_path / "page.html"
            path.write_text(text, encoding="utf-8")
            page = browser.new_page(**({"viewport": {"width": 1200, "height": 900}} | options))
            page.set_default_timeout(120_000)
            page.asked, page.said = [], []
            page.on("request", lambda request: page.asked.append(request.url))
            page.on("console", lambda message: page.said.append(message.text))
            page.on("pageerror", lambda error: page.said.append(str(error)))
            page.goto(f"file://{path}")
            page.wait_for_selector(".rnb-step")
            return page

        yield open_page
