"""Which names share something mutable, so that a change through one is noticed in the other."""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from resumable_nb.fingerprint.instances import content_of, state_of

LIMIT = 100_000
"""Objects that are looked at for one name. A name with more counts as sharing: looking at it again costs time only."""
_IMMUTABLE = frozenset({int, float, complex, bool, str, bytes, type(None), type(...), range, slice, types.CodeType})
_BUILTIN = frozenset({list, dict, tuple, set, frozenset, deque, types.FunctionType})
_NOT_SHARED = (types.ModuleType, type, types.MethodDescriptorType, types.WrapperDescriptorType, *weakref.ProxyTypes)
_KERNEL = frozenset({"comm", "ipykernel", "zmq"})
"""Libraries whose objects lead to the kernel and so to all names: a widget has its connection, that has the shell."""
_CONSTANT = (
    ("enum", "Enum"),  # a member comes back as the one that there is
    ("pandas", "Index"),  # nobody can change it, so `values` stores it as content and two come back
    ("traitlets.traitlets", "BaseDescriptor"),  # of a class, though each widget lists those that observe it
    ("IPython.core.interactiveshell", "InteractiveShell"),
    ("asyncio", "AbstractEventLoop"),
)
"""Modules and classes of what a process has one of, or what nobody changes: to hold one is no sharing."""
_HOLDS_OTHERS = (tuple, frozenset, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)


def shares(names: Iterable[str], namespace: Mapping[str, Any]) -> set[str]:
    """The other names that share a mutable object with one of these names.

    Lists, dicts, sets, objects, the memory of arrays, closures, defaults and bound objects are looked into; modules and
    classes are not.

    Args:
        names: those that are not bound are left out.
        namespace: the notebook's names.
    """
    asked = {name for name in names if name in namespace}
    reached: set[int] = set()
    for name in asked:
        reached |= _mutable(namespace[name]) or set()
    if not reached:
        return set()
    return {name for name, value in list(namespace.items()) if name not in asked and _touches(value, reached)}


@dataclass(frozen=True)
class Sharing:
    """Who holds which mutable objects at one moment. Names with too much to look at are left out.

    Attributes:
        held: name → ids of the mutable objects that it can reach.
        alive: what was looked at: while it lives, nothing else has its id.
    """

    held: Mapping[str, set[int]]
    alive: list[object] = field(repr=False)

    def partners(self, name: str) -> set[str]:
        """The other names that hold an object of this name."""
        return self.holders(self.held.get(name, set())) - {name}

    def shared(self) -> set[str]:
        """The names that hold an object of another one."""
        holder: dict[int, str] = {}
        found: set[str] = set()
        for name, held in self.held.items():
            for item in held:
                if item in holder:
                    found |= {name, holder[item]}
                holder[item] = name
        return found

    def holders(self, ids: set[int]) -> set[str]:
        """The names that hold one of these objects."""
        return {name for name, held in self.held.items() if not held.isdisjoint(ids)}


def sharing(namespace: Mapping[str, Any]) -> Sharing:
    """Who holds which mutable objects now."""
    alive: list[object] = []
    held = {name: _mutable(value, alive) for name, value in list(namespace.items())}
    return Sharing({name: ids for name, ids in held.items() if ids}, alive)


def _touches(value: object, reached: set[int]) -> bool:
    found = _mutable(value)
    return found is None or not reached.isdisjoint(found)


def _mutable(value: object, alive: list[object] | None = None) -> set[int] | None:
    """Ids of the mutable objects that can be reached from a value; None if there are too many.

    Args:
        value: where to begin.
        alive: gets what was looked at: while it lives, nothing else has its id.
    """
    seen: set[int] = set()
    found: set[int] = set()
    todo = [value]
    while todo:
        item = todo.pop()
        kind: type = type(item)
        if kind in _IMMUTABLE or id(item) in seen or _is_constant(kind):
            continue
        if len(seen) >= LIMIT:
            return None
        seen.add(id(item))
        if alive is not None:
            alive.append(item)
        if not isinstance(item, _HOLDS_OTHERS):
            found.add(id(item))
        todo.extend(_parts(item))
    return found


@functools.lru_cache(maxsize=4096)
def _is_constant(kind: type) -> bool:
    """Whether its objects are nothing that two names share."""
    if issubclass(kind, _NOT_SHARED) or _library(kind) in _KERNEL:
        return True
    loaded = [(module, name) for place, name in _CONSTANT if (module := sys.modules.get(place)) is not None]
    return any(issubclass(kind, getattr(module, name, ())) for module, name in loaded)


def _parts(item: Any) -> Iterator[object]:
    if isinstance(item, list | tuple | set | frozenset | deque):
        yield from _worth_it(content_of(item))
    elif isinstance(item, dict):
        content = dict.copy(item)
        yield from _worth_it(content)
        yield from _worth_it(content.values())
    elif isinstance(item, types.FunctionType):
        for cell in item.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not bound yet
                continue
        yield from (item.__defaults__, item.__kwdefaults__, vars(item))
    elif isinstance(item, types.MethodType | types.BuiltinFunctionType | types.MethodWrapperType):
        yield item.__self__
        yield getattr(item, "__func__", None)
    elif isinstance(item, functools.partial):
        yield from (item.func, item.args, item.keywords)
    else:
        yield from _library_parts(item)
    if type(item) not in _BUILTIN:
        yield from _worth_it(state_of(item).values())


def _library(kind: type) -> str:
    """The package that a class is from."""
    return str(kind.__module__ or "").partition(".")[0]


def _library_parts(item: Any) -> Iterator[object]:
    library = _library(type(item))
    if library == "numpy":
        yield getattr(item, "base", None)  # the array whose memory this one shows
        if getattr(getattr(item, "dtype", None), "hasobject", False) and item.size <= LIMIT:
            yield item.ravel().tolist()
    elif library == "pandas":
        yield from _object_columns(item)


def _object_columns(item: Any) -> Iterator[object]:
    """Columns of a frame, or a series, that may hold lists and alike. Others share nothing: pandas copies on write."""
    if type(item).__name__ == "DataFrame":
        yield from (item.iloc[:, n].to_numpy() for n, dtype in enumerate(item.dtypes) if dtype.kind == "O")
    elif type(item).__name__ == "Series" and item.dtype.kind == "O":
        yield item.to_numpy()


def _worth_it(items: Any) -> Iterator[object]:
    """The items that may be, or hold, something mutable. A list of a million numbers is told apart fast."""
    if not _IMMUTABLE.issuperset(map(type, items)):
        yield from (item for item in items if type(item) not in _IMMUTABLE)
