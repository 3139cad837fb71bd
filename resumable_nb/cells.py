"""Cells, the order they stand in, and the record of a finished run of one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from resumable_nb.fingerprint import Code, Facts, analyse
from resumable_nb.terminal import counted

Origin = Literal["runner", "front end", "file", "execution"]
STATE = "state"
BASE = "(before %resumable open)"


@dataclass(frozen=True)
class Cell:
    """One notebook cell as it was executed, or as the notebook file has it.

    Attributes:
        cell_id: the notebook's own id of the cell.
        step: the name of the step, or None for an ordinary cell.
        source: Python after IPython's transformations, without the `%%resumable` line. "" where only the analysis of it
            is known (a cell that this kernel has not seen, as the journal recorded it).
        approve: the question that a person must answer before the step runs.
    """

    cell_id: str
    step: str | None
    source: str
    approve: str | None = None
    known: Code | None = field(default=None, compare=False, repr=False)

    @cached_property
    def code(self) -> Code:
        """What the source says without being run."""
        return self.known or analyse(self.source)

    @property
    def label(self) -> str:
        """How messages name it."""
        if self.step is not None:
            return f"`{self.step}`"
        first = next((line.strip() for line in self.source.splitlines() if line.strip()), "")
        return f"the cell that begins with `{first[:40]}`" if first else f"the cell {self.cell_id}"


@dataclass(frozen=True)
class Order:
    """Where the cells stand.

    Attributes:
        cells: the code cells from top to bottom. With `exact`, as they are on screen now; else as the file has them.
        version: changes when the file is saved.
        origin: who told the order, by falling trust.
        path: the notebook's path; None where there is none (a console, a script).
        exact: False if a new, unsaved cell may be missing in `cells`.
    """

    cells: tuple[Cell, ...]
    version: Any
    origin: Origin
    path: str | None = None
    exact: bool = False


@dataclass(frozen=True)
class Spent:
    """What a run cost: replaying or skipping it saves that."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    ms: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.ms + other.ms,
        )

    def __str__(self) -> str:
        tokens = self.input_tokens + self.output_tokens
        calls = f"{counted(self.calls, 'LLM call')}, {counted(tokens, 'token')}, " if self.calls else ""
        return calls + duration(self.ms)


def duration(ms: float) -> str:
    """`2 min 10 s`, `3.2 s`, `40 ms`."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


DIGEST_LENGTH = 32
"""Of what every checkpoint row tells of its run: 128 bits tell runs apart, and what is random is not compressed."""
_NO_CODE: dict[str, Any] = {"loads": {}, "bound": [], "writes": [], "modules": [], "stars": [], "defers": {}}


def _short(facts: Facts) -> dict[str, Any] | str:
    """Facts as they are stored: the state's, which are a digest, as a text."""
    return facts.digest if facts == Facts(digest=facts.digest) else facts.to_json()


def _whole(stored: dict[str, Any] | str) -> Facts:
    return Facts(digest=stored) if isinstance(stored, str) else Facts.from_json(stored)


def fingerprint_of(code: str, before: Mapping[str, Facts | None]) -> str:
    """The key of a run: code, and the names that it needed, by type and value."""
    parts = [code, *(f"{name}={facts.digest if facts else '-'}" for name, facts in sorted(before.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:DIGEST_LENGTH]


@dataclass(frozen=True)
class Record:
    """A finished run: what it needed at its start, and what it bound, altered or deleted by its end.

    Attributes:
        seq: the journal row (0: only in this kernel's memory).
        source_seq: the row that has the kept names and outputs (another one if an earlier run was taken up again).
        checkpoint: the row whose state is the exit state (its own, or for a cell that changed nothing its entry's).
        before: name → facts at the start, None for an unbound one; "state" is one of the names.
        kept: name → facts at the end, None for a deleted one.
        lost: name → why its value cannot be stored.
        shared: name that it kept → other names that can alter the same object, at the end.
        passed: name whose object it altered, or left in a name that it kept → digest of that, and the other names that
            held it, at the start.
        spent: what the run cost, its recorded answers included.
        moved_random: the run drew random numbers; where they stood at its end is the body of its row.
        returned_none: of a script's step: there is no result to read.
        started_seq: the `step started` row, where one was written.
    """

    cell: Cell
    before: Mapping[str, Facts | None]
    kept: Mapping[str, Facts | None]
    seq: int = 0
    source_seq: int = 0
    checkpoint: int = 0
    lost: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, list[str]] = field(default_factory=dict)
    passed: Mapping[str, list[str]] = field(default_factory=dict)
    spent: Spent = Spent()
    moved_random: bool = False
    returned_none: bool = False
    started_seq: int | None = None

    @cached_property
    def key(self) -> str:
        """The fingerprint of the run."""
        return fingerprint_of(self.cell.code.digest, self.before)

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """What two records of one and the same run have in common."""
        kept = tuple((name, facts and facts.digest) for name, facts in sorted(self.kept.items()))
        return self.cell.cell_id, self.cell.step, self.key, kept

    def equals(self, other: Record | None) -> bool:
        """The same cell with the same code, from and to the same names and state."""
        return other is not None and self.identity == other.identity

    def to_json(self) -> str:
        """The `data` of its journal row."""
        code = {part: value for part, value in self.cell.code.to_json().items() if value}
        data: dict[str, Any] = {
            "code": code,
            "before": {name: facts and _short(facts) for name, facts in self.before.items()},
            "kept": {name: facts and _short(facts) for name, facts in self.kept.items()},
        }
        for part in ("lost", "shared", "passed"):
            if getattr(self, part):
                data[part] = dict(getattr(self, part))
        for flag in ("moved_random", "returned_none"):
            if getattr(self, flag):
                data[flag] = True
        spent = {part: round(value, 1) for part, value in vars(self.spent).items() if value}
        if spent:
            data["spent"] = spent
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, *, cell_id: str, step: str | None, **columns: Any) -> Record:
        """The record of `to_json`; the other columns of its row are given beside."""
        data = json.loads(text)
        facts = {part: {n: f and _whole(f) for n, f in data[part].items()} for part in ("before", "kept")}
        return cls(
            cell=Cell(cell_id, step, "", known=Code.from_json(_NO_CODE | data["code"])),
            before=facts["before"],
            kept=facts["kept"],
            lost=data.get("lost", {}),
            shared=data.get("shared", {}),
            passed=data.get("passed", {}),
            spent=Spent(**data.get("spent", {})),
            moved_random=data.get("moved_random", False),
            returned_none=data.get("returned_none", False),
            **columns,
        )


def first_of(cells: Iterable[Cell], ids: set[str]) -> Cell | None:
    """The topmost of the cells that have one of these ids."""
    return next((cell for cell in cells if cell.cell_id in ids), None)
