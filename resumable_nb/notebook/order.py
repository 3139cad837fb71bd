"""Where the cells stand: told by the runner or the front end, else read from the file, else as they ran."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resumable_nb.cells import Cell, Order

if TYPE_CHECKING:
    from resumable_nb.notebook.source import Parser

FOREIGN_IDS = "vscode-notebook-cell:"  # VS Code names cells by their place on screen, not by the id in the file
_RENAMED_SEARCH_FILES = 20


@dataclass(frozen=True, slots=True)
class Request:
    """What came with one request to execute a cell.

    Attributes:
        raw: the cell's text.
        cell_id: the front end's id of the cell; None in consoles and under plain nbclient.
        metadata: of the message: `cellOrder`, `cellSources`, `notebookPath`, `runner`.
        msg_id: of the message; "" outside ipykernel.
    """

    raw: str
    cell_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    msg_id: str = ""


@dataclass(slots=True)
class _Saved:
    """One code cell of the file."""

    cell_id: str
    raw: str


class Notebook:
    """Follows one notebook over a kernel's life.

    Args:
        parser: reads the text of cells.
        path: the notebook file as `JPY_SESSION_NAME` names it, absolute or relative to the kernel's folder.
        folder: the kernel's folder at its start.
    """

    def __init__(self, parser: Parser, *, path: str | None = None, folder: Path | None = None) -> None:
        self._parser = parser
        self._folder = folder or Path.cwd()
        self._file = _File(self._found(path))
        self._executed: list[_Saved] = []
        self._last_id: str | None = None
        self._texts: dict[str, str] = {}
        self._placed: tuple[Cell, ...] = ()
        self._cells: dict[str, tuple[str, Cell]] = {}

    def steps(self) -> list[str]:
        """The names of the notebook's steps from top to bottom, as of the last cell that ran."""
        return [cell.step for cell in self._placed if cell.step is not None]

    def _found(self, path: str | None) -> Path | None:
        """The notebook file. Older servers give its path relative to their own folder, not to the kernel's."""
        if not path or not path.endswith(".ipynb"):
            return None
        candidates = [self._folder / path, self._folder / Path(path).name]
        return next((c for c in candidates if c.is_file()), candidates[0])

    def start_over(self) -> None:
        """A thread was opened: where only the order of execution is known, it is counted from here."""
        self._executed.clear()

    def place(self, request: Request, *, front_path: str | None = None) -> tuple[Cell, Order]:
        """The cell of this request, and where it stands.

        Args:
            request: what came with it.
            front_path: the notebook file as the front end told the kernel in another way (VS Code does).
        """
        if front_path and self._file.path is None:
            self._file = _File(self._found(front_path))
        cell_id, order = self._order(request)
        self._last_id, self._texts[cell_id] = cell_id, request.raw
        cell = self._cell(cell_id, request.raw)
        self._placed = cells = tuple(cell if c.cell_id == cell_id else c for c in order.cells)
        return cell, Order(cells, order.version, order.origin, order.path, order.exact)

    def _order(self, request: Request) -> tuple[str, Order]:
        told = self._told(request)
        if told is not None:
            assert request.cell_id
            return request.cell_id, told
        if request.cell_id is not None and self._file.refresh(request.cell_id):
            cell_id = self._file.known_as(request.cell_id, request.raw)
            cells = tuple(self._cell(saved.cell_id, saved.raw) for saved in self._file.cells)
            return cell_id, Order(cells, self._file.version, "file", str(self._file.path))
        return self._by_execution(request)

    def _cell(self, cell_id: str, raw: str) -> Cell:
        """The same object for the same text, so that it is analysed once."""
        known = self._cells.get(cell_id)
        if known is None or known[0] != raw:
            parsed = self._parser.parse(raw)
            approve = parsed.step_line.approve if parsed.step_line else None
            known = self._cells[cell_id] = raw, Cell(cell_id, parsed.step, parsed.source, approve)
        return known[1]

    # ------------------------------------------------------------------ told with the message
    def _told(self, request: Request) -> Order | None:
        """The order as the runner or the front end sent it along; None if it did not, or sent something else."""
        ids, sources = request.metadata.get("cellOrder"), request.metadata.get("cellSources")
        if not isinstance(ids, list) or not all(isinstance(i, str) for i in ids):
            return None
        if request.cell_id is None or request.cell_id not in ids:
            return None
        if not isinstance(sources, list) or len(sources) != len(ids):
            sources = [None] * len(ids)
            self._file.refresh(request.cell_id)  # too long to be sent along
        saved = {cell.cell_id: cell.raw for cell in self._file.cells}
        cells = []
        for cell_id, text in zip(ids, sources, strict=True):
            if not cell_id.startswith("~"):
                raw = text if isinstance(text, str) else self._texts.get(cell_id, saved.get(cell_id, ""))
                cells.append(self._cell(cell_id, raw))
        path = request.metadata.get("notebookPath")
        return Order(
            tuple(cells),
            f"at {time.time_ns()}",
            "runner" if request.metadata.get("runner") is True else "front end",
            self._whole_path(path) if isinstance(path, str) else None,
            exact=True,
        )

    def _whole_path(self, path: str) -> str:
        """A front end's path, relative to its server's folder, as one on this machine."""
        if os.path.isabs(path):
            return path
        known = self._file.path
        if known is not None and known.as_posix().endswith("/" + path):
            return str(known)
        beside = self._folder / Path(path).name
        return str(beside) if beside.is_file() else path

    # ------------------------------------------------------------------ the order of execution
    def _by_execution(self, request: Request) -> tuple[str, Order]:
        """Cells in the order in which they ran. One that runs again, known by its id or step name, keeps its place."""
        step = self._parser.parse(request.raw).step
        cell_id = request.cell_id or (f"#{step}" if step is not None else f"#{len(self._executed)}")
        known = next((e for e in self._executed if e.cell_id == cell_id), None)
        if known is not None:
            known.raw = request.raw
        else:
            at = len(self._executed)
            if request.cell_id:
                at = next((n for n, e in enumerate(self._executed, 1) if e.cell_id == self._last_id), at)
            self._executed.insert(at, _Saved(cell_id, request.raw))
        cells = tuple(self._cell(e.cell_id, e.raw) for e in self._executed)
        return cell_id, Order(cells, "", "execution")


class _File:
    """The saved notebook: looked at before each cell (a stat), read when it changed."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.version = path, ""
        self.cells: list[_Saved] = []
        self._has_ids = True
        self._aliases: dict[str, str] = {}  # front end's id → the id that the file's cell goes by
        self._last_raw: dict[str, str] = {}

    def refresh(self, cell_id: str) -> bool:
        """Read the file if it changed. Returns whether an order is known.

        A file that is just being written, or cannot be read, keeps the order that was known.
        """
        if self.path is None:
            return False
        if not self.path.exists():
            self._follow_rename(cell_id)
        try:
            found = self.path.stat()
            version = f"{found.st_mtime_ns} {found.st_size}"
            if version != self.version:
                self._take(_code_cells(self.path), version)
        except (OSError, ValueError):
            pass  # as promised above
        return bool(self.version)

    def _take(self, cells: list[tuple[str | None, str]], version: str) -> None:
        self.version, self._has_ids = version, all(cell_id for cell_id, _ in cells)
        texts, seen = Counter(raw for _, raw in cells), Counter[str]()
        by_text = {raw: self._aliases[front] for front, raw in self._last_raw.items()}
        self.cells = []
        for cell_id, raw in cells:
            known = by_text.get(raw) if texts[raw] == 1 else None
            while (made := f"#{hashlib.sha256(raw.encode()).hexdigest()[:12]}.{seen[raw]}") in by_text.values():
                seen[raw] += 1
            seen[raw] += 1
            self.cells.append(_Saved(cell_id or known or made, raw))

    def known_as(self, cell_id: str, raw: str) -> str:
        """The id that a front end's cell goes by: its own, or where the file has others, that of the same text."""
        ids = {cell.cell_id for cell in self.cells}
        if cell_id in ids:
            return cell_id
        alias = self._aliases.get(cell_id)
        if alias not in ids and (not self._has_ids or cell_id.startswith(FOREIGN_IDS)):
            same = [cell.cell_id for cell in self.cells if cell.raw == raw]
            alias = same[0] if len(same) == 1 else alias
        self._aliases[cell_id] = alias or cell_id
        self._last_raw[cell_id] = raw
        return self._aliases[cell_id]

    def _follow_rename(self, cell_id: str) -> None:
        """The notebook was renamed under a running kernel: look for the cell among the newest files beside it."""
        assert self.path
        try:
            beside = sorted(self.path.parent.glob("*.ipynb"), key=lambda p: p.stat().st_mtime_ns, reverse=True)
            for path in beside[:_RENAMED_SEARCH_FILES]:
                if cell_id in {found for found, _ in _code_cells(path)}:
                    self.path, self.version = path, ""
                    return
        except (OSError, ValueError):
            return  # the folder is gone, too, or in motion


def _code_cells(path: Path) -> list[tuple[str | None, str]]:
    """Id (None before nbformat 4.5) and text of each code cell. Raises OSError, ValueError."""
    document = json.loads(path.read_text(encoding="utf-8"))
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ValueError(f"{path} is no notebook of nbformat 4")
    found = []
    for cell in cells:
        if cell.get("cell_type") == "code":
            source, cell_id = cell.get("source", ""), cell.get("id")
            text = "".join(map(str, source)) if isinstance(source, list) else str(source)
            found.append((cell_id if isinstance(cell_id, str) else None, text))
    return found
