"""`ask`: the state in the prompt, text or an object back, and answers that do not fit."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Literal

import openai
import pydantic
import pytest

from resumable_nb import AsyncOpenAI, OpenAI, ask, context_message
from resumable_nb.errors import AnswerRejected, CallError, NoModel, UsageError
from resumable_nb.llm.ask import aask
from resumable_nb.llm.forms import Form, bounded
from tests.calls.fake_scope import MemoryJournal, phases, running

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer


class Risk(pydantic.BaseModel):
    name: str
    score: int


GOOD = json.dumps({"name": "ice", "score": 3})


def sent(server: ModelServer) -> dict[str, Any]:
    body: dict[str, Any] = server.last()["body"]
    return body


def test_the_state_is_in_the_prompt(server: ModelServer, journal: MemoryJournal) -> None:
    """Instructions and what is known go first, as the system; the question is the user's."""
    with running(journal, known="# Findings\n- solar grows"):
        assert ask("Q1 why?", instructions="Be brief.") == "AQ1-1"

    assert sent(server)["messages"] == [
        {"role": "system", "content": "Be brief.\n\n# Findings\n- solar grows"},
        {"role": "user", "content": "Q1 why?"},
    ]


def test_other_clients_get_the_state_as_a_message(journal: MemoryJournal) -> None:
    """`context_message()` is the state as a system message; without a thread there is none to give."""
    with running(journal, known="# Plan"):
        assert context_message() == {"role": "system", "content": "# Plan"}

    with pytest.raises(UsageError, match="resumable open"):
        context_message()


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_replayed(
    stream: bool, server: ModelServer, journal: MemoryJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole or streamed, the same question in the same state is asked once; a stream is printed each time."""
    for _ in range(2):
        with running(journal):
            assert ask("Q1", stream=stream) == "AQ1-1"

    assert server.asked("Q1") == 1
    assert capsys.readouterr().out == ("AQ1-1\n" * 2 if stream else "")


def test_a_streamed_answer_is_in_the_accounts(server: ModelServer, journal: MemoryJournal) -> None:
    """`ask` makes the server tell the tokens of a stream."""
    with running(journal):
        ask("Q1", stream=True)

    assert journal.read()[-1].gen_ai_usage_output_tokens == 10


async def _both(stream: bool) -> list[Any]:
    return [
        *await asyncio.gather(*[aask(f"Q{i}", stream=stream) for i in range(1, 4)]),
        await aask("Q9", Risk, stream=stream),
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_the_async_twin(stream: bool, server: ModelServer, journal: MemoryJournal) -> None:
    """`aask` does the same for async code, in parallel, over several event loops."""
    results = []
    for _ in range(2):
        with running(journal):
            results.append(asyncio.run(_both(stream)))

    assert results[0] == results[1] == ["AQ1-1", "AQ2-1", "AQ3-1", Risk(name="AQ9-1", score=1)]
    assert server.asked() == 4


# ---------------------------------------------------------------- forms
@pytest.mark.parametrize("stream", [False, True])
def test_a_model_comes_back(stream: bool, server: ModelServer, journal: MemoryJournal) -> None:
    """With `response_format` the schema is sent, strictly, and the validated object comes back."""
    with running(journal):
        assert ask("Q1", Risk, stream=stream) == Risk(name="AQ1-1", score=1)

    form = sent(server)["response_format"]["json_schema"]
    assert (form["name"], form["strict"]) == ("Risk", True)
    assert form["schema"]["required"] == ["name", "score"]
    assert form["schema"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("wanted", "value"),
    [(list[str], ["AQ1-1"]), (Literal["yes", "no"], "yes"), (int, 1), (list[Risk], [Risk(name="AQ1-1", score=1)])],
)
def test_any_type_will_do(wanted: Any, value: Any, server: ModelServer, journal: MemoryJournal) -> None:
    """What pydantic understands is a form; servers want an object, which the caller never sees."""
    with running(journal):
        assert ask("Q1", wanted) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"name": "ice", "sco', "cut off"),
        ('{"name": "ice"}', "score: Field required"),
        ("I think it is ice.", "Invalid JSON"),
        ('{"name": "ice", "score": "high"}', "score: Input should be a valid integer"),
    ],
)
def test_an_answer_that_does_not_fit_is_asked_for_again(
    text: str, why: str, server: ModelServer, journal: MemoryJournal
) -> None:
    """A new, counted request tells the model what was wrong; both answers are replayed."""
    server.script({"text": text, "finish_reason": "length" if why == "cut off" else "stop"}, {"text": GOOD})

    for _ in range(2):
        with running(journal):
            assert ask("Q1", Risk) == Risk(name="ice", score=3)

    assert server.asked("Q1") == 2
    assert why in sent(server)["messages"][-1]["content"]
    assert phases(journal) == ["started", "done"] * 2


def test_an_answer_that_never_fits_is_rejected_once(server: ModelServer, journal: MemoryJournal) -> None:
    """Attempts are bounded; the error says if the answer is a recorded one, and how to ask anew; none is paid twice."""
    server.script({"text": "no idea", "times": 9})

    with running(journal), pytest.raises(AnswerRejected, match="in 2 attempts: its answer 'no idea'"):
        ask("Q1", Risk)
    with running(journal), pytest.raises(AnswerRejected, match="the recorded answer 'no idea'") as caught:
        ask("Q1", Risk)

    assert "`%resumable fresh s` asks anew" in str(caught.value)
    assert server.asked("Q1") == 2


def test_no_attempt_more_than_wanted(server: ModelServer, journal: MemoryJournal) -> None:
    """`retries=0` asks once."""
    server.script({"text": "no idea", "times": 9})

    with running(journal), pytest.raises(AnswerRejected):
        ask("Q1", Risk, retries=0)

    assert server.asked("Q1") == 1


def test_a_fenced_answer_is_read(server: ModelServer, journal: MemoryJournal) -> None:
    """Servers that ignore the schema often have models that fence their JSON."""
    server.script({"text": f"```json\n{GOOD}\n```"})

    with running(journal):
        assert ask("Q1", Risk) == Risk(name="ice", score=3)


def test_a_refusal_is_no_answer(server: ModelServer, journal: MemoryJournal) -> None:
    """A refusal, a content filter and an answer without text raise; asking again would not help."""
    message = {"role": "assistant", "content": None, "refusal": "I will not."}
    answers = [
        {"index": 0, "finish_reason": "stop", "message": message},
        {"index": 0, "finish_reason": "content_filter", "message": {"role": "assistant", "content": ""}},
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}},
    ]
    server.script(*[{"json": {"id": "x", "choices": [answer]}} for answer in answers])

    for words in ("I will not", "content filter", "without text"):
        with running(journal), pytest.raises(AnswerRejected, match=words):
            ask(f"Q1 {words}", Risk if "not" in words else None)

    assert server.asked("Q1") == 3


@pytest.mark.parametrize("thread", [True, False])
def test_half_a_stream_is_no_answer(thread: bool, server: ModelServer, journal: MemoryJournal) -> None:
    """A stream that just ends raises, with a thread open and without; the next run has the whole."""
    server.script({"keep": 2})

    def work() -> str:
        if not thread:
            return ask("Q1", stream=True)
        with running(journal):
            return ask("Q1", stream=True)

    with pytest.raises((CallError, openai.APIConnectionError)):
        work()

    assert work() == "AQ1-2"
    assert server.asked("Q1") == 2


def test_a_cut_text_is_said(server: ModelServer, journal: MemoryJournal) -> None:
    """A text that ended at a limit nobody chose is returned, and the person is told."""
    server.script({"text": "It is", "finish_reason": "length"})

    with running(journal) as scope:
        assert ask("Q1") == "It is"

    assert any("cut off at the limit" in notice for notice in scope.notices)


# ---------------------------------------------------------------- who answers
def test_who_answers_is_said_once(server: ModelServer, journal: MemoryJournal) -> None:
    """One line names the model and where it is, when it first answers, and not for replays."""
    for _ in range(2):
        with running(journal) as scope:
            ask("Q1", model="m1")
            ask("Q2", model="m1")
        assert scope.notices in ([], ["m1 answers, at 127.0.0.1"])
    with running(journal) as scope:
        ask("Q1", model="m1")
    assert scope.notices == []


def test_which_model_is_asked(server: ModelServer, journal: MemoryJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument outranks `RESUMABLE_NB_MODEL`, which outranks the default."""
    ask("Q1")
    assert sent(server)["model"] == "gpt-5.4-mini"

    monkeypatch.setenv("RESUMABLE_NB_MODEL", "llama3.3")
    ask("Q1")
    assert sent(server)["model"] == "llama3.3"

    ask("Q1", model="mine", client=OpenAI(), temperature=0.5, top_p=0.9)
    assert (sent(server)["model"], sent(server)["temperature"], sent(server)["top_p"]) == ("mine", 0.5, 0.9)


def test_a_model_that_is_not_there(server: ModelServer) -> None:
    """A 404 says how to name another model."""
    server.script({"status": 404})

    with pytest.raises(openai.NotFoundError) as caught:
        ask("Q1")

    assert "RESUMABLE_NB_MODEL" in caught.value.__notes__[0]


@pytest.mark.parametrize("client", [openai.OpenAI(api_key="k"), object()])
def test_a_client_that_journals_nothing_is_refused(client: Any) -> None:
    """A plain client's answers would be paid again after a crash."""
    with pytest.raises(UsageError, match=r"resumable_nb\.OpenAI"):
        ask("Q1", client=client)


def test_the_async_twin_takes_a_client(server: ModelServer, journal: MemoryJournal) -> None:
    """`aask(client=…)` asks that client."""

    async def work() -> str:
        async with AsyncOpenAI() as client:
            return await aask("Q1", client=client)

    with running(journal):
        assert asyncio.run(work()) == "AQ1-1"


def test_no_model_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no key, no server and nothing embedded the error tells the three ways to get a model."""
    monkeypatch.setattr("resumable_nb.llm.embedded.is_installed", lambda: False)

    for attempt in (lambda: ask("Q1"), OpenAI, AsyncOpenAI):
        with pytest.raises(NoModel) as caught:
            attempt()
        assert all(word in str(caught.value) for word in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "resumable-nb[local]"))


# ---------------------------------------------------------------- schemas
class Nested(pydantic.BaseModel):
    tags: list[str]
    kind: Literal["a", "b"]
    when: str = pydantic.Field(pattern=r"\d{4}")
    many: list[Risk] = pydantic.Field(max_length=3)
    note: str | None = None


def test_every_list_and_text_of_a_small_model_is_bounded() -> None:
    """Whatever the form, no list and no free text of its schema may be endless; limits of its own stay."""
    schema = Form(Nested, bounded=True).response_format["json_schema"]["schema"]

    def check(part: Any) -> None:
        if isinstance(part, dict):
            if part.get("type") == "array":
                assert part["maxItems"] <= 8
            if part.get("type") == "string":
                assert part.keys() & {"maxLength", "enum", "const", "pattern"}
            for inner in part.values():
                check(inner)
        elif isinstance(part, list):
            for inner in part:
                check(inner)

    check(schema)
    assert schema["properties"]["many"]["maxItems"] == 3
    assert bounded({"type": "array", "minItems": 20})["maxItems"] == 20


def test_an_unknown_option_names_the_nearest(server: ModelServer, journal: MemoryJournal) -> None:
    """A typing error in an option is told in one sentence, before anything is sent."""
    with running(journal), pytest.raises(UsageError, match=r"no option `max_token`.*Do you mean `max_tokens`\?"):
        ask("Q", client=OpenAI(base_url=server.base_url, api_key="none"), max_token=3)
    assert server.asked() == 0
