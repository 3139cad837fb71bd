"""The parts of the verifier: the outside world, the choice of points, effects that are rehearsed."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import resumable_nb
from resumable_nb import demo, effect
from resumable_nb.calls.http_rehearsal import PLACE
from resumable_nb.calls.matching import question
from resumable_nb.calls.rehearsal import Ledger
from resumable_nb.errors import UsageError
from resumable_nb.verify import plan
from resumable_nb.verify.judge import most_at_once
from resumable_nb.verify.notebook import undeclared_effects
from resumable_nb.verify.subject import Ended, Passage, Point
from resumable_nb.verify.world import Answer, Sent, World
from tests.verify.books import write

PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World() as world:
        yield world


@pytest.fixture
def ledger(world: World, request: pytest.FixtureRequest) -> Ledger:
    return Ledger(world.ledger_url(request.node.name.replace("[", "-").strip("]")))


def asked(prompt: str) -> str:
    body = json.dumps({"prompt": prompt}).encode()
    return question("POST", PATH.encode(), headers={"content-type": "application/json"}, body=body).key


def answer(prompt: str, text: str, place: str = "") -> Answer:
    kind = {"path": PATH, "content_type": "application/json", "place": place}
    return Answer(key=asked(prompt), body=text.encode(), digest=text, **kind)


def ask(world: World, trial: str, prompt: str, place: str = "nowhere") -> str:
    data, headers = json.dumps({"prompt": prompt}).encode(), {"content-type": "application/json", PLACE: place}
    request = urllib.request.Request(world.answers_url(trial) + PATH, data, headers)
    with urllib.request.urlopen(request) as reply:
        return str(reply.read().decode())


def test_a_recorded_question_gets_its_answer_and_a_lost_one_gets_the_same_again(world):
    """Sampled twice, a prompt has two answers; what the dead process did not keep is given again to the next one."""
    world.record([answer("a", "1"), answer("a", "2"), answer("b", "3")])

    assert [ask(world, "t", "a"), ask(world, "t", "a"), ask(world, "t", "b")] == ["1", "2", "3"]
    world.resume("t", {asked("a"): ["1"]})
    assert [ask(world, "t", "a"), ask(world, "t", "b"), ask(world, "other", "a")] == ["2", "3", "1"]
    assert [(s.known, s.life) for s in world.log("t").sent] == [(True, 0)] * 3 + [(True, 1)] * 2


def test_equal_questions_get_their_own_answers_in_any_order(world):
    """Asked at the same time, they may come in another order than when they were recorded."""
    world.record([answer("p", "first", "s/0"), answer("p", "second", "s/1")])

    assert [ask(world, "p", "p", "s/1"), ask(world, "p", "p", "s/0")] == ["second", "first"]


def test_a_question_that_nobody_recorded_is_told_as_such(world):
    """It gets an answer to another one of its kind, so that the trial can go on."""
    world.record([answer("c", "4")])

    assert ask(world, "u", "never heard") in {"1", "2", "3", "4", "first", "second"}
    assert [s.known for s in world.log("u").sent] == [False]


def test_the_ledger_counts_each_act_and_can_be_asked_by_key(world, ledger, request):
    """Asked twice it acts twice, unless it is told to honour keys; a copy goes on from there by itself."""
    ledger.act("close", key="k", arguments={"ticket": 1}, receipt={"event": 1})
    ledger.act("close", key="k")
    again = ledger.act("close", key="k", honours_keys=True)
    world.copy(request.node.name, "copied")
    Ledger(world.ledger_url("copied")).act("post", key="p")

    assert (again, ledger.find("k"), ledger.find("p")) == ({"event": 1}, {"event": 1}, None)
    assert [act["key"] for act in world.log(request.node.name).acts] == ["k", "k"]
    assert [act["key"] for act in world.log("copied").acts] == ["k", "k", "p"]


def test_a_revoked_credential_is_refused(world, ledger, request):
    """What was given out before is not valid any more; a new one is."""
    old = ledger.token()
    world.revoke(request.node.name)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ledger.act("close", key="k", token=old)
    new = ledger.token()
    ledger.act("close", key="k", token=new)

    assert [ledger.is_valid(token) for token in (old, new)] == [False, True]
    assert (world.log(request.node.name).refused, world.log(request.node.name).tokens) == (1, 2)


def test_nobody_else_is_answered(world):
    """The secret in its URL keeps other programs on the machine out."""
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(world.url.rsplit("/", 1)[0] + "/guess/control/log", b"{}")


def test_a_sample_has_both_ends_and_every_marked_point():
    """First, last, and both sides of effects, gates and steps are never left out; the rest is spread evenly."""
    names = [f"http.send.before:{n}" for n in range(50)] + ["effect.call.before:1", "effect.call.after:1"]
    found = [Point(name=name, is_marked=name.startswith("effect")) for name in [*names, *names[:50]]]
    chosen = plan.sample(found, 12)

    assert len(chosen) == 12
    assert (chosen[0], chosen[-1]) == (found[0], found[-1])
    assert [point.name for point in chosen if point.is_marked] == names[50:]
    assert plan.sample(found, None) == found
    assert len(plan.sample(found, 1)) == 4


def test_points_of_all_processes_and_the_waiting_between_them():
    """A process that waits can be killed while it waits, and whoever decides on both sides of the decision."""
    passed = Passage(name="open.after", nth=1, at=0)
    legs = [
        Ended(outcome="waiting", passages=[passed], ended_at=1),
        Ended(outcome="done", passages=[passed], ended_at=1),
    ]
    found_points = plan.points(legs)
    found = [(point.name, point.leg) for point in found_points]

    assert found == [("open.after", 0), *[(n, 0) for n in ("gate.waiting", *plan.DECIDING)], ("open.after", 1)]
    assert plan.named(found_points, ["open.after", "gate.waiting:2"]) == [found_points[0], found_points[-1]]


def test_random_moments_are_between_passages_and_repeatable():
    """Half of them fall anywhere in the time of the run, half between any two passages, and a seed draws them again."""
    passages = [Passage(name="open.after", nth=n, at=100 + at) for n, at in enumerate((3.0, 3.1, 3.2), 1)]
    legs = [Ended(outcome=o, passages=passages, began_at=100, ended_at=104) for o in ("waiting", "done")]
    found = plan.at_random(legs, 60, seed=1)

    assert found == plan.at_random(legs, 60, seed=1)
    assert {point.leg for point in found} == {0, 1}
    assert {point.passed for point in found[::2]} >= {0, 3}
    assert {point.passed for point in found[1::2]} == {1, 2}
    assert all(0 <= point.delay_s <= 3 for point in found)


def test_calls_at_once_are_counted():
    """Three overlap at most; one that ends when the next begins does not overlap with it."""
    sent = [(0, 4), (1, 2), (1, 3), (2, 3), (5, None)]
    assert most_at_once(tuple(Sent(key="k", at=a, done_at=b, known=True, life=0) for a, b in sent)) == 3
    assert most_at_once(()) == 0


def test_effects_that_say_nothing_are_named(tmp_path):
    """By name and cell, however the decorator is written; one that says what stands in for it is not."""
    bare = "@effect(key='k')\ndef bare(): ..."
    said = "@resumable_nb.effect(key='k', rehearsal=True)\ndef said(): ..."
    never = "%%resumable x\n@resumable_nb.effect(key='k', rehearsal=False)\nasync def never(): ..."
    path = write(tmp_path / "nb.ipynb", bare, said, never, "!ls\nnot python (")

    assert undeclared_effects(path) == ["`bare` in cell 2 of 5", "`never` in cell 4 of 5"]


@pytest.mark.parametrize("notebook", sorted(demo._notebook().parent.glob("*.ipynb")), ids=lambda path: path.name)
def test_the_notebooks_of_this_repository_can_be_verified(notebook):
    """Each of their effects says what stands in for it."""
    assert undeclared_effects(notebook) == []


@pytest.mark.parametrize("rehearsal", [True, "function", "own"])
def test_a_rehearsed_effect_acts_on_the_ledger(rehearsal, world, ledger, request, tmp_path, monkeypatch):
    """In place of the function, unless that goes to the ledger on its own; the receipt is what was said."""
    monkeypatch.setenv("RESUMABLE_NB_LEDGER", ledger._url)
    done: list[str] = []

    def close(ticket: str, *, idempotency_key: str) -> object:
        done.append(ticket)
        return ledger.act("close", key=idempotency_key, receipt={"own": ticket})

    told = (lambda ticket: {"made": ticket}) if rehearsal == "function" else rehearsal
    declared = effect(key="close-{ticket}", lookup=lambda key: None, rehearsal=told)(close)
    with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as thread:
        receipt = thread.step("close", lambda: declared("41"))

    (act,) = world.log(ledger._url.split("/")[-2]).acts
    wanted = {True: {"effect": "close", "key": "close-41"}, "function": {"made": "41"}, "own": {"own": "41"}}
    assert (act["key"], act["effect"]) == ("close-41", "close")
    assert receipt == act["receipt"] == wanted[rehearsal]
    assert done == (["41"] if rehearsal == "own" else [])


def test_under_verify_an_effect_that_says_nothing_is_not_run(ledger, tmp_path: Path, monkeypatch):
    """Also one that the look at the cells could not see, such as one in a module."""
    monkeypatch.setenv("RESUMABLE_NB_LEDGER", ledger._url)
    done: list[int] = []
    with resumable_nb.open("t", db=tmp_path / "t.duckdb", say=lambda _: None) as thread:
        mail = effect(key="k")(lambda: done.append(1))
        with pytest.raises(UsageError, match="does not say what stands in for it"):
            thread.step("send", mail)

    assert done == []
