"""One question of `ask`: the requests for it, and what its answers are worth. Sends nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resumable_nb.calls.protocol import current_scope
from resumable_nb.errors import AnswerRejected, CallError, PromptTooLong
from resumable_nb.llm import dialects, models
from resumable_nb.llm.dialects import Dialect, is_filtered
from resumable_nb.llm.forms import Form, Unfit, without_thought
from resumable_nb.terminal import one_line
from resumable_nb.values import hidden

if TYPE_CHECKING:
    import openai

    from resumable_nb.calls.protocol import Scope

_EMBEDDED_MAX_TOKENS = 512
_TOLD_CHARS = 160
_said: set[str] = set()


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the caller of `ask` wants. See there."""

    prompt: str
    response_format: Any
    model: str | None
    max_tokens: int | None
    temperature: float | None
    instructions: str
    context: bool
    history: Sequence[dict[str, str]]
    options: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What came back.

    Attributes:
        finish_reason: None if a stream ended without one.
        recorded_ms: how long it took when it was live, if it came from the journal; else None.
        input_tokens: by the model's own numbers; 0 where it tells none.
        output_tokens: as these.
        called: the tool that it called instead of answering; "" if it called none.
        thought: what its server kept apart from the text; vLLM has put answers there.
    """

    text: str
    finish_reason: str | None
    refusal: str | None
    recorded_ms: float | None
    input_tokens: int = 0
    output_tokens: int = 0
    called: str = ""
    thought: str = ""

    @property
    def recorded(self) -> bool:
        """Whether it came from the journal."""
        return self.recorded_ms is not None


class Question:
    """The requests for one wish.

    Args:
        wish: of the caller.
        base_url: of the client that will send the requests.
    """

    def __init__(self, wish: Wish, base_url: object) -> None:
        self.model = models.model_name(base_url, wish.model)
        self._wish, self._base_url = wish, base_url
        self._scope = current_scope()
        context = self._scope.context() if self._scope and wish.context else ""
        self._system = "\n\n".join(part for part in (wish.instructions, context) if part)
        self._embedded = models.is_embedded(base_url)
        self._form = Form(wish.response_format, bounded=self._embedded) if wish.response_format else None
        schema = self._form and self._form.response_format
        self._dialect = Dialect(self.model, base_url, schema)
        self._unfit: list[Unfit] = []
        self._all_recorded = True

    def request(self, *, stream: bool = False) -> dict[str, Any]:
        """Arguments of `chat.completions.create`. After an answer that did not fit, they say what was wrong with it.

        A stream is asked for its tokens, too: one that nobody asks for them costs the accounts its numbers.
        """
        prompt = self._wish.prompt
        if self._unfit:
            last = self._unfit[-1]
            prompt += (
                f"\n\nYour last answer was {last.excerpt}. It does not fit: {last.why} Answer again, in the right form."
            )
        form = {"response_format": self._form.response_format} if self._form and self._dialect.takes_schema else {}
        if self._form and not form:
            prompt += f"\n\n{self._form.instruction}"
        messages = [{"role": "system", "content": self._system}] if self._system else []
        messages += [*self._wish.history, {"role": "user", "content": prompt}]
        request = {"model": self.model, "messages": messages, **form, **self._limits(), **self._wish.options}
        usage = {"stream_options": {"include_usage": True}} if self._dialect.takes_stream_options else {}
        return {**usage, **request, "stream": True} if stream else request

    @property
    def characters(self) -> int:
        """How long its messages are."""
        return sum(len(str(message["content"])) for message in self.request()["messages"])

    def refused(self, error: openai.APIStatusError, request: dict[str, Any]) -> bool:
        """Whether an error means that the next request has to say the same in other words.

        Raises:
            AnswerRejected: A content filter refused the question.
            PromptTooLong: It is too long for the model.
        """
        if dialects.is_too_long(error):
            told = hidden(one_line(dialects.words_of(error), _TOLD_CHARS))
            dialects.keep_as_too_long(request, told)
            raise self._too_long(told) from error
        if is_filtered(error):
            raise AnswerRejected(f"{self.model} refused to answer: {error.message}") from error
        return self._dialect.learn(error, request)

    def refuse_too_long(self, request: dict[str, Any]) -> None:
        """Send nothing that is known not to be taken.

        Raises:
            PromptTooLong: This step asked it before, and it was too long.
        """
        if (told := dialects.known_as_too_long(request)) is not None:
            raise self._too_long(told)

    def _too_long(self, told: str) -> PromptTooLong:
        return PromptTooLong(
            f"{self.model} takes no prompt of {self.characters:,} characters ({told}). Ask for less, or ask a model "
            "that takes more."
        )

    def judge(self, reply: Reply) -> Any:
        """The text or the object that a reply amounts to.

        Raises:
            Unfit: It does not have the form; the next request will tell the model.
            AnswerRejected: There is no answer, and asking again would not help.
            CallError: A stream ended before its end.
        """
        self._all_recorded = self._all_recorded and reply.recorded
        if not reply.recorded:
            self._say_who_answers()
        if reply.refusal or reply.finish_reason == "content_filter":
            raise AnswerRejected(f"{self.model} refused to answer: {reply.refusal or 'a content filter stopped it'}.")
        if reply.finish_reason is None:
            raise CallError(f"The answer of {self.model} broke off after {len(reply.text)} characters. Ask again.")
        if self._form is None:
            return self._text(reply)
        try:
            return self._value(self._form, reply)
        except Unfit as error:
            self._unfit.append(error)
            raise

    @staticmethod
    def _value(form: Form, reply: Reply) -> Any:
        text = reply.text if reply.text.strip() else reply.thought
        if reply.called and not text.strip():
            raise Unfit(f"it called the tool {reply.called!r} instead of answering.", text)
        return form.value(text, cut=reply.finish_reason == "length")

    def rejection(self) -> AnswerRejected:
        """What to raise when no answer has the form: whether it is a recorded one, and how to ask anew."""
        last, form = self._unfit[-1], self._form.name if self._form else "text"
        step = self._scope.step if self._scope else None
        which = "the recorded answer" if self._all_recorded else "its answer"
        times = f" in {len(self._unfit)} attempts" if len(self._unfit) > 1 else ""
        anew = f"`%resumable fresh {step}` asks anew; else change" if step else "Ask again, or change"
        return AnswerRejected(
            f"{self.model} gave no {form}{times}: {which} {last.excerpt} does not fit: {last.why} {anew} the prompt, "
            "the form, `max_tokens` or the model."
        )

    def _text(self, reply: Reply) -> str:
        text = without_thought(reply.text)
        if not text:
            raise AnswerRejected(f"{self.model} answered without text (finish reason: {reply.finish_reason}).")
        if reply.finish_reason == "length" and self._wish.max_tokens is None:  # else it is what was wished for
            _tell(self._scope, f"an answer of {self.model} was cut off at the limit of tokens")
        return text

    def _limits(self) -> dict[str, Any]:
        """Limits and randomness. The embedded model answers the same question the same, unless told otherwise."""
        max_tokens, temperature = self._wish.max_tokens, self._wish.temperature
        limits: dict[str, Any] = {}
        if self._embedded:
            max_tokens, temperature = max_tokens or _EMBEDDED_MAX_TOKENS, temperature or 0
            limits["seed"] = 0
        if temperature is not None:
            limits["temperature"] = temperature
        if max_tokens is not None:
            new = models.takes_max_completion_tokens(self._base_url)
            limits[self._dialect.limit_name("max_completion_tokens" if new else "max_tokens")] = max_tokens
        return limits

    def _say_who_answers(self) -> None:
        line = models.description(self._base_url, self.model)
        if line not in _said:
            _said.add(line)
            _tell(self._scope, line)


def _tell(scope: Scope | None, line: str) -> None:
    if scope is None:
        print(line)  # noqa: T201, there is no step whose end could say it
    else:
        scope.notice(line)
