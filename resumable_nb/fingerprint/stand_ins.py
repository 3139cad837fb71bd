"""Stand-ins for what has no stored form: functions, classes, modules, objects of the notebook's classes, and all else.

A stand-in is JSON that is equal exactly where the thing means the same. It never holds an address, and no code of the
notebook runs to make it.
"""

from __future__ import annotations

import array
import functools
import hashlib
import io
import itertools
import random
import re
import sys
import types
import typing
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from resumable_nb.errors import ValueNotStorable
from resumable_nb.fingerprint.instances import content_of, is_plain_object, state_of
from resumable_nb.fingerprint.members import is_annotation, members
from resumable_nb.fingerprint.modules import is_project_file, module_digest
from resumable_nb.fingerprint.scopes import LIBRARY, USES_STATE
from resumable_nb.fingerprint.sources import code_digest, globals_used, modules_used
from resumable_nb.values import encode

_BUILTIN_CALLABLES = (
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
# How things are taken apart whose parts say all that they are.
_APART: dict[type, Callable[[Any], dict[str, object]]] = {
    types.MethodType: lambda method: {"function": method.__func__, "bound to": method.__self__},
    functools.partial: lambda partial: {"function": partial.func, "arguments": [partial.args, partial.keywords]},
    functools.partialmethod: lambda partial: {"function": partial.func, "arguments": [partial.args, partial.keywords]},
    type(functools.cache(len)): lambda cache: {"function": cache.__wrapped__, "cache": cache.cache_parameters()},
    functools.cached_property: lambda descriptor: {"cached property": descriptor.func},
    staticmethod: lambda method: {"static": method.__func__},
    classmethod: lambda method: {"of the class": method.__func__},
    property: lambda descriptor: {"property": [descriptor.fget, descriptor.fset, descriptor.fdel]},
    types.MappingProxyType: lambda proxy: {"items": dict(proxy)},
    re.Pattern: lambda pattern: {"pattern": pattern.pattern, "flags": pattern.flags},
    random.Random: lambda generator: {"state": generator.getstate()},
    array.array: lambda items: {"type": items.typecode, "bytes": items.tobytes()},
    io.StringIO: lambda file: {"text": None if file.closed else file.getvalue()},
    io.BytesIO: lambda file: {"bytes": None if file.closed else file.getvalue()},
    itertools.count: lambda numbers: {"next": repr(numbers)},
}
# Modules of the standard library whose objects are data.
_DATA = frozenset({"argparse", "collections", "configparser", "string", "types"})
_CALLED = (types.FunctionType, types.MethodType, functools.partial)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_CLASS_TAG = re.compile(r'"\$type":"((?:[^"\\]|\\.)*)","\$module":"((?:[^"\\]|\\.)*)"')


class _NotSeen(Exception):  # no error: an object holds something that counts by its maker
    """A part of an object cannot be seen."""


class StandIns:
    """Makes the stand-ins of one value, and collects what it can read when it is used.

    Args:
        namespace: the notebook's names.
        made_by: what stands for the cell that made the value.
        project: the folder of the project.
    """

    def __init__(self, namespace: Mapping[str, Any], made_by: str, project: Path) -> None:
        self.reads: set[str] = set()
        self._namespace, self._made_by = namespace, made_by
        self._project = project
        self._done: dict[
            int, tuple[object, dict[str, str], object]
        ] = {}  # id → (the thing, held; its parts; its stand-in)
        self._open: dict[int, int] = {}
        self._strict = 0

    def __call__(self, value: object, path: str) -> object:
        """What `values.encode` asks for: a stand-in of a part that is not storable."""
        del path
        if (known := self._done.get(id(value))) is not None:
            return known[2]
        if id(value) in self._open:
            return {"again": self._open[id(value)]}
        self._open[id(value)] = len(self._open)
        try:
            parts = self._parts(value)
        finally:
            del self._open[id(value)]
        stand_in = {"is": hashlib.sha256(repr(sorted(parts.items())).encode("utf-8", "surrogatepass")).hexdigest()}
        self._done[id(value)] = value, parts, stand_in
        return stand_in

    def parts(self, value: object) -> dict[str, str]:
        """What the stand-in of a thing was made of: label → text; empty if none was made."""
        known = self._done.get(id(value))
        return known[1] if known else {}

    def text(self, value: object) -> str:
        """The canonical text of a value, with stand-ins where it needs them."""
        return self.complete(encode(value, other=self).text)

    def _text_if(self, *values: object) -> str:
        return self.text(list(values)) if any(value is not None for value in values) else ""

    def complete(self, text: str) -> str:
        """An encoded text with the code of its objects' classes: the project's are added, the notebook's noted."""
        modules = set()
        for qualname, module in _CLASS_TAG.findall(text):
            modules.add(module)
            if self._is_notebook(module):
                self._read_class(qualname)
        digests = [f"{module} {digest}" for module in sorted(modules) if (digest := self._module(module))]
        return "\n".join([text, *digests])

    def _read_class(self, qualname: str) -> None:
        if "<locals>" not in qualname:
            self.reads.add(re.split(r"[.\[]", qualname, maxsplit=1)[0])

    def _module(self, name: str) -> str | None:
        return module_digest(name, self._project)

    def _parts(self, value: Any) -> dict[str, str]:
        kind = type(value)
        if kind in weakref.ProxyTypes:  # to look at one is to look at what it stands for, which may be gone
            return self._opaque(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.ModuleType):
            return _some({"module": value.__name__, "source": self._module(value.__name__) or ""})
        if isinstance(value, _BUILTIN_CALLABLES):
            return self._builtin(value)
        if is_annotation(value):
            return {"annotation": self._annotation(value)}
        if (taken_apart := _APART.get(kind)) is not None:
            return {label: self.text(part) for label, part in taken_apart(value).items()}
        return self._object(value)

    # ------------------------------------------------------------------ functions
    def _function(self, function: types.FunctionType) -> dict[str, str]:
        module = str(function.__globals__.get("__name__", ""))
        code = function.__code__
        if function.__globals__ is not self._namespace and not self._is_notebook(module):
            if not self._is_of_project(module):
                return self._installed_function(function, module)
            source = f"{self._module(module)} {code.co_qualname}"
        else:
            source = code_digest(code)
            self.reads |= globals_used(code, self._namespace)
        found = {
            "source": source,
            "name": function.__qualname__,
            "defaults": self._text_if(function.__defaults__, function.__kwdefaults__),
            "closure": self._closure(function),
            "annotations": "\n".join(f"{k}: {self._annotation(v)}" for k, v in function.__annotations__.items()),
            "attributes": self._text_if({k: v for k, v in vars(function).items() if k != "__wrapped__"} or None),
            "decorators": self._text_if(vars(function).get("__wrapped__")),
            "modules": "\n".join(f"{m} {digest}" for m in sorted(modules_used(code)) if (digest := self._module(m))),
        }
        return _some(found)

    def _installed_function(self, function: types.FunctionType, module: str) -> dict[str, str]:
        """By name. What it wraps is in its closure: a decorator of a package around a function of the notebook."""
        if module.partition(".")[0] == LIBRARY and self._uses_state(function):
            self.reads.add("state")
        found = {"function": f"{module}.{function.__code__.co_qualname}", "closure": self._closure(function)}
        if "__wrapped__" in vars(function):
            found["decorators"] = self.text(function.__wrapped__)  # type: ignore[attr-defined]  # just found
        return _some(found)

    @staticmethod
    def _uses_state(function: types.FunctionType) -> bool:
        return function.__code__.co_name in USES_STATE or "effect" in function.__code__.co_qualname

    def _closure(self, function: types.FunctionType) -> str:
        cells: dict[str, object] = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                cells[name] = cell.cell_contents
            except ValueError:  # not bound yet
                cells[name] = NotImplemented
        return self.text(cells) if cells else ""

    def _builtin(self, value: Any) -> dict[str, str]:
        owner = getattr(value, "__objclass__", None)
        bound = getattr(value, "__self__", None)
        name = f"{getattr(value, '__module__', None) or getattr(owner, '__qualname__', '')}.{value.__qualname__}"
        is_free = bound is None or isinstance(bound, types.ModuleType)
        return {"builtin": name} if is_free else {"builtin": name, "bound to": self.text(bound)}

    # ------------------------------------------------------------------ classes
    def _class(self, kind: type) -> dict[str, str]:
        module = str(kind.__module__)
        named = {"class": f"{module}.{kind.__qualname__}"}
        if not self._is_notebook(module):
            return _some(named | {"source": self._module(module) or ""})
        found = named | {"bases": self.text(list(kind.__bases__))}
        if type(kind) is not type:
            found["metaclass"] = self.text(type(kind))
        for label, member in sorted(members(kind), key=lambda pair: pair[0]):
            found[label] = self._annotation(member) if label.startswith("type of ") else self.text(member)
        return found

    def _annotation(self, value: Any) -> str:
        """A type as it is written. The notebook's classes count by name: they are names that it reads."""
        if isinstance(value, str):
            for name in re.findall(r"[^\W\d]\w*", value):
                if isinstance(held := self._namespace.get(name), type) and self._is_notebook(held.__module__):
                    self.reads.add(name)
            return value
        if isinstance(value, type) and not typing.get_args(value):
            if self._is_notebook(value.__module__):
                self._read_class(value.__qualname__)
            return f"{value.__module__}.{value.__qualname__}"
        if (arguments := typing.get_args(value)) and (origin := typing.get_origin(value)) is not None:
            name = getattr(origin, "__name__", None) or _ADDRESS.sub("", repr(origin))
            written = map(repr if origin is typing.Literal else self._annotation, arguments)
            return f"{name}[{', '.join(written)}]"
        if isinstance(value, list | tuple):
            return ", ".join(self._annotation(item) for item in value)
        return _ADDRESS.sub("", repr(value)) if is_annotation(value) else self.text(value)

    # ------------------------------------------------------------------ objects
    def _object(self, value: Any) -> dict[str, str]:
        kind: type = type(value)
        library = kind.__module__.partition(".")[0]
        if library == "numpy":
            return self._numpy(value)
        if library == LIBRARY:
            return self._ours(value)
        is_notebook = self._is_notebook(kind.__module__)
        if not is_notebook and not self._is_of_project(kind.__module__):
            return self._foreign(value)
        found = self._fields(value)
        if is_notebook:
            self._read_class(kind.__qualname__)
        if not is_notebook or self._namespace.get(kind.__qualname__) is not kind:
            found["class"] = self.text(kind)  # the name of the class does not say this
        if not is_plain_object(kind) and "content" not in found:
            found |= self._maker()
        return found

    def _fields(self, value: object) -> dict[str, str]:
        kind = type(value)
        found = {"object of": f"{kind.__module__}.{kind.__qualname__}", "fields": self.text(state_of(value))}
        content = content_of(value)
        return found if content is None else found | {"content": self.text(content)}

    def _numpy(self, value: Any) -> dict[str, str]:
        if (generator := getattr(value, "bit_generator", None)) is not None:
            return {"generator": self.text(generator.state)}
        try:
            return {"array": encode(value).text}  # a view beside another array: alone, it has a form
        except ValueNotStorable:
            return self._opaque(value)

    def _foreign(self, value: object) -> dict[str, str]:
        """An object of a package: by its fields, if these say all that it is: a graph's do, a client's do not."""
        kind: type = type(value)
        library = kind.__module__.partition(".")[0]
        is_data = kind.__module__ in _DATA if library in sys.stdlib_module_names else True
        if not is_data or not (is_plain_object(kind) or content_of(value) is not None):
            return self._opaque(value)
        self._strict += 1
        try:
            found: dict[str, str] | None = self._fields(value)
        except (_NotSeen, ValueNotStorable):
            found = None
        finally:
            self._strict -= 1
        return self._opaque(value) if found is None else found

    def _ours(self, value: object) -> dict[str, str]:
        """An object of this library may call functions of the notebook: an effect, a resource.

        A class with `COUNTS_BY` names the attributes that say all that its objects are.
        """
        kind = type(value)
        if counts_by := vars(kind).get("COUNTS_BY"):
            held = state_of(value)
            return {"object of": kind.__qualname__} | {name.strip("_"): self.text(held[name]) for name in counts_by}
        if "effect" in kind.__qualname__.lower():
            self.reads.add("state")
        calls = {name: part for name, part in state_of(value).items() if isinstance(part, _CALLED)}
        return self._opaque(value) | {"calls": self.text(calls)}

    def _opaque(self, value: object) -> dict[str, str]:
        return {"opaque": f"{type(value).__module__}.{type(value).__qualname__}"} | self._maker()

    def _maker(self) -> dict[str, str]:
        if self._strict:
            raise _NotSeen
        return {"made by": self._made_by}

    # ------------------------------------------------------------------ where things come from
    def _is_notebook(self, module: str | None) -> bool:
        return module == "__main__" or (module is not None and module == self._namespace.get("__name__"))

    def _is_of_project(self, module: str | None) -> bool:
        loaded = sys.modules.get(module or "")
        file = getattr(loaded, "__file__", None)
        return bool(file) and is_project_file(Path(str(file)).resolve(), self._project.resolve())


def _some(parts: dict[str, str]) -> dict[str, str]:
    """The parts that say something."""
    return {label: text for label, text in parts.items() if text}


def opaque_digest(value: object, made_by: str) -> str:
    """The digest of what counts by its type and the cell that made it."""
    kind = type(value)
    return hashlib.sha256(f"opaque {kind.__module__}.{kind.__qualname__} {made_by}".encode()).hexdigest()
