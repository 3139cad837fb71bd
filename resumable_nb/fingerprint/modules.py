"""Modules of the project: found without importing anything, and digested as they were loaded."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import sysconfig
import uuid
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import NamedTuple

from resumable_nb.fingerprint.code import digest_of
from resumable_nb.fingerprint.scopes import LIBRARY, imported

_INSTALLED = frozenset({"site-packages", "dist-packages", "__pypackages__", "node_modules"})


class _Source(NamedTuple):
    """What a file said when it was looked at."""

    digest: str
    imports: frozenset[str]


# Name → the spec it was loaded with, and its source at first sight: an edit of the file does not change what is loaded.
# Reloading a module gives it a new spec.
_loaded: dict[str, tuple[ModuleSpec | None, Path, _Source]] = {}
_files: dict[Path, tuple[int, int, _Source]] = {}
# Root of a name and folder of a project → what was known when it was looked for, and whether it is the project's.
_roots: dict[tuple[str, Path], tuple[object, bool]] = {}


def module_digest(name: str, project: Path) -> str | None:
    """A digest of a project's module, with the modules of the project that it imports, by what their code means.

    Of a module that is loaded, the source counts as it was when it was first seen loaded; of others, as it is now.
    Nothing is imported.

    Args:
        name: dotted name.
        project: the folder of the project. Installed packages in a folder below it are not its modules.

    Returns:
        None if the project has no such module.
    """
    folder, entries = project.resolve(), _entries()
    found: dict[str, str] = {}
    todo = [name]
    while todo:
        module = todo.pop()
        if module in found or not _is_of_project(module, folder, entries):
            continue
        if (source := _source(module, folder)) is not None:
            found[module] = source.digest
            todo += [other for other in _with_packages(source.imports) if other not in found]
    parts = [f"{module}={digest}" for module, digest in sorted(found.items())]
    return hashlib.sha256("\n".join([name, *parts]).encode()).hexdigest() if name in found else None


@lru_cache(maxsize=4096)
def is_project_file(path: Path, folder: Path) -> bool:
    """Whether a file is the project's own: below its folder, not installed there, no part of Python or this library."""
    if not path.is_relative_to(folder) or any(path.is_relative_to(other) for other in _not_ours()):
        return False
    below = path.relative_to(folder).parts[:-1]
    return _INSTALLED.isdisjoint(below) and not any(
        _is_environment(folder.joinpath(*below[: n + 1])) for n in range(len(below))
    )


@lru_cache(maxsize=1)
def _not_ours() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    found = {Path(paths[key]).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib") if key in paths}
    return (*found, Path(__file__).resolve().parents[1])


@lru_cache(maxsize=4096)
def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").exists()


def _is_of_project(name: str, folder: Path, entries: object) -> bool:
    """Whether the package at the root of a name is the project's. Most names are told apart here.

    It is looked for anew where it was loaded since, or where an entry of sys.path has changed.
    """
    root = name.partition(".")[0]
    if not root or root == LIBRARY or root in sys.builtin_module_names:
        return False
    module = sys.modules.get(root)
    now = entries if module is None else getattr(module, "__spec__", None)
    known = _roots.get((root, folder))
    if known is None or known[0] != now:
        known = now, any(is_project_file(path, folder) for path in _locations(root)[0])
        _roots[root, folder] = known
    return known[1]


def _entries() -> list[tuple[str, int, int]]:
    """The entries of sys.path and when they changed: by that, importlib too knows what is in a folder."""
    return [(entry, *_stamp(entry or os.curdir)) for entry in sys.path]


def _stamp(path: str) -> tuple[int, int]:
    try:
        stat = os.stat(path)
    except OSError:
        return 0, 0
    return stat.st_ino, stat.st_mtime_ns


def _locations(name: str) -> tuple[list[Path], list[str]]:
    """The file of a module (of a namespace package: the one that it would have in each folder), and its folders."""
    spec = _spec(name)
    if spec is None:
        return [], []
    folders = list(spec.submodule_search_locations or ())
    if spec.has_location and spec.origin:
        return [Path(spec.origin).resolve()], folders
    return [Path(folder).resolve() / "__init__.py" for folder in folders], folders


def _spec(name: str) -> ModuleSpec | None:
    """How a module would be imported, or was. Looking for one by importlib.util.find_spec imports its packages."""
    module = sys.modules.get(name)
    if module is not None:
        return getattr(module, "__spec__", None)
    package, _, _ = name.rpartition(".")
    folders = None
    if package:
        parent = _spec(package)
        if parent is None or parent.submodule_search_locations is None:
            return None
        folders = list(parent.submodule_search_locations)
    try:
        return PathFinder.find_spec(name, folders)
    except KeyError:  # a namespace package inside one that is not imported: importlib wants that one in sys.modules
        spec = ModuleSpec(name, None, is_package=True)
        inside = [Path(folder, name.rpartition(".")[2]) for folder in folders or ()]
        spec.submodule_search_locations = [str(folder) for folder in inside if folder.is_dir()]
        return spec
    except (ImportError, ValueError, OSError):  # a broken entry of sys.path
        return None


def _source(name: str, folder: Path) -> _Source | None:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and name in _loaded and _loaded[name][0] is spec:
        _, path, source = _loaded[name]
        return source if is_project_file(path, folder) else None
    paths = [path for path in _locations(name)[0] if is_project_file(path, folder)]
    if not paths:
        return None
    source = _read(paths[0], name)
    if module is not None:
        if _was_edited(spec, paths[0]):  # what was loaded is not known: whatever depended on it has to be done again
            source = source._replace(digest=uuid.uuid4().hex)
        _loaded[name] = spec, paths[0], source
    return source


def _was_edited(spec: ModuleSpec | None, path: Path) -> bool:
    """Whether a file is another one than when its module was loaded, as far as the cached bytecode tells."""
    try:
        header = Path(spec.cached or "").read_bytes()[:16] if spec else b""
        stat = path.stat()
    except OSError:
        return False
    now = (int(stat.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little") + (stat.st_size & 0xFFFFFFFF).to_bytes(4, "little")
    return (
        header[4:8] == bytes(4) and header[8:] != now
    )  # PEP 552: flags 0 mean that time and size of the source follow


def _read(path: Path, name: str) -> _Source:
    try:
        stat = path.stat()
    except OSError:
        return _Source("", frozenset())  # a namespace package: no code of its own
    known = _files.get(path)
    if known and known[:2] == (stat.st_mtime_ns, stat.st_size):
        return known[2]
    content = path.read_bytes()
    try:
        tree = ast.parse(content)
        is_package = path.stem == "__init__"
        source = _Source(digest_of(tree), frozenset(_imports(tree, name, is_package=is_package)))
    except (SyntaxError, ValueError):  # an extension module, or a file being written
        source = _Source(hashlib.sha256(content).hexdigest(), frozenset())
    _files[path] = stat.st_mtime_ns, stat.st_size, source
    return source


def _imports(tree: ast.Module, name: str, *, is_package: bool) -> Iterator[str]:
    """Absolute names of all modules that the code of the module `name` may import."""
    package = name.split(".") if is_package else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for module in imported(node)[1]:
                level = len(module) - len(module.lstrip("."))
                base = package[: len(package) - level + 1] if level else []
                yield ".".join([*base, *filter(None, [module.lstrip(".")])])


def _with_packages(names: frozenset[str]) -> Iterator[str]:
    """Importing a.b.c runs a and a.b as well."""
    for name in sorted(names):
        parts = name.split(".")
        yield from (".".join(parts[: n + 1]) for n in range(len(parts)))
