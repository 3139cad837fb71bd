"""The live object: looking at it, putting it to images, and what cannot be stored."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Annotated, Any

import pytest
from pydantic import SecretStr

from resumable_nb.errors import StateError, StateMismatch, ValueNotLoadable, ValueNotStorable
from resumable_nb.state import Image, Live, ResearchState, State
from tests.state.edits import zoo
from tests.state.kinds import Claim, Note, Sourced, Wide, content, live, no_blob, resolve, whole


def test_a_new_thread_starts_with_the_defaults_and_the_query() -> None:
    """The first image holds every field, so that the store can show the state before any step."""
    session = Live(Wide, resolve=resolve, blobs=no_blob)
    start = session.start("why?")

    assert content(start) == whole(Wide(query="why?"))
    assert session.state.query == ""
    session.set(start)
    assert session.state == Wide(query="why?")
    assert session.image() is start


def test_a_class_without_defaults_or_query_starts_in_clear_words() -> None:
    """A field without a default is named; a class without `query` starts without it; a wrong query is refused."""

    class Needs(State):
        topic: str

    class Bare(State):
        count: int = 1

    with pytest.raises(StateError, match=r"Needs\.topic has no default"):
        Live(Needs, resolve=resolve, blobs=no_blob)
    assert live(Bare, "why?").image().fields == ("count",)
    with pytest.raises(StateError, match="query"):
        live(ResearchState).start(5)  # type: ignore[arg-type]


def test_the_object_and_its_lists_keep_their_identity() -> None:
    """Jumping to other states changes what names hold that point to the state or its lists."""
    session = live()
    state, findings, first = session.state, session.state.findings, session.image()
    state.update(findings=[{"n": 1}])
    element, second = state.findings[0], session.image()
    session.set(second)
    state.update(findings=[{"n": 2}])
    session.set(second)
    assert (session.state is state, state.findings is findings, findings[0] is element) == (True, True, True)
    assert findings == [{"n": 1}]

    session.set(first)
    assert findings == []
    session.set(second)
    assert findings == [{"n": 1}]


def test_a_failed_cell_leaves_nothing_behind() -> None:
    """The entry state comes back even after values that cannot be stored, types that do not fit and deleted fields."""
    session = live()
    session.state.update(findings=[{"n": 1}], notes={"a": [1]})
    entry = session.image()
    session.set(entry)
    expected = whole(session.state)
    for harm in (
        lambda s: s.findings.append(threading.Lock()),
        lambda s: s.findings[0].update(n=2),
        lambda s: s.log.clear(),
        lambda s: s.claims.append("no claim"),
        lambda s: s.notes["a"].append(threading.Lock()),
        lambda s: s.__dict__.pop("plan"),
        lambda s: s.__dict__.update(findings=None, plan="x", anything=[]),
        lambda s: s.findings.append(s.findings),
    ):
        harm(session.state)
        session.set(entry)
        assert whole(session.state) == expected
        assert session.image().digest == entry.digest


@pytest.mark.parametrize(
    ("harm", "place"),
    [
        (lambda s: s.findings.extend([1, 2, {"a": [threading.Lock()]}]), "state.findings[2]['a'][0]"),
        (lambda s: s.plan.append(lambda: 1), "state.plan[0]"),
        (lambda s: s.notes.update(k=threading.Lock()), "state.notes['k']"),
        (lambda s: s.findings.append({"api_key": "abcdefgh12345678"}), "state.findings[0]['api_key']"),
        (lambda s: s.findings.append(SecretStr("x" * 20)), "state.findings[0]"),
        (lambda s: s.findings.append("key sk-" + "aB3dE6gH9jK2mN5p" * 2), "state.findings[0]"),
        (lambda s: s.findings.append(Note(more=iter([]))), "state.findings[0].more"),
    ],
)
def test_what_cannot_be_stored_is_named_with_its_place(harm: Any, place: str) -> None:
    """The message has field, index and the path inside; once it is mended, nothing is lost."""
    session = live()
    session.state.update(log=["a"])
    harm(session.state)

    with pytest.raises(ValueNotStorable) as caught:
        session.image()
    assert place in str(caught.value)
    assert "aB3dE6gH" not in str(caught.value)
    session.state.findings, session.state.plan, session.state.notes = ["ok"], [], {}
    assert content(session.image()) == whole(session.state)


def test_a_field_named_like_a_credential_is_refused() -> None:
    """A text under the name of a credential is not stored; an empty one may be."""

    class Keys(State):
        api_key: str = ""

    session = live(Keys)
    session.state.api_key = "abcdefgh12345678"
    with pytest.raises(ValueNotStorable, match=r"state\.api_key.*credential"):
        session.image()


def test_a_wrong_type_put_in_place_is_said_when_the_state_is_looked_at() -> None:
    """An element that loading would refuse is refused before it is stored, with its index and the type of the field."""
    session = live()
    session.state.claims.extend([Claim(), Sourced(), "no claim"])

    with pytest.raises(StateError, match=r"state\.claims\[2\] is 'no claim'.*list\[.*Claim"):
        session.image()


def test_elements_keep_their_class() -> None:
    """Subclasses in a list of their base, enums, dataclasses, tuples and sets come back as what they were."""
    session = live()
    session.state.update(findings=zoo(), claims=[Sourced(text="t", source="s", tags=[(1, 2)])])
    other = live()
    other.set(Image.EMPTY.apply(session.image().changes_from(Image.EMPTY) or ""))

    assert type(other.state.claims[0]) is Sourced
    assert [type(e) for e in other.state.findings] == [type(e) for e in zoo()]
    assert whole(other.state) == whole(session.state)


def test_a_class_that_is_gone_is_named_with_the_place() -> None:
    """A value whose class is not defined here stops the load before anything is changed."""
    stored = live()
    stored.state.update(findings=["a", Claim(), "b"], anything=Note())
    session = live(find=lambda module, qualname: None)
    before = session.image()

    with pytest.raises(ValueNotLoadable, match=r"state\.findings\[1\].*Claim"):
        session.set(stored.image())
    stored.state.findings = []
    with pytest.raises(ValueNotLoadable, match=r"state\.anything.*Note"):
        session.set(stored.image())
    assert session.image() is before


def test_a_step_learns_at_once_that_what_it_left_cannot_be_loaded() -> None:
    """Parting the state from the names of a step finds what a restart would not find."""
    session = live(find=lambda module, qualname: None)
    session.state.update(findings=["a"])
    session.renew()
    session.state.findings.append(Claim())

    with pytest.raises(ValueNotLoadable, match=r"state\.findings\[1\].*Claim"):
        session.renew()


def test_large_values_are_stored_beside_and_found_again() -> None:
    """Bytes go to blobs that the image carries until they are in the store; another session gets them from there."""
    store: dict[str, bytes] = {}
    session = live(blobs=store.__getitem__)
    session.state.update(findings=[b"\x00" * 5000], anything=b"\x01" * 5000)
    image = session.image()
    assert sorted(map(len, image.blobs.values())) == [5000, 5000]
    assert session.detached(image).findings == [b"\x00" * 5000]

    store.update(image.blobs)
    folded = Image.EMPTY.apply(image.changes_from(Image.EMPTY) or "")
    session.set(folded)
    assert session.image().blobs == {}
    other = live(blobs=store.__getitem__)
    other.set(folded)
    assert [*other.state.findings, other.state.anything] == [b"\x00" * 5000, b"\x01" * 5000]
    assert other.image().blobs == {}


def test_a_new_field_with_a_default_does_not_change_what_was_done() -> None:
    """The digest of a stored state stays; the field is stored once it is changed, and reset by a jump."""
    old = live(ResearchState, "q")
    stored = old.image()

    class Longer(ResearchState):
        tags: list[str] = ["none"]
        best: Claim = None  # type: ignore[assignment]  # a default that does not fit, as people write it

    session = Live(Longer, resolve=resolve, blobs=no_blob)
    session.set(stored)
    assert (session.state.tags, session.state.best) == (["none"], None)
    assert session.image() is stored

    session.state.update(findings=["x"])
    assert session.image().changes_from(stored) == '{"append":{"findings":["x"]}}'
    session.state.tags.append("a")
    changed = session.image()
    assert changed.changes_from(stored) == '{"set":{"tags":["none","a"]},"append":{"findings":["x"]}}'

    session.set(stored)
    assert session.state.tags == ["none"]
    assert session.image().digest == stored.digest
    session.set(changed)
    assert session.state.tags == ["none", "a"]
    assert Live(Longer, resolve=resolve, blobs=no_blob).start("q").json("best") == "null"


def test_a_field_that_the_class_lacks_stops() -> None:
    """A stored field is never dropped quietly: it is named with what to do, and is there again with the field."""

    class Sources(ResearchState):
        sources: list[str] = []

    session = live(Sources)
    session.state.sources = ["a"]
    stored = session.image()
    lacking = live(ResearchState)
    before = lacking.image()

    for load in (lacking.set, lacking.detached):
        with pytest.raises(
            StateMismatch, match=r"`sources`.*Put the field back.*schema_version to 2.*\n.*from_version=1"
        ):
            load(stored)
    assert lacking.image() is before
    again = live(Sources)
    again.set(stored)
    assert again.state.sources == ["a"]


class Typed(State):
    value: int = 3
    values: list[int] = [1]


@pytest.mark.parametrize(
    ("annotation", "fits"),
    [
        *((int, True), (float, True), (Any, True), (int | str, True), (int | None, True), (object, True)),
        *((Annotated[int, max], True), (str, False), (list[int], False), (Claim, False), (bool, False), (bytes, False)),
    ],
)
def test_a_retyped_field_stops_unless_it_holds_the_stored_value(annotation: Any, fits: bool) -> None:
    """A stored value is taken as it is, or refused with field, value and type; it is never converted."""
    stored = live(Typed)
    stored.state.value = 5
    body = {"__module__": __name__, "__annotations__": {"value": annotation, "values": list[int]}}
    session = live(type("Retyped", (State,), body | {"value": None, "values": []}))
    image = stored.image()
    if not fits:
        with pytest.raises(StateMismatch, match=r"stored `value` is 5, and Retyped\.value holds"):
            session.set(image)
        return
    session.set(image)
    assert type(session.state.value) is int
    assert session.image().digest == image.digest


@pytest.mark.parametrize(
    ("annotation", "stored", "fits"),
    [
        *(
            (str, "5", True),
            (int, "5", False),
            (list[Any], "5", False),
            (set[Any], [1], False),
            (list[Any], {1}, False),
        ),
        *((list[int], ["a"], False), (list[Claim], [{"text": "a"}], True), (list[Claim], ["a"], False)),
        *((tuple[int, ...], [1], False), (dict[str, int], {"a": 1}, True), (dict[str, int], {"a": "b"}, False)),
        *((Claim, {"text": "a"}, False), (Claim, Sourced(), True), (Sourced, Claim(), False), (float, 1, True)),
    ],
)
def test_what_fits_a_field_is_decided_by_the_value_itself(annotation: Any, stored: Any, fits: bool) -> None:
    """A text is no number, a set no list, a dict no model, and a base no subclass; the other way round they are."""
    source = live(type("Source", (State,), {"__module__": __name__, "__annotations__": {"v": Any}, "v": None}))
    source.state.v = stored
    body = {"__module__": __name__, "__annotations__": {"v": annotation}, "v": None}
    session = live(type("Target", (State,), body))

    if fits:
        session.set(source.image())
        assert type(session.state.v) is type(stored)
    else:
        with pytest.raises(StateMismatch, match="`v`"):
            session.set(source.image())


def test_a_class_that_is_defined_again_gets_a_new_object() -> None:
    """The object and the parts whose classes were defined again are made anew; the digest is the same."""
    names: dict[str, Any] = {"__name__": "__main__"}
    source = (
        "from typing import Any\nfrom resumable_nb.state import ResearchState\nimport pydantic\n"
        "class Item(pydantic.BaseModel):\n    text: str\n"
        "class Mine(ResearchState):\n    items: list[Item] = []\n    more: Any = None\n"
    )
    run = lambda text: exec(compile(text, "cell", "exec", dont_inherit=True), names)  # noqa: E731
    run(source)
    find = lambda module, qualname: names.get(qualname) if module == "__main__" else None  # noqa: E731
    session = live(names["Mine"], find=find)
    session.state.items, session.state.more = [names["Item"](text="a")], {"k": names["Item"](text="b")}
    before, old = session.image(), session.state
    session.set(before)
    run(source)
    session.redefine(names["Mine"])

    assert session.state is not old
    assert type(session.state) is names["Mine"]
    assert [type(x) for x in (session.state.items[0], session.state.more["k"])] == [names["Item"]] * 2
    assert session.image() is before

    run(source.partition("class Mine")[0])  # the class of the elements alone
    session.state.items.append(names["Item"](text="c"))
    session.set(session.image())
    session.set(before)
    assert [i.text for i in session.state.items] == ["a"]


def test_after_a_step_its_names_and_the_state_are_apart() -> None:
    """Ran or skipped, a step leaves the same: its names share nothing with the state, whose lists stay."""
    ran, skipped = live(), live()
    plan, finding, kept = [{"done": False}], {"n": 1}, {"n": 0}
    for session in (ran, skipped):
        session.state.update(findings=[{"old": 1}])
        session.set(session.image())
    held = {name: getattr(ran.state, name) for name in ("plan", "findings", "log")}
    old, before = ran.state.findings[0], ran.image()
    ran.state.plan, ran.state.notes = plan, {"kept": kept}
    ran.state.findings.append(finding)
    ran.state.log = list(ran.state.log)
    after = ran.image()
    ran.renew()
    skipped.set(after)

    plan[0]["done"], finding["n"], kept["n"] = True, 2, 3
    assert whole(ran.state) == content(after) == whole(skipped.state)
    assert {name: getattr(ran.state, name) for name in held} == {name: getattr(skipped.state, name) for name in held}
    assert all(getattr(ran.state, name) is value for name, value in held.items())
    assert ran.state.findings[0] is old
    assert ran.image() == after
    assert ran.image().changes_from(before) == after.changes_from(before)
    old["old"] = 2
    assert ran.image() != after


def test_detached_states_and_contexts_leave_the_object_alone() -> None:
    """A state of another moment can be read and changed without a trace in the live one."""
    session = live(query="why?")
    first = session.image()
    session.state.update(findings=["x"])
    second = session.image()
    apart = session.detached(first)
    apart.update(findings=["y"])

    assert session.image() is second
    assert session.state.findings == ["x"]
    assert session.context(second) == session.state.context()
    assert session.context(first, 100) == session.detached(first).context(100)


_PROCESS = """
from tests.state.kinds import Wide, live, Claim, Sourced, Color
from tests.state.edits import zoo
import datetime as dt, sys, zoneinfo
session = live(Wide, "why?")
times = [dt.datetime(2024, 11, 3, 1, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("America/New_York")), dt.datetime(2024, 1, 1)]
session.state.update(findings=zoo() + times, claims=[Sourced(tags=[{"b", "a", "c"}])], tags={"x", "y", "z", "sun"})
session.state.anything = {"zoo": zoo()}
sys.stdout.write(session.image().digest + session.state.context())
"""


def test_digest_and_context_are_the_same_in_every_process() -> None:
    """Neither the hash seed nor the time zone of a process shows in the digest or in what the model is told."""
    seen = set()
    for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"), ("3", "America/New_York")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "PYTHONPATH": os.getcwd()}
        done = subprocess.run([sys.executable, "-c", _PROCESS], env=environment, capture_output=True, check=True)
        seen.add(done.stdout)

    assert len(seen) == 1
