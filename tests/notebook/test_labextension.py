"""The JupyterLab extension that tells the kernel the order of the cells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import resumable_nb

FOLDER = Path(resumable_nb.__file__).parent / "labextension"


def test_the_manifest_names_files_that_exist() -> None:
    """What JupyterLab loads by the manifest is there."""
    manifest = json.loads((FOLDER / "package.json").read_text())
    install = json.loads((FOLDER / "install.json").read_text())

    assert (FOLDER / manifest["jupyterlab"]["_build"]["load"]).is_file()
    assert manifest["name"] == install["packageName"] == "resumable-nb"


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_the_extension_in_a_front_end() -> None:
    """In a front end the extension sends order and texts with each cell, and never stops one."""
    env = {
        **os.environ,
        "REMOTE_ENTRY": str(FOLDER / "static/remoteEntry.js"),
        "PACKAGE_JSON": str(FOLDER / "package.json"),
    }
    script = Path(__file__).with_name("labextension.test.js")
    done = subprocess.run(["node", "--test", str(script)], env=env, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stdout + done.stderr
