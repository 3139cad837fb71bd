"""Objects of classes that people define, and what happens when the class has changed."""

from __future__ import annotations

import enum
import json
import sys
import types
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Generic, TypeVar

import pydantic
import pytest

from resumable_nb.errors import ValueNotLoadable, ValueNotStorable
from resumable_nb.values import decode, decode_names, encode, encode_names, resolver
from tests.values import models as m
from tests.values.strict import assert_same


def notebook(**classes: type) -> dict[str, Any]:
    """A notebook's namespace with these classes, as if a cell had defined them."""
    for name, kind in classes.items():
        kind.__module__, kind.__qualname__, kind.__name__ = "__main__", name, name
    return {"__name__": "__main__", **classes}


def load(encoded: Any, namespace: dict[str, Any]) -> Any:
    return decode(encoded.text, encoded.blobs.__getitem__, resolver(namespace))


def refused(encoded: Any, namespace: dict[str, Any]) -> str:
    with pytest.raises(ValueNotLoadable) as caught:
        load(encoded, namespace)
    return str(caught.value)


def test_nothing_of_the_class_runs_when_an_object_is_loaded() -> None:
    """No `__init__`, `__new__`, `__post_init__`, validator, `__setattr__`, `__setstate__` or property."""

    @dataclass
    class Loud:
        a: int
        b: list[int] = field(default_factory=list)

        def __post_init__(self) -> None:
            ran.append("post_init")

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            ran.append("new")
            return object.__new__(cls)

        def __setattr__(self, name: str, value: Any) -> None:
            ran.append("setattr")
            object.__setattr__(self, name, value)

        def __getattribute__(self, name: str) -> Any:
            ran.append("getattribute")
            return object.__getattribute__(self, name)

        def __setstate__(self, state: Any) -> None:
            ran.append("setstate")

        def __reduce__(self) -> Any:
            ran.append("reduce")
            return (Loud, (1,))

    ran: list[str] = []
    namespace = notebook(Loud=Loud)
    value = Loud(1)
    ran.clear()

    again = load(encode(value), namespace)

    assert ran == []
    assert (type(again), object.__getattribute__(again, "a")) == (Loud, 1)


def test_a_model_is_loaded_without_validation() -> None:
    """What a validator would refuse or change comes back as it was."""
    again = load(encode([m.Strict.model_construct(n=-1)]), {})

    assert again[0].n == -1


def test_a_class_of_the_notebook_is_found_by_its_name() -> None:
    """An object made by a cell comes back as an object of the class that the notebook has now."""

    @dataclass
    class Finding:
        claim: str

    encoded = encode(notebook(Finding=Finding)["Finding"]("x"))

    @dataclass
    class Again:
        claim: str

    again = load(encoded, notebook(Finding=Again))

    assert type(again) is Again
    assert again.claim == "x"
    assert json.loads(encoded.text)["claim"] == "x"


def test_a_class_that_is_not_there_is_named_and_never_imported() -> None:
    """A stored name of a module does not make the module run."""
    assert "antigravity" not in sys.modules
    text = '{"$type":"Fly","$module":"antigravity","a":1}'

    with pytest.raises(ValueNotLoadable, match=r"antigravity\.Fly, which is not defined here: run its cell"):
        decode(text, {}.__getitem__, resolver({}))
    assert "antigravity" not in sys.modules


def test_a_modules_own_getattr_does_not_run() -> None:
    """Looking for a class does not make a lazy module import its parts."""
    lazy = types.ModuleType("lazy_for_test")
    lazy.__getattr__ = lambda name: pytest.fail("ran")  # type: ignore[method-assign]
    sys.modules["lazy_for_test"] = lazy
    try:
        assert resolver({})("lazy_for_test", "Thing") is None
    finally:
        del sys.modules["lazy_for_test"]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("subprocess", "Popen"),
        ("builtins", "eval"),
        ("builtins", "list"),
        ("os", "system"),
        ("threading", "Thread"),
        ("pathlib", "Path.cwd"),
    ],
)
def test_only_kinds_of_classes_that_hold_values_are_made(module: str, name: str) -> None:
    """A stored name cannot make an object of any class that happens to be imported."""
    with pytest.raises(ValueNotLoadable):
        decode(json.dumps({"$type": name, "$module": module, "args": "x"}), {}.__getitem__, resolver({}))


def changed(before: type, after: type) -> tuple[Any, dict[str, Any]]:
    value = notebook(K=before)["K"]
    return value, notebook(K=after)


def variants(**fields: Any) -> list[Callable[..., Any]]:
    """The same class as a dataclass, one with slots, a model and a named tuple, made with these fields."""
    names = list(fields)
    return [
        lambda values: make_dataclass("K", [(n, Any) for n in names])(**values),
        lambda values: make_dataclass("K", [(n, Any) for n in names], slots=True)(**values),
        lambda values: pydantic.create_model("K", **dict.fromkeys(names, (Any, ...)))(**values),
        lambda values: namedtuple("K", names)(**values),  # noqa: PYI024
    ]


@pytest.mark.parametrize("which", range(4))
def test_a_stored_field_that_the_class_lacks_is_named(which: int) -> None:
    """Data is not dropped without a word when a field is taken out of the class."""
    value = variants(claim=1, sources=2)[which]({"claim": "x", "sources": [1]})
    notebook(K=type(value))
    encoded = encode(value)

    message = refused(encoded, notebook(K=type(variants(claim=1)[which]({"claim": 1}))))

    assert "__main__.K has no longer the stored field 'sources'" in message


@pytest.mark.parametrize("which", range(4))
def test_a_new_field_without_a_default_is_named(which: int) -> None:
    """An object without a value for a field of its class is not made."""
    value = variants(a=1)[which]({"a": 1})
    notebook(K=type(value))
    encoded = encode(value)

    message = refused(encoded, notebook(K=type(variants(a=1, b=2)[which]({"a": 1, "b": 2}))))

    assert "has a new field 'b'" in message


def test_a_new_field_gets_its_default() -> None:
    """Plain defaults and builtin factories; a list is not shared between objects."""

    @dataclass
    class Old:
        a: int

    @dataclass
    class New:
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)

    class OldModel(pydantic.BaseModel):
        a: int

    class NewModel(pydantic.BaseModel):
        a: int
        b: str = "b"
        c: list[int] = pydantic.Field(default_factory=list)
        d: dict[str, int] = {}

    for old, new in [(Old, New), (OldModel, NewModel)]:
        notebook(K=old)
        encoded = encode([old(a=1), old(a=2)])
        one, two = load(encoded, notebook(K=new))
        assert (one.a, one.b, one.c, two.a) == (1, "b", [], 2)
        assert one.c is not two.c


def test_a_private_attribute_or_extra_field_that_has_gone_is_named() -> None:
    """The parts of a model that are no fields are not dropped either."""

    class Old(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        _seen: int = 1

    class New(pydantic.BaseModel):
        pass

    notebook(K=Old)
    private, extra = encode(Old()), encode([Old(x=1)])

    assert "private attribute '_seen'" in refused(private, notebook(K=New))
    assert "extra fields" in refused(extra, {"K": New})


def test_an_enum_member_that_has_gone_or_changed_is_named() -> None:
    """A member is itself only while it has its value."""

    class Old(enum.Enum):
        A = 1
        B = 2

    class New(enum.Enum):
        A = 5

    class OldFlag(enum.Flag):
        R = 1
        W = 2

    class NewFlag(enum.Flag):
        W = 1
        R = 2

    notebook(K=Old)
    a, b = encode(Old.A), encode(Old.B)
    assert "another value than was stored" in refused(a, notebook(K=New))
    assert "no longer the member 'B'" in refused(b, {"K": New})
    notebook(K=OldFlag)
    assert "another value" in refused(encode(OldFlag.R), notebook(K=NewFlag))


def test_another_kind_of_class_under_the_name_is_refused() -> None:
    """A dataclass that has become an ordinary class has no known form."""
    encoded = encode(m.Finding("x"))
    ordinary = type("Finding", (), {})
    ordinary.__module__, ordinary.__qualname__ = "__main__", "Finding"

    text = encoded.text.replace("tests.values.models", "__main__")
    with pytest.raises(ValueNotLoadable, match="no longer a model, dataclass, enum or named tuple"):
        decode(text, {}.__getitem__, resolver({"Finding": ordinary}))


def test_an_alias_of_another_class_is_not_taken_for_it() -> None:
    """`Finding = Other` does not turn stored findings into others."""
    assert resolver({"Finding": m.Slots})("__main__", "Finding") is None


def test_nested_classes_are_found_where_they_are_defined() -> None:
    """By the path of names, in the notebook as in a module."""
    assert resolver({})("tests.values.models", "Finding.Nested") is m.Finding.Nested
    assert resolver({"Finding": m.Finding})("__main__", "Finding.Nested") is m.Finding.Nested
    assert resolver({})("tests.values.models", "Finding.claim") is None


T = TypeVar("T")


class Box(pydantic.BaseModel, Generic[T]):
    item: T


def test_a_generic_model_comes_back_with_its_arguments() -> None:
    """`Box[int]` is a class of its own, found among those that exist."""
    value = Box[int](item=1)

    assert_same(value, load(encode(value), {}))


def local_class() -> Any:
    @dataclass
    class Local:
        a: int = 1

    return Local()


@dataclass
class OwnList(list):  # type: ignore[type-arg]
    a: int = 1


@dataclass
class OwnError(Exception):
    a: int = 1


class IntSubclass(int):
    pass


class TupleSubclass(tuple):  # type: ignore[type-arg]
    __slots__ = ()
    _fields = ("a",)


NOT_STORABLE: dict[str, Any] = {
    "generator": (i for i in range(3)),
    "function": local_class,
    "lambda": lambda: 1,
    "module": json,
    "class": m.Finding,
    "instance of an ordinary class": m.Opaque(1),
    "subclass of dict": m.OwnDict(a=1),
    "subclass of int": IntSubclass(3),
    "imitation of a named tuple": TupleSubclass((1,)),
    "local class": local_class(),
    "dataclass that is a list": OwnList([1]),
    "dataclass that is an exception": OwnError(),
    "method": "x".join,
    "iterator": iter([1]),
    "exception": ValueError("x"),
    "view": {}.keys(),
    "memoryview": memoryview(b"x"),
    "pattern": __import__("re").compile("x"),
    "lock": __import__("threading").Lock(),
    "file": sys.stdout,
    "ordered dict with attributes": __import__("collections").OrderedDict(),
    "zone": type("Zone", (__import__("datetime").tzinfo,), {})(),
}
NOT_STORABLE["ordered dict with attributes"].x = 1


@pytest.mark.parametrize("name", NOT_STORABLE)
def test_what_has_no_exact_form_is_refused_with_its_place(name: str) -> None:
    """Never bent, never pickled: the path and the reason are given."""
    with pytest.raises(ValueNotStorable) as caught:
        encode({"deep": [0, {"k": NOT_STORABLE[name]}]}, path="names['cfg']")

    assert caught.value.path.startswith("names['cfg']['deep'][1]['k']")
    assert caught.value.why
    assert encode_names({"a": NOT_STORABLE[name], "b": 1}).text == '{"b":1}'


def test_stand_ins_are_asked_for_what_is_not_storable() -> None:
    """A fingerprint can go on: the part and its path are given, once for each place."""
    asked: list[str] = []

    def other(value: object, path: str) -> object:
        asked.append(path)
        return ["a", type(value).__name__]

    lock = NOT_STORABLE["lock"]
    encoded = encode({"x": [lock, lock], "y": 1, "z": {"password": "hunter22"}}, other=other)

    assert asked == ["value['x'][0]", "value['x'][1]", "value['z']['password']"]
    assert json.loads(encoded.text)["x"] == [{"$other": ["a", "lock"]}] * 2
    assert "hunter22" not in encoded.text
    with pytest.raises(ValueNotLoadable):
        decode(encoded.text, {}.__getitem__, resolver({}))


def test_names_are_loaded_one_by_one() -> None:
    """A class that is missing for one name does not keep another from being loaded."""
    encoded = encode_names({"a": m.Finding("x"), "b": [1]})
    text = encoded.text.replace("tests.values.models", "gone")

    assert decode_names(text, {}.__getitem__, resolver({}), only={"b"}) == {"b": [1]}
    with pytest.raises(ValueNotLoadable, match="the name 'a' cannot be loaded"):
        decode_names(text, {}.__getitem__, resolver({}))
