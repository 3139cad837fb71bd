"""The form that an answer is asked for: a JSON schema for the server, and the check of what comes back."""

from __future__ import annotations

import re
from typing import Any

import pydantic

MAX_ITEMS = 8
MAX_LENGTH = 200
_EXCERPT = 200
_FENCED = re.compile(r"\s*```[a-z]*\n(.*?)\n?```\s*", re.DOTALL)
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

    def value(self, text: str, *, cut: bool) -> Any:
        """The validated object.

        Args:
            text: the answer.
            cut: it ended at the limit of tokens.

        Raises:
            Unfit: It does not have the form.
        """
        fenced = _FENCED.fullmatch(text)
        try:
            value: Any = self._model.model_validate_json(fenced[1] if fenced else text)
        except pydantic.ValidationError as error:
            raise Unfit("it was cut off at the limit of tokens." if cut else _reasons(error), text) from error
        return value if self._is_model else value.answer


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
