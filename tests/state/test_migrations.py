"""Older versions of a state class."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import AfterValidator

from resumable_nb.errors import MigrationFailed, StateError, StateMismatch
from resumable_nb.state import Image, Live, ResearchState
from tests.state.kinds import Claim, Sourced, content, live, no_blob, resolve, whole


class First(ResearchState):
    sources: list[str] = []
    score: int = 1


def _third() -> type[ResearchState]:
    class Third(ResearchState):
        schema_version: ClassVar[int] = 3
        links: list[Any] = []
        score: float = 0.0
        more: str = "new"

    return Third


def _stored() -> Image:
    session = live(First, "q")
    session.state.update(findings=[Sourced(source="s")], sources=["a", "b"], score=7)
    return session.image()


def _with_steps(cls: Any) -> Any:
    @cls.migration(from_version=1)
    def rename(raw: dict[str, Any]) -> dict[str, Any]:
        raw["links"] = raw.pop("sources")
        return raw

    @cls.migration(from_version=2)
    def scale(raw: dict[str, Any]) -> dict[str, Any]:
        assert type(raw["findings"][0]) is Sourced
        return {**raw, "score": raw["score"] / 10, "findings": [*raw["findings"], Claim()]}

    return cls


def test_a_version_at_a_time_lifts_what_is_stored() -> None:
    """Functions get decoded values, the object has the result, and the stored state keeps its digest until a change."""
    stored, cls = _stored(), _with_steps(_third())
    session = live(cls)
    state, links = session.state, session.state.links
    session.set(stored)

    assert (state.links, state.score, state.more, state.query) == (["a", "b"], 0.7, "new", "q")
    assert links is state.links
    assert [type(f) for f in state.findings] == [Sourced, Claim]
    assert session.image() is stored
    assert session.detached(stored) == state


def test_the_first_change_after_a_migration_stores_the_whole_lift() -> None:
    """What is stored next has the new version and fields, lacks the old ones, and loads without a migration."""
    stored, cls = _stored(), _with_steps(_third())
    session = live(cls)
    session.set(stored)
    session.state.update(findings=["new"])
    changed = session.image()

    assert changed.schema_version == 3
    assert content(changed) == {n: t for n, t in whole(session.state).items() if n != "more"}
    folded = stored.apply(changed.changes_from(stored) or "")
    assert folded == changed
    other = live(_third())
    other.set(folded)
    assert whole(other.state) == whole(session.state)
    session.state.findings.pop()
    assert session.image() is stored
    session.set(folded)
    session.set(stored)
    assert session.image() is stored
    session.redefine(_with_steps(_third()))
    assert session.image() is stored


def _raise(raw: dict[str, Any]) -> dict[str, Any]:
    raise KeyError("sources")


def _loop(raw: dict[str, Any]) -> dict[str, Any]:
    return _loop(raw)


def _stopped(raw: dict[str, Any]) -> dict[str, Any]:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (None, ["version 1 to 2", "@Third.migration(from_version=1)"]),
        (_raise, ["_raise", "from version 1 to 2", "KeyError('sources')", "kept"]),
        (_loop, ["_loop", "RecursionError", "kept"]),
        (lambda raw: None, ["<lambda>", "None", "return raw"]),
        (lambda raw: raw | {"score": "many"}, ["`score`", "float", "'many'"]),
        (lambda raw: raw["findings"].clear() or _raise(raw), ["_raise", "lambda"][1:]),
    ],
)
def test_a_failing_migration_keeps_what_is_stored(step: Any, says: list[str]) -> None:
    """The message has version, function and what to do; image and object are as they were, the cause is attached."""
    stored, cls = _stored(), _third()
    before = content(stored)
    cls.migration(from_version=2)(lambda raw: {name: value for name, value in raw.items() if name != "sources"})
    if step is not None:
        cls.migration(from_version=1)(step)
    session = live(cls)
    untouched = session.image()

    for load in (session.set, session.detached):
        with pytest.raises((MigrationFailed, StateMismatch)) as caught:
            load(stored)
        assert all(part in str(caught.value) for part in says), caught.value
    assert content(stored) == before
    assert session.image() is untouched
    if step is _raise:
        assert isinstance(caught.value.__cause__, KeyError)


def test_a_migration_that_does_not_end_can_be_stopped() -> None:
    """Ctrl-C ends it as it ends other code: nothing is kept of it, and the mended function is used next time."""
    stored, cls = _stored(), _third()
    cls.migration(from_version=1)(_stopped)
    session = live(cls)
    untouched = session.image()
    with pytest.raises(KeyboardInterrupt):
        session.set(stored)

    assert session.image() is untouched
    _with_steps(cls)
    session.set(stored)
    assert session.state.links == ["a", "b"]


def test_a_mended_migration_loads_what_the_broken_one_could_not() -> None:
    """Registering a function again replaces it, as running its cell again does."""
    stored, cls = _stored(), _third()
    cls.migration(from_version=1)(_raise)
    session = live(cls)
    with pytest.raises(MigrationFailed):
        session.set(stored)
    _with_steps(cls)
    session.set(stored)

    assert session.state.links == ["a", "b"]


def test_a_migration_must_deal_with_every_field() -> None:
    """A field that no function takes away, and that the class lacks, is not dropped quietly."""
    stored, cls = _stored(), _third()
    for version in (1, 2):
        cls.migration(from_version=version)(lambda raw: raw)

    with pytest.raises(StateMismatch, match="`sources`"):
        live(cls).set(stored)


def test_migrations_are_inherited_and_build_what_the_field_holds() -> None:
    """A subclass lifts by the functions of its base; a dict that a function leaves becomes the field's model."""

    class Base(First):
        schema_version: ClassVar[int] = 2
        best: Claim = Claim()

    @Base.migration(from_version=1)
    def add(raw: dict[str, Any]) -> dict[str, Any]:
        raw["best"] = {"text": "built"}
        return raw

    class Sub(Base):
        extra: int = 1

    session = live(Sub)
    session.set(_stored())
    assert session.state.best == Claim(text="built")
    assert session.state.extra == 1


def test_elements_that_a_migration_left_are_built_and_the_others_stay() -> None:
    """A list of texts becomes one of models, a dict's too; a validator does not run again over what is built already."""

    class Retyped(First):
        schema_version: ClassVar[int] = 2
        claims: list[Claim] = []
        by_name: dict[str, list[Claim]] = {}
        days: list[date] = []
        marked: list[Annotated[str, AfterValidator(lambda text: text + "!")]] = []

    @Retyped.migration(from_version=1)
    def retype(raw: dict[str, Any]) -> dict[str, Any]:
        claims = [{"text": "one"}, Claim(text="two")]
        return raw | {"claims": claims, "by_name": {"x": claims[:1]}, "days": ["2026-11-30"], "marked": ["once!"]}

    session = live(Retyped)
    session.set(_stored())
    state = session.state

    assert state.claims == [Claim(text="one"), Claim(text="two")]
    assert state.by_name == {"x": [Claim(text="one")]}
    assert state.days == [date(2026, 11, 30)]
    assert state.marked == ["once!"]


def test_a_newer_version_and_an_empty_thread() -> None:
    """A state of a newer class is refused; a thread that has stored nothing needs no migration."""
    newer = live(_third()).start("q")
    with pytest.raises(StateMismatch, match="version 3 of First; the class here is version 1"):
        live(First).set(newer)

    session = Live(_third(), resolve=resolve, blobs=no_blob)
    session.set(Image.EMPTY)
    assert session.start("q").changes_from(Image.EMPTY).startswith('{"version":3,"set":{"query":"q",')  # type: ignore[union-attr]


@pytest.mark.parametrize("version", [0, -1, True, "1", None])
def test_a_version_is_a_number_from_one_on(version: Any) -> None:
    """A migration from nonsense is refused when it is declared."""
    with pytest.raises(StateError, match="from_version"):
        First.migration(from_version=version)(lambda raw: raw)
