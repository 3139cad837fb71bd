"""The form that an answer is asked for: a JSON schema for the server, and the check of what comes back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pydantic

MAX_ITEMS = 8
MAX_LENGTH = 200
_EXCERPT = 200
_FENCED = re.compile(r"```[a-z]*\n(.*?)\n?```", re.DOTALL)
# What a model thought, where its server leaves that in the answer; DeepSeek's template writes the first tag itself
_THOUGHT = re.compile(r"\s*(?:<think>.*?(?:</think>|\Z)|\[THINK\].*?(?:\[/THINK\]|\Z))\s*", re.DOTALL)
_THOUGHT_UNOPENED = re.compile(r".*(?:</think>|\[/THINK\])\s*", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Unfit(Exception):
    """An answer that does not have the form.

    Attributes:
        why: in words that help a model to do better.
        excerpt: of the answer.
    """

    def __init__(self, why: str, answer: str) -> None:
        super().__init__(why)
        self.why, self.excerpt = why, _excerpt(answer)


class Form:
    """A type that an answer is to have.

    Args:
        wanted: a pydantic model or any type that pydantic understands.
        bounded: give every list a `maxItems` and every text a `maxLength`. A small model runs on without.
    """

    def __init__(self, wanted: Any, *, bounded: bool) -> None:
        self._is_model = isinstance(wanted, type) and issubclass(wanted, pydantic.BaseModel)
        self.name = getattr(wanted, "__name__", None) or str(wanted)
        self._model = wanted if self._is_model else pydantic.create_model("Answer", answer=(wanted, ...))
        self._bounded = bounded

    @property
    def response_format(self) -> dict[str, Any]:
        """The argument of `chat.completions.create`, with a schema that OpenAI's strict mode takes."""
        import openai

        function: Any = openai.pydantic_function_tool(self._model)["function"]
        schema = function["parameters"]
        name = re.sub(r"[^A-Za-z0-9_-]", "_", self._model.__name__)[:64]
        schema = bounded(schema) if self._bounded else schema
        return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}

    @property
    def instruction(self) -> str:
        """The same in words, for a server that takes no schema."""
        schema = self.response_format["json_schema"]["schema"]
        return f"Answer with JSON only, without any other text. It has to fit this JSON schema:\n{json.dumps(schema)}"

    def value(self, text: str, *, cut: bool) -> Any:
        """The validated object.

        Args:
            text: the answer.
            cut: it ended at the limit of tokens.

        Raises:
            Unfit: It does not have the form.
        """
        first: pydantic.ValidationError | None = None
        for candidate in _candidates(text, cut=cut):
            try:
                value: Any = self._model.model_validate_json(candidate)
            except pydantic.ValidationError as error:
                first = first or error
            else:
                return value if self._is_model else value.answer
        raise Unfit("it was cut off at the limit of tokens." if cut or first is None else _reasons(first), text)


def without_thought(text: str) -> str:
    """An answer without what the model thought before it; "" if it did nothing but think."""
    thought = _THOUGHT.match(text)
    return text[thought.end() :] if thought else text


def _candidates(text: str, *, cut: bool) -> Iterator[str]:
    """Where an answer in JSON may stand: all of it, or behind thoughts, in a fence, between other words; last first.

    Of an answer that was cut off, no part stands for the whole.
    """
    spoken = _THOUGHT_UNOPENED.sub("", without_thought(text), count=1)
    yield spoken
    if not cut:
        yield from reversed(_FENCED.findall(spoken))
        yield from reversed(list(_objects(spoken)))


def _objects(text: str) -> Iterator[str]:
    """The JSON objects in a text, up to the first that does not end: what is within that one is only part of it."""
    at = text.find("{")
    while at >= 0:
        try:
            _, end = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield text[at:end]
        at = text.find("{", end)


def bounded(schema: Any) -> Any:
    """A copy of a JSON schema in which no list and no text may be endless."""
    if isinstance(schema, list):
        return [bounded(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {name: bounded(part) for name, part in schema.items()}
    if copy.get("type") == "array":
        copy.setdefault("maxItems", max(MAX_ITEMS, copy.get("minItems", 0)))
    if copy.get("type") == "string" and not copy.keys() & {"enum", "const", "pattern", "format"}:
        copy.setdefault("maxLength", max(MAX_LENGTH, copy.get("minLength", 0)))
    return copy


def _reasons(error: pydantic.ValidationError) -> str:
    reasons = []
    for one in error.errors(include_url=False, include_context=False, include_input=False)[:3]:
        where = ".".join(str(part) for part in one["loc"])
        reasons.append(f"{where}: {one['msg']}" if where else one["msg"])
    return "; ".join(reasons) + "."


def _excerpt(text: str) -> str:
    clean = _CONTROL.sub(" ", text)
    return repr(clean if len(clean) <= _EXCERPT else f"{clean[:_EXCERPT]}…")
