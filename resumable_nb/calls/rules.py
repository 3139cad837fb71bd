"""What the decorator `@effect` was told, checked."""

from __future__ import annotations

import concurrent.futures
import functools
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from resumable_nb import values
from resumable_nb.calls.arguments import name_of
from resumable_nb.calls.rehearsal import Rehearsal, stands_in
from resumable_nb.errors import UsageError
from resumable_nb.scope import outside

T = TypeVar("T")
KEY = "idempotency_key"


class NotAwaited(UsageError):
    """The function only made what would do it."""


@dataclass
class EffectRules:
    """What the decorator was told, and the function."""

    function: Callable[..., Any]
    key: Callable[..., str] | str
    lookup: Callable[[str], Any] | None
    idempotent: bool
    not_done: tuple[type[BaseException], ...]
    verify: Callable[[Any], Any] | None
    approve: str | None
    rehearsal: Rehearsal = False
    wrapper: Callable[[], Any] = lambda: None

    def __post_init__(self) -> None:
        self.name = name_of(self.function)
        self.is_async = inspect.iscoroutinefunction(self.function)
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            raise UsageError(f"@effect takes a function that returns its receipt, not {self.function!r}.")
        for label, asked in (("lookup", self.lookup), ("verify", self.verify)):
            if not self.is_async and inspect.iscoroutinefunction(asked):
                raise UsageError(f"`{self.name}` is no `async def`, so its {label}= must be none either.")
        self.ledger = stands_in(self.rehearsal)
        if self.ledger is not None:
            self.lookup = self.lookup and self.ledger.find
            self.verify = self.verify and (lambda _receipt: True)  # what is in the ledger stands
        self.lookup, self.verify = asked_aside(self.lookup), asked_aside(self.verify)
        signature = inspect.signature(self.function)
        taken = signature.parameters
        kinds = [p for p in taken.values() if p.name != KEY]
        self.signature = signature.replace(parameters=kinds)
        self.takes_key = KEY in taken or any(p.kind is p.VAR_KEYWORD for p in kinds)

    def check_receipt(self) -> None:
        """Refuse what could not keep its receipt, before anything is done. Once it is done, its text is kept.

        Raises:
            UsageError: The annotation names a class whose instances are surely not storable.
        """
        try:
            annotated = typing.get_type_hints(self.function).get("return")
        except Exception:  # noqa: BLE001 - names that are not defined (yet), or no annotations at all: nothing is known
            return
        is_union = typing.get_origin(annotated) in (typing.Union, types.UnionType)
        kinds = typing.get_args(annotated) if is_union else (annotated,)
        if all(isinstance(kind, type) and values.has_no_form(kind) for kind in kinds):
            told = getattr(annotated, "__qualname__", annotated)
            raise UsageError(
                f"`{self.name}` is annotated to return {told}, of which no receipt could be stored. It was not run. "
                "Return plain values that tell what was done, such as an id or the parsed JSON of the answer."
            )

    def not_awaited(self, receipt: Any) -> Any:
        """What a function without `async` gave: not a coroutine or generator, whose code has not run.

        Raises:
            NotAwaited: It is one.
            UsageError: It is a task or future, which may be running.
        """
        advice = f"Declare the `async def` itself with @effect and await it, or let `{self.name}` wait for it."
        if inspect.iscoroutine(receipt) or inspect.isgenerator(receipt):
            receipt.close()
        elif not inspect.isasyncgen(receipt):
            if not inspect.isawaitable(receipt) and not isinstance(receipt, concurrent.futures.Future):
                return receipt
            kind = type(receipt).__name__
            raise UsageError(f"`{self.name}` gave back a {kind} that may still run, and no receipt. {advice}")
        kind = type(receipt).__name__
        raise NotAwaited(f"`{self.name}` gave back a {kind}, whose code has not run: nothing was done. {advice}")

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """The arguments, defaults filled in.

        Raises:
            TypeError: The function does not take them. Nothing was started.
        """
        found = self.signature.bind(*args, **kwargs)
        found.apply_defaults()
        return found

    def key_of(self, call: inspect.BoundArguments) -> str:
        """The idempotency key. A key function gets those of the arguments that it names."""
        if isinstance(self.key, str):
            found = self.key.format_map(call.arguments)
        else:
            taken = inspect.signature(self.key).parameters
            named = {name: value for name, value in call.arguments.items() if name in taken}
            by_name = all(p.name in named or p.default is not p.empty for p in taken.values()) and all(
                p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in taken.values()
            )
            found = self.key(**named) if by_name else self.key(*call.args, **call.kwargs)
        if not str(found).strip() or type(found) is not str:
            raise UsageError(f"The key of `{self.name}` is {found!r}: it must be a text that is not empty.")
        return found


def asked_aside(question: Callable[..., T] | None) -> Callable[..., T] | None:
    """`lookup` or `verify`, whose own calls are never answered from the journal: how things stand now is asked."""
    if question is None:
        return None

    @functools.wraps(question)
    def ask(*args: Any) -> T:
        with outside():
            return question(*args)

    @functools.wraps(question)
    async def ask_async(*args: Any) -> Any:
        with outside():
            return await question(*args)  # type: ignore[misc]  # it is `async def`

    return ask_async if inspect.iscoroutinefunction(question) else ask  # type: ignore[return-value]
