"""What the fields of a state class hold, and how they merge."""

from __future__ import annotations

import difflib
import inspect
import operator
import typing
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from resumable_nb.errors import StateError
from resumable_nb.values.secrets import redact_text

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from resumable_nb.state.model import State

Reducer = Callable[[Any, Any], Any]

_METHODS = ("update", "context", "migration", "schema_version")
_NO_COPY = {operator.add, operator.concat, operator.mul, operator.or_, operator.and_, max, min}
"""Reducers that never change what they are given."""
_WIDENED = {(int, float), (int, complex), (float, complex)}
"""Types whose values Python itself takes for those of another."""
_VALIDATORS_OWN = {
    "value_error",
    "assertion_error",
    "too_short",
    "too_long",
    "json_type",
    "json_invalid",
    "import_error",
}
"""Kinds of error that say nothing about the type: a validator of the user, a length, what is parsed when it is set."""


class Field(NamedTuple):
    """One field of a state class.

    Attributes:
        appends: whether it is an `operator.add` list.
        plain: whether an appended part can be checked without the rest: no validator or length looks at the whole.
    """

    name: str
    annotation: Any
    metadata: tuple[Any, ...]
    reducer: Reducer | None
    appends: bool
    plain: bool

    @property
    def expected(self) -> str:
        """The type as a person writes it."""
        return describe(self.annotation)

    @property
    def copies_before_merge(self) -> bool:
        """Whether the reducer might change the old value in place."""
        return self.reducer not in _NO_COPY


def describe(annotation: Any) -> str:
    """A type as a person writes it."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "").replace("__main__.", "")


def short(value: object, length: int = 60) -> str:
    """A value for a message, without credentials and line breaks."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # a user's __repr__ must not hide the message
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    text = redact_text(text if len(text) <= 4 * length else text[: 4 * length])
    return text if len(text) <= length else text[: length - 1] + "…"


def near(name: str, known: Iterable[str]) -> str:
    """A sentence with what may be meant, and what there is."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=2)
    hint = f" Do you mean {' or '.join(f'`{c}`' for c in close)}?" if close else ""
    return f"{hint} The fields are {', '.join(known)}." if known else " It has no fields."


# ---------------------------------------------------------------------- fields
def check_class(cls: type[State]) -> None:
    """Refuse a class that could not be kept, when it is defined.

    Raises:
        StateError: A field hides a method, a reducer does not take two arguments, or extra fields are allowed.
    """
    fields = cls.model_fields
    taken = [name for name in _METHODS if name in fields]
    if "schema_version" in taken:
        raise StateError(f"{cls.__name__}.schema_version is no field: write `schema_version: ClassVar[int] = 2`.")
    if taken:
        raise StateError(f"{cls.__name__}.{taken[0]}: a state has a method of this name; call the field otherwise.")
    if cls.model_config.get("extra") == "allow":
        raise StateError(f"{cls.__name__} allows extra fields; they could not be stored. Declare them.")
    version = cls.schema_version
    if type(version) is not int or version < 1:
        raise StateError(f"{cls.__name__}.schema_version is {version!r}; it counts 1, 2, 3, …")
    for name, info in fields.items():
        _reducer(f"{cls.__name__}.{name}", info.metadata)


@lru_cache(maxsize=256)
def runs_code(cls: type[State]) -> bool:
    """Whether validating a field may run functions, which see the values of the other fields too."""
    return "'type': 'function-" in repr(cls.__pydantic_core_schema__)


@lru_cache(maxsize=256)
def fields_of(cls: type[State]) -> dict[str, Field]:
    """The fields of a state class in the order of their definition."""
    decorators = cls.__pydantic_decorators__
    watched = {f for d in decorators.field_validators.values() for f in d.info.fields}
    alone = not decorators.model_validators and "*" not in watched
    found = {}
    for name, info in cls.model_fields.items():
        reducer = _reducer(f"{cls.__name__}.{name}", info.metadata)
        metadata = tuple(m for m in info.metadata if m is not reducer)
        reducer = reducer or _inherited(cls, name, info.annotation)
        appends = reducer is operator.add and _kind(info.annotation) is list
        plain = appends and alone and not metadata and name not in watched
        found[name] = Field(name, info.annotation, metadata, reducer, appends, plain)
    return found


def _kind(annotation: Any) -> Any:
    return get_origin(annotation) or annotation


def _inherited(cls: type[State], name: str, annotation: Any) -> Reducer | None:
    """The reducer that the base class has for the field: `findings: list[Finding] = []` still appends."""
    known = (fields_of(base)[name] for base in cls.__mro__[1:] if name in getattr(base, "model_fields", {}))
    base = next(known, None)
    return base.reducer if base is not None and _kind(base.annotation) is _kind(annotation) else None


@lru_cache(maxsize=256)
def appends_of(cls: type[State]) -> frozenset[str]:
    """The names of its append lists."""
    return frozenset(name for name, field in fields_of(cls).items() if field.appends)


def _reducer(where: str, metadata: list[Any]) -> Reducer | None:
    """The callable in `Annotated[…]` that merges. Pydantic's own annotations are none."""
    found = [m for m in metadata if callable(m) and not hasattr(m, "__get_pydantic_core_schema__")]
    if not found:
        return None
    if len(found) > 1:
        raise StateError(f"{where} has {len(found)} reducers: {', '.join(map(name_of, found))}. Keep one.")
    try:
        inspect.signature(found[0]).bind(None, None)
    except ValueError:
        return typing.cast("Reducer", found[0])  # a built-in function without a signature, such as max
    except TypeError as error:
        raise StateError(
            f"{where}: the reducer {name_of(found[0])} must take two arguments, the old value and the new one: {error}"
        ) from error
    return typing.cast("Reducer", found[0])


def name_of(function: object) -> str:
    """A function as a person writes it."""
    return getattr(function, "__qualname__", None) or repr(function)


def merge(field: Field, owner: str, old: Any, new: Any) -> Any:
    """What the reducer of a field makes of the old and the new value.

    Raises:
        StateError: The reducer raised.
    """
    if field.reducer is None:
        return new
    try:
        return field.reducer(old, new)
    except Exception as error:
        raise StateError(
            f"{owner}.{field.name}: the reducer {name_of(field.reducer)} raised {type(error).__name__}: {error}. "
            f"The field holds {field.expected}; old: {short(old)}, new: {short(new)}. Nothing was changed."
        ) from error


# ---------------------------------------------------------------------- types
@lru_cache(maxsize=512)
def _adapter(annotation: Any, metadata: tuple[Any, ...]) -> TypeAdapter[Any]:
    whole: Any = Annotated[(annotation, *metadata)] if metadata else annotation
    try:
        return TypeAdapter(whole, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:  # a model or a dataclass, which has a config of its own
        return TypeAdapter(whole)


def adapter(field: Field) -> TypeAdapter[Any]:
    """A validator of the values of one field, without the validators of its class."""
    try:
        return _adapter(field.annotation, field.metadata)
    except TypeError:  # a constraint that has no hash
        return _adapter.__wrapped__(field.annotation, field.metadata)


def misfit(field: Field, value: object) -> str:
    """Why a value is not what its field holds, or "". The value is looked at, never converted.

    Elements may be of any type that pydantic would convert; the value itself must be of the type that it would convert
    to, so that `"5"` is no int and a set no list, while 5 is a float and an instance of a subclass one of its base.
    """
    if field.annotation in (Any, list[Any], list) and not field.metadata:
        return "" if field.annotation is Any or isinstance(value, list) else f"a {type(value).__name__} is no list"
    try:
        converted = adapter(field).validate_python(value)
    except ValidationError as error:
        return "; ".join(_reasons(error)[:2])
    if is_of_kind(value, converted):
        return ""
    return f"a {type(value).__name__} is no {type(converted).__name__}"


def is_of_kind(value: object, converted: object) -> bool:
    """Whether a value is of the type that pydantic converts it to."""
    kinds = type(value), type(converted)
    return isinstance(value, kinds[1]) or kinds in _WIDENED or kinds[1].__name__ == "ValidatorIterator"


def _reasons(error: ValidationError) -> list[str]:
    return [explain(e) for e in error.errors(include_url=False) if not _is_forgiven(e)]


def _is_forgiven(error: ErrorDetails) -> bool:
    """A validator of the user's own, or a class that was defined again under its name."""
    if error["type"] in _VALIDATORS_OWN:
        return True
    return error.get("ctx", {}).get("class_name") == type(error["input"]).__name__


def explain(error: ErrorDetails) -> str:
    """One error of pydantic in a short sentence: where, what, and the value."""
    place = "".join(f"[{part!r}]" for part in error["loc"] if not str(part).startswith(("function-", "tagged-")))
    message = error["msg"][:1].lower() + error["msg"][1:]
    return f"{place + ': ' if place else ''}{message} (not {short(error['input'])})"
