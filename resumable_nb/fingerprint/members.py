"""What a class statement puts into a class, without what Python, dataclasses, enum and pydantic derive from it."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterator
from typing import Any

from resumable_nb.fingerprint.instances import state_of

_CODE = (types.FunctionType, staticmethod, classmethod, property)
_KEPT = frozenset({"__doc__", "__slots__", "__hash__"})


def is_annotation(value: object) -> bool:
    """Whether it is what annotations are made of: `list[int]`, `int | None`, a type variable."""
    module = type(value).__module__
    return module == "typing" or (module == "types" and typing.get_origin(value) is not None)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Label → what a class statement says: methods, attributes, fields. Under `type of …` stand annotations."""
    own = vars(kind)
    for name, annotation in own.get("__annotations__", {}).items():
        yield f"type of {name}", annotation
    if issubclass(kind, enum.Enum):
        yield from ((name, value) for name, value in own.items() if isinstance(value, _CODE) and name[:1] != "_")
        yield "members", [(name, member._value_) for name, member in kind.__members__.items()]
        return
    for name, value in own.items():
        if not _is_derived(kind, name, value):
            yield name, value
    yield from _dataclass_fields(own)
    yield from _model_fields(own)


def _is_derived(kind: type, name: str, value: object) -> bool:
    if isinstance(value, types.FunctionType):
        inner = getattr(value, "__wrapped__", value)  # __repr__ is guarded against recursion
        return isinstance(inner, types.FunctionType) and inner.__code__.co_filename == "<string>"  # dataclass wrote it
    if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType) or name == "_abc_impl":
        return True
    if name == "__doc__" and "__dataclass_params__" in vars(kind) and str(value).startswith(f"{kind.__name__}("):
        return True  # the signature, with the addresses of defaults
    is_special = name.startswith("__") and name.endswith("__")
    return is_special and not isinstance(value, _CODE) and name not in _KEPT


def _dataclass_fields(own: Any) -> Iterator[tuple[str, Any]]:
    if "__dataclass_params__" not in own:
        return
    yield "dataclass", repr(own["__dataclass_params__"])
    for field in own["__dataclass_fields__"].values():
        flags = repr((field.init, field.repr, field.hash, field.compare, field.kw_only))
        known = (field.default, field.default_factory, dict(field.metadata))
        yield f"field {field.name}", [flags, *(_given(value) for value in known)]


def _model_fields(own: Any) -> Iterator[tuple[str, Any]]:
    """Fields, private attributes and decorated functions of a pydantic model."""
    for name, field in own.get("__pydantic_fields__", {}).items():
        slots = {slot: getattr(field, slot, None) for slot in type(field).__slots__ if not slot.startswith("_")}
        yield f"type of field {name}", slots.pop("annotation", None)
        yield f"field {name}", {slot: _given(value) for slot, value in slots.items() if value is not None}
    for name, attribute in own.get("__private_attributes__", {}).items():
        yield f"field {name}", [_given(attribute.default), attribute.default_factory]
    for group, decorated in state_of(own.get("__pydantic_decorators__")).items():
        for name, decorator in decorated.items() if isinstance(decorated, dict) else ():
            yield f"{group} {name}", getattr(decorator, "info", None)


def _given(value: Any) -> Any:
    """A default. The marks that say that there is none have no form."""
    return "no default" if type(value).__name__ in ("_MISSING_TYPE", "PydanticUndefinedType") else value
