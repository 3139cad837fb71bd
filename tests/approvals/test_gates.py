"""What a gate lets through, in steps of a real store."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import resumable_nb
from resumable_nb import approve, payloads
from resumable_nb.errors import AlreadyDecided, NotAsked, Paused, Rejected, UsageError, ValueNotStorable
from resumable_nb.gates import decide, who
from resumable_nb.thread import Thread


class Mail(BaseModel):
    to: str
    amount: int = Field(le=1000)


@dataclass
class Part:
    name: str
    hours: float


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a new thread: a copy takes a third of the time of making one."""
    path = tmp_path_factory.mktemp("new") / "t.duckdb"
    with resumable_nb.open("t", db=path, query="q") as made:
        pass
    made.store.close()
    return path


@pytest.fixture
def thread(new: Path, tmp_path: Path) -> Iterator[Thread]:
    shutil.copy(new, tmp_path)
    with resumable_nb.open("t", db=tmp_path / "t.duckdb") as opened:
        yield opened


def paused(thread: Thread, fn: Any, name: str = "s") -> str:
    with pytest.raises(Paused) as stopped:
        thread.step(name, fn)
    return str(stopped.value)


def yes(thread: Thread, name: str | None = "s", **more: Any) -> None:
    decide(thread.store, thread.thread_id, name, approve=True, **more)


def phases(thread: Thread) -> list[str]:
    return [row[0] for row in thread.store.rows("SELECT phase FROM approvals ORDER BY seq")[1]]


def test_a_step_waits_and_passes_once_it_is_approved(thread: Thread) -> None:
    """Until somebody decides the step stops at the same gate; after a yes it goes on, and is done."""

    def body() -> str:
        try:
            return approve("Send?", [1, 2]).comment
        except Exception:  # code that swallows errors must not swallow the stop
            return "swallowed"

    assert "resumable-nb approve s --thread t --db" in paused(thread, body)
    paused(thread, body)
    yes(thread, comment="go")

    assert thread.step("s", body) == "go"
    assert phases(thread) == ["approved"]
    assert thread.store.rows("SELECT phase FROM steps")[1] == [("done",)]


def test_decisions_appear_in_the_state_when_the_step_has_seen_them(thread: Thread) -> None:
    """The decision with its comment is in `state.decisions` and so in what the model is told, once."""

    def body() -> str:
        answer = approve("Plan?", ["a"], raise_on_reject=False)
        assert not answer
        return thread.live.state.context()

    paused(thread, body)
    decide(thread.store, "t", "s", approve=False, comment="too dear")

    assert "too dear" in thread.step("s", body)
    (decision,) = thread.state.decisions  # type: ignore[attr-defined]
    assert (decision["decision"], decision["comment"], decision["gate"]) == ("rejected", "too dear", "s")
    (seen,) = thread.store.rows("SELECT changes FROM journal WHERE kind = 'approval' AND phase = 'done'")[1]
    assert "too dear" in str(seen)


def test_a_rejection_raises_and_stays(thread: Thread) -> None:
    """A no raises with who and why in every run; the state is as at the step's entry."""

    def body() -> None:
        approve("Send?", 1)

    paused(thread, body)
    decide(thread.store, "t", "s", approve=False, comment="no money")
    for _ in range(2):
        with pytest.raises(Rejected, match="no money") as stopped:
            thread.step("s", body)
        assert not stopped.value.answer.approved
    assert thread.state.decisions == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("times", [1, 3])
def test_equal_gates_in_a_loop_need_a_yes_each(thread: Thread, times: int) -> None:
    """One decision opens one gate, also where the same is asked again and again."""

    def body() -> int:
        return sum(bool(approve("Again?", "same")) for _ in range(times))

    for number in range(times):
        paused(thread, body)
        yes(thread)
        with pytest.raises(AlreadyDecided):
            yes(thread)
        assert phases(thread) == ["approved"] * (number + 1)
    assert thread.step("s", body) == times


def test_the_command_that_a_gate_shows_is_for_this_gate(thread: Thread) -> None:
    """Two people who take the same command decide one gate, also where the step asks the same again in between."""

    def body() -> int:
        return sum(bool(approve("Again?", "same")) for _ in range(2))

    first = re.search(r"--gate (\d+)`", paused(thread, body))
    assert first is not None
    yes(thread, gate_seq=int(first[1]))
    paused(thread, body)
    with pytest.raises(AlreadyDecided):
        yes(thread, gate_seq=int(first[1]))

    assert phases(thread) == ["approved", "waiting"]


@pytest.mark.parametrize(("env", "wanted"), [({"JUPYTERHUB_USER": "ada"}, "ada"), ({"LOGNAME": "bob"}, "bob")])
def test_who_decides_is_the_user_of_the_hub_or_of_the_system(
    thread: Thread, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], wanted: str
) -> None:
    """The name stands in the view and in the answer that the step gets."""
    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    def body() -> str:
        return approve("Send?").who

    paused(thread, body)
    yes(thread)

    assert thread.step("s", body) == wanted
    assert thread.store.rows("SELECT who FROM approvals")[1] == [(wanted,)]


def test_another_payload_or_message_is_another_question(thread: Thread) -> None:
    """What was approved does not count for something else; what nobody asks any more need not be decided."""
    asked: dict[str, Any] = {"message": "Send?", "payload": {"a": 1, "b": [1.0]}}

    def body() -> Any:
        return approve(**asked).payload

    paused(thread, body)
    asked["payload"] = {"b": [1.0], "a": 2}
    paused(thread, body)
    asked["message"] = "Delete?"
    paused(thread, body)
    assert phases(thread) == ["dropped", "dropped", "waiting"]
    yes(thread)
    asked["payload"] = {"a": 2, "b": [1.0]}
    assert thread.step("s", body) == {"a": 2, "b": [1.0]}


def test_a_question_that_the_step_gave_up_is_closed(thread: Thread) -> None:
    """A step that ends without a gate that it had asked leaves nothing waiting."""
    asks = [True]

    def body() -> None:
        if asks[0]:
            approve("Sure?")

    paused(thread, body)
    asks[0] = False
    thread.step("s", body)

    with pytest.raises(NotAsked, match="Nothing waits"):
        yes(thread)


def test_without_a_payload_the_decision_is_for_the_state(thread: Thread) -> None:
    """`approve(message)` asks again when the state at that point is another one."""
    found = ["a"]

    def body() -> None:
        thread.live.state.update(findings=list(found))
        approve("Go on?")

    paused(thread, body)
    yes(thread)
    found[0] = "b"
    paused(thread, body)
    found[0] = "a"
    thread.step("s", body)


def test_nobody_can_decide_what_was_not_asked(thread: Thread) -> None:
    """A decision before the question, or under a wrong name, is refused, says what waits, and counts for nothing."""

    def body() -> None:
        approve("Send?", 1)

    with pytest.raises(NotAsked, match="Nothing waits"):
        yes(thread)
    paused(thread, body)
    with pytest.raises(NotAsked, match=r"What waits: `s` \(Send\?\)"):
        yes(thread, "S")
    assert phases(thread) == ["waiting"]


def test_parallel_gates_wait_side_by_side(thread: Thread) -> None:
    """Two gates of one run are decided one by one, by their rows."""
    stops: list[BaseException] = []

    def ask(part: str) -> None:
        try:
            approve("Part?", part)
        except Paused as stop:
            stops.append(stop)

    def body() -> None:
        stops.clear()
        workers = [threading.Thread(target=ask, args=(part,)) for part in "ab"]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if stops:
            raise stops[0]

    paused(thread, body)
    with pytest.raises(UsageError, match="waits at 2 gates"):
        yes(thread)
    for (seq,) in thread.store.rows("SELECT seq FROM approvals")[1]:
        yes(thread, gate_seq=seq)
    thread.step("s", body)


def test_a_fork_asks_again(thread: Thread) -> None:
    """A fork of a waiting thread does not share the gate: deciding in one opens nothing in the other."""

    def body() -> int:
        return approve("Send?", 1).payload

    paused(thread, body)
    thread.fork(thread.session.head, "other")
    with pytest.raises(NotAsked):
        decide(thread.store, "other", "s", approve=True)
    yes(thread)
    with resumable_nb.open("other", db=thread.store.path) as other:
        paused(other, body)
        assert thread.step("s", body) == 1
        assert len(other.fold.gates.waiting()) == 1


def test_the_way_out_of_a_decision_is_one(thread: Thread) -> None:
    """A decision stands, also over `fresh`; who tries to change it is told of a fork, and that one asks anew."""

    def body() -> int:
        return approve("Send?", 1).payload

    paused(thread, body)
    yes(thread)
    with pytest.raises(AlreadyDecided) as told:
        yes(thread)
    found = re.search(r"`%resumable fork (\d+) NEW`", str(told.value))
    assert found is not None
    thread.fork(int(found[1]), "other")

    thread.fresh("s")
    assert thread.step("s", body) == 1
    with resumable_nb.open("other", db=thread.store.path) as other:
        paused(other, body)
        yes(other)
        assert other.step("s", body) == 1


def test_a_script_that_awaits_stops_like_approve(thread: Thread) -> None:
    """Without a front end `await approval(…)` does not wait for ever: it stops, and passes on the next run."""

    async def body() -> int:
        return (await resumable_nb.approval("Send?", 7)).payload

    for _ in range(2):
        with pytest.raises(Paused):
            asyncio.run(thread.step("s", body))
    yes(thread)
    assert asyncio.run(thread.step("s", body)) == 7
    assert phases(thread) == ["approved"]


def test_an_answer_can_be_kept(thread: Thread) -> None:
    """What `approve` returns can be returned by a step, and comes back after a restart as it was."""

    def body() -> Any:
        return approve("Send?", [1])

    paused(thread, body)
    yes(thread)
    answer = thread.step("s", body)
    thread.close()
    with resumable_nb.open("t", db=thread.store.path) as again:
        assert again.step("s", body) == answer


# ---------------------------------------------------------------------------------------------------------- editing
EDITS = [
    (Mail(to="lab", amount=100), '{"to": "lab", "amount": 70}', Mail(to="lab", amount=70)),
    ([Part("a", 1.5), Part("b", 2.0)], '[{"name": "a", "hours": 3}]', [Part("a", 3.0)]),
    (["a", "b"], '["b", "c", "d"]', ["b", "c", "d"]),
    ({"plan": ["a"], "n": 1}, '{"plan": [], "n": 2}', {"plan": [], "n": 2}),
    ({"mails": [Mail(to="x", amount=1)]}, '{"mails": []}', {"mails": []}),
    (2.5, "3", 3.0),
    ("text", '"other"', "other"),
]


@pytest.mark.parametrize(("payload", "edited", "wanted"), EDITS, ids=[str(e[1]) for e in EDITS])
def test_an_edited_payload_keeps_its_classes(thread: Thread, payload: Any, edited: str, wanted: Any) -> None:
    """The step goes on with what was approved, as values of the classes that it asked about."""

    def body() -> Any:
        return approve("This?", payload).payload

    paused(thread, body)
    yes(thread, payload=edited)

    got = thread.step("s", body)
    assert (got, type(got)) == (wanted, type(wanted))
    (decision,) = thread.state.decisions  # type: ignore[attr-defined]
    assert decision["decision"] == "approved after an edit"


MISFITS = [
    (Mail(to="lab", amount=100), '{"to": "lab", "amount": "much"}'),
    (Mail(to="lab", amount=100), '{"to": "lab", "sum": 1}'),
    (["a"], '{"a": 1}'),
    (["a"], "[1]"),
    ({"n": 1}, '{"n": true}'),
    ({"n": 1}, '{"n": 1, "n": 2}'),
    (1, "NaN"),
    ("a", "no json"),
]


@pytest.mark.parametrize(("payload", "edited"), MISFITS, ids=[str(e[1]) for e in MISFITS])
def test_an_edit_of_another_form_decides_nothing(thread: Thread, payload: Any, edited: str) -> None:
    """A payload that does not have the form of the one asked about is refused, and the gate still waits."""

    def body() -> None:
        approve("This?", payload)

    paused(thread, body)
    with pytest.raises(UsageError, match="decided"):
        yes(thread, payload=edited)
    assert phases(thread) == ["waiting"]


def test_an_edit_that_only_the_class_can_refuse_is_asked_again(thread: Thread) -> None:
    """Where the decider cannot know the class, the step refuses what does not validate, says why, and asks again."""

    def body() -> Any:
        return approve("This?", Mail(to="lab", amount=100)).payload

    paused(thread, body)
    yes(thread, payload='{"to": "lab", "amount": 5000}')
    assert "payload.amount: Input should be less than or equal to 1000" in paused(thread, body)
    yes(thread, payload='{"to": "lab", "amount": 500}')
    assert thread.step("s", body) == Mail(to="lab", amount=500)


def test_the_view_says_what_became_of_each_question(thread: Thread) -> None:
    """Approved, approved after an edit, rejected, refused and asked again, dropped: with who, and the payload used."""
    asked: list[Any] = ["first"]

    def body() -> None:
        approve("This?", asked[0], raise_on_reject=False)

    def decide_about(what: Any, **decision: Any) -> None:
        asked[0] = what
        paused(thread, body)
        if decision:
            decide(thread.store, "t", "s", **decision)

    decide_about("approved", approve=True)
    asked[0] = "dropped"
    paused(thread, body)
    decide_about("rejected", approve=False, comment="no")
    decide_about("edited", approve=True, payload='"better"')
    decide_about(Mail(to="a", amount=1), approve=True, payload='{"to": "a", "amount": 9999}')
    paused(thread, body)

    sql = "SELECT payload, phase, who, comment, approved_payload, decided_at IS NOT NULL FROM approvals ORDER BY seq"
    rows = [(json.loads(payload), *rest) for payload, *rest in thread.store.rows(sql)[1]]
    me, mail = who(), {"$type": "Mail", "$module": __name__, "to": "a", "amount": 1}
    assert rows == [
        ("approved", "approved", me, "", None, True),
        ("dropped", "dropped", None, None, None, False),
        ("rejected", "rejected", me, "no", None, True),
        ("edited", "approved", me, "", '"better"', True),
        (mail, "refused", me, "", '{"to":"a","amount":9999}', True),
        (mail, "waiting", None, None, None, False),
    ]


SECRET = "sk-test-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(("message", "payload"), [("Use it?", {"key": SECRET}), (f"Use {SECRET}?", 1)])
def test_no_secret_gets_into_a_question(thread: Thread, message: str, payload: Any) -> None:
    """What looks like a credential is not asked about: the journal keeps questions for ever."""

    def body() -> None:
        approve(message, payload)

    with pytest.raises(ValueNotStorable):
        thread.step("s", body)
    assert phases(thread) == []


def test_no_secret_gets_into_a_decision(thread: Thread) -> None:
    """A credential in an edited payload decides nothing; in a comment it is left out."""

    def body() -> Any:
        return approve("This?", {"to": "x"})

    paused(thread, body)
    with pytest.raises(ValueNotStorable):
        yes(thread, payload=json.dumps({"to": SECRET}))
    yes(thread, comment=f"with {SECRET} please")

    answer = thread.step("s", body)
    assert "please" in answer.comment
    assert SECRET not in answer.comment


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(json_values, json_values)
def test_what_the_check_lets_through_can_be_used(asked: Any, edited: Any) -> None:
    """For plain JSON, an edit that is taken when a person decides is taken by the step, unchanged; no other one is."""
    try:
        payloads.check(edited, asked)
    except UsageError:
        with pytest.raises(UsageError):
            payloads.conform(edited, asked)
    else:
        assert payloads.conform(edited, asked) == edited
