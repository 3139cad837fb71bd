"""A list that nobody has read is not looked into; one that somebody could hold is, however they came by it."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from resumable_nb.state import ResearchState, State
from resumable_nb.state.track import ItemsTrack
from tests.state.kinds import live

SEEN: list[Any] = []
MADE: list[Any] = [{"n": 0}]


def _noted(value: str, info: ValidationInfo) -> str:
    SEEN.append((info.data or {}).get("findings"))
    return value


class Watching(ResearchState):
    """Code of the class gets hold of a list."""

    topic: str = ""
    note: Annotated[str, AfterValidator(_noted)] = ""
    made: list[Any] = Field(default_factory=lambda: MADE)
    best: Annotated[list[Any], lambda old, new: SEEN.append(old) or [*old, *new]] = []  # type: ignore[func-returns-value]

    @property
    def newest(self) -> Any:
        """A property reads like anybody else."""
        return self.findings[-1]

    @field_validator("topic")
    @classmethod
    def _see(cls, value: str, info: ValidationInfo) -> str:
        SEEN.append(info.data.get("findings"))
        return value


class Checked(ResearchState):
    """A validator of the model sees it whole."""

    @model_validator(mode="after")
    def _see(self) -> Checked:
        SEEN.append(self.findings)
        return self


def _assigned(state: Any) -> Any:
    state.findings = mine = [{"n": 1}]
    return mine[0]


def _after(change: dict[str, Any]) -> Callable[[Any], Any]:
    def way(state: Any) -> Any:
        SEEN.clear()
        for name, value in change.items():
            setattr(state, name, value)
        return next(found for found in SEEN if found)[0]

    return way


WAYS: dict[str, tuple[type[State], Callable[[Any], Any]]] = {
    "attribute": (ResearchState, lambda s: s.findings[0]),
    "getattr": (ResearchState, lambda s: getattr(s, "findings")[0]),  # noqa: B009
    "attrgetter": (ResearchState, lambda s: operator.attrgetter("findings")(s)[0]),
    "dict": (ResearchState, lambda s: s.__dict__["findings"][0]),
    "vars": (ResearchState, lambda s: vars(s)["findings"][0]),
    "iteration": (ResearchState, lambda s: dict(s)["findings"][0]),
    "shallow copy": (ResearchState, lambda s: copy.copy(s).findings[0]),
    "model_copy": (ResearchState, lambda s: s.model_copy().findings[0]),
    "the list, before it had the element": (ResearchState, lambda s: s.findings),
    "an iterator": (ResearchState, lambda s: next(iter(s.findings))),
    "given by assignment": (ResearchState, _assigned),
    "a property": (Watching, lambda s: s.newest),
    "a validator of a field": (Watching, _after({"topic": "bees"})),
    "a validator in a type": (Watching, _after({"note": "bees"})),
    "a validator of the model": (Checked, _after({"query": "why?"})),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_change_in_place_is_seen_however_the_element_was_reached(way: str) -> None:
    """Whoever got hold of an element can change it at any later time, and the checkpoint has the change."""
    cls, reach = WAYS[way]
    session = live(cls)
    state: Any = session.state
    if "before" in way:
        kept = reach(state)
        state.update(findings=[{"n": 1}])
        session.set(session.end_step())
        kept = kept[0]
    else:
        state.update(findings=[{"n": 1}])
        session.set(session.end_step())
        kept = reach(state)
    session.image()

    kept["n"] = 2

    assert session.image().json("findings") == '[{"n":2}]'


def test_what_a_factory_or_a_reducer_keeps_is_not_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A default that the notebook holds too is copied, and what a reducer was given is looked at again."""
    session = live(Watching)
    MADE[0]["n"] = 9
    assert session.image().json("made") == '[{"n":0}]'
    SEEN.clear()
    session.state.update(best=[{"n": 1}])
    session.set(session.end_step())
    session.state.update(best=[{"n": 2}])
    session.set(session.end_step())
    held = session.state.__dict__["best"]
    held[0]["n"] = 5
    assert session.image().json("best") == '[{"n":5},{"n":2}]'


def test_a_list_that_nobody_has_read_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that only append, and ask with the state as context, cost what they append."""
    session = live()
    looked = []
    real = ItemsTrack._only_grew

    def counting(self: ItemsTrack, value: list[object]) -> bool:
        looked.append(len(value))
        return real(self, value)

    monkeypatch.setattr(ItemsTrack, "_only_grew", counting)
    for number in range(300):
        session.state.update(findings=[{"n": number}])
        session.state.context(max_tokens=50)
        session.state.query = f"question {number}"
        session.set(session.end_step())
    assert not any(looked)

    session.state.findings[7]["n"] = -1
    assert '{"n":-1}' in session.image().json("findings")


def test_a_name_that_is_empty_is_no_attribute() -> None:
    """Looking an attribute up by any text ends in AttributeError, as everywhere."""
    assert not hasattr(live().state, "")
