"""How the stored fields of an older version of a state class become those of the class as it is now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from resumable_nb.errors import MigrationFailed, StateError, StateMismatch
from resumable_nb.state import schema

if TYPE_CHECKING:
    from resumable_nb.state.model import State

Migration = Callable[[dict[str, Any]], dict[str, Any]]

_KEPT = "What is stored is kept as it is."
_registry: WeakKeyDictionary[type[State], dict[int, Migration]] = WeakKeyDictionary()


def register(cls: type[State], from_version: int, function: Migration) -> None:
    """Make `function` the one that lifts stored fields of this version of `cls` to the next."""
    if type(from_version) is not int or from_version < 1:
        raise StateError(f"from_version counts 1, 2, 3, …; not {from_version!r}.")
    _registry.setdefault(cls, {})[from_version] = function


def _find(cls: type[State], version: int) -> Migration | None:
    known = (_registry.get(base, {}).get(version) for base in cls.__mro__)
    return next((function for function in known if function is not None), None)


def lift(cls: type[State], raw: dict[str, Any], version: int) -> dict[str, Any]:
    """Lift decoded fields of an older version to the version of `cls`, one version at a time.

    Returns:
        Field → value, each of the type that the field holds now.

    Raises:
        StateMismatch: The result has a field that the class lacks.
        MigrationFailed: A step is missing, raised, or returned something else. What is stored stays as it is.
    """
    for current in range(version, cls.schema_version):
        function = _find(cls, current)
        if function is None:
            raise MigrationFailed(
                f"The state was stored by version {version} of {cls.__name__}, which is at version "
                f"{cls.schema_version} now, and nothing lifts version {current} to {current + 1}. {_KEPT} Write\n"
                + _recipe(cls, current, "...")
            )
        raw = _apply(cls, current, function, raw)
    check_fields(cls, raw)
    fields = schema.fields_of(cls)
    return {name: _adopt(cls, fields[name], value) for name, value in raw.items()}


def _apply(cls: type[State], current: int, function: Migration, raw: dict[str, Any]) -> dict[str, Any]:
    where = f"The migration {schema.name_of(function)} of {cls.__name__} from version {current} to {current + 1}"
    try:
        lifted = function(raw)
    except Exception as error:
        why = schema.short(error, 200)
        raise MigrationFailed(
            f"{where} raised {why}. {_KEPT} Mend the function, run its cell, and open the thread again."
        ) from error
    if type(lifted) is not dict:
        shown = schema.short(lifted)
        raise MigrationFailed(
            f"{where} returned {shown}, not the dict of fields. {_KEPT} Let it end with `return raw`."
        )
    return lifted


def _adopt(cls: type[State], field: schema.Field, value: Any) -> Any:
    """A value that a migration left, built as the field holds it where it is not that yet, in lists and dicts too."""
    try:
        built = schema.adapter(field).validate_python(value)
    except ValidationError as error:
        if not schema.misfit(field, value):
            return value
        reasons = "; ".join([schema.explain(e) for e in error.errors(include_url=False)][:2])
        raise MigrationFailed(
            f"A migration of {cls.__name__} left {schema.short(value)} in `{field.name}`, which holds "
            f"{field.expected}: {reasons}. {_KEPT} Mend the function, run its cell, and open the thread again."
        ) from error
    return value if _is_built(value, built) else built


def _is_built(value: Any, built: Any) -> bool:
    """Whether all parts have their types already. Then the value stays: a validator run once more could change it."""
    if not schema.is_of_kind(value, built):
        return False
    if isinstance(value, dict) and isinstance(built, dict):
        return value.keys() == built.keys() and all(_is_built(part, built[key]) for key, part in value.items())
    if isinstance(value, list | tuple) and isinstance(built, list | tuple):
        return len(value) == len(built) and all(map(_is_built, value, built))
    return True


def check_version(cls: type[State], version: int) -> None:
    """Raises StateMismatch if a stored version is newer than the class."""
    if version > cls.schema_version:
        raise StateMismatch(
            f"The state was stored by version {version} of {cls.__name__}; the class here is version "
            f"{cls.schema_version}. Run the cell with the newer class, or open the thread with it."
        )


def check_fields(cls: type[State], stored: Iterable[str]) -> None:
    """Raises StateMismatch if the class lacks a stored field."""
    gone = [name for name in stored if name not in cls.model_fields]
    if gone:
        names = ", ".join(f"`{name}`" for name in gone)
        forgot = "Did you forget `--state NAME`? " if cls.__name__ in ("ResearchState", "State") else ""
        raise StateMismatch(
            f"The stored state has {names}, and {cls.__name__} has no such field. {_KEPT} "
            f"{forgot}Put the field back, or {_raise_version(cls, f'raw.pop({gone[0]!r})')}"
        )


def mismatch(cls: type[State], field: schema.Field, value: object, why: str) -> StateMismatch:
    """The error for a stored value that the field does not hold any more."""
    return StateMismatch(
        f"The stored `{field.name}` is {schema.short(value)}, and {cls.__name__}.{field.name} holds {field.expected}: "
        f"{why}. {_KEPT} Put the type back, or {_raise_version(cls, f'raw[{field.name!r}] = ...')}"
    )


def _raise_version(cls: type[State], line: str) -> str:
    version = cls.schema_version
    return f"raise schema_version to {version + 1} and say what becomes of it:\n{_recipe(cls, version, line)}"


def _recipe(cls: type[State], version: int, line: str) -> str:
    return f"    @{cls.__name__}.migration(from_version={version})\n    def lift(raw): {line}; return raw"
