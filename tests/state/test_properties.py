"""What holds for a state under any sequence of updates, assignments, edits in place and jumps."""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
from collections import deque
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resumable_nb.errors import StateError, ValueNotStorable
from resumable_nb.state import Image
from tests.state.edits import reachable, ways, zoo
from tests.state.kinds import Claim, Color, Fixed, Note, Rank, Slotted, Sourced, Wide, content, live, plain_text, whole

FIELDS = ("findings", "plan", "notes", "anything", "claims")

_texts = st.sampled_from(["", "a", "red", "x" * 5, "é\n# no heading", '"$ref":', "\u2028"])
_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.0, -0.0, 1.0, 1e300, float("nan"), float("inf"), 10**40, b"\x00", Decimal("1.00")]),
    st.sampled_from([*Color, *Rank, dt.datetime(2024, 11, 3, 1, 30, fold=1)]),
    _texts,
)
_keys = st.one_of(_texts, st.sampled_from([1, True, None, (1, 2), Color.RED, "red", 1.5]))


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=3)
    return st.one_of(
        lists,
        st.dictionaries(_keys, inner, max_size=3),
        lists.map(tuple),
        st.builds(Claim, text=_texts, score=inner, tags=lists),
        st.builds(Fixed, parts=lists.map(tuple), inner=inner),
        st.builds(Note, text=_texts, more=inner),
        st.builds(Slotted, text=_texts, more=inner),
        lists.map(deque),
        st.sampled_from(zoo()).map(copy.deepcopy),
    )


_values = st.recursive(_leaves, _containers, max_leaves=6)


def filled() -> Any:
    """A live state with the zoo in every field that can hold it."""
    session = live(Wide, "why?")
    state = session.state
    state.update(findings=zoo(), claims=[Claim(text="c", tags=["t", [1]]), Sourced(source="s")], notes={"k": [1]})
    state.anything = {"zoo": tuple(zoo())}
    session.set(session.image())
    return session


def _parts(state: Wide) -> list[Any]:
    return reachable([getattr(state, name) for name in FIELDS])[1:]


@pytest.mark.parametrize("field", ["findings", "anything", "claims"])
def test_every_edit_in_place_is_seen(field: str) -> None:
    """Each way to change each container, however deep, shows in the image; going back undoes each."""
    session = filled()
    session.redefine(Wide)  # every value comes from its stored form
    start = session.image()
    parts = lambda: reachable(getattr(session.state, field))  # noqa: E731
    for place in range(len(parts())):
        for way in range(len(ways(parts()[place]))):
            ways(parts()[place])[way]()
            expected = plain_text(getattr(session.state, field))
            try:
                assert session.image().json(field) == expected, (place, way)
            except StateError as error:  # a text in a list of claims
                assert field == "claims", error
            session.set(start)
            assert session.image().digest == start.digest, (place, way)
        assert plain_text(getattr(session.state, field)) == start.json(field), place


def test_edits_of_what_was_appended_later_are_seen() -> None:
    """An element that came to a list of texts is watched like one that was there at the start."""
    for place in range(len(zoo())):
        session = live()
        session.state.update(findings=["a"])
        session.image()
        session.state.update(findings=[zoo()[place]])
        first = session.image()
        for part in range(len(reachable(zoo()[place]))):
            session.set(first)
            for way in ways(reachable(session.state.findings[1])[part])[:1]:
                way()
            assert session.image().json("findings") == plain_text(session.state.findings), (place, part)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.booleans()), max_size=8))
def test_edits_one_after_the_other_are_seen(edits: list[tuple[int, int, bool]]) -> None:
    """The image follows any sequence of edits, looked at between them or not; its changes fold to it."""
    session = filled()
    before = session.image()
    for place, way, looks in edits:
        parts = [part for part in _parts(session.state) if ways(part)]
        options = ways(parts[place % len(parts)])
        try:
            options[way % len(options)]()
            if not looks:
                continue
            expected = whole(session.state)
            now = session.image()
        except (StateError, ValueNotStorable):
            session.set(before)
            continue
        assert content(now) == expected
        assert content(before.apply(now.changes_from(before) or "{}")) == expected
        before = now


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), _values.map(copy.deepcopy)), max_size=4))
def test_a_step_shares_nothing_with_the_state_it_left(insertions: list[tuple[int, int, Any]]) -> None:
    """Whatever a step put wherever into the state: changing it later changes no state; a skip leaves the same."""
    ran, skipped = filled(), filled()
    for place, way, new in insertions:
        parts = [part for part in _parts(ran.state) if ways(part)]
        target = parts[place % len(parts)]
        options = (
            ways(target, new) + ways(ran.state.findings, new) + [lambda new=new: setattr(ran.state, "plan", [new])]
        )
        with contextlib.suppress(StateError, TypeError):
            options[way % len(options)]()
    try:
        left = ran.image()
    except (StateError, ValueNotStorable):
        return
    ran.renew()
    skipped.set(left)
    for _place, way, new in insertions:
        for part in reachable(new):
            options = ways(part)
            if options:
                options[way % len(options)]()

    assert whole(ran.state) == content(left) == whole(skipped.state)
    assert ran.image().digest == left.digest


def _change(state: Wide, draw: Any) -> None:
    pick = lambda options: draw(st.sampled_from(options))  # noqa: E731
    way = pick(["append", "assign", "reduce", "edit", "edit", "elements"])
    if way == "append":
        state.update(findings=draw(st.lists(_values, max_size=2)), log=[draw(_values)])
    elif way == "assign":
        setattr(state, pick(["plan", "findings"]), draw(st.lists(_values, max_size=3)))
        setattr(state, pick(["anything", "query"]), draw(_texts))
    elif way == "reduce":
        state.update(score=draw(st.integers(-2, 2)), best=draw(st.integers(0, 9)), anything=draw(_values))
        state.update(claims=[Sourced(text=draw(_texts))], notes={"a": draw(_values)}, tags={draw(_texts)})
    elif way == "elements":
        own = state.findings
        state.findings = pick([own[::-1], own[1:], own + own[:1], [*own, draw(_values)], list(own)])
    else:
        target = pick(_parts(state))
        for option in draw(st.permutations(ways(target)))[:1]:
            option()


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_image_is_the_object_whatever_was_done_to_it(data: st.DataObject) -> None:
    """After any changes the image is what encoding the whole object anew gives; rows fold to it; jumps restore it."""
    session = live(Wide, "why?")
    images = [folded := session.image()]
    for _ in range(data.draw(st.integers(1, 7))):
        if data.draw(st.integers(0, 3)) == 0:
            session.set(folded := data.draw(st.sampled_from(images)))
            assert session.image().digest == folded.digest
            assert whole(session.state) == content(folded)
        try:
            for _ in range(data.draw(st.integers(1, 3))):
                _change(session.state, data.draw)
            expected = whole(session.state)
            now = session.image()
        except (StateError, ValueNotStorable):  # a wrong type, a set in a cycle
            session.set(folded)
            assert whole(session.state) == content(folded)
            continue
        assert content(now) == expected
        changes = now.changes_from(folded)
        assert (changes is None) == (now.digest == folded.digest)
        folded = folded if changes is None else folded.apply(changes)
        assert folded.digest == now.digest
        assert content(folded) == expected
        images.append(folded)
    anew = Image.EMPTY.apply(folded.changes_from(Image.EMPTY) or "{}")
    assert anew.digest == folded.digest
    other = live(Wide)
    other.set(anew)
    assert whole(other.state) == content(folded)
    assert other.state.context() == session.detached(folded).context()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(_values, max_size=3)), max_size=6))
def test_digest_does_not_depend_on_the_way(steps: list[tuple[bool, list[Any]]]) -> None:
    """Appending piece by piece, setting the whole list, and any mixture end in one digest."""
    piecewise, at_once = live(), live()
    base = piecewise.image()
    everything: list[Any] = []
    for by_update, elements in steps:
        if by_update:
            piecewise.state.update(findings=elements)
        else:
            piecewise.state.findings.extend(copy.deepcopy(elements))
        everything += elements
        base = base.apply(piecewise.image().changes_from(base) or "{}")
    at_once.state.findings = copy.deepcopy(everything)

    assert at_once.image().digest == base.digest
