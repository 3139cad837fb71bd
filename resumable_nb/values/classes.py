"""Codecs of classes that people define: dataclasses, pydantic models, enums, named tuples.

An object is stored as its fields and found again by the module and the name of its class. Neither its own `__new__` nor
`__init__`, validators, `__setstate__` or `__setattr__` run: what was there is put back as it was.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from resumable_nb.errors import ValueNotLoadable, ValueNotStorable
from resumable_nb.values.codec import Codec, Path, at_field, render, root

if TYPE_CHECKING:
    from resumable_nb.values.reader import Reader
    from resumable_nb.values.writer import Writer

_OWN_RECORDS = ("resumable_nb.research.records", "resumable_nb.research.chat")
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


def codec(kind: type) -> Codec | None:
    """How the instances of a class are written; None if there is no exact way."""
    if issubclass(kind, enum.Enum):
        return Codec(kind.__qualname__, _write_enum)
    if _is_namedtuple(kind):
        return Codec(kind.__qualname__, _write_namedtuple)
    if not _is_plain_object(kind):
        return None
    if _is_model(kind):
        return Codec(kind.__qualname__, _write_model, shared=not kind.model_config.get("frozen"))  # type: ignore[attr-defined]  # a BaseModel
    if dataclasses.is_dataclass(kind):
        parameters = kind.__dataclass_params__  # type: ignore[attr-defined]  # there, though not in the stubs
        return Codec(kind.__qualname__, _write_dataclass, shared=not (parameters.frozen and parameters.eq))
    return None


def _is_namedtuple(kind: type) -> bool:
    fields = getattr(kind, "_fields", None)
    return (
        issubclass(kind, tuple)
        and kind is not tuple
        and isinstance(fields, tuple)
        and all(type(name) is str for name in fields)
        and any(base.__bases__ == (tuple,) and "_field_defaults" in vars(base) for base in kind.__mro__)
    )


def _is_model(kind: type) -> bool:
    module = sys.modules.get("pydantic.main")  # not "pydantic": its attributes import submodules
    return module is not None and kind is not module.BaseModel and module.BaseModel in kind.__mro__


def _is_plain_object(kind: type) -> bool:
    """Whether all state of an instance is in its `__dict__` and slots (a subclass of list or Exception has more)."""
    return all(
        base is object or base.__flags__ & _HEAP_TYPE or base.__module__ in ("typing", "_typing")
        for base in kind.__mro__
    )


# ---- the class


def _name_class(value: object, node: dict[str, Any], path: Path) -> None:
    kind = type(value)
    if "<locals>" in kind.__qualname__:
        why = f"its class {kind.__qualname__} is made inside a function, where it cannot be found again"
        raise ValueNotStorable(render(path), why)
    # Box[int] has the module of whoever wrote `Box[int]`; it is found through Box.
    origin = getattr(kind, "__pydantic_generic_metadata__", {}).get("origin")
    node["$module"] = (origin or kind).__module__


def read(reader: Reader, node: dict[str, Any]) -> object:
    """The object that a node with a `$module` stands for. Raises ValueNotLoadable if its class is not what it was."""
    module, qualname = node["$module"], node["$type"]
    kind = reader.resolve(module, qualname)
    if kind is None:
        raise reader.fail(
            f"it needs the class {module}.{qualname}, which is not defined here: run its cell or import first "
            "(where it was renamed or removed, define one of that name for what is stored)"
        )
    if isinstance(kind, type):
        if issubclass(kind, enum.Enum):
            return _read_enum(reader, node, kind)
        if _is_namedtuple(kind):
            return _read_namedtuple(reader, node, kind)
        if _is_plain_object(kind) and _is_model(kind):
            return _read_model(reader, node, kind)
        if _is_plain_object(kind) and dataclasses.is_dataclass(kind):
            return _read_dataclass(reader, node, kind)
    raise reader.fail(f"{module}.{qualname} is no longer a model, dataclass, enum or named tuple")


def resolver(namespace: Mapping[str, Any]) -> Callable[[str, str], type | None]:
    """A function that finds a class by (module, qualname): in `namespace` if it is a class of the notebook, else in the
    modules that are imported already. It imports nothing but the research assistant's own records, and runs no module's
    `__getattr__`.
    """

    def resolve(module: str, qualname: str) -> type | None:
        if module == "__main__" or module == namespace.get("__name__"):
            found = _walk(namespace, qualname)
            if found is not None or module not in sys.modules:
                return found
        if module in _OWN_RECORDS:  # a kernel that goes on after a crash loads the state before it imports anything
            importlib.import_module(module)
        return _walk(vars(sys.modules[module]), qualname) if module in sys.modules else None

    return resolve


def _walk(names: Mapping[str, Any], qualname: str) -> type | None:
    base, bracket, _arguments = qualname.partition("[")
    found: Any = None
    for name in base.split("."):
        found = names.get(name)
        if not isinstance(found, type):
            return None
        names = vars(found)
    if bracket:  # a generic model with arguments, such as Box[int]: known if something here has named it
        return next((kind for kind in reversed(found.__subclasses__()) if kind.__qualname__ == qualname), None)
    return found if isinstance(found, type) and found.__qualname__ == qualname else None


# ---- state of an instance


_known_slots: WeakKeyDictionary[type, dict[str, MemberDescriptorType]] = WeakKeyDictionary()


def _slots(kind: type) -> dict[str, MemberDescriptorType]:
    """Name → slot, the bases' first."""
    if kind not in _known_slots:
        _known_slots[kind] = {
            name: member
            for base in reversed(kind.__mro__)
            for name, member in vars(base).items()
            if type(member) is MemberDescriptorType
        }
    return _known_slots[kind]


def _state(value: object, skip: Iterable[str] = ()) -> dict[str, Any]:
    """What the instance itself holds, past properties and `__getattr__`."""
    found: dict[str, Any] = {}
    for name, member in _slots(type(value)).items():
        if name not in skip:
            try:
                found[name] = member.__get__(value)
            except AttributeError:  # a slot that was never filled
                continue
    found.update(_dict_of(value))
    return found


def _dict_of(value: object) -> dict[str, Any]:
    try:
        own: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own


def _in_class(kind: type, name: str) -> Any:
    """What a class has under a name, past descriptors and metaclasses."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _restore(shell: object, name: str, value: Any) -> None:
    member = _slots(type(shell)).get(name)
    if member is not None:
        member.__set__(shell, value)
    else:
        object.__getattribute__(shell, "__dict__")[name] = value


def _write_fields(
    writer: Writer, names: Iterable[str], state: dict[str, Any], node: dict[str, Any], path: Path
) -> None:
    """Fields in the order of the class, then what is not as usual: `$absent` fields, other attributes in `$dict`."""
    absent, rest = [], dict(state)
    for name in names:
        if name[:1] == "$":
            raise ValueNotStorable(render(path), f"its class has a field named {name!r}")
        if name in rest:
            node[name] = writer.item(name, rest.pop(name), at_field(path, name))
        else:
            absent.append(name)
    if absent:
        node["$absent"] = absent
    if rest:
        node["$dict"] = _write_names(writer, rest, path)


def _write_names(writer: Writer, names: dict[Any, Any], path: Path) -> list[list[Any]]:
    return [
        [writer.node(name, path), writer.item(str(name), value, at_field(path, str(name)))]
        for name, value in names.items()
    ]


def _read_names(reader: Reader, pairs: list[list[Any]]) -> dict[Any, Any]:
    return {reader.value(name): reader.value(value) for name, value in pairs}


def _stored_fields(reader: Reader, node: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Name → node of the fields that are stored. Raises ValueNotLoadable if the class no longer has one of them."""
    stored = {name: item for name, item in node.items() if name[:1] != "$"}
    gone = [name for name in (*stored, *node.get("$absent", ())) if name not in known]
    if gone:
        names = ", ".join(repr(name) for name in gone)
        raise reader.fail(
            f"the class {node['$module']}.{node['$type']} has no longer the stored field {names}: put it back"
        )
    return stored


def _no_default(reader: Reader, node: dict[str, Any], name: str) -> ValueNotLoadable:
    """The error for a field that the class did not have when the object was stored."""
    return reader.fail(f"{node['$module']}.{node['$type']} has a new field {name!r}, for which nothing is stored")


# ---- dataclasses


def _write_dataclass(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    _name_class(value, node, path)
    state, kind = _state(value), type(value)
    fields = dataclasses.fields(kind)
    for field in fields:
        # A default that stands in the class only: stored as well, so that the value does not change with the class.
        in_class = field.default is not dataclasses.MISSING and _in_class(kind, field.name) is field.default
        if in_class and field.name not in state:
            state[field.name] = field.default
    _write_fields(writer, [field.name for field in fields], state, node, path)


def _read_dataclass(reader: Reader, node: dict[str, Any], kind: type) -> object:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    stored = _stored_fields(reader, node, fields)
    shell = reader.built(node, object.__new__(kind))
    for name, field in fields.items():
        if name in stored:
            _restore(shell, name, reader.value(stored[name]))
        elif name not in node.get("$absent", ()):
            _restore(shell, name, _new_default(reader, node, name, field.default, field.default_factory))
    for name, value in _read_names(reader, node.get("$dict", [])).items():
        _restore(shell, name, value)
    return shell


def _new_default(reader: Reader, node: dict[str, Any], name: str, default: Any, factory: Any) -> Any:
    """What a field gets that the class did not have when the object was stored. Only builtin factories are called."""
    if factory in (list, dict, set, tuple, str, int, float, bool, frozenset, bytes):
        return factory()
    if default is dataclasses.MISSING:
        raise _no_default(reader, node, name)
    return default


# ---- pydantic models


_MODEL_SLOTS = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


def _model_slot(value: object, name: str) -> Any:
    """What a model keeps of itself; None where it keeps nothing (a RootModel has no extra fields)."""
    try:
        return _slots(type(value))[name].__get__(value)
    except AttributeError:
        return None


def _set_model_slot(shell: object, name: str, value: Any) -> None:
    slot = _slots(type(shell))[name]
    if _in_class(type(shell), name) is slot:  # a RootModel says None in its class instead
        slot.__set__(shell, value)


def _write_model(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    _name_class(value, node, path)
    kind = type(value)
    state = _state(value, skip=_MODEL_SLOTS)
    fields_set, extra, private = (_model_slot(value, name) for name in _MODEL_SLOTS)
    _write_fields(writer, kind.model_fields, state, node, path)
    if extra:
        node["$extra"] = _write_names(writer, extra, path)
    if private:
        node["$private"] = _write_names(writer, private, path)
    usual = {name for name in kind.model_fields if name in state} | set(extra or ())
    if (fields_set or set()) != usual:
        node["$fields_set"] = [writer.node(name, path) for name in sorted(fields_set or ())]


def _read_model(reader: Reader, node: dict[str, Any], kind: Any) -> object:
    stored = _stored_fields(reader, node, kind.model_fields)
    shell = reader.built(node, object.__new__(kind))
    own: dict[str, Any] = {}
    object.__setattr__(shell, "__dict__", own)
    for name, field in kind.model_fields.items():
        if name in stored:
            own[name] = reader.value(stored[name])
        elif name not in node.get("$absent", ()):
            own[name] = _new_model_default(reader, node, name, field)
    for name, value in _read_names(reader, node.get("$dict", [])).items():
        _restore(shell, name, value)
    extra = _read_names(reader, node.get("$extra", []))
    if extra and kind.model_config.get("extra") != "allow":
        raise reader.fail(f"the class {node['$module']}.{node['$type']} takes no extra fields now, and some are stored")
    allows_extra = kind.model_config.get("extra") == "allow"
    _set_model_slot(shell, "__pydantic_extra__", extra if allows_extra else None)
    _set_model_slot(shell, "__pydantic_private__", _private(reader, node, kind))
    usual = [*stored, *extra]
    fields_set = {reader.value(name) for name in node.get("$fields_set", usual)}
    _set_model_slot(shell, "__pydantic_fields_set__", fields_set)
    return shell


def _new_model_default(reader: Reader, node: dict[str, Any], name: str, field: Any) -> Any:
    factory = field.default_factory
    if field.is_required():
        raise _no_default(reader, node, name)
    if factory is None:
        return field.get_default()
    return _new_default(reader, node, name, dataclasses.MISSING, factory)


def _private(reader: Reader, node: dict[str, Any], kind: Any) -> dict[str, Any] | None:
    known = kind.__private_attributes__
    private = _read_names(reader, node.get("$private", []))
    if gone := [name for name in private if name not in known]:
        raise reader.fail(
            f"the class {node['$module']}.{node['$type']} has no longer the private attribute {gone[0]!r}"
        )
    return private if known else None


# ---- enums


def _write_enum(writer: Writer, value: enum.Enum, node: dict[str, Any], path: Path) -> None:
    """The name, and the value: a member that has another value by now is not the one that was stored."""
    _name_class(value, node, path)
    node["name"] = value._name_
    node["value"] = _enum_value(writer, value, path)


def _enum_value(writer: Writer, value: enum.Enum, path: Path) -> Any:
    try:
        return writer.scratch().node(value._value_, at_field(path, "value"))
    except ValueNotStorable:
        return None  # a function or alike: the name has to do


def _read_enum(reader: Reader, node: dict[str, Any], kind: type[enum.Enum]) -> object:
    name = node["name"]
    member: enum.Enum | None = kind.__members__.get(name)
    if member is None and issubclass(kind, enum.Flag):
        value = reader.value(node["value"])
        member = kind._value2member_map_.get(value)
        if member is None:  # a combination that was not made here yet; not `kind(value)`, which may be the user's code
            member = vars(enum.Flag)["_missing_"].__func__(kind, value)
    if member is None:
        raise reader.fail(f"the enum {node['$module']}.{node['$type']} has no longer the member {name!r}")
    if member._name_ != name or _enum_value(reader.writer(), member, root("value")) != node["value"]:
        raise reader.fail(f"the member {name!r} of {node['$module']}.{node['$type']} has another value than was stored")
    return member


# ---- named tuples


def _write_namedtuple(writer: Writer, value: Any, node: dict[str, Any], path: Path) -> None:
    _name_class(value, node, path)
    names = type(value)._fields
    items = tuple(tuple.__iter__(value))
    if len(items) != len(names):
        raise ValueNotStorable(render(path), f"it has {len(items)} items and {len(names)} field names")
    _write_fields(writer, names, dict(zip(names, items, strict=True)) | _dict_of(value), node, path)


def _read_namedtuple(reader: Reader, node: dict[str, Any], kind: Any) -> object:
    stored = _stored_fields(reader, node, kind._fields)
    items = []
    for name in kind._fields:
        if name not in stored and name not in kind._field_defaults:
            raise _no_default(reader, node, name)
        items.append(reader.value(stored[name]) if name in stored else kind._field_defaults[name])
    shell = tuple.__new__(kind, items)
    for name, value in _read_names(reader, node.get("$dict", [])).items():
        object.__getattribute__(shell, "__dict__")[name] = value
    return shell
