"""Corpora: a folder of files, a table. Each knows its version, so that a step notices what changed in it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from resumable_nb.errors import UsageError
from resumable_nb.research.reading import SUFFIXES, read
from resumable_nb.research.sources import Document, Sentence, Texts, version_of
from resumable_nb.terminal import counted

if TYPE_CHECKING:
    import pandas as pd

_Stamp = tuple[str, int, int]
"""A file's name, time of change and size."""


@dataclass
class _Read:
    """What was read of a folder, for as long as its files are these."""

    stamps: list[_Stamp]
    files: dict[_Stamp, tuple[list[Document], list[str]]]
    texts: Texts
    version: str

    @cached_property
    def stamp_of(self) -> dict[str, _Stamp]:
        return {document.ref: stamp for stamp in self.stamps for document in self.files[stamp][0]}

    @property
    def problems(self) -> list[str]:
        return [line for stamp in self.stamps for line in self.files[stamp][1]]


_folders: dict[tuple[str, str | None], _Read] = {}
_tables: dict[tuple[str, str | None], Texts] = {}
_lock = threading.RLock()


@dataclass(frozen=True)
class Folder:
    """The Markdown, text, HTML and PDF files of a folder and the folders in it, but for hidden ones.

    It is read and indexed once in a process. Each search looks whether a file has changed, and reads that one again.
    As an input of a step it counts by path and version: make it in an ordinary cell, and a step that uses it runs again
    when a file has changed.

    Attributes:
        path: the folder.
        embed: the name of an embedding model that ranks along with the words; see `ranking`. None: words only. Its
            vectors are in the journal: a text is sent once for a store, and of a changed file only what is new.
        version: of the files' names and texts when this was made.

    Raises:
        UsageError: There is no such folder.
    """

    path: str
    embed: str | None = None
    version: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))
        object.__setattr__(self, "version", self._read().version)

    def search(self, query: str, count: int = 5) -> list[Sentence]:
        """The sentences that have most to do with a query, best first."""
        return self._read().texts.search(query, count)

    def prepare(self) -> None:
        """Have the vectors of all sentences, where there is an embedding model."""
        self._read().texts.prepare()

    def fetch(self, ref: str) -> Document:
        """A file by its path in the folder; a page of a PDF as `paper.pdf#page=2`.

        Its link is the path from the working directory, which in a notebook is the notebook's folder.

        Raises:
            LookupError: There is none, or it could not be read.
        """
        document = self._with(ref).texts.fetch(ref)
        return replace(document, link=quote(os.path.relpath(self.path).replace(os.sep, "/")) + "/" + document.link)

    @property
    def problems(self) -> list[str]:
        """What could not be read, and where nothing can be found, in sentences."""
        read_now = self._read()
        if not read_now.stamps:
            return [f"{self.path} has no file that can be searched ({', '.join(SUFFIXES)})."]
        return [*read_now.problems, *read_now.texts.problems]

    @property
    def failures(self) -> list[str]:
        """What went wrong in a search, in sentences."""
        return self._read().texts.failures

    def __str__(self) -> str:
        return f"{self.path} ({counted(len(self._read().texts), 'document')})"

    def _with(self, ref: str) -> _Read:
        """What was read, if the document's file is as it was then: to look at 10,000 others for one takes its time."""
        root = Path(self.path)
        with _lock:
            known = _folders.get((str(root.resolve()), self.embed))
            stamp = known.stamp_of.get(ref) if known else None
        if known and stamp and stamp == _stamp_now(root, stamp[0]):
            return known
        return self._read()

    def _read(self) -> _Read:
        root = Path(self.path)
        if not root.is_dir():
            raise UsageError(f"Folder({self.path!r}): there is no such folder. Here is {Path.cwd()}.")
        stamps = sorted(_stamps(root))
        with _lock:
            place = str(root.resolve()), self.embed
            known = _folders.get(place)
            if known is None or known.stamps != stamps:
                read_before = known.files if known else {}
                known = _folders[place] = _read_files(root, stamps, read_before, embed=self.embed)
            return known


def _stamps(root: Path) -> Iterable[_Stamp]:
    for path in root.rglob("*"):
        inside = path.relative_to(root)
        if path.suffix.lower() in SUFFIXES and path.is_file() and not any(p.startswith(".") for p in inside.parts):
            about = path.stat()
            yield inside.as_posix(), about.st_mtime_ns, about.st_size


def _stamp_now(root: Path, name: str) -> _Stamp | None:
    with contextlib.suppress(OSError):
        about = (root / name).stat()
        return name, about.st_mtime_ns, about.st_size
    return None


def _read_files(
    root: Path, stamps: list[_Stamp], known: dict[_Stamp, tuple[list[Document], list[str]]], *, embed: str | None
) -> _Read:
    files = {s: known[s] if s in known else read(root / s[0], s[0], quote(s[0])) for s in stamps}
    texts = Texts.of((document for documents, _ in files.values() for document in documents), embed=embed)
    problems = [line for _, told in files.values() for line in told]
    return _Read(stamps, files, texts, version_of(map(texts.fetch, texts), problems))


@dataclass(frozen=True)
class Table:
    """The rows of a DuckDB table or a pandas DataFrame, each a document. Made by `table`.

    Attributes:
        name: what its documents' names begin with.
        version: of its rows.
        embed: the name of an embedding model that ranks along with the words; None: words only.
    """

    name: str
    version: str
    embed: str | None = None

    def search(self, query: str, count: int = 5) -> list[Sentence]:
        """The sentences that have most to do with a query, best first."""
        return self._texts.search(query, count)

    def prepare(self) -> None:
        """Have the vectors of all sentences, where there is an embedding model."""
        self._texts.prepare()

    def fetch(self, ref: str) -> Document:
        """A row, as `name: key`.

        Raises:
            LookupError: There is none.
        """
        return self._texts.fetch(ref)

    def __str__(self) -> str:
        return f"table {self.name}"

    @property
    def problems(self) -> list[str]:
        """In which rows nothing can be found, in a sentence."""
        return self._texts.problems

    @property
    def failures(self) -> list[str]:
        """What went wrong in a search, in sentences."""
        return self._texts.failures

    @property
    def _texts(self) -> Texts:
        if (self.version, self.embed) not in _tables:
            raise UsageError(f"The rows of {self} are not in this kernel: run the cell that calls `table(…)` again.")
        return _tables[self.version, self.embed]


def table(
    data: Any,
    *,
    text: str,
    key: str | None = None,
    title: str | None = None,
    link: str | None = None,
    name: str = "row",
    embed: str | None = None,
) -> Table:
    """A source of the rows of a table as they are now.

    Args:
        data: a DataFrame, or what has `.df()`, such as `duckdb.connect(…).table("notes")`.
        text: the column that is searched and quoted. Rows without text are left out.
        key: the column whose values name the rows; None: their numbers from 1 on.
        title: a column that helps the ranking.
        link: a column with web addresses, or paths beside the notebook, to which citations lead.
        name: what the names of the documents begin with, such as the table's.
        embed: the name of an embedding model that ranks along with the words; see `ranking`.

    Raises:
        UsageError: There is no such column, or two rows have one key.
    """
    frame: pd.DataFrame = data if hasattr(data, "iloc") else data.df()
    for column in (text, key, title, link):
        if column is not None and column not in frame.columns:
            raise UsageError(f"The table has no column {column!r}. Its columns: {', '.join(map(str, frame.columns))}.")
    keys = list(frame[key]) if key is not None else list(range(1, len(frame) + 1))
    if len(set(keys)) < len(keys):
        raise UsageError(f"Two rows have the same {key!r}: a quotation could not say which one it is from.")
    titles = list(frame[title]) if title is not None else [""] * len(frame)
    links = [to if isinstance(to, str) else "" for to in frame[link]] if link is not None else [""] * len(frame)
    rows = zip(keys, titles, frame[text], links, strict=True)
    documents = (Document(f"{name}: {k}", str(t), w, to) for k, t, w, to in rows if isinstance(w, str) and w.strip())
    texts = Texts.of(documents, embed=embed)
    _tables[texts.version, embed] = texts
    return Table(name, texts.version, embed)
