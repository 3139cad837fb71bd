"""Looking at a store from end to end, for `doctor`: its files, what it is, and every row of every thread.

Nothing is changed. What is found comes with what to do about it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from resumable_nb.errors import ResumableError
from resumable_nb.fold import Fold
from resumable_nb.journal import PRUNED, Row, repair
from resumable_nb.journal.processes import versions
from resumable_nb.notebook.signing import trusted
from resumable_nb.terminal import counted, plain

_MANY_ROWS = 50_000
_WRITER = re.compile(r"resumable_nb (\d+(?:\.\d+)*)")


class Line(NamedTuple):
    """One thing that is said of a store.

    Attributes:
        is_trouble: it is not as it should be.
    """

    text: str
    is_trouble: bool = False


def check(path: Path, found: repair.Report, progress: Callable[[str], object]) -> Iterator[Line]:
    """All that is to be said of a store that was examined, as it is found.

    Args:
        path: the store.
        found: what `repair.examine` said of the file as a whole.
        progress: is told what takes long.
    """
    for trouble in found.troubles:
        yield Line(plain(trouble), is_trouble=True)
    yield from _files(path)
    for name, count in sorted(found.rows.items()):
        if found.needs == "rebuild without log":
            yield Line(f"thread {plain(name)}: {counted(count, 'row')} can be read without the log")
            continue
        if count >= _MANY_ROWS:
            progress(f"looking at {counted(count, 'row')} of thread {plain(name)} …")
        yield from _thread(name, count, repair.inspect(path, name))


def _files(path: Path) -> Iterator[Line]:
    for file in repair.open_to_others(path):
        yield Line(f"{file.name} can be read or written by other users. To do: chmod 600 '{file}'", is_trouble=True)
    wal = path.with_name(path.name + ".wal")
    if wal.exists():
        yield Line(f"note: {wal.name} has the newest rows, of a process that works or was killed: never delete it")
    for file in repair.leftovers(path):
        yield Line(f"note: {file.name} was left by a process that was killed; `prune` removes it, or you do")


def _thread(name: str, count: int, looked: repair.Inspected) -> Iterator[Line]:
    told, found = f"thread {plain(name)}: {counted(count, 'row')}", list(map(str, looked.findings))
    first = min((seq for finding in looked.findings for seq in finding.seqs), default=0)
    fold, why = _folded(looked.rows)
    found += [why] if why else []
    if not found:
        yield Line(f"{told}, {counted(len(fold.checkpoints()), 'checkpoint')}, in order")
    for finding in found:
        yield Line(f"{told}: {finding}", is_trouble=True)
    if found:
        can_fork = first > 2 and not any("(R1)" in finding for finding in found)
        others = f"`resumable-nb fork {first - 1} NEW --thread {name}` goes on from before it; or " if can_fork else ""
        yield Line(f"  to do: {others}put a copy of the store back. Nothing was changed", is_trouble=True)
    yield from (Line(f"  note: {note}") for note in _notes(looked.rows))


def _folded(rows: list[Row]) -> tuple[Fold, str]:
    """The thread, and why it or its newest state cannot be built from its rows."""
    fold = Fold()
    try:
        fold.apply_all(rows)
        image = fold.image(fold.newest())
        for field in image.fields:
            json.loads(image.json(field))
    except (ResumableError, ValueError, LookupError, TypeError, AssertionError, RecursionError) as error:
        return fold, f"Its newest state cannot be built: {str(error) or type(error).__name__}"
    return fold, ""


def _notes(rows: list[Row]) -> Iterator[str]:
    ours = _version(versions()[0])
    newest = max((_version(match[1]) for row in rows if (match := _WRITER.match(row.writer or ""))), default=())
    if newest > ours > (0,):
        yield f"resumable_nb {'.'.join(map(str, newest))} wrote in it, and this is {versions()[0]}"
    if strange := sum(not _is_trusted(row) for row in rows if row.kind == "outputs" and row.response):
        shown = counted(strange, "step")
        yield f"what {shown} showed was not signed by you: it is shown as text until `%resumable trust`"
    pruned = sum((row.data or "").startswith(PRUNED) for row in rows)
    if pruned:
        yield f"{counted(pruned, 'row')} {'was' if pruned == 1 else 'were'} pruned"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _is_trusted(row: Row) -> bool:
    try:
        outputs = json.loads(row.response or "[]")
    except (ValueError, RecursionError):
        return False
    return trusted(outputs, row.key or "")
