"""What a durable call was asked: a function and its arguments, as they are matched and as they are stored."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from resumable_nb import values
from resumable_nb.errors import ValueNotStorable
from resumable_nb.fingerprint import fingerprint

_SHOWN_BYTES = 1 << 16

Arguments = dict[str, Any]


def name_of(function: Callable[..., Any]) -> str:
    """What messages and the journal call a function."""
    return str(getattr(function, "__qualname__", type(function).__qualname__)).rpartition("<locals>.")[2]


def namespace_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The names that a function of the notebook or script reads. One of a module counts by the module's source."""
    found: Mapping[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    return found if found.get("__name__") == "__main__" else {}


def bound(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    """The arguments by name, defaults filled in: `f(1)` and `f(x=1)` are one call. By place where that is not known."""
    try:
        found = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):  # a builtin without a signature, or a call that will fail by itself
        return {f"#{place}": value for place, value in enumerate(args)} | dict(kwargs)
    found.apply_defaults()
    return dict(found.arguments)


def digest_of(arguments: Arguments, namespace: Mapping[str, Any]) -> str:
    """By type and value. A credential counts by its name alone, a client or a lock by its type."""
    facts = {name: fingerprint(value, namespace=namespace, name=name).digest for name, value in arguments.items()}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def text_of(name: str, arguments: Arguments) -> str:
    """The JSON that the journal keeps of a question, for people; short forms where a value has no stored form."""
    shown = {argument: values.hidden_in(_shown(argument, value)) for argument, value in arguments.items()}
    return json.dumps({"function": name, "arguments": shown}, ensure_ascii=False)


def _shown(name: str, value: object) -> Any:
    if values.is_credential_name(name):
        return fingerprint(value, namespace={}, name=name).summary
    try:
        return json.loads(values.encode({name: value}, limit_bytes=_SHOWN_BYTES).text)[name]
    except (ValueNotStorable, KeyError):
        return fingerprint(value, namespace={}, name=name).summary
