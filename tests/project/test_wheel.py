"""What is installed is what the wheel holds."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_package_whole(wheel):
    """Every module, the SQL, and the licence are in it, and nothing of the tests."""
    names = set(wheel.namelist())
    modules = {
        str(path.relative_to(ROOT)) for path in (ROOT / "resumable_nb").rglob("*") if path.suffix in (".py", ".sql")
    }

    assert modules <= names
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb")))
def test_the_wheel_brings_the_notebooks(wheel, name):
    """`resumable-nb demo` needs the quickstart where there is no checkout; people look at the others."""
    assert wheel.read(f"resumable_nb/notebooks/{name}") == (ROOT / "notebooks" / name).read_bytes()


def test_the_wheel_installs_the_jupyterlab_extension(wheel):
    """It lands where JupyterLab looks for extensions, with the script that its package.json names."""
    folder = next(name for name in wheel.namelist() if name.endswith("labextensions/resumable-nb/package.json"))
    described = json.loads(wheel.read(folder))["jupyterlab"]["_build"]
    script = folder.replace("package.json", described["load"])

    assert folder.endswith(".data/data/share/jupyter/labextensions/resumable-nb/package.json")
    assert script in wheel.namelist()
