"""Classes of states and of their values, at module level, where a decoder finds them."""

from __future__ import annotations

import dataclasses
import enum
import operator
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from resumable_nb import values
from resumable_nb.state import Image, Live, ResearchState, State


class Color(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Rank(enum.IntEnum):
    ONE = 1
    TWO = 2


class Claim(BaseModel):
    text: str = ""
    score: Any = 0
    tags: list[Any] = []


class Sourced(Claim):
    source: str = ""


class Twin(Claim):
    """The same fields under another name."""


class Fixed(BaseModel):
    model_config = ConfigDict(frozen=True)

    parts: tuple[Any, ...] = ()
    inner: Any = None


@dataclasses.dataclass
class Note:
    text: str = ""
    more: Any = None


@dataclasses.dataclass(slots=True)
class Slotted:
    text: str = ""
    more: Any = None


@dataclasses.dataclass(frozen=True)
class Seal:
    inner: Any = None


class Pair(NamedTuple):
    left: Any
    right: Any


def keep_higher(old: int, new: int) -> int:
    return max(old, new)


class Wide(ResearchState):
    """Every kind of field."""

    score: Annotated[int, operator.add] = 10
    best: Annotated[int, keep_higher] = 0
    log: Annotated[list[Any], operator.add] = ["seed"]
    claims: Annotated[list[Claim], operator.add] = []
    notes: dict[str, Any] = {}
    tags: set[str] = set()
    pair: tuple[Any, ...] = ()
    anything: Any = None


def no_blob(digest: str) -> bytes:
    raise KeyError(digest)


def resolve(module: str, qualname: str) -> type | None:
    return values.resolver({})(module, qualname)


def live(cls: type[State] = Wide, query: str | None = None, blobs: Any = no_blob, find: Any = resolve) -> Live:
    """A live state at the start of a new thread."""
    made = Live(cls, resolve=find, blobs=blobs)
    made.set(made.start(query))
    return made


def plain_text(value: Any) -> str:
    """The stored form of a field, made without looking at what was there before."""
    if type(value) is list:
        return f"[{','.join(values.encode(element).text for element in value)}]"
    return values.encode(value).text


def whole(state: State) -> dict[str, str]:
    """The stored forms of all fields, made without looking at what was there before."""
    return {name: plain_text(getattr(state, name)) for name in type(state).model_fields}


def content(image: Image) -> dict[str, str]:
    return {name: image.json(name) for name in image.fields}
