"""What real servers answer to `ask`: refusals of a parameter, thoughts before the answer, fences, tools, no text.

The shapes are those of public reports: DeepSeek (BerriAI/litellm#7580, khoj-ai/khoj#1336), Groq (dzhng/deep-research#127),
vLLM (vllm-project/vllm#16321, #13375, #50948, #12165, #20409), llama.cpp (ggml-org/llama.cpp#11847, #15780, #19774), LM
Studio, OpenAI (ITSpecialist111/ai_automation_suggester#38), Azure (stanford-crfm/helm#3327), Mistral, Ollama.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from openai import APIStatusError, BadRequestError
from pydantic import BaseModel

import resumable_nb
from resumable_nb.errors import AnswerRejected, PromptTooLong
from resumable_nb.llm import dialects
from resumable_nb.llm.ask import aask, ask
from tests.support.model_server import ModelServer


class Risk(BaseModel):
    name: str
    score: int


GOOD = '{"name": "ice", "score": 3}'
RISK = Risk(name="ice", score=3)
NO_SCHEMA = {
    "DeepSeek": (400, "This response_format type is unavailable now"),
    "DeepSeek before": (422, "Failed to deserialize: response_format.type `json_schema` is unavailable now"),
    "Groq": (400, "'response_format.type' : value is not one of the allowed values ['text','json_object']"),
    "vLLM": (400, "The provided JSON schema contains features not supported by xgrammar."),
    "llama.cpp": (400, 'Either "json_schema" or "grammar" can be specified, but not both'),
    "OpenAI": (400, "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."),
}
TOO_LONG = {
    "OpenAI": (400, "This model's maximum context length is 4097 tokens. However, you requested 4120 tokens."),
    "OpenAI, megabytes": (400, "Invalid 'messages[1].content': string too long. Expected a string with maximum length"),
    "vLLM": (400, "The prompt (total length 25938) is too long to fit into the model (context length 4096)."),
    "vLLM before": (400, "The decoder prompt (length 17772) is longer than the maximum model length of 16384."),
    "vLLM output": (
        400,
        "'max_tokens' is too large: 4096. This model's maximum context length is 4096 tokens and you have 35 in it",
    ),
    "llama.cpp": (400, "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it"),
    "llama.cpp before": (400, "the request exceeds the available context size. try increasing the context size"),
    "Ollama": (400, "the input length exceeds the context length"),
    "LM Studio": (400, "The number of tokens to keep from the initial prompt is greater than the context length"),
    "Mistral": (400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
    "Anthropic": (400, "prompt is too long: 215000 tokens > 200000 maximum"),
    "Gemini": (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
    "Groq": (413, "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 7000"),
    "a gateway": (413, "Request Entity Too Large"),
}
NO_MAX_TOKENS = {
    "error": {
        "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
        "instead.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "unsupported_parameter",
    }
}


def error(status: int, told: str, **more: Any) -> dict[str, Any]:
    return {"status": status, "json": {"error": {"message": told, "type": "invalid_request_error", **more}}}


def message(finish_reason: str = "stop", **said: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": None, **said}}
    return {"json": {"id": "x", "object": "chat.completion", "choices": [choice]}}


@pytest.fixture(autouse=True)
def _nothing_learned() -> Iterator[None]:
    dialects._elsewhere.clear()
    yield
    dialects._elsewhere.clear()


def step(db: Path, question: Any) -> Any:
    """In a session of its own, as in a new process: nothing is known but what the store knows."""
    dialects._elsewhere.clear()
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        return thread.step("s", question)


@pytest.mark.parametrize("refusal", NO_SCHEMA.values(), ids=NO_SCHEMA.keys())
@pytest.mark.parametrize("way", ["whole", "streamed", "async"])
def test_a_refused_schema_is_asked_for_in_words(way: str, refusal: tuple[int, str], server: ModelServer):
    """The schema stands in the prompt then, and the next question asks so at once."""
    server.script(error(*refusal), {"text": f"```json\n{GOOD}\n```", "times": 9})

    def asked() -> Any:
        if way == "async":
            return asyncio.run(aask("Q1", Risk))
        return ask("Q1", Risk, stream=way == "streamed")

    assert asked() == RISK
    body = server.last()["body"]
    assert "response_format" not in body
    assert '"score"' in body["messages"][-1]["content"]
    assert asked() == RISK
    assert server.asked() == 3


@pytest.mark.parametrize("wanted", [Risk, Literal["yes", "no"], list[int]])
def test_the_words_ask_for_every_form(wanted: Any, server: ModelServer):
    """Also for those that are no model: their value stands in `answer`."""
    answer = {Risk: GOOD, list[int]: '{"answer": [1, 2]}'}.get(wanted, '{"answer": "yes"}')
    server.script(error(400, "response_format is not supported"), {"text": answer})

    assert ask("Q1", wanted) in (RISK, "yes", [1, 2])


@pytest.mark.parametrize("refusal", TOO_LONG.values(), ids=TOO_LONG.keys())
@pytest.mark.parametrize("way", ["whole", "streamed", "async"])
def test_a_prompt_that_is_too_long_is_told(way: str, refusal: tuple[int, str], server: ModelServer):
    """It is asked once, and the error says what the server said."""
    server.script(error(*refusal))

    with pytest.raises(PromptTooLong, match=r"takes no prompt of [\d,]+ characters") as caught:
        asyncio.run(aask("Q1", Risk)) if way == "async" else ask("Q1", Risk, stream=way == "streamed")
    assert refusal[1][:40] in str(caught.value)
    assert server.asked() == 1


@pytest.mark.parametrize(
    ("status", "told"),
    [(400, "Invalid value for 'messages'"), (401, "your context window exceeded"), (404, "no model"), (422, "input")],
)
def test_another_error_is_not_taken_for_one(status: int, told: str, server: ModelServer):
    """It stays what it is."""
    server.script(error(status, told))

    with pytest.raises(APIStatusError):
        ask("Q1")


def test_what_is_too_long_is_known_after_a_crash_until_it_is_asked_afresh(server: ModelServer, tmp_path: Path):
    """A replay sends nothing, and gets the same error; another step does not know it, nor does `fresh`."""
    db = tmp_path / "t.duckdb"
    server.script(error(*TOO_LONG["OpenAI"]))

    def question() -> str:
        try:
            return ask("Q1")
        except PromptTooLong as too_long:
            return str(too_long)

    def again() -> str:
        return question()

    first = step(db, question)
    assert step(db, again) == first and "maximum context length" in first
    assert server.asked() == 1
    with resumable_nb.open("t", db=db, say=lambda _: None) as thread:
        assert thread.step("other", question) == "AQ1-2"
        thread.fresh("s")
        assert thread.step("s", again) == "AQ1-3"


def test_what_was_learned_is_known_after_a_crash(server: ModelServer, tmp_path: Path):
    """A replay asks as the first run did, so nothing is sent again; each form is learned by itself."""
    db = tmp_path / "t.duckdb"
    server.script({"text": '{"answer": 7}'}, error(400, "schema not supported by grammar"), {"text": GOOD})
    server.script(error(400, NO_MAX_TOKENS["error"]["message"]), {"text": "short"})

    def question() -> tuple[Any, ...]:
        return ask("Q1", int), ask("Q2", Risk), ask("Q3", max_tokens=9)

    def again() -> tuple[Any, ...]:
        return question()

    assert step(db, question) == step(db, again) == (7, RISK, "short")
    assert server.asked() == 5
    assert server.last()["body"]["max_completion_tokens"] == 9


def test_the_limit_of_tokens_goes_by_the_name_that_the_server_takes(server: ModelServer):
    """The other name is tried once; an error about anything else is raised as it is."""
    server.script({"status": 400, "json": NO_MAX_TOKENS}, {"text": "one"}, {"text": "two"})

    assert [ask("Q1", max_tokens=5), ask("Q2", max_tokens=5)] == ["one", "two"]
    assert server.asked() == 3

    for told in ("max_tokens is too large: 5000000", "messages: at least one is wanted"):
        server.script(error(400, told))
        with pytest.raises(BadRequestError, match=told[:10]):
            ask("Q3", Risk, max_tokens=5)
    assert server.asked("Q3") == 2


def test_a_stream_is_not_asked_for_its_tokens_where_that_is_refused(server: ModelServer):
    """As Mistral (openai/openai-agents-python#442) and Fireworks (FlowiseAI/Flowise#2866) do."""
    detail = [{"type": "extra_forbidden", "loc": ["body", "stream_options", "include_usage"]}]
    server.script(
        {"status": 422, "json": {"object": "error", "message": {"detail": detail}}}, {"text": GOOD, "times": 2}
    )

    assert [ask("Q1", Risk, stream=True), ask("Q2", Risk, stream=True)] == [RISK, RISK]
    assert server.asked() == 3
    assert server.last()["body"].keys() >= {"response_format", "stream"}
    assert "stream_options" not in server.last()["body"]


def test_a_server_that_takes_nothing_is_not_asked_for_ever(server: ModelServer):
    """Each way is tried once, then its error is raised."""
    server.script(error(400, "'max_tokens' and response_format are not supported", times=9) | {"times": 9})

    with pytest.raises(BadRequestError):
        ask("Q1", Risk, max_tokens=5)

    assert server.asked() == 3


THOUGHTS = [
    f"<think>\nIs it {{snow}}? No.\n</think>\n\n{GOOD}",
    f"Is it snow? No.\n</think>\n\n{GOOD}",
    f'<think>{{"name": "snow", "score": 1}}</think>```json\n{GOOD}\n```',
    f"[THINK]Is it snow?[/THINK]{GOOD}",
    f"Here is the JSON:\n```json\n{GOOD}\n```\nAsk me for more!",
    f'For example {{"name": "x", "score": 0}}. My answer:\n{GOOD}',
    f"```\n{GOOD}\n```",
    f"Sure! {GOOD} I hope this helps.",
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", THOUGHTS)
def test_an_answer_is_found_behind_thoughts_and_between_words(text: str, stream: bool, server: ModelServer):
    """Reasoning models whose server leaves their thoughts in the text, fences, words before and after; the last counts."""
    server.script({"text": text})

    assert ask("Q1", Risk, retries=0, stream=stream) == RISK


class Loose(BaseModel):
    name: str = ""
    parts: list[dict[str, str]] = []


@pytest.mark.parametrize(
    ("text", "finish_reason"),
    [
        ('{"name": "ice", "parts": [{"name": "floe"}, {"na', "stop"),
        ('{"name": "ice", "parts": [{"name": "floe"}', "length"),
        (f"{GOOD} and more, such as", "length"),
        ("<think>It may be ice, or", "length"),
        ("<think>It is ice.</think>", "stop"),
    ],
)
def test_a_part_of_an_answer_is_no_answer(text: str, finish_reason: str, server: ModelServer):
    """Half a JSON, an answer that was cut off, nothing but thoughts."""
    server.script({"text": text, "finish_reason": finish_reason})

    with pytest.raises(AnswerRejected):
        ask("Q1", Loose, retries=0)


def test_a_text_comes_without_the_thoughts(server: ModelServer):
    """Only those that stand before it; an answer that talks about the tag keeps it."""
    server.script({"text": "<think>Hm.</think>\n\nIt is ice."}, {"text": "Close it with </think>."})
    server.script({"text": "<think>Hm, it may", "finish_reason": "length"})

    assert [ask("Q1"), ask("Q2")] == ["It is ice.", "Close it with </think>."]
    with pytest.raises(AnswerRejected, match=r"without text \(finish reason: length\)"):
        ask("Q3")


def test_content_in_parts_is_read(server: ModelServer):
    """As Mistral's reasoning models give it."""
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": GOOD}]
    server.script(message(content=parts))

    assert ask("Q1", Risk, retries=0) == RISK


def streamed(*deltas: dict[str, Any], finish_reason: str = "stop") -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta} for delta in deltas]
    choices += [{"index": 0, "delta": {}, "finish_reason": finish_reason}]
    chunks = [{"id": "x", "object": "chat.completion.chunk", "choices": [choice]} for choice in choices]
    return {"events": [*(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks), "data: [DONE]\n\n"]}


def test_a_stream_of_any_shape_is_read(server: ModelServer):
    """Content in parts, an answer among the reasoning, a tool call, chunks without choices."""
    parts = [{"content": [{"type": "thinking", "thinking": []}]}, {"content": [{"type": "text", "text": GOOD}]}]
    pieces = [{"reasoning_content": GOOD[:9], "content": None}, {"reasoning_content": GOOD[9:]}]
    tool = [{"tool_calls": [{"index": 0, "function": {"name": "close_ticket", "arguments": ""}}]}]
    tool += [{"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}]
    server.script(streamed(*parts), streamed(*pieces), streamed(*tool, finish_reason="tool_calls"), {"text": GOOD})

    assert [ask(q, Risk, stream=True, retries=0) for q in ("Q1", "Q2")] == [RISK, RISK]
    assert ask("Q3", Risk, stream=True) == RISK
    assert "it called the tool 'close_ticket'" in server.last()["body"]["messages"][-1]["content"]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_an_answer_among_the_reasoning_is_read(name: str, server: ModelServer):
    """vLLM has put the JSON there and no content; a reasoning that is no answer is none."""
    server.script(message(**{name: GOOD}), message("length", **{name: "It may be ice"}))

    assert ask("Q1", Risk, retries=0) == RISK
    with pytest.raises(AnswerRejected, match="cut off"):
        ask("Q2", Risk, retries=0)


def test_a_tool_call_is_no_answer(server: ModelServer):
    """The model is told so and asked again; without a form it is an error that says it."""
    server.script({"tool": "close_ticket"}, {"text": GOOD}, {"tool": "close_ticket"})

    assert ask("Q1", Risk) == RISK
    assert "it called the tool 'close_ticket' instead of answering" in server.last()["body"]["messages"][-1]["content"]
    with pytest.raises(AnswerRejected, match="tool_calls"):
        ask("Q2")


def test_no_choices_are_no_answer(server: ModelServer):
    """Some gateways send none."""
    server.script({"json": {"id": "x", "choices": []}, "times": 9})

    for form in (None, Risk):
        with pytest.raises(AnswerRejected, match=r"without text|does not fit"):
            ask("Q1", form)


def test_a_filter_that_answers_with_an_error_has_refused(server: ModelServer):
    """As Azure's does; asking again would not help."""
    server.script(error(400, "The response was filtered due to the prompt.", code="content_filter", param="prompt"))

    with pytest.raises(AnswerRejected, match=r"refused to answer: .*filtered"):
        ask("Q1", Risk)

    assert server.asked() == 1
