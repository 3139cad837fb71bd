"""Conversations: what was said is known after a crash, elsewhere, and when it is too old to be sent whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import resumable_nb
from resumable_nb import ResearchState
from resumable_nb.errors import PromptTooLong, UsageError
from resumable_nb.research import Chat, ChatState
from tests.support.research_model import ResearchModel

WISH = "I want to cancel berth 17, not berth 18."
KILLED = """
import os, signal, resumable_nb
from resumable_nb.research import Chat, ChatState
thread = resumable_nb.open("talk", db="t.duckdb", state=ChatState, say=lambda _: None)
thread.step("turn 1", lambda state: Chat(state).say(%r))
thread.step("turn 2", lambda state: (Chat(state).say("Which harbour is it?"), os.kill(os.getpid(), signal.SIGKILL)))
"""


def sent(model: ResearchModel) -> list[dict[str, str]]:
    messages: list[dict[str, str]] = model.last()["body"]["messages"]
    return messages


def opened(db: Path, **options: Any) -> Any:
    return resumable_nb.open("talk", db=db, state=ChatState, say=lambda _: None, **options)


def test_the_talk_goes_on_elsewhere_after_a_crash(model: ResearchModel, tmp_path: Path):
    """What was wanted on turn 1 is known after a kill, to another program that goes on with the thread."""
    ended = subprocess.run([sys.executable, "-c", KILLED % WISH], cwd=tmp_path)
    assert ended.returncode == -9

    with opened(tmp_path / "t.duckdb", start="newest") as thread:
        thread.step("elsewhere", lambda state: Chat(state).say("What did I want?"))
        turns = [(turn.role, turn.text) for turn in thread.state.turns]

    assert [m["role"] for m in sent(model)] == ["system", "user", "assistant", "user"]
    assert sent(model)[1]["content"] == WISH
    assert [text for role, text in turns if role == "user"] == [WISH, "What did I want?"]


def test_the_answer_before_a_crash_is_not_asked_again(model: ResearchModel, tmp_path: Path):
    """The same program run again replays the turn that was answered and not committed."""
    subprocess.run([sys.executable, "-c", KILLED % WISH], cwd=tmp_path)
    before = model.asked()

    with opened(tmp_path / "t.duckdb") as thread:
        thread.step("turn 1", lambda state: Chat(state).say(WISH))
        thread.step("turn 2", lambda state: Chat(state).say("Which harbour is it?"))
        assert len(thread.state.turns) == 4

    assert before == model.asked() == 2


def test_old_turns_are_in_a_summary_within_the_budget(model: ResearchModel, tmp_path: Path):
    """After many turns what is sent stays short, and the wish of turn 1 is still in it."""
    with opened(tmp_path / "t.duckdb") as thread:
        for number, text in enumerate([WISH, *(f"Tell me more about pier {n}. {'word ' * 40}" for n in range(12))]):
            thread.step(f"turn {number}", lambda state, t=text: Chat(state, max_tokens=120).say(t))
        memory, turns = thread.state.memory, thread.state.turns

    system, *rest = sent(model)
    assert "cancel berth 17" in system["content"]
    assert WISH not in [m["content"] for m in rest]
    assert len(turns) == 26 and 0 < memory.turns < 24
    assert len(rest) < 10
    assert all(turn.tokens == 10 for turn in turns if turn.role == "assistant"), "the model's own numbers"


def test_the_summary_is_asked_for_once(model: ResearchModel, tmp_path: Path):
    """It is a journaled call and a part of the state: it is not made again for the next turn, nor after a restart."""
    texts = [WISH, *(f"More about pier {n}? {'word ' * 40}" for n in range(5))]

    def talk() -> Any:
        with opened(tmp_path / "t.duckdb") as thread:
            for number, text in enumerate(texts):
                thread.step(f"turn {number}", lambda state, t=text: Chat(state, max_tokens=120).say(t))
            return thread.state.model_dump()

    first, asked = talk(), model.asked()

    assert talk() == first
    assert model.asked() == asked
    assert asked < 2 * len(texts)


@pytest.mark.parametrize(
    ("longest", "asked_last", "sent_whole"),
    [(2000, "What did I want?", range(2, 14)), (1000, "What did I want? " * 40, range(1))],
)
def test_a_talk_that_is_too_long_for_the_model_is_shortened(
    longest: int, asked_last: str, sent_whole: range, model: ResearchModel, tmp_path: Path
):
    """Older turns, at last all, go into the summary until the prompt fits; a replay sends nothing and says the same."""
    texts = [WISH, *(f"More about pier {n}? {'word ' * 60}" for n in range(6))]

    def talk(last: Any) -> Any:
        with opened(tmp_path / "t.duckdb") as thread:
            for number, text in enumerate(texts):
                thread.step(f"turn {number}", lambda state, t=text: Chat(state).say(t))
            model.script({"marker": "Text", "longest": longest, "times": 99})
            return thread.step("last", last), thread.state.model_dump()

    first = talk(lambda state: Chat(state).say(asked_last))
    asked, (system, *recent, now) = model.asked(), sent(model)

    assert "cancel berth 17" in system["content"] and now["content"] == asked_last
    assert len(recent) in sent_whole
    assert len(first[1]["turns"]) == 16 and first[1]["memory"]["turns"] == 14 - len(recent)
    assert talk(lambda state: str(Chat(state).say(asked_last))) == first
    assert model.asked() == asked


def test_a_talk_that_fits_into_no_prompt_says_so(model: ResearchModel, tmp_path: Path):
    """What was tried, what the model says, and how long what was said is; the turns stay as they were."""
    with opened(tmp_path / "t.duckdb") as thread:
        thread.step("turn", lambda state: Chat(state).say(WISH))
        model.script({"marker": "Text", "longest": 50, "times": 99})
        with pytest.raises(PromptTooLong, match=r"also with the older turns as a summary.*takes no prompt of"):
            thread.step("last", lambda state: Chat(state).say("What did I want?"))

        assert [turn.text for turn in thread.state.turns if turn.role == "user"] == [WISH]


def test_a_state_without_a_conversation_is_refused():
    """The message says which class to take."""
    with pytest.raises(UsageError, match="ChatState"):
        Chat(ResearchState())
