"""A notebook without IPython: cells are executed in one namespace, with their source at hand."""

from __future__ import annotations

import itertools
import linecache
from pathlib import Path

from resumable_nb.fingerprint import Facts, analyse, fingerprint, needs

_numbers = itertools.count()


class Notebook:
    """Cells run as IPython runs them: each under a file name of its own, in `__main__`."""

    def __init__(self, *cells: str, project: Path | None = None) -> None:
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.made_by: dict[str, str] = {}
        self.project = project
        for cell in cells:
            self.run(cell)

    def run(self, source: str, *, at_hand: bool = True) -> Notebook:
        filename = f"<cell {next(_numbers)}>"
        if at_hand:
            linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        before = dict(self.names)
        exec(compile(source, filename, "exec", dont_inherit=True), self.names)
        made = {name for name, value in self.names.items() if before.get(name, before) is not value}
        self.made_by |= dict.fromkeys(made, analyse(source).digest)
        return self

    def facts(self, name: str) -> Facts:
        made_by = self.made_by.get(name, "")
        return fingerprint(self.names[name], namespace=self.names, made_by=made_by, name=name, project=self.project)

    def lookup(self, name: str) -> Facts | None:
        return self.facts(name) if name in self.names else None

    def inputs(self, cell: str) -> dict[str, Facts | None]:
        """What a cell would start from."""
        return {name: self.lookup(name) for name in sorted(needs(analyse(cell), self.lookup))}

    def digests(self, cell: str) -> dict[str, str | None]:
        return {name: facts and facts.digest for name, facts in self.inputs(cell).items()}


def digest(source: str, name: str = "x") -> str:
    """The digest of a name after a cell."""
    return Notebook(source).facts(name).digest
