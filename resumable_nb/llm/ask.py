"""`ask`: instructions, what the research state knows, and a question; text or a validated object back.

Over Chat Completions, which OpenAI, Ollama, vLLM and llama.cpp all serve.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import functools
import inspect
import re
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

import tenacity

from resumable_nb.calls.http import REPLAYED
from resumable_nb.calls.off_loop import off_loop
from resumable_nb.calls.protocol import current_scope
from resumable_nb.calls.retries import DEFAULT_MAX_RETRIES
from resumable_nb.errors import UsageError, show_as_one_line
from resumable_nb.llm import models
from resumable_nb.llm.forms import Unfit
from resumable_nb.llm.questions import Question, Reply, Wish
from resumable_nb.llm.usage import Measured
from resumable_nb.terminal import one_line

if TYPE_CHECKING:
    import openai

T = TypeVar("T")
_KEPT = "What was answered is kept: run this again once it is mended."
_TOLD_CHARS = 300
_BROKE_OFF = "The answer broke off while it was streamed."
Stream: TypeAlias = bool | Callable[[str], object]

INSTRUCTIONS = (
    "You help with a piece of research. What is known so far follows. Answer the user's question from it and from what "
    "the question itself gives, and say so where that is not enough. Be brief and exact."
)


@overload
def ask(prompt: str, response_format: None = None, **options: Any) -> str: ...
@overload
def ask(prompt: str, response_format: type[T], **options: Any) -> T: ...
@overload
def ask(prompt: str, response_format: Any, **options: Any) -> Any: ...
def ask(
    prompt: str,
    response_format: Any = None,
    *,
    model: str | None = None,
    client: openai.OpenAI | None = None,
    stream: Stream = False,
    max_tokens: int | None = None,
    temperature: float | None = None,
    instructions: str = INSTRUCTIONS,
    context: bool = True,
    retries: int = 1,
    history: Sequence[dict[str, str]] = (),
    **options: Any,
) -> Any:
    """The model's answer to one question. It knows the research state as of the start of this branch.

    Inside a step the answer is durable: asked once, paid once, and replayed after a crash.

    Args:
        prompt: the question.
        response_format: a pydantic model, or any type that pydantic understands (`list[str]`, `Literal["a", "b"]`);
            None for text.
        model: its name. None: `RESUMABLE_NB_MODEL`, else a default.
        client: a `resumable_nb.OpenAI`. None: the endpoint of the environment, else the embedded model.
        stream: print the answer as it comes; or a function that gets each piece of it. An empty piece begins an answer:
            of a stream that broke off, or whose answer did not fit, another one follows.
        max_tokens: at most that many tokens of answer.
        temperature: 0 for the most likely answer. None: the server's default; 0 for the embedded model.
        instructions: what the model is told before the state.
        context: tell the model the research state (query, plan, findings, …). False: only instructions and prompt.
        retries: how often an answer that does not fit `response_format` is asked for again, by a new request that tells
            the model what was wrong.
        history: messages of a conversation, which stand between the state and the question.
        **options: of `client.chat.completions.create`.

    Returns:
        The text, or the validated object.

    Raises:
        NoModel: No model is configured, and none is embedded.
        AnswerRejected: No answer fits `response_format`, or the model refused.
        PromptTooLong: The model takes no prompt of this length.
        CallError: A streamed answer broke off.
    """
    asked = client_for(embedded=models.wants_embedded(model)) if client is None else _checked(client)
    wish = Wish(
        prompt=prompt,
        response_format=response_format,
        model=model,
        max_tokens=max_tokens,
        temperature=temperature,
        instructions=instructions,
        context=context,
        history=history,
        options=options,
    )
    question = Question(wish, asked.base_url)
    send = partial(tenacity.Retrying(**_anew(stream)), _streamed, stream=stream) if stream else _whole
    for _ in range(max(retries, 0) + 1):
        with contextlib.suppress(Unfit), _hint(question.model):
            measured = Measured(question)
            return question.judge(measured.answered(_sent(send, asked, question, stream=bool(stream))))
    raise question.rejection()


@overload
async def aask(prompt: str, response_format: None = None, **options: Any) -> str: ...
@overload
async def aask(prompt: str, response_format: type[T], **options: Any) -> T: ...
@overload
async def aask(prompt: str, response_format: Any, **options: Any) -> Any: ...
async def aask(
    prompt: str,
    response_format: Any = None,
    *,
    model: str | None = None,
    client: openai.AsyncOpenAI | None = None,
    stream: Stream = False,
    max_tokens: int | None = None,
    temperature: float | None = None,
    instructions: str = INSTRUCTIONS,
    context: bool = True,
    retries: int = 1,
    history: Sequence[dict[str, str]] = (),
    **options: Any,
) -> Any:
    """`ask` for async code, as in `await asyncio.gather(*[aask(q) for q in questions])`. For all else see `ask`.

    Equal questions of several tasks get their recorded answers in the order in which they ask, and a run may have
    another order: let each question name its item, or use `map`.
    """
    asked = _async_client(embedded=models.wants_embedded(model)) if client is None else _checked(client)
    wish = Wish(
        prompt=prompt,
        response_format=response_format,
        model=model,
        max_tokens=max_tokens,
        temperature=temperature,
        instructions=instructions,
        context=context,
        history=history,
        options=options,
    )
    question = Question(wish, asked.base_url)
    send = partial(tenacity.AsyncRetrying(**_anew(stream)), _streamed_async, stream=stream) if stream else _whole_async
    for _ in range(max(retries, 0) + 1):
        with contextlib.suppress(Unfit), _hint(question.model):
            measured = Measured(question)
            return question.judge(measured.answered(await _sent_async(send, asked, question, stream=bool(stream))))
    raise question.rejection()


_OPTIONS = [name for name in inspect.signature(ask).parameters if name not in ("prompt", "options")]


def context_message() -> dict[str, str]:
    """The research state as a system message for a client of your own: `messages=[context_message(), …]`.

    Raises:
        UsageError: No thread is open.
    """
    scope = current_scope()
    if scope is None:
        raise UsageError("context_message() needs an open thread: run `%resumable open THREAD` first.")
    return {"role": "system", "content": scope.context()}


# ---------------------------------------------------------------- sending
def _sent(send: Callable[[Any, dict[str, Any]], Reply], client: Any, question: Question, *, stream: bool) -> Reply:
    """The answer, asked for in words that the server takes."""
    import openai

    while True:
        request = question.request(stream=stream)
        question.refuse_too_long(request)
        try:
            return send(client, request)
        except openai.APIStatusError as error:
            if not question.refused(error, request):
                raise


async def _sent_async(
    send: Callable[[Any, dict[str, Any]], Awaitable[Reply]], client: Any, question: Question, *, stream: bool
) -> Reply:
    import openai

    while True:
        request = question.request(stream=stream)
        question.refuse_too_long(request)
        try:
            return await send(client, request)
        except openai.APIStatusError as error:
            if not await off_loop(partial(question.refused, error, request)):
                raise


def _whole(client: Any, request: dict[str, Any]) -> Reply:
    return _reply(client.chat.completions.with_raw_response.create(**request))


async def _whole_async(client: Any, request: dict[str, Any]) -> Reply:
    return _reply(await client.chat.completions.with_raw_response.create(**request))


def _streamed(client: Any, request: dict[str, Any], *, stream: Stream) -> Reply:
    raw = client.chat.completions.with_raw_response.create(**request)
    heard = _Heard(stream, recorded_ms=_recorded_ms(raw))
    with raw.parse() as chunks, _noting():
        for chunk in chunks:
            heard.take(chunk)
    return heard.reply()


async def _streamed_async(client: Any, request: dict[str, Any], *, stream: Stream) -> Reply:
    raw = await client.chat.completions.with_raw_response.create(**request)
    heard = _Heard(stream, recorded_ms=_recorded_ms(raw))
    async with raw.parse() as chunks:
        with _noting():
            async for chunk in chunks:
                heard.take(chunk)
    return heard.reply()


@contextlib.contextmanager
def _noting() -> Iterator[None]:
    """Tell an answer that broke off from one that never began, which the transport has asked for again already."""
    import openai

    try:
        yield
    except openai.APIConnectionError as error:
        error.add_note(_BROKE_OFF)
        raise


def _anew(stream: Stream) -> dict[str, Any]:
    """A stream that broke off is asked for again, as an answer in one piece is; not where half of it is printed."""
    attempts = 1 if stream is True else 1 + DEFAULT_MAX_RETRIES
    broken = tenacity.retry_if_exception(lambda error: _BROKE_OFF in getattr(error, "__notes__", ()))
    return {"retry": broken, "stop": tenacity.stop_after_attempt(attempts), "reraise": True}


def _reply(raw: Any) -> Reply:
    answer = raw.parse()
    if not answer.choices:
        return Reply("", "none was given", None, _recorded_ms(raw), *_tokens(answer.usage))
    choice = answer.choices[0]
    message = choice.message
    return Reply(
        _text_of(message.content),
        choice.finish_reason or "stop",
        message.refusal,
        _recorded_ms(raw),
        *_tokens(answer.usage),
        called=_called(message.tool_calls),
        thought=_thought(message),
    )


def _text_of(content: Any) -> str:
    """The text of an answer. Mistral's reasoning models give it in parts, with their thoughts in others."""
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(str(part.get("text", "")) for part in parts)
    return content or ""


def _called(calls: Any) -> str:
    """The first tool that was called; "" for none."""
    functions = (getattr(call, "function", None) for call in calls or ())
    return next((function.name for function in functions if function and function.name), "")


def _thought(said: Any) -> str:
    """What vLLM, Ollama and DeepSeek keep apart from the text, under one of two names."""
    return getattr(said, "reasoning_content", None) or getattr(said, "reasoning", None) or ""


def _recorded_ms(raw: Any) -> float | None:
    return float(raw.headers[REPLAYED]) if REPLAYED in raw.headers else None


def _tokens(usage: openai.types.CompletionUsage | None) -> tuple[int, int]:
    return (usage.prompt_tokens or 0, usage.completion_tokens or 0) if usage is not None else (0, 0)


class _Heard:
    """A streamed answer, handed on as it comes."""

    def __init__(self, stream: Stream, *, recorded_ms: float | None) -> None:
        self._say = stream if callable(stream) else partial(print, end="", flush=True)
        self._prints = not callable(stream)
        self._recorded_ms = recorded_ms
        self._usage: openai.types.CompletionUsage | None = None
        self._pieces: list[str] = []
        self._refusal: list[str] = []
        self._thoughts: list[str] = []
        self._called = ""
        self._finish_reason: str | None = None
        self._say("")

    def take(self, chunk: openai.types.chat.ChatCompletionChunk) -> None:
        """One more chunk."""
        self._usage = chunk.usage or self._usage
        for choice in (chunk.choices or [])[:1]:
            self._finish_reason = choice.finish_reason or self._finish_reason
            self._refusal += [choice.delta.refusal] if choice.delta.refusal else []
            self._thoughts.append(_thought(choice.delta))
            self._called = self._called or _called(choice.delta.tool_calls)
            if text := _text_of(choice.delta.content):
                self._pieces.append(text)
                self._say(text)

    def reply(self) -> Reply:
        """The whole."""
        if self._prints:
            self._say("\n")
        refusal = "".join(self._refusal) or None
        return Reply(
            "".join(self._pieces),
            self._finish_reason,
            refusal,
            self._recorded_ms,
            *_tokens(self._usage),
            called=self._called,
            thought="".join(self._thoughts),
        )


# ---------------------------------------------------------------- clients
@contextlib.contextmanager
def _hint(model: str) -> Iterator[None]:
    """Where the server has no such model: say how to name another; where the client has no such option: which.

    Where it is not there or cannot answer now, although it was asked several times: that the next run goes on.
    """
    import openai

    try:
        yield
    except openai.NotFoundError as error:
        error.add_note(f"ask() asked for the model {model!r}. Name another with `model=` or RESUMABLE_NB_MODEL.")
        raise
    except (openai.APIConnectionError, openai.InternalServerError, openai.RateLimitError) as error:
        scope = current_scope()
        kept = "What was answered is kept: run" if scope and scope.step else "Run"
        error.add_note(f"{model} was asked {1 + DEFAULT_MAX_RETRIES} times. {kept} this again once its server answers.")
        raise
    except TypeError as error:
        unknown = re.search(r"create\(\) got an unexpected keyword argument '(\w+)'", str(error))
        if unknown is None:
            raise
        near = difflib.get_close_matches(unknown[1], _OPTIONS, 1)
        hint = f" Do you mean `{near[0]}`?" if near else ""
        raise UsageError(
            f"ask() has no option `{unknown[1]}`, and `chat.completions.create` has none either.{hint} Its own are "
            f"{', '.join(_OPTIONS)}."
        ) from None


@contextlib.contextmanager
def in_one_line(name: str) -> Iterator[None]:
    """Show what a server did wrong and what to do then, without a page of traceback through our code.

    Args:
        name: of the model.
    """
    import openai

    try:
        yield
    except openai.APIError as error:
        told = one_line(str(error), _TOLD_CHARS).rstrip(".")
        notes = " ".join(getattr(error, "__notes__", ()))
        error.args = (f"{name} could not be asked: {told}. {notes or _KEPT}",)  # for who shows the message alone
        show_as_one_line(error, str(error))
        raise


def client_for(*, embedded: bool) -> openai.OpenAI:
    """The client of the environment, or that of the embedded model.

    Raises:
        NoModel: No model is configured, and none is embedded.
    """
    where = models.endpoint() if not embedded else models.EMBEDDED
    return _cached_client(where, models.settings())


@functools.lru_cache(maxsize=4)
def _cached_client(where: models.Endpoint, _settings: tuple[str | None, ...]) -> openai.OpenAI:
    """One client for many questions: making one costs 20 ms."""
    from resumable_nb.llm.clients import OpenAI

    return OpenAI(api_key=where.api_key, base_url=where.base_url)


_async_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, openai.AsyncOpenAI]]
_async_clients = weakref.WeakKeyDictionary()


def _async_client(*, embedded: bool) -> openai.AsyncOpenAI:
    """One client per event loop: connections belong to the loop that opened them."""
    from resumable_nb.llm.clients import AsyncOpenAI

    where = models.endpoint() if not embedded else models.EMBEDDED
    clients = _async_clients.setdefault(asyncio.get_running_loop(), {})
    settings = where, models.settings()
    if settings not in clients:
        clients[settings] = AsyncOpenAI(api_key=where.api_key, base_url=where.base_url)
    return clients[settings]


def _checked(client: Any) -> Any:
    """A client whose calls are journaled.

    Raises:
        UsageError: They are not, or it is no client of OpenAI.
    """
    from resumable_nb.llm.http_clients import AsyncDurableClient, DurableClient

    # `_client` is where the SDK keeps the HTTP client that it was given
    if isinstance(getattr(client, "_client", None), (DurableClient, AsyncDurableClient)):
        return client
    raise UsageError(
        f"ask(client=…) got {type(client).__module__}.{type(client).__qualname__}, whose calls are not journaled: they "
        "would be paid again after a crash. Use resumable_nb.OpenAI(…) with the same arguments (aask: AsyncOpenAI)."
    )
