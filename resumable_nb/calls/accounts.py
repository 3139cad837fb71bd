"""What the accounts say about a call to a language model: provider, operation, models, tokens.

Names and values follow OpenTelemetry's semantic conventions for generative AI (registry `gen_ai.*`), with underscores:
https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resumable_nb.calls.sse import Event

EMBEDDED_HOST = "embedded-model.invalid"
"""Stands for the server of the embedded model, wherever that listens. `.invalid` is reserved: RFC 2606."""

_OPERATIONS = (
    (r"/chat/completions", "chat"),
    (r"/completions", "text_completion"),
    (r"(/v\d+|/openai)/responses", "chat"),
    (r"/v\d+/messages", "chat"),
    (r"(/v\d+|/api)/chat", "chat"),
    (r"/api/generate", "text_completion"),
    (r"/embeddings|/api/embed|/v\d+/embed", "embeddings"),
    (r"/audio/speech", "speech"),
    (r"/audio/(transcriptions|translations)", "transcription"),
    (r"/images/(generations|edits|variations)", "image_generation"),
    (r"/moderations", "moderation"),
    (r"/v\d+/rerank", "rerank"),
    (r"/model/[^/]+/(converse|invoke)(-stream|-with-response-stream)?", "chat"),
    (r":(generate|streamGenerate)Content", "generate_content"),
    (r":(rawPredict|streamRawPredict)", "chat"),
    (r":(batchE|e)mbedContents?", "embeddings"),
)
_OPERATION = [(re.compile(f"(?:{pattern})$"), name) for pattern, name in _OPERATIONS]

_HOSTS = {
    EMBEDDED_HOST: "llama_cpp",
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "amazonaws.com": "aws.bedrock",
    "api.mistral.ai": "mistral_ai",
    "api.groq.com": "groq",
    "api.deepseek.com": "deepseek",
    "api.cohere.com": "cohere",
    "api.x.ai": "x_ai",
    "api.perplexity.ai": "perplexity",
    "openrouter.ai": "openrouter",
}


def operation(method: str, path: str) -> str | None:
    """What a request asks a model to do; None if it asks no model."""
    if method != "POST" or "/threads/" in path:  # a message of an Assistants thread asks nothing
        return None
    return next((name for pattern, name in _OPERATION if pattern.search(path)), None)


def provider(host: str, path: str, headers: Mapping[str, str]) -> str | None:
    """Who answers: by the host, else by the form of the request. What only looks like OpenAI counts as `openai`."""
    for suffix, name in _HOSTS.items():
        if host == suffix or host.endswith("." + suffix):
            return name
    if "anthropic-version" in headers:
        return "anthropic"
    if re.search(r":\w*([gG]enerate|[eE]mbed)Content", path):
        return "gcp.gemini"
    if re.search(r"/api/(chat|generate|embed)", path):
        return "ollama"
    return "openai" if operation("POST", path) else None


def request_model(path: str, body: object) -> str | None:
    """The model that a request names, in its body or its path."""
    model = body.get("model") if isinstance(body, dict) else None
    if isinstance(model, str):
        return model
    named = re.search(r"/(?:models?|deployments)/([^/:]+)", path)
    return named[1] if named else None


@dataclass(slots=True)
class Answered:
    """What an answer says of itself."""

    response_model: str | None = None
    response_id: str | None = None
    response_finish_reasons: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    def columns(self, asked: Mapping[str, str | None]) -> dict[str, Any]:
        """As columns of the journal.

        Args:
            asked: what is known from the request: `provider_name` and `operation_name`.
        """
        told = {name: getattr(self, name) for name in self.__slots__ if name.startswith("response")}
        return {
            "gen_ai_usage_input_tokens": self.input_tokens,
            "gen_ai_usage_output_tokens": self.output_tokens,
            "gen_ai": gen_ai({**asked, **told}),
        }


def gen_ai(told: Mapping[str, str | None]) -> str:
    """What is told, for the column `gen_ai`."""
    return json.dumps({name: value for name, value in told.items() if value is not None}, ensure_ascii=False)


def answered(answer: object) -> Answered:
    """The accounts of a JSON answer of any of the known APIs. What it doesn't say is None."""
    if not isinstance(answer, dict):
        return Answered()
    usage = _mapping(answer, "usage") or _mapping(answer, "usageMetadata")
    return Answered(
        response_model=_text(answer, "model", "modelVersion"),
        response_id=_text(answer, "id", "responseId"),
        response_finish_reasons=", ".join(dict.fromkeys(_reasons(answer))) or None,
        input_tokens=_first(
            _sum(usage, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
            _sum(usage, "prompt_tokens"),
            _sum(usage, "inputTokens"),
            _sum(usage, "promptTokenCount", "toolUsePromptTokenCount"),
            _sum(answer, "prompt_eval_count"),
        ),
        output_tokens=_first(
            _sum(usage, "output_tokens"),
            _sum(usage, "completion_tokens"),
            _sum(usage, "outputTokens"),
            _sum(usage, "candidatesTokenCount", "thoughtsTokenCount"),
            _sum(answer, "eval_count"),
        ),
    )


def _mapping(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _text(value: Mapping[str, Any], *names: str) -> str | None:
    found = next((value[name] for name in names if isinstance(value.get(name), str)), None)
    return found and found.encode("utf-8", "replace").decode()  # half a surrogate pair is no text for the store


def _sum(value: Mapping[str, Any], *names: str) -> int | None:
    """The sum of the counts that are there; None if the first is not: providers count cached tokens apart."""
    counts = [count if isinstance(count := value.get(name), int) and count >= 0 else None for name in names]
    return None if counts[0] is None else sum(count for count in counts if count is not None)


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)


def _reasons(answer: Mapping[str, Any]) -> Iterable[str]:
    for group, name in (("choices", "finish_reason"), ("candidates", "finishReason")):
        several = answer.get(group)
        for one in several if isinstance(several, list) else ():
            if isinstance(one, dict) and isinstance(one.get(name), str):
                yield one[name]
    for name in ("stop_reason", "done_reason", "stopReason"):
        if isinstance(answer.get(name), str):
            yield answer[name]
    if answer.get("object") == "response" and isinstance(answer.get("status"), str):
        yield answer["status"]


# ---------------------------------------------------------------- streams
def assembled(events: Iterable[Event]) -> dict[str, Any] | None:
    """The answer that a stream amounts to, in the form that its API gives without a stream; None: no known form.

    For people who read SQL, and for the accounts; replay uses the exact bytes.
    """
    values = [value for event in events if isinstance(value := event.json, dict)]
    whole = [v["response"] for v in values if isinstance(v.get("response"), dict)]  # the Responses API repeats it all
    if whole:
        return {**whole[-1]}
    if any(value.get("type") == "message_start" for value in values):
        return _messages(values)
    if any("choices" in value for value in values):
        return _choices(values)
    if any("candidates" in value for value in values):
        return _candidates(values)
    return _ollama(values) if any("done" in value for value in values) else None


def _choices(values: list[dict[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for value in values:
        answer.update({name: v for name, v in value.items() if name != "choices" and v is not None})
        for place, one in enumerate(value.get("choices") or []):
            number = one.get("index", place)
            choice = choices.setdefault(number, {"index": number})
            for name, v in one.items():
                if name == "delta" and isinstance(v, dict):
                    _merge(choice.setdefault("message", {}), v)
                elif name == "text":
                    choice["text"] = choice.get("text", "") + v
                elif v is not None and name != "delta":
                    choice[name] = v
    if answer.get("object") == "chat.completion.chunk":
        answer["object"] = "chat.completion"
    return answer | {"choices": [choices[number] for number in sorted(choices)]}


def _merge(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta: texts grow, items of lists are found by their index, the rest is set."""
    for name, value in delta.items():
        old = message.get(name)
        if isinstance(value, str) and isinstance(old, str) and name not in ("role", "type", "id", "name"):
            message[name] = old + value
        elif isinstance(value, dict) and isinstance(old, dict):
            _merge(old, value)
        elif isinstance(value, list):
            _merge_list(message.setdefault(name, []) if isinstance(old, list) or old is None else [], value)
        elif value is not None or name not in message:
            message[name] = dict(value) if isinstance(value, dict) else value


def _merge_list(items: list[Any], deltas: list[Any]) -> None:
    for delta in deltas:
        index = delta.get("index") if isinstance(delta, dict) else None
        same = next((i for i in items if isinstance(i, dict) and index is not None and i.get("index") == index), None)
        if same is None:
            items.append(dict(delta) if isinstance(delta, dict) else delta)
        else:
            _merge(same, {name: value for name, value in delta.items() if name != "index"})


def _messages(values: list[dict[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for value in values:
        match value:
            case {"type": "message_start", "message": dict(message)}:
                answer.update(message)
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                blocks[index] = dict(block)
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                _merge(blocks.setdefault(index, {}), {n: v for n, v in delta.items() if n != "type"})
            case {"type": "message_delta"}:
                answer.update(_mapping(value, "delta"))
                answer["usage"] = _mapping(answer, "usage") | _mapping(value, "usage")
    return answer | {"content": [blocks[index] for index in sorted(blocks)]}


def _candidates(values: list[dict[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    for value in values:
        answer.update({name: v for name, v in value.items() if name != "candidates"})
        for place, one in enumerate(value.get("candidates") or []):
            candidate = candidates.setdefault(one.get("index", place), {"content": {"parts": []}})
            parts = [*candidate["content"]["parts"], *_mapping(one, "content").get("parts", [])]
            candidate.update({name: v for name, v in one.items() if name != "content"})
            candidate["content"] = {**_mapping(one, "content"), "parts": parts}
    return answer | {"candidates": [candidates[index] for index in sorted(candidates)]}


def _ollama(values: list[dict[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for value in values:
        _merge(answer, {n: v for n, v in value.items() if n in ("message", "response")})
        answer.update({n: v for n, v in value.items() if n not in ("message", "response")})
    return answer
