"""Updating, assigning and editing a state."""

from __future__ import annotations

import operator
import threading
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field, field_validator, model_validator

from resumable_nb.errors import StateError
from resumable_nb.state import ResearchState, State
from tests.state.kinds import Claim, Sourced, Wide


class Bounded(State):
    low: int = 0
    high: int = 3
    few: Annotated[list[str], operator.add] = Field(default=[], max_length=2)
    clean: Annotated[list[str], operator.add] = []
    counted: Annotated[dict[str, int], lambda old, new: old.update(new) or old] = {}

    @field_validator("clean")
    @classmethod
    def _strip(cls, value: list[str]) -> list[str]:
        return [text.strip() for text in value]

    @model_validator(mode="after")
    def _in_order(self) -> Bounded:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


def test_defaults_count_in_reducers() -> None:
    """An update merges with the default, by addition, by appending, by the user's function."""
    state = Wide()
    state.update(score=5, best=7, log=["a"], query="why?")
    state.update(best=3, log=["b"])

    assert (state.score, state.best, state.log, state.query) == (15, 7, ["seed", "a", "b"], "why?")
    assert Wide().log == ["seed"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"findings": ["new"], "score": "high"}, ["Wide.score", "int", "'high'"]),
        ({"findings": ["new"], "query": 5}, ["Wide.query", "str", "5"]),
        ({"score": 1, "findings": "a text"}, ["Wide.findings", "'a text'", "findings=["]),
        ({"score": 1, "findings": None}, ["Wide.findings", "None"]),
        ({"score": 1, "claims": ["no claim"]}, ["Wide.claims", "list[", "Claim", "'no claim'"]),
        ({"score": 1, "tags": {1}}, ["Wide.tags", "set[str]", "1"]),
        ({"score": 1, "finding": ["x"]}, ["`finding`", "`findings`", "claims"]),
        ({"score": 1, "best": None}, ["Wide.best", "keep_higher", "None"]),
        ({"score": 1, "anything": threading.Lock()}, ["Wide.anything", "lock"]),
    ],
)
def test_a_refused_update_changes_nothing(changes: dict[str, Any], says: list[str]) -> None:
    """One value that does not fit refuses the whole update, and the message has field, value and type."""
    state = Wide(findings=["old"])
    before = state.model_dump()

    with pytest.raises(StateError) as caught:
        state.update(**changes)

    assert all(part in str(caught.value) for part in says), caught.value
    assert state.model_dump() == before


def test_what_is_given_is_copied_and_what_is_read_is_the_states_own() -> None:
    """Changing the caller's list or its elements later changes no state; changing what the state gave does."""
    mine: list[Any] = [{"claim": ["x"]}]
    state = Wide()
    state.update(findings=mine, notes={"a": mine}, plan=mine)
    mine[0]["claim"].append("y")
    mine.append("z")
    state.findings[0]["claim"].append("own")

    assert state.findings == [{"claim": ["x", "own"]}]
    assert state.notes == {"a": [{"claim": ["x"]}]}
    assert state.plan == [{"claim": ["x"]}]


def test_an_append_list_stays_the_same_object() -> None:
    """`update` appends to the list that is there, whoever holds it; assignment makes another one."""
    state, bounded = Wide(), Bounded()
    held, cleaned = state.findings, bounded.clean
    state.update(findings=["a"], log=["b"])
    bounded.update(clean=[" a "])
    assert held is state.findings
    assert (held, cleaned, bounded.clean) == (["a"], ["a"], ["a"])

    state.findings = ["b"]
    assert held == ["a"]


def test_subclasses_and_coercion_are_pydantics() -> None:
    """An element of a subclass stays what it is, and a dict becomes the model that the field holds."""
    state = Wide()
    state.update(claims=[Sourced(text="t", source="s"), {"text": "u"}])

    assert [type(claim) for claim in state.claims] == [Sourced, Claim]
    assert state.claims[0].source == "s"


def test_validators_see_the_whole_update() -> None:
    """Validators of fields and of the model run on update and assignment; what they refuse changes nothing."""
    state = Bounded()
    state.update(low=5, high=9, clean=[" a "])
    state.update(clean=["b "])
    assert (state.low, state.high, state.clean) == (5, 9, ["a", "b"])

    for refused in ({"low": 10}, {"few": ["a", "b", "c"]}, {"clean": ["c"], "high": 1}):
        with pytest.raises(StateError, match="Nothing was changed"):
            state.update(**refused)
    with pytest.raises(StateError, match="low is above high"):
        state.low = 10
    assert (state.low, state.high, state.clean, state.few) == (5, 9, ["a", "b"], [])


def test_a_reducer_that_changes_the_old_value_is_undone_with_the_rest() -> None:
    """Even a reducer that works in place leaves nothing behind when another field is refused."""
    state = Bounded(counted={"a": 1})
    with pytest.raises(StateError):
        state.update(counted={"b": 2}, low="x")
    assert state.counted == {"a": 1}

    state.update(counted={"b": 2})
    assert state.counted == {"a": 1, "b": 2}


def test_assignment_is_checked_and_typed() -> None:
    """A wrong type, a misspelt field and `del` are refused by name; a list becomes the state's own."""
    state, mine = Wide(), ["a"]
    state.anything = mine
    mine.append("b")
    assert state.anything == ["a"]

    for name, value, says in (("score", "x", "int"), ("plann", [], "`plan`"), ("schema_version", 2, "no field")):
        with pytest.raises(StateError, match=says):
            setattr(state, name, value)
    with pytest.raises(StateError, match="assign"):
        del state.plan
    assert state.score == 10


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"__annotations__": {"update": int}, "update": 1}, "update"),
        ({"__annotations__": {"schema_version": int}, "schema_version": 2}, "ClassVar"),
        ({"schema_version": 0, "__annotations__": {"schema_version": ClassVar[int]}}, "counts 1"),
        ({"__annotations__": {"n": Annotated[int, lambda old: old]}, "n": 1}, "two arguments"),
        ({"__annotations__": {"n": Annotated[int, max, min]}, "n": 1}, "2 reducers"),
        ({"model_config": {"extra": "allow"}}, "extra"),
    ],
)
@pytest.mark.filterwarnings("ignore:Field name:UserWarning")
def test_a_class_that_could_not_be_kept_is_refused_when_defined(body: dict[str, Any], says: str) -> None:
    """Names that hide methods, bad reducers, bad versions and undeclared fields are refused at the class statement."""
    with pytest.raises(StateError, match=says):
        type("Bad", (ResearchState,), {"__module__": __name__, **body})


@pytest.mark.parametrize("reducer", [max, min, operator.add, operator.or_, set.union, lambda old, new: old | new])
def test_any_function_of_two_arguments_is_a_reducer(reducer: Any) -> None:
    """Built-in functions without a signature, operators, methods and lambdas merge."""
    kind = int if reducer in (max, min, operator.add) else set
    body = {"__module__": __name__, "__annotations__": {"value": Annotated[kind, reducer]}, "value": kind()}
    state = type("Reduced", (State,), body)()
    new = 3 if kind is int else {3}
    state.update(value=new)

    assert state.value == reducer(kind(), new)


class Odd(State):
    """Annotations, attributes and values that are allowed, and easily in the way."""

    documented: Annotated[int, {"unit": "s"}] = 0
    tags: Annotated[list[str], {"unit": "s"}, operator.add] = []
    _cache: list[str] = []

    @property
    def doubled(self) -> int:
        return 2 * self.documented

    @doubled.setter
    def doubled(self, value: int) -> None:
        self.documented = value // 2


class Grumpy:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_annotations_properties_and_private_attributes_are_left_alone() -> None:
    """Metadata without a hash, properties with setters and private attributes work; no repr hides an error."""
    state = Odd()
    state.update(documented=3, tags=["a"])
    state.doubled, state._cache = 8, ["x"]
    assert (state.documented, state.doubled, state.tags, state._cache) == (4, 8, ["a"], ["x"])

    with pytest.raises(StateError, match="Grumpy whose repr raised RuntimeError"):
        state.update(documented=Grumpy())


def test_a_field_keeps_the_reducer_of_its_base() -> None:
    """Saying what a list holds does not make `update` overwrite it; another kind of field, or reducer, does."""

    class Narrow(Wide):
        findings: list[Claim] = []
        log: dict[str, int] = {}  # type: ignore[assignment]  # another kind of field
        best: Annotated[int, min] = 9

    class Narrower(Narrow):
        findings: list[Sourced] = []

    state = Narrower()
    state.update(findings=[Sourced(text="a")], log={"a": 1}, best=3)
    state.update(findings=[{"text": "b"}], log={"b": 2}, best=5)
    assert ([claim.text for claim in state.findings], state.log, state.best) == (["a", "b"], {"b": 2}, 3)


def test_updates_from_many_threads_are_all_there() -> None:
    """Concurrent updates lose nothing."""
    state = Wide()

    def work(number: int) -> None:
        for i in range(200):
            state.update(findings=[(number, i)], score=1)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert state.score == 10 + 1600
    assert len(set(state.findings)) == 1600


def test_update_without_a_name_says_how() -> None:
    """A list given without its field is refused with the form that works."""
    with pytest.raises(StateError, match=r"state\.update\(findings=\[…\]\)"):
        ResearchState().update(["x"])
