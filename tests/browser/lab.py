"""JupyterLab in a real Chromium, driven from Python."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

import resumable_nb

CHROMIUM = "/usr/bin/chromium"
_FLAGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_READY = """() => { const w = window.jupyterapp?.shell.currentWidget;
    return w && w.context && w.context.isReady && w.context.sessionContext.session?.kernel?.status === 'idle' }"""


class Lab:
    """A JupyterLab server of its own, with nothing of the user's, and one page."""

    def __init__(self, root: Path, page: Any, port: int, token: str) -> None:
        self.root, self.page, self._port, self._token = root, page, port, token

    @property
    def work(self) -> Path:
        return self.root / "work"

    def open(self, name: str) -> None:
        self.page.goto(f"http://127.0.0.1:{self._port}/lab/tree/{name}?token={self._token}&reset")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.wait_ready()

    def wait_ready(self) -> None:
        """Until the notebook is open and its kernel takes cells."""
        self.page.wait_for_function(_READY)

    def command(self, name: str, **args: Any) -> None:
        """Run a command of JupyterLab without waiting for its end: a cell may wait for a person."""
        self.page.evaluate(
            "([name, args]) => { window.jupyterapp.commands.execute(name, args).catch(() => {}); }", [name, args]
        )

    def run_all(self) -> None:
        self.command("notebook:run-all-cells")

    def cell(self, place: int) -> Any:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(place)

    def output(self, place: int, text: str) -> Any:
        """The first output of a cell that holds a text."""
        return self.cell(place).locator(".jp-OutputArea-output", has_text=text).first

    def wait_for(self, place: int, text: str, *, timeout_s: float = 120) -> str:
        found = self.output(place, text)
        found.wait_for(timeout=timeout_s * 1000)
        return str(found.inner_text())

    def wait_idle(self, *, timeout_s: float = 120) -> None:
        """Until no cell of the notebook is running or waiting to run."""
        self.page.wait_for_function(
            """() => { const nb = window.jupyterapp.shell.currentWidget.content;
                return nb.widgets.every(c => !c.model.sharedModel.execution_count || c.promptNode?.textContent !== '[*]:') &&
                    ![...document.querySelectorAll('.jp-InputPrompt')].some(p => p.textContent.includes('*')) &&
                    window.jupyterapp.shell.currentWidget.context.sessionContext.session?.kernel?.status === 'idle' }""",
            timeout=timeout_s * 1000,
        )

    def save(self) -> None:
        """Save the notebook as it is when no cell runs. What comes in while it is saved is saved as well."""
        self.wait_idle()
        self.page.evaluate(
            """async () => { const context = window.jupyterapp.shell.currentWidget.context;
                do { await context.save(); } while (context.model.dirty) }"""
        )

    def insert_below(self, place: int, source: str) -> None:
        """A new, unsaved cell below another."""
        self.page.evaluate(
            """([place, source]) => { const nb = window.jupyterapp.shell.currentWidget.content;
                nb.activeCellIndex = place;
                window.jupyterapp.commands.execute('notebook:insert-cell-below').then(() => {
                    nb.activeCell.model.sharedModel.setSource(source); }); }""",
            [place, source],
        )
        self.page.wait_for_function(
            """([place, source]) => window.jupyterapp.shell.currentWidget.content.widgets[place + 1]
                ?.model.sharedModel.getSource() === source""",
            arg=[place, source],
        )

    def run_cell(self, place: int) -> None:
        self.page.evaluate(
            "(place) => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = place; }", place
        )
        self.command("notebook:run-cell")

    def kernel_id(self) -> str:
        """The kernel's name on the server; the one that is started in place of a dead one has it too."""
        found = "() => window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.id"
        return str(self.page.evaluate(found))

    def kernel_pid(self, kernel_id: str | None = None) -> int:
        """The kernel's process, which the server started."""
        connection = kernel_id or self.kernel_id()
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with contextlib.suppress(OSError):
                    command = (process / "cmdline").read_bytes().decode(errors="replace")
                    if connection in command and "ipykernel_launcher" in command:
                        return int(process.name)
        raise AssertionError(f"no kernel process with connection {connection}")

    def kill_kernel(self) -> None:
        """SIGKILL, as the out-of-memory killer does it; JupyterLab restarts it by itself."""
        pid = self.kernel_pid()
        os.kill(pid, signal.SIGKILL)
        self.wait_until_new_kernel(pid)

    def kill_kernel_unseen(self) -> None:
        """The same while no page looks."""
        kernel_id, pid = self.kernel_id(), self.kernel_pid()
        self.page.goto("about:blank")
        os.kill(pid, signal.SIGKILL)
        self._wait_for_another(pid, kernel_id)

    def wait_until_new_kernel(self, pid: int) -> None:
        """Until the server has started a kernel in place of a dead one, and the page has it and says so."""
        self._wait_for_another(pid, self.kernel_id())
        self.page.get_by_text("appears to have died").first.wait_for()  # until then it takes the dead one for idle
        self.wait_ready()

    def _wait_for_another(self, pid: int, kernel_id: str) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(AssertionError):
                if self.kernel_pid(kernel_id) != pid:
                    return
            time.sleep(0.2)
        raise AssertionError("the kernel did not come back")

    def dismiss_dialogs(self) -> None:
        while dialog := self.page.query_selector(".jp-Dialog"):
            dialog.query_selector("button.jp-mod-accept").click()
            self.page.wait_for_function("dialog => !dialog.isConnected", arg=dialog)

    def screenshot(self, name: str) -> Path:
        folder = Path(os.environ.get("SCREENSHOTS", self.root))
        folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(folder / name))
        return folder / name


@contextlib.contextmanager
def lab(root: Path, env: dict[str, str]) -> Iterator[Lab]:
    """Start JupyterLab and a page; both end with the block. Without either, the test is skipped; in CI it fails."""
    if not Path(CHROMIUM).exists() or importlib.util.find_spec("jupyterlab") is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium or no JupyterLab: .ci/run installs both")
        pytest.skip("needs JupyterLab and Debian's package chromium")
    from playwright.sync_api import sync_playwright

    (root / "work").mkdir(parents=True, exist_ok=True)
    settings = root / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    _install_extension(root / "data")
    token = secrets.token_hex(16)
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(root / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(root / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(root / "config"),
        "JUPYTER_DATA_DIR": str(root / "data"),
        "JUPYTER_RUNTIME_DIR": str(root / "runtime"),
        "IPYTHONDIR": str(root / "ipython"),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root"]
    command += [f"--IdentityProvider.token={token}", "--expose-app-in-browser"]
    command += [f"--ServerApp.root_dir={root / 'work'}", "--LabApp.collaborative=False"]
    with (root / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=environment | env, stdout=log, stderr=subprocess.STDOUT, cwd=root)
    try:
        port = _port_once_up(root, server)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=_FLAGS)
            page = browser.new_page(viewport={"width": 1280, "height": 1100})
            page.set_default_timeout(120_000)
            yield Lab(root, page, port, token)
            browser.close()
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def write(path: Path, sources: dict[str, str]) -> None:
    """A notebook of these cells, by their ids."""
    cells = [nbformat.v4.new_code_cell(source, id=cell_id) for cell_id, source in sources.items()]
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=spec), path)


def _install_extension(data: Path) -> None:
    """The wheel installs it; an editable install does not."""
    if not (Path(sys.prefix) / "share/jupyter/labextensions/resumable-nb").exists():
        (data / "labextensions").mkdir(parents=True)
        (data / "labextensions/resumable-nb").symlink_to(Path(resumable_nb.__file__).parent / "labextension")


def _port_once_up(root: Path, server: subprocess.Popen[bytes]) -> int:
    """The port that the server has chosen, as soon as it answers there."""
    deadline, told = time.monotonic() + 120, root / "runtime" / f"jpserver-{server.pid}.json"
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):  # not there yet, half written, or nobody listens yet
            at = json.loads(told.read_text())
            urllib.request.urlopen(f"http://127.0.0.1:{at['port']}/api?token={at['token']}", timeout=30).close()
            return int(at["port"])
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start:\n{(root / 'lab.log').read_text()[-2000:]}")
