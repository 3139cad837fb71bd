"""A long conversation whose memory is the research state: after a restart, or elsewhere, the model sees what it saw."""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict

from resumable_nb.errors import PromptTooLong, UsageError
from resumable_nb.research.prompting import with_fewer
from resumable_nb.state import ResearchState
from resumable_nb.state.context import render

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_INSTRUCTIONS = "You help with a piece of research, in a conversation. Be brief and exact; say so when you do not know."
_OF_THE_CHAT = ("turns", "memory")
_LEAST_TOKENS = 200


class Turn(BaseModel):
    """What one side said.

    Attributes:
        role: who.
        text: what.
        tokens: how long that is, by the model's own numbers: exact for an answer; what a person said is its share of
            the prompt that it was part of.
    """

    model_config = ConfigDict(extra="forbid")
    role: Literal["user", "assistant"]
    text: str
    tokens: int


class Memory(BaseModel):
    """The running summary of the turns that are not sent any more.

    Attributes:
        text: the summary.
        turns: how many turns, from the first on, it is about.
    """

    model_config = ConfigDict(extra="forbid")
    text: str = ""
    turns: int = 0


class ChatState(ResearchState):
    """A research state with a conversation.

    Attributes:
        turns: all of it, word for word.
        memory: the summary of its beginning.
    """

    turns: Annotated[list[Turn], operator.add] = []  # noqa: RUF012 - pydantic copies it
    memory: Memory = Memory()


class Chat:
    """A conversation about the research. Call `say` in a step: both turns are in the state when the step has ended.

    The model gets the state (query, plan, findings, …), the summary of the beginning, and the recent turns whole.

    Args:
        state: a `ChatState`, or a class of yours with its fields.
        max_tokens: of what is sent, about: a quarter each for the state and the summary, half for recent turns. The
            newest turn of each side and what is said now are sent whole. A model that takes no prompt as long is asked
            with half as much, and so on; at last without a turn that is not in the summary.
        instructions: what the model is told first.
        model: as for `ask`.

    Raises:
        UsageError: The state keeps no conversation.
    """

    def __init__(
        self, state: Any, *, max_tokens: int = 4000, instructions: str = _INSTRUCTIONS, model: str | None = None
    ) -> None:
        if not set(_OF_THE_CHAT) <= type(state).model_fields.keys():
            raise UsageError(
                f"Chat needs a state with `turns` and `memory`, not {type(state).__name__}: subclass "
                "resumable_nb.research.ChatState, and name the class with `%resumable open THREAD --state NAME`."
            )
        self._state, self._max_tokens = state, max_tokens
        self._instructions, self._model = instructions, model

    def say(self, text: str, *, stream: bool = False) -> str:
        """Say something; the answer.

        Args:
            text: what you say.
            stream: print the answer as it comes.

        Raises:
            AnswerRejected: The model gave no answer. No turn was added to the conversation.
            PromptTooLong: The model does not take the shortest prompt either.
        """
        tried: tuple[str, list[dict[str, str]]] | None = None
        for room, kept in self._rooms():
            try:
                self._summarise(room, kept)
                recent = [{"role": t.role, "content": t.text} for t in self._state.turns[self._state.memory.turns :]]
                if (sent := (self._system(room), recent)) != tried:
                    tried = sent
                    return self._answer(text, *sent, stream=stream)
            except PromptTooLong as error:
                refused = error
        raise PromptTooLong(
            f"The conversation does not fit into a prompt, also with the older turns as a summary. {refused} What is "
            f"said now has {len(text):,} characters."
        ) from refused

    def _rooms(self) -> Iterator[tuple[int, int]]:
        """How many tokens are sent, about, and how many of the newest turns at least: less each time."""
        room = self._max_tokens
        yield room, 2
        while room // 2 >= _LEAST_TOKENS:
            room //= 2
            yield room, 2
        yield room, 0

    def _answer(self, text: str, system: str, recent: list[dict[str, str]], *, stream: bool) -> str:
        """The answer; both turns are in the state then."""
        from resumable_nb.llm.ask import ask
        from resumable_nb.llm.usage import about, counted

        with counted() as used:
            answer = ask(
                text,
                model=self._model,
                instructions=system,
                context=False,
                history=recent,
                stream=stream,
            )
        sent = len(system) + len(text) + sum(len(turn["content"]) for turn in recent)
        told = (0, 0) if used[-1].is_estimated else (used[-1].input_tokens, used[-1].output_tokens)
        asked_tokens = round(told[0] * len(text) / max(sent, 1)) or about(len(text))
        said = Turn(role="user", text=text, tokens=asked_tokens)
        answered = Turn(role="assistant", text=answer, tokens=told[1] or about(len(answer)))
        self._state.update(turns=[said, answered])
        return str(answer)

    def _system(self, room: int) -> str:
        fields = type(self._state).model_fields
        known = render({n: getattr(self._state, n) for n in fields if n not in _OF_THE_CHAT}, room // 4)
        memory = self._state.memory.text
        earlier = f"## Earlier in this conversation\n{memory}" if memory else ""
        return "\n\n".join(part for part in (self._instructions, known, earlier) if part)

    def _summarise(self, room: int, kept: int) -> None:
        """Take what is too old to be sent whole into the summary: a call of its own, which is in the journal.

        Once there is no more room, half of it is cleared, so that not each turn costs a summary. Turns that are too
        much for one prompt are several calls.
        """
        turns = self._state.turns
        if _first_recent(turns, room // 2, kept) <= self._state.memory.turns:
            return
        first = _first_recent(turns, room // 4, kept)
        while (known := self._state.memory.turns) < first:
            text, taken = with_fewer(partial(self._summary, room // 4), turns[known:first])
            self._state.update(memory=Memory(text=text, turns=known + len(taken)))

    def _summary(self, room: int, turns: Sequence[Turn]) -> str:
        """The summary so far and these turns, in one text."""
        from resumable_nb.llm.ask import ask

        told = "\n".join(f"{turn.role}: {turn.text}" for turn in turns)
        prompt = (
            f"Summary so far:\n{self._state.memory.text or '(none)'}\n\nWhat was said next:\n{told}\n\nWrite the new "
            f"summary of all of it in at most {room * 3 // 4} words. Keep what the person wants, decided and refused, "
            "names and numbers."
        )
        return str(ask(prompt, model=self._model, instructions=self._instructions, context=False, max_tokens=room))


def _first_recent(turns: Sequence[Turn], room: int, kept: int) -> int:
    """The number of the first turn that is sent whole: as many of the newest as there is room for, `kept` at least.

    With 0 none is: by how many tokens a model tells, there may seem to be room.
    """
    if not kept:
        return len(turns)
    first, used = len(turns), 0
    while first > 0 and (first > len(turns) - kept or used + turns[first - 1].tokens <= room):
        first -= 1
        used += turns[first].tokens
    return first
