"""The notebook's names: what they hold, who made them, and how to put a value back."""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resumable_nb import fingerprint, values
from resumable_nb.errors import ValueNotStorable

if TYPE_CHECKING:
    from resumable_nb.cells import Record
    from resumable_nb.fingerprint import Code, Facts, Sharing

_OWN = re.compile(r"_|__|___|_i+|_i?\d+|_[dio]h|_exit_code|__.*__|In|Out|get_ipython|exit|quit|state|thread")
_VAULT_BYTES = 256 << 20
DEFINED = ("function", "class", "module")  # kinds of values that come back by executing a statement
MODULE = "module "  # prefix of the pseudo-names that stand for a project's modules


def made_by(run_key: str) -> str:
    """What stands for the run that made a value: all that is known of a lock or a client."""
    return hashlib.sha256(run_key.encode()).hexdigest()


class Names:
    """The namespace of a notebook, seen by fingerprint.

    Args:
        namespace: the dictionary that cells run in.
        hidden: names that were in it before the person wrote anything; one counts once it holds something else.
    """

    def __init__(self, namespace: MutableMapping[str, Any], hidden: Mapping[str, Any] | None = None) -> None:
        self.namespace = namespace
        self.project = Path.cwd()
        self.made_by: dict[str, str] = {}
        self._hidden = dict(hidden or {})
        self._memo: dict[str, Facts | None] = {}
        self._vault: dict[str, tuple[str, dict[str, bytes]]] = {}
        self._vault_bytes = 0
        self._objects: dict[str, Any] = {}  # functions, classes and modules that steps started from

    # ------------------------------------------------------------------ looking
    def counts(self, name: str) -> bool:
        """Whether it is a name of the notebook, not one of IPython's or ours."""
        if _OWN.fullmatch(name) or name not in self.namespace:
            return False
        return not (name in self._hidden and self._hidden[name] is self.namespace[name])

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in list(self.namespace) if self.counts(name)])

    def facts(self, name: str) -> Facts | None:
        """What a name holds now; None if it is unbound. Looked at once until `forget`."""
        if name not in self._memo:
            bound = self.counts(name)
            self._memo[name] = self._look(name, self.namespace[name]) if bound else None
        return self._memo[name]

    def digest(self, name: str) -> str | None:
        """The digest of what a name holds now; None if it is unbound."""
        facts = self.facts(name)
        return facts.digest if facts else None

    def unbind(self, name: str) -> None:
        """Take a name away."""
        self.namespace.pop(name, None)
        self.forget([name])

    def _look(self, name: str, value: object) -> Facts:
        made_by = self.made_by.get(name, "")
        return fingerprint.fingerprint(
            value, namespace=self.namespace, made_by=made_by, name=name, project=self.project
        )

    def forget(self, names: Iterable[str] | None = None) -> None:
        """Code has run: look again."""
        if names is None:
            self._memo.clear()
        else:
            for name in names:
                self._memo.pop(name, None)

    def identities(self) -> dict[str, Any]:
        """What each name holds, as objects."""
        return {name: self.namespace[name] for name in self}

    def needs(self, code: Code, placed: Mapping[str, Facts | None], *, now: bool = False) -> set[str]:
        """Names that code needs, through functions too, and project modules that it imports.

        Args:
            code: of a cell.
            placed: what the names hold at its place.
            now: take what a name holds now where `placed` has nothing.
        """

        def lookup(name: str) -> Facts | None:
            if name in placed or not now:
                return placed.get(name)
            return self.facts(name)

        found = {n for n in fingerprint.needs(code, lookup) if n == "state" or not _OWN.fullmatch(n)}
        return found | {MODULE + m for m in code.modules if self.module(m) is not None}

    def module(self, name: str) -> str | None:
        """The digest of a module of the project, else None."""
        return fingerprint.module_digest(name.removeprefix(MODULE), self.project)

    def aliases(self, names: Iterable[str]) -> set[str]:
        """Other names that share something mutable with these."""
        return fingerprint.shares(set(names), self.identities())  # without IPython and the thread: they hold much

    def sharing(self) -> Sharing:
        """Which names hold the same mutable objects now."""
        return fingerprint.sharing(self.identities())

    def rebind(self, objects: Mapping[str, Any]) -> None:
        """Bind the names to what `identities` gave, and no others."""
        for name in [n for n in self if n not in objects]:
            del self.namespace[name]
        self.namespace.update(objects)
        self.forget()

    # ------------------------------------------------------------------ putting back
    def keep(self, name: str, facts: Facts | None) -> None:
        """Keep the value that a step starts from, so that it can be put back if the step alters it."""
        if facts is not None and facts.kind in DEFINED:
            self._objects[facts.digest] = self.namespace[name]
        if facts is None or facts.storable or facts.kind != "value" or facts.digest in self._vault:
            return
        with contextlib.suppress(ValueNotStorable):
            encoded = values.encode(self.namespace[name], path=name)
            size = len(encoded.text) + sum(map(len, encoded.blobs.values()))
            if self._vault_bytes + size <= _VAULT_BYTES:
                self._vault[facts.digest] = (encoded.text, dict(encoded.blobs))
                self._vault_bytes += size

    def kept(self, name: str, facts: Facts | None) -> bool:
        """Whether `put_back` can bind the name to this."""
        if facts is None or facts.digest in self._vault:
            return True
        if facts.digest not in self._objects:
            return False
        return self._look(name, self._objects[facts.digest]).digest == facts.digest  # a class can be altered

    def put_back(self, name: str, facts: Facts | None) -> None:
        """Bind a name to the value that was kept."""
        if facts is None:
            self.namespace.pop(name, None)
        elif facts.digest in self._objects:
            self.namespace[name] = self._objects[facts.digest]
        else:
            text, blobs = self._vault[facts.digest]
            self.namespace[name] = values.decode(text, blobs.__getitem__, self.resolve)
        self._memo[name] = facts

    def resolve(self, module: str, qualname: str) -> type | None:
        """The class of a stored value, if it is defined here."""
        return values.resolver(self.namespace)(module, qualname)

    def define(self, source_of: Code, names: set[str]) -> set[str]:
        """Execute the import, def and class statements of a cell that bind these names. Returns those still unbound."""
        source = source_of.definitions(names)
        if source:
            mark = hashlib.sha256(source.encode()).hexdigest()[:12]  # other source needs another file name
            code = compile(source, f"<definitions {mark}>", "exec", dont_inherit=True)
            linecache.cache[code.co_filename] = (len(source), None, source.splitlines(keepends=True), code.co_filename)
            exec(code, self.namespace)  # type: ignore[arg-type]  # noqa: S102 - the notebook's own source, at hand
        self.forget(names)
        return {n for n in names if n not in self.namespace}

    def restore(self, record: Record, text: str, blobs: Callable[[str], bytes], only: set[str] | None = None) -> None:
        """Bind names to the values that a run left in them; names that shared an object with them at that time, too."""
        found = values.decode_names(text, blobs, self.resolve, only=only)
        for name, value in found.items():
            self.namespace[name] = value
            self._memo[name] = record.kept.get(name) or record.before.get(name)
