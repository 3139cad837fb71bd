"""What is put before a person to approve: as JSON, and back from the JSON that they edited.

An edited payload has to fit the one that was asked about: a list stays a list, a number a number, and an object of a
class is made by that class, with its validation.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from resumable_nb.errors import UsageError

_CLASS = ("$type", "$module")
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


def shown(payload: Any) -> str:
    """A stored payload as JSON for people: without the marks of classes, in lines."""
    return json.dumps(_plain(payload), ensure_ascii=False, indent=2)


def is_lines(payload: Any) -> bool:
    """Whether the payload, such as a plan, is a list of one-line texts: people edit it as lines, not as JSON."""
    texts = isinstance(payload, list) and all(isinstance(item, str) for item in payload)
    return texts and bool(payload) and all(item.strip() == item and item.splitlines() == [item] for item in payload)


def to_edit(payload: Any) -> str:
    """A stored payload as the text that a person edits."""
    return "\n".join(payload) if is_lines(payload) else shown(payload)


def edited_json(text: str, payload: Any) -> str:
    """What a person made of the text of `to_edit`, as JSON. Empty lines are no items."""
    if not is_lines(payload):
        return text
    return json.dumps([line.strip() for line in text.splitlines() if line.strip()], ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$module" in value:
        return {name: _plain(item) for name, item in value.items() if name not in _CLASS}
    return {name: _plain(item) for name, item in value.items()}


def check(edited: Any, asked: Any, path: str = "payload") -> None:
    """Whether edited JSON has the form of the stored payload, as far as JSON tells. Raises UsageError."""
    if isinstance(asked, dict) and "$type" in asked:
        if "$module" in asked and isinstance(edited, dict):
            _check_fields(edited, asked, path)
        return  # only the class knows the rest
    _check_kind(edited, asked, path)
    if isinstance(asked, dict):
        for name in edited.keys() & asked.keys():
            check(edited[name], asked[name], f"{path}.{name}")
    if isinstance(asked, list):
        _each(check, edited, asked, path)


def _check_fields(edited: dict[str, Any], asked: dict[str, Any], path: str) -> None:
    unknown = sorted(edited.keys() - asked.keys() - set(_CLASS))
    if unknown:
        known = ", ".join(name for name in asked if name not in _CLASS)
        raise UsageError(f"{path} has no field {', '.join(unknown)}: its fields are {known}. Nothing was decided.")
    for name in edited.keys() & asked.keys() - set(_CLASS):
        check(edited[name], asked[name], f"{path}.{name}")


def _check_kind(edited: Any, asked: Any, path: str) -> None:
    wanted = next((what for kind, what in _KINDS if isinstance(asked, kind)), None)
    got = next((what for kind, what in _KINDS if isinstance(edited, kind)), "null")
    if wanted is None or wanted == got or (wanted, got) == ("a number", "a whole number"):
        return
    text = json.dumps(edited, ensure_ascii=False)[:60]
    raise UsageError(f"{path} was {wanted}, and {text} is {got}. Nothing was decided.")


def _each(one: Callable[[Any, Any, str], Any], edited: list[Any], asked: list[Any], path: str) -> list[Any]:
    """Items of a list against those that were asked about; a new one against any of them."""
    found = []
    for number, item in enumerate(edited):
        problems: list[UsageError] = []
        for like in _alike(asked):
            try:
                found.append(one(item, like, f"{path}[{number}]"))
                break
            except UsageError as problem:
                problems.append(problem)
        else:
            found.append(item)
            if problems:
                raise problems[0]
    return found


def _alike(items: list[Any]) -> list[Any]:
    """One item of each kind."""
    kinds: dict[Any, Any] = {}
    for item in items:
        marks = tuple(map(str, map(item.get, _CLASS))) if isinstance(item, dict) else ()
        kinds.setdefault((type(item), marks), item)
    return list(kinds.values())


def conform(edited: Any, like: Any, path: str = "payload") -> Any:
    """The edited payload as a value of the kind that the code asked about.

    Args:
        edited: from `parse`.
        like: the payload as the code gave it.
        path: what messages call it.

    Raises:
        UsageError: it does not fit; the message says where and why.
    """
    if isinstance(like, dict) and type(like) is dict and isinstance(edited, dict):
        return {n: conform(v, like[n], f"{path}.{n}") if n in like else v for n, v in edited.items()}
    if type(like) is list and isinstance(edited, list):
        return _each(conform, edited, like, path)
    if like is None or type(like) in (bool, int, float, str, list, dict):
        _check_kind(edited, like, path)
        return float(edited) if type(like) is float else edited
    return _by_class(edited, like, path)


def _by_class(edited: Any, like: Any, path: str) -> Any:
    import pydantic  # the state has it loaded already

    fields = getattr(type(like), "model_fields", None) or dataclasses.is_dataclass(like)
    if fields and isinstance(edited, dict):
        edited = {n: _field(v, getattr(like, n, None), f"{path}.{n}") for n, v in edited.items() if n not in _CLASS}
    try:
        return pydantic.TypeAdapter(type(like)).validate_python(edited)
    except pydantic.PydanticSchemaGenerationError:
        raise UsageError(f"{path} is of the class {type(like).__name__}, which cannot be edited as JSON.") from None
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join([path, *map(str, first["loc"])])
        raise UsageError(f"{where}: {first['msg']}. Nothing was decided.") from None


def _field(edited: Any, like: Any, path: str) -> Any:
    """A field of an object: nested objects keep their class; the rest is for the class of the object to judge."""
    if (isinstance(edited, dict | list) and isinstance(like, dict | list)) or hasattr(like, "__dict__"):
        return conform(edited, like, path)
    return edited
