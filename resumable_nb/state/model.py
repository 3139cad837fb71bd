"""The research state: a typed model with a reducer per field."""

from __future__ import annotations

import contextlib
import copy
import operator
import os
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticUndefined

from resumable_nb.errors import StateError
from resumable_nb.state import context, migrations, schema

F = TypeVar("F", bound=migrations.Migration)

LOCK = threading.RLock()
"""One for all: merging and looking at a state are short, and a lock inside a model would have to survive copies."""
os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)  # or a child hangs


AFTER_UPDATE: list[Callable[[Any], None]] = []
"""Called with the state after each `update`: the engine keeps apart what branches of a step put in."""


_ALL = "__dict__"
_deferred: ContextVar[list[tuple[Any, dict[str, Any]]] | None] = ContextVar("resumable_nb_deferred", default=None)


@contextlib.contextmanager
def deferred(updates: list[tuple[Any, dict[str, Any]]]) -> Iterator[None]:
    """In this context `update` only puts down what it is given: branches are merged in the order of their inputs."""
    token = _deferred.set(updates)
    try:
        yield
    finally:
        _deferred.reset(token)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """In this context `update` takes effect now, also in a branch of `map`."""
    token = _deferred.set(None)
    try:
        yield
    finally:
        _deferred.reset(token)


class State(BaseModel):
    """A state that is kept by its fields. Subclass it, and give every field a default: a new thread starts with them.

    - `Annotated[T, function]` merges by `function(old, new)` on `update`; `Annotated[list[T], operator.add]` appends.
    - Assignment and edits in place overwrite. A wrong type is refused at once by `update` and assignment; one put in
      place is refused when the step ends.
    - Each field is stored on its own, and each element of a list: one object at two places comes back as two. When a
      step has ended, its names and the state share no object any more.
    - Attributes that begin with an underscore are not stored. Validators and `model_post_init` do not run on loading.
    - When fields vanish or change their type, raise `schema_version` and write a migration.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    __slots__ = ("_ended", "_handed_out")

    schema_version: ClassVar[int] = 1
    """Stored with each checkpoint."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        schema.check_class(cls)

    @classmethod
    def migration(cls, *, from_version: int) -> Callable[[F], F]:
        """Decorate the function that lifts stored fields from this version to the next.

        It gets a dict of field → value, may change it, and returns it.
        """

        def decorate(function: F) -> F:
            migrations.register(cls, from_version, function)
            return function

        return decorate

    def update(self, /, *unnamed: Any, **changes: Any) -> None:
        """Merge values into fields by their reducers: all of them, or none if one is refused.

        What is given is copied, so that changing it later does not change the state. What is read from the state is the
        state's own: changing that in place does change it.

        Raises:
            StateError: There is no such field, or a value is not what the field holds.
        """
        if unnamed:
            raise StateError(
                f"state.update takes fields by their names, such as `state.update(findings=[…])`, and was given "
                f"{schema.short(unnamed[0])} without one. Nothing was changed."
            )
        self._refuse_if_ended()
        fields = schema.fields_of(type(self))
        for name in changes:
            self._known(name)
        if (later := _deferred.get()) is not None:
            where = type(self).__name__
            later.append((self, {name: _copied(f"{where}.{name}", value) for name, value in changes.items()}))
            return
        with LOCK:
            appended, put = {}, {}
            held = own(self)
            for name, value in changes.items():
                field, new = fields[name], _copied(f"{type(self).__name__}.{name}", value)
                if field.appends:
                    new = self._elements(field, new)
                if field.plain and isinstance(held.get(name), list):
                    appended[name] = new
                    continue
                old = self.__dict__.get(name)
                old = copy.deepcopy(old) if field.reducer and field.copies_before_merge else old
                put[name] = schema.merge(field, type(self).__name__, old, new)
            lists = {name: held[name] for name in put if fields[name].appends}
            self._put(put)
            for name, new in appended.items():
                held[name].extend(new)
            for name, grown in lists.items():  # an append list stays the object that it is
                if type(grown) is list:
                    grown[:] = held[name]
                    held[name] = grown
            self.__pydantic_fields_set__.update(changes)
        for observe in AFTER_UPDATE:
            observe(self)

    def _refuse_if_ended(self) -> None:
        try:
            why = object.__getattribute__(self, "_ended")
        except AttributeError:
            return
        raise StateError(f"{why} Nothing was changed.")

    def _known(self, name: str) -> None:
        known = type(self).model_fields
        if name not in known:
            raise StateError(
                f"{type(self).__name__} has no field `{name}`.{schema.near(name, known)} Nothing was changed."
            )

    def _elements(self, field: schema.Field, value: Any) -> list[Any]:
        """What is appended, as the list that the field holds."""
        if not isinstance(value, list | tuple):
            raise StateError(
                f"{type(self).__name__}.{field.name} is an append list: give a list of what is new, such as "
                f"{field.name}=[{schema.short(value, 40)}], not a {type(value).__name__}. Nothing was changed."
            )
        if not field.plain:
            return list(value)
        with self._refusing(field.name, value):
            return schema.adapter(field).validate_python(list(value))  # type: ignore[no-any-return]  # a list field

    def _put(self, changes: dict[str, Any]) -> None:
        """Validate on a draft, so that a refused value leaves the state as it was; then take the draft over."""
        if not changes:
            return
        fields = schema.fields_of(type(self))
        draft = self.model_copy() if schema.runs_code(type(self)) else self.from_fields(dict(own(self)))
        if len(changes) > 1 and self.__pydantic_decorators__.model_validators:  # they see all of the changes at once
            for name, value in changes.items():
                with self._refusing(name, value):
                    draft.__dict__[name] = schema.adapter(fields[name]).validate_python(value)
        for name, value in changes.items():
            with self._refusing(name, value):
                self.__pydantic_validator__.validate_assignment(draft, name, value)
            if draft.__dict__[name] is value and type(value) is list:
                draft.__dict__[name] = (
                    value.copy()
                )  # a list of the state's own: it is edited in place when steps are skipped
        if (known := _handed_out(self)) is not None:
            known.update(changes)  # what was given is somebody else's, too
        own(self).update(draft.__dict__)
        self.__pydantic_fields_set__.update(changes)

    @contextlib.contextmanager
    def _refusing(self, name: str, value: Any) -> Iterator[None]:
        """Say in one line what pydantic refuses."""
        try:
            yield
        except ValidationError as error:
            reasons = [schema.explain(e) for e in error.errors(include_url=False)]
            raise StateError(
                f"{type(self).__name__}.{name} holds {schema.fields_of(type(self))[name].expected}, and "
                f"{schema.short(value)} does not fit: {'; '.join(reasons[:2])}. Nothing was changed."
            ) from error

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or isinstance(getattr(type(self), name, None), property):
            super().__setattr__(name, value)
            return
        self._known(name)
        self._refuse_if_ended()
        with LOCK:
            self._put({name: value})

    def __delattr__(self, name: str) -> None:
        if name in type(self).model_fields:
            raise StateError(f"A field cannot be deleted: assign what `{name}` is to be instead.")
        super().__delattr__(name)

    def context(self, max_tokens: int | None = None) -> str:
        """The state as Markdown for a model: query, plan with progress, receipts, decisions, findings, other fields.

        A function of the state alone: the same text in every process, under any hash seed and time zone.

        Args:
            max_tokens: about how long it may be, at four characters a token. The oldest findings are left out first,
                then the oldest receipts and decisions; what is left out is counted. None: everything.

        Raises:
            StateError: `max_tokens` is no positive whole number.
        """
        with LOCK:
            held = own(self)
            return context.render({name: held[name] for name in type(self).model_fields}, max_tokens)

    def __getattribute__(self, name: str) -> Any:
        """Remember which fields somebody has read: only what they hold can be changed in place."""
        if not name.startswith("_") or name == _ALL:
            handed_out = _handed_out(self)
            if handed_out is not None:
                handed_out.add(name)
        return super().__getattribute__(name)

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> Self:
        """An object that holds these values as they are: no validator runs, nothing is converted."""
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", values)
        object.__setattr__(made, "__pydantic_fields_set__", set(values))
        object.__setattr__(made, "__pydantic_extra__", None)
        private = {name: attribute.get_default() for name, attribute in cls.__private_attributes__.items()}
        private = {name: value for name, value in private.items() if value is not PydanticUndefined}
        object.__setattr__(made, "__pydantic_private__", private if cls.__private_attributes__ else None)
        object.__setattr__(made, "_handed_out", set())
        return made


def end(state: State, why: str) -> None:
    """From now on `update` and assignment raise, and say why: nobody would store what they do."""
    object.__setattr__(state, "_ended", why)


def own(state: State) -> dict[str, Any]:
    """What a state holds by field, for those who neither change it nor hand it on."""
    return object.__getattribute__(state, _ALL)  # type: ignore[no-any-return]


def _handed_out(state: State) -> set[str] | None:
    try:
        return object.__getattribute__(state, "_handed_out")  # type: ignore[no-any-return]
    except AttributeError:
        return None


def is_handed_out(state: State, name: str) -> bool:
    """Whether somebody may hold the value of a field, or a part of it, of an object that `from_fields` made."""
    known = _handed_out(state)
    return known is None or name in known or _ALL in known


def _copied(where: str, value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise StateError(
            f"{where}: {schema.short(value)} cannot be copied ({type(error).__name__}: {error}), so it could not be "
            "stored. Nothing was changed."
        ) from error


class ResearchState(State):
    """What one piece of research knows. Subclass it to add fields, or to say what the lists hold: they still append.

    Attributes:
        query: what is asked.
        plan: what is to be done: texts, or dicts and models with `done` or `status`.
        findings: what was found, in the order in which it came.
        receipts: what was done outside; the library appends to it.
        decisions: what people decided at gates; the library appends to it.
    """

    query: str = ""
    plan: list[Any] = []
    findings: Annotated[list[Any], operator.add] = []
    receipts: Annotated[list[Any], operator.add] = []
    decisions: Annotated[list[Any], operator.add] = []
