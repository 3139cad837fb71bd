"""Modules of the project: by their source as loaded, found without importing anything."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from pathlib import Path

import pytest

from resumable_nb.fingerprint import analyse, module_digest
from tests.fingerprint.notebooks import Notebook


class Project:
    """A folder with modules, on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.writes = folder, 0

    def write(self, **files: str) -> None:
        for name, source in files.items():
            path = self.folder.joinpath(*name.split("__in__")[::-1]).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source))
            self.writes += 1
            os.utime(path, (0, 1_700_000_000 + self.writes))  # two writes within one tick of the clock are two
        importlib.invalidate_caches()

    def digest(self, name: str = "helpers") -> str | None:
        return module_digest(name, self.folder)


@pytest.fixture
def project(tmp_path, monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield Project(tmp_path)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_counts_by_what_its_code_means(project):
    """A comment in a module of the project changes nothing; another body does. Nothing is imported."""
    project.write(helpers="def tail(): return 1")
    first = project.digest()
    project.write(helpers="# why\ndef tail():\n    return (1)")
    second = project.digest()
    project.write(helpers="def tail(): return 2")

    assert first == second != project.digest()
    assert "helpers" not in sys.modules


def test_the_modules_that_it_imports_count(project):
    """Modules that a module imports count too, directly or not, relative or inside a function; circles end."""
    project.write(
        helpers="def tail():\n    import one\n    return one", one="import two, json", two="import helpers\nN = 1"
    )
    before = project.digest()
    project.write(two="import helpers\nN = 2")

    assert project.digest() != before


@pytest.mark.parametrize(
    ("imports", "changed"),
    [
        ("from pkg import part", "part__in__pkg"),
        ("from pkg.part import N", "part__in__pkg"),
        ("import pkg.part", "part__in__pkg"),
        ("import pkg.part", "__init____in__pkg"),
        ("from pkg import deep", "sibling__in__pkg"),
        ("import pkg", "sibling__in__pkg"),
    ],
)
def test_packages(project, imports, changed):
    """A package counts by its `__init__`, and by those of its modules that are imported."""
    project.write(
        helpers=imports,
        __init____in__pkg="from . import sibling\nA = 1",
        part__in__pkg="N = 1",
        sibling__in__pkg="from .deep import M",
        deep__in__pkg="M = 1",
    )
    before = project.digest()
    project.write(**{changed: "from . import sibling\nA = 2"})

    assert project.digest() != before


def test_a_folder_without_init(project):
    """A namespace package has no code of its own; its modules have."""
    project.write(part__in__space="N = 1", helpers="import space.part")
    before = project.digest("space.part")

    assert project.digest("space") is not None
    project.write(part__in__space="N = 2")
    assert project.digest("space.part") != before


def test_a_folder_without_init_in_another(project):
    """A namespace package inside one is looked into, whether or not the outer one is imported."""
    path = project.folder / "outer" / "inner" / "part.py"
    path.parent.mkdir(parents=True)
    path.write_text("N = 1")
    project.write(helpers="def use():\n    import outer.inner.part")
    before = project.digest()
    path.write_text("N = 2")
    os.utime(path, (0, 1_700_000_000))
    importlib.invalidate_caches()

    assert before is not None and project.digest() != before


def test_the_source_counts_as_it_was_loaded(project):
    """An edit of a file does not change the module that is loaded, until it is reloaded."""
    project.write(helpers="N = 1")
    module = importlib.import_module("helpers")
    before = project.digest()
    project.write(helpers="N = 2")
    edited = project.digest()
    importlib.reload(module)

    assert edited == before != project.digest()


@pytest.mark.parametrize(
    "name", ["json", "pandas", "sys", "resumable_nb", "nothing.there", "helpers.no", "", ".x", "os.path"]
)
def test_other_modules_have_no_digest(project, name):
    """Installed packages, Python's own modules, this library and what does not exist are not the project's."""
    project.write(helpers="N = 1")

    assert project.digest(name) is None


@pytest.mark.parametrize("folder", ["lib/site-packages", "venv/lib", ".venv/x/y"])
def test_packages_installed_below_the_project_are_not_its_own(project, monkeypatch, folder):
    """A virtual environment inside the project's folder is no part of the project."""
    place = project.folder / folder
    place.mkdir(parents=True)
    (project.folder / folder.split("/")[0] / "pyvenv.cfg").touch()
    (place / "installed.py").write_text("N = 1")
    monkeypatch.syspath_prepend(str(place))

    assert project.digest("installed") is None


def test_a_module_that_is_no_python(project):
    """A file that does not parse counts by its bytes, so that it can be asked about while it is being edited."""
    project.write(helpers="def (")
    before = project.digest()
    project.write(helpers="def ((")

    assert before is not None
    assert project.digest() != before


def test_functions_classes_and_objects_of_a_project(project):
    """What a notebook imports from a module of its project counts by the source of that module."""
    cell = (
        "import helpers\nfrom helpers import f, A, D\nobject_, record, method, listed = A(), D(1), A().m, [f]\n"
        "def inner():\n    import helpers\n    return helpers.f()"
    )
    source = """
        import dataclasses
        N = 1
        def f(): return N
        class A:
            def m(self): return N
        @dataclasses.dataclass
        class D:
            n: int
    """
    found = []
    for text in (source, "# why\n" + textwrap.dedent(source), source.replace("N = 1", "N = 2")):
        project.write(helpers=text)
        sys.modules.pop("helpers", None)
        book = Notebook(cell, project=project.folder)
        found.append({name: book.facts(name).digest for name in book.names if name[0] != "_"})

    assert found[0] == found[1]
    assert len(found[0]) == 9
    assert all(found[0][name] != found[2][name] for name in found[0])


def test_the_modules_of_a_cell_are_candidates(project):
    """`from pkg import part` names a module and what may be one; those that the project lacks have no digest."""
    project.write(__init____in__pkg="", part__in__pkg="N = 1")
    modules = analyse("from pkg import part, other\nimport json").modules

    assert {name for name in modules if project.digest(name)} == {"pkg", "pkg.part"}
