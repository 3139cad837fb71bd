"""A notebook that is being executed without a browser, and the file that shows how far it is."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from resumable_nb.errors import UsageError
from resumable_nb.terminal import one_line

_STEP = re.compile(r"(?:[ \t]*(?:#.*)?\n)*[ \t]*%%resumable[ \t]+(\S+)")


@dataclass
class Document:
    """A notebook that is being executed.

    Attributes:
        source: the notebook itself; never written to.
        output: the executed notebook, whole at any time.
        content: the `NotebookNode` that is being filled with outputs; every cell has an id.
        failed: ids of cells that raised, as their tag `raises-exception` allows, in the present kernel. They leave
            nothing: for the cells below they stand in the order as if they held no code.
    """

    source: Path
    output: Path
    content: Any
    failed: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, notebook: Path, output: Path | None) -> Document:
        """Load a notebook, without its outputs, and write the file that will hold the new ones.

        Raises:
            UsageError: the one cannot be read, or the other not written.
        """
        source = notebook.absolute()
        content = cells_of(source)
        for cell in content.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        document = cls(source, (output or source.with_suffix(".executed.ipynb")).absolute(), content)
        document.save()
        return document

    def save(self) -> None:
        """Put the file in its place whole: a reader, or a crash, sees the one before or this one."""
        try:
            self.output.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=f".{self.output.name}.", dir=self.output.parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(nbformat.writes(self.content))
                    file.flush()
                    os.fsync(file.fileno())
                os.chmod(temporary, _mode(self.output))
                os.replace(temporary, self.output)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            raise UsageError(f"{self.output} cannot be written: {error.strerror}. Give another --output.") from error

    def place(self, cell_id: str) -> dict[str, object]:
        """What a kernel is told of where a cell stands: all cells in order, `~` before those without code."""
        without = self.failed - {cell_id}
        cells = [
            (cell.id, cell.source if cell.cell_type == "code" and cell.id not in without else None)
            for cell in self.content.cells
        ]
        return {
            "cellId": cell_id,
            "cellOrder": [name if source is not None else f"~{name}" for name, source in cells],
            "cellSources": [source for _, source in cells],
            "notebookPath": str(self.source),
            "runner": True,
        }

    def resume_lines(self) -> list[str]:
        """What the panels of opened threads say of their resumes now."""
        outputs = [output for cell in self.content.cells for output in cell.get("outputs", ())]
        ours = [output.get("metadata", {}).get("resumable_nb", {}) for output in outputs]
        return [line for told in ours for line in told.get("lines", ())]

    def note(self, index: int, text: str) -> None:
        """Add a line to what a cell shows on its error stream."""
        self.content.cells[index].outputs.append(nbformat.v4.new_output("stream", name="stderr", text=text + "\n"))

    def step(self, index: int) -> str | None:
        """The name that a cell's `%%resumable` line gives it."""
        named = _STEP.match(self.content.cells[index].source)
        return named[1] if named else None

    def label(self, index: int) -> str:
        """A cell as a person would look for it: its number, and its step's name or first line."""
        cell, step = self.content.cells[index], self.step(index)
        what = f"step `{step}`" if step else f"`{one_line(cell.source.strip().partition(chr(10))[0], 40)}`"
        return f"cell {index + 1} of {len(self.content.cells)} ({what}, id {one_line(cell.id)})"


def cells_of(notebook: Path) -> Any:
    """What a notebook holds, in format 4.5.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return _parse(notebook.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{notebook} cannot be read: {error.strerror}.") from error
    except (ValueError, nbformat.ValidationError) as error:
        raise UsageError(f"{notebook} is no notebook that can be read: {one_line(str(error), 200)}") from error


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        umask = os.umask(0o077)
        os.umask(umask)
        return 0o666 & ~umask


def _parse(text: str) -> Any:
    """A notebook in format 4.5. Cells without an id get one made of their source: the same in every run."""
    raw = json.loads(text)
    if not isinstance(raw, dict):
        raise nbformat.ValidationError(f"it holds a JSON {type(raw).__name__}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # missing or repeated ids: dealt with below
        content = nbformat.reads(text, as_version=4)
    content.nbformat_minor = max(content.nbformat_minor, 5)
    written = raw.get("cells") or [{}] * len(content.cells)
    taken: set[str] = set()
    for cell, before in zip(content.cells, written, strict=True):
        cell.id = _free_id(str(before.get("id") or ""), cell.source, taken)
        taken.add(cell.id)
    nbformat.validate(content)
    return content


def _free_id(wanted: str, source: str, taken: set[str]) -> str:
    if wanted and wanted not in taken:
        return wanted
    digest = hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()[:12]
    return next(name for n in range(len(taken) + 1) if (name := f"{digest}-{n}" if n else digest) not in taken)
