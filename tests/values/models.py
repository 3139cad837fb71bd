"""Classes of the kinds that notebooks define."""

from __future__ import annotations

import enum
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pydantic

calls: list[str] = []
"""Who was made by its class; loading must not add to it."""


class Color(enum.Enum):
    RED = 1
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.StrEnum):
    FAST = "fast"


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Bits(enum.IntFlag):
    A = 1
    B = 8


class Odd(enum.Enum):
    """Members whose values are containers and floats."""

    PAIR = (1, "x")
    HALF = 0.5


class Point(NamedTuple):
    x: float
    y: float = 0.0


Pair = namedtuple("Pair", "left right")  # noqa: PYI024  # the old form is what is meant


class Tagged(Point):
    """A subclass of a named tuple; its instances have a `__dict__`."""


@dataclass
class Finding:
    claim: str
    score: float = 0.5
    sources: list[str] = field(default_factory=list)

    class Nested(enum.Enum):
        INNER = 1


@dataclass
class Checked(Finding):
    by: Any = None
    derived: int = field(init=False, default=7)
    made: list[int] = field(init=False, default_factory=list)
    unset: int = field(init=False)

    def __post_init__(self) -> None:
        calls.append(self.claim)


@dataclass(frozen=True)
class Frozen:
    a: int
    b: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FrozenSlots:
    name: str
    other: Any = None


@dataclass(slots=True)
class Slots:
    name: str
    items: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class MoreSlots(Slots):
    extra: int = 1


@dataclass(eq=False)
class Node:
    """Compared and hashed by identity."""

    name: str
    links: list[Node] = field(default_factory=list)


class Base(pydantic.BaseModel):
    name: str
    tags: list[str] = []


class Derived(Base):
    score: float = 1.5
    _seen: int = pydantic.PrivateAttr(default=3)
    _late: int = pydantic.PrivateAttr()


class Extra(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int = 1


class FrozenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    a: tuple[int, ...] = ()


class Report(pydantic.BaseModel):
    items: list[Base] = []
    color: Color | None = None
    finding: Finding | None = None


class Strict(pydantic.BaseModel):
    """Nothing of this may run when a value is loaded."""

    n: int

    @pydantic.field_validator("n")
    @classmethod
    def _validate(cls, n: int) -> int:
        if n < 0:
            raise ValueError("negative")
        return n

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError("must not run")


class Numbers(pydantic.RootModel[list[int]]):
    pass


class WithSecret(pydantic.BaseModel):
    login: str
    word: pydantic.SecretStr


class Opaque:
    """An ordinary class: its state has no known form."""

    def __init__(self, part: Any) -> None:
        self.part = part


class OwnDict(dict[str, Any]):
    """A subclass of a builtin with state of its own."""
