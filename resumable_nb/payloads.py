"""What is put before a person to approve: as JSON, and back from the JSON that they edited.

An edited payload has to fit the one that was asked about: a list stays a list, a number a number, and an object of a
class is made by that class, with its validation.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

from resumable_nb.errors import Misfit, UsageError

Place = tuple[str | int, ...]
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
    (list, "a list"),
    (dict, "an object"),
)


def parse(text: str) -> Any:
    """The value of JSON text that a person wrote. Raises UsageError."""
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The payload is no JSON: {error}. Nothing was decided.") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has one name twice")
    return found


def from_command(given: str) -> str:
    """The JSON text that a command was given: as it is, or `@FILE` for what stands in a file.

    Raises:
        UsageError: the file cannot be read.
    """
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise UsageError(f"The payload cannot be read from {given[1:]}: {error}. Nothing was decided.") from error


# ------------------------------------------------------------------------------------------ for people to read and edit
def shown(payload: Any) -> str:
    """A stored payload for people: text, and lists of one-line texts such as a plan, as they are; the rest as JSON."""
    if isinstance(payload, str):
        return payload
    if isinstance(payload, list) and payload and all(isinstance(i, str) and i.splitlines() == [i] for i in payload):
        return "\n".join(f"{number}. {item}" for number, item in enumerate(payload, 1))
    return json.dumps(_plain(payload), ensure_ascii=False, indent=2)


def _plain(value: Any) -> Any:
    """Stored JSON without the marks of classes."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$type" in value and value["$type"] != "dict":
        if "items" in value and "$module" not in value:
            return _plain(value["items"])
        if "offset_us" in value:
            zone = dt.timezone(dt.timedelta(microseconds=value["offset_us"]))
            return f"{dt.datetime.fromisoformat(value['value']).replace(tzinfo=zone).isoformat()}"
        if "value" in value and ("$module" not in value or value.keys() == {"$type", "$module", "name", "value"}):
            return _plain(value["value"])
    hidden = value.keys() & {"$type", "$module", "$fields_set"} if "$module" in value else ()
    return {name: _plain(item) for name, item in value.items() if name not in hidden}


def as_json(value: Any) -> Any:
    """A payload as the code gave it, as the JSON that a person edits and that `conform` takes."""
    from pydantic_core import to_jsonable_python  # the state has it loaded already

    if isinstance(value, enum.Enum):
        return as_json(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    fields = fields_of(value)
    if fields is not None:
        return {name: as_json(item) for name, item in fields.items()}
    if isinstance(value, Mapping):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes | PurePath):
        return [as_json(item) for item in value]
    return to_jsonable_python(value, fallback=str)


def fields_of(value: Any) -> dict[str, Any] | None:
    """What makes an object of a model or a dataclass, by field; None for anything else."""
    if isinstance(value, type):
        return None
    if (model := getattr(type(value), "model_fields", None)) is not None:
        return {name: getattr(value, name) for name in model} | (getattr(value, "__pydantic_extra__", None) or {})
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    return None


# ------------------------------------------------------------------------------------------ what a decider can know
def check(edited: Any, asked: Any, path: Place = ()) -> None:
    """Whether edited JSON has the form of the stored payload, as far as JSON tells. Raises Misfit."""
    if isinstance(asked, dict) and "$type" in asked:
        if "$module" in asked and isinstance(edited, dict):
            _check_fields(edited, asked, path)
        return  # only the class knows the rest
    _check_kind(edited, asked, path)
    if isinstance(asked, dict):
        for name in edited.keys() & asked.keys():
            check(edited[name], asked[name], (*path, name))
    if isinstance(asked, list):
        _each(check, edited, asked, path)


def _check_fields(edited: dict[str, Any], asked: dict[str, Any], path: Place) -> None:
    known = [name for name in asked if not name.startswith("$")]
    unknown = sorted(name for name in edited.keys() - set(known) if not name.startswith("$"))
    if unknown:
        raise Misfit(path, f"there is no field {', '.join(unknown)}, only {', '.join(known)}")
    for name in edited.keys() & set(known):
        check(edited[name], asked[name], (*path, name))


def _check_kind(edited: Any, asked: Any, path: Place) -> None:
    wanted = next((what for kind, what in _KINDS if isinstance(asked, kind)), None)
    got = next((what for kind, what in _KINDS if isinstance(edited, kind)), "null")
    if wanted is None or wanted == got or (wanted, got) == ("a number", "a whole number"):
        return
    text = json.dumps(edited, ensure_ascii=False)[:60]
    raise Misfit(path, f"this was {wanted}, and {text} is {got}")


def _each(one: Callable[[Any, Any, Place], Any], edited: list[Any], asked: Iterable[Any], path: Place) -> list[Any]:
    """Items of a list against those that were asked about; a new one against any of them."""
    found = []
    for number, item in enumerate(edited):
        problems: list[UsageError] = []
        for like in _alike(asked):
            try:
                found.append(one(item, like, (*path, number)))
                break
            except UsageError as problem:
                problems.append(problem)
        else:
            found.append(item)
            if problems:
                raise problems[0]
    return found


def _alike(items: Iterable[Any]) -> list[Any]:
    """One item of each kind."""
    kinds: dict[Any, Any] = {}
    for item in items:
        marks = (item.get("$type"), item.get("$module")) if isinstance(item, dict) else ()
        kinds.setdefault((type(item), *map(str, marks)), item)
    return list(kinds.values())


# ------------------------------------------------------------------------------------------ what the code knows
def conform(edited: Any, like: Any, path: Place = ()) -> Any:
    """The edited payload as a value of the kind that the code asked about.

    Args:
        edited: from `parse`.
        like: the payload as the code gave it.
        path: where this is in the payload.

    Raises:
        Misfit: it does not fit.
    """
    if isinstance(like, dict) and type(like) is dict and isinstance(edited, dict):
        return {n: conform(v, like[n], (*path, n)) if n in like else v for n, v in edited.items()}
    if type(like) is list and isinstance(edited, list):
        return _each(conform, edited, like, path)
    if like is None or type(like) in (bool, int, float, str, list, dict):
        _check_kind(edited, like, path)
        return float(edited) if type(like) is float else edited
    return _by_class(edited, like, path)


def _by_class(edited: Any, like: Any, path: Place) -> Any:
    import pydantic  # the state has it loaded already

    if edited == as_json(like):  # untouched: a class need not be able to make it of JSON
        return like
    if fields_of(like) is not None and isinstance(edited, dict):
        named = {n: v for n, v in edited.items() if not n.startswith("$")}
        edited = {n: _field(v, getattr(like, n, None), (*path, n)) for n, v in named.items()}
    try:
        return pydantic.TypeAdapter(type(like)).validate_python(edited, by_alias=True, by_name=True)
    except pydantic.PydanticSchemaGenerationError:
        raise Misfit(path, f"this is of the class {type(like).__name__}, which cannot be edited as JSON") from None
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Misfit((*path, *first["loc"]), first["msg"]) from None
    except Exception as error:  # the code of a class may raise anything
        raise Misfit(path, f"{type(like).__name__} does not take this: {type(error).__name__}: {error}") from error


def _field(edited: Any, like: Any, path: Place) -> Any:
    """A field of an object: nested objects keep their class; the rest is for the class of the object to judge."""
    if (isinstance(edited, dict | list) and isinstance(like, dict | list)) or hasattr(like, "__dict__"):
        return conform(edited, like, path)
    is_json = like is None or isinstance(like, bool | int | float | str | list | dict)
    return like if not is_json and edited == as_json(like) else edited
