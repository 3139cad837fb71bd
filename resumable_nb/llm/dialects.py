"""What servers that speak OpenAI's protocol do not take, learned from how they refuse it.

A server may refuse a JSON schema (DeepSeek, Groq: "This response_format type is unavailable now"; vLLM: "features not
supported by xgrammar"; LM Studio, llama.cpp: the schema or its grammar), one of the two names of the limit of tokens
(OpenAI's newer models: "'max_tokens' is not supported with this model"; they want `max_completion_tokens`), or to tell
the tokens of a stream (Mistral, Fireworks: "Extra inputs are not permitted"). What was learned is kept in the thread:
requests match by what they ask, so a replay has to ask as the first run did.

A prompt may also be too long. That, too, is kept, for the step that asked: a replay sends nothing again, `%resumable
fresh` forgets it.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from resumable_nb.calls.protocol import current_scope
from resumable_nb.journal import Row
from resumable_nb.scope import Scope

if TYPE_CHECKING:
    import openai

_REFUSED_FORM = re.compile(r"response.?format|json.?schema|grammar|guided|structured.?output", re.IGNORECASE)
_REFUSED_OPTIONS = re.compile(r"stream_options|include_usage")
_STREAM_OPTIONS = "stream_options"
# As OpenAI, vLLM, llama.cpp, Ollama, LM Studio, Mistral, Gemini, xAI, Moonshot, Groq and TGI say it; see the tests
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum (?:context|model|prompt) length"
    r"|exceed\w*[^.]{0,80}context (?:length|window|size)|context (?:length|window|size)[^.]{0,40}exceed"
    r"|greater than the context length|(?:prompt|input)\b[^.]{0,40} too long|reduce the length of the"
    r"|too large for model|token count[^.]{0,40} exceeds|exceeded model token limit|must have less than \d+ tokens"
    r"|too many (?:input )?tokens|content\S{0,3} string too long",
    re.IGNORECASE,
)
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)  # more tokens than may be sent in a minute
_UNKNOWN = re.compile(r"not supported|unsupported|unrecogni[sz]ed|unknown|not permitted|extra", re.IGNORECASE)
_LIMITS = ("max_tokens", "max_completion_tokens")
_elsewhere: dict[str, set[str]] = {}  # where no thread is open: for as long as the process lives


class Dialect:
    """What one model is known not to take.

    Args:
        model: its name.
        base_url: of its server.
        schema: that its answers are to have; None: a text.
    """

    def __init__(self, model: str, base_url: object, schema: Any) -> None:
        self._model, self._place = model, f"{base_url} {model}"
        told = json.dumps(schema, sort_keys=True)
        # By form: what was asked with one schema before another was refused is asked with it again
        self._form = f"schema {hashlib.sha256(told.encode()).hexdigest()[:12]}"

    @property
    def _refused(self) -> set[str]:
        running = current_scope()
        if not isinstance(running, Scope):
            return _elsewhere.get(self._place, set())
        return running.thread.fold.refused.get(self._model, set())

    @property
    def takes_schema(self) -> bool:
        """Whether it may be asked with this schema."""
        return self._form not in self._refused

    @property
    def takes_stream_options(self) -> bool:
        """Whether a stream may be asked to tell its tokens; else the accounts have none."""
        return _STREAM_OPTIONS not in self._refused

    def limit_name(self, usual: str) -> str:
        """What it calls the limit of tokens."""
        other = _LIMITS[1 - _LIMITS.index(usual)]
        return other if usual in self._refused else usual

    def learn(self, error: openai.APIStatusError, request: dict[str, Any]) -> bool:
        """Whether an error says that the same can be asked in other words; then it will be."""
        told = f"{error.message} {json.dumps(error.body, default=str)}"
        if error.status_code not in (400, 422):
            return False
        if _STREAM_OPTIONS in request and self.takes_stream_options and _REFUSED_OPTIONS.search(told):
            return self._keep(_STREAM_OPTIONS)
        limit = next((name for name in _LIMITS if name in request and re.search(rf"\b{name}\b", told)), None)
        if limit and _UNKNOWN.search(told) and not self._refused & set(_LIMITS):
            return self._keep(limit)
        if "response_format" in request and self.takes_schema and _REFUSED_FORM.search(told):
            return self._keep(self._form)
        return False

    def _keep(self, refused: str) -> bool:
        running = current_scope()
        if not isinstance(running, Scope):
            _elsewhere.setdefault(self._place, set()).add(refused)
        else:
            told = {"model": self._model, "refused": refused}
            running.append(Row(kind="notice", name="refused", data=json.dumps(told)))
        return True


def words_of(error: openai.APIStatusError) -> str:
    """What the server says in words, without its code and the form around it."""
    told = error.body.get("message") if isinstance(error.body, dict) else error.body
    return told if isinstance(told, str) and told else error.message


def is_too_long(error: openai.APIStatusError) -> bool:
    """Whether an error says that the prompt is too long, so that a shorter one may be taken."""
    told = f"{error.message} {json.dumps(error.body, default=str)}"
    if error.status_code == 413 or _TOO_LARGE.search(told):
        return True
    return error.status_code not in (401, 403, 404, 429) and _TOO_LONG.search(told) is not None


def known_as_too_long(request: dict[str, Any]) -> str | None:
    """What its server said of a request when the running step sent it before; None: nothing."""
    running = current_scope()
    if not isinstance(running, Scope) or running.step is None:
        return None
    known = running.thread.fold.too_long.get(_hash(request), {})
    told = (said for (cell_id, step), said in known.items() if cell_id == running.cell_id or step == running.step)
    return next(told, None)


def keep_as_too_long(request: dict[str, Any], told: str) -> None:
    """Have the running step know it."""
    running = current_scope()
    if isinstance(running, Scope) and running.step is not None:
        row = Row(kind="notice", name="too long", key=_hash(request), data=json.dumps({"told": told}))
        running.append(row)


def _hash(request: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()[:32]


def is_filtered(error: openai.APIStatusError) -> bool:
    """Whether a content filter refused the question: Azure says so with an error."""
    return error.status_code == 400 and "content_filter" in (error.code, getattr(error, "type", None))
