"""What calls to models cost a thread, by the journal; and about how many tokens those had whose server told none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from resumable_nb.llm.usage import Usage
from resumable_nb.state.context import CHARACTERS_PER_TOKEN

if TYPE_CHECKING:
    from resumable_nb.thread import Thread

# The texts of a request: its messages, or what is to be embedded. They are read only where tokens are missing.
_CALLS = """
WITH c AS (
    SELECT seq, ref_seq, step, coalesce(gen_ai_request_model, '?') AS model, gen_ai->>'operation_name' AS asks,
           phase IN ('done', 'partial') AS answered, coalesce(gen_ai_usage_input_tokens, 0) AS input,
           coalesce(gen_ai_usage_output_tokens, 0) AS output, duration_ms AS ms
    FROM journal WHERE thread_id = $thread AND kind = 'llm' AND phase <> 'started' AND seq > $after AND seq <= $until),
u AS (
    SELECT c.seq, list_concat(json_extract_string(r.request, '$.body.messages[*].content'),
               json_extract_string(r.request, '$.body.input[*]')) AS said,
           json_extract_string(a.response, '$.choices[*].message.content') AS heard
    FROM c JOIN journal AS r ON r.thread_id = $thread AND r.seq = c.ref_seq
    JOIN journal AS a ON a.thread_id = $thread AND a.seq = c.seq WHERE answered AND input + output = 0),
e AS (
    SELECT seq, coalesce(list_sum(list_transform(said, lambda t: length(t))), 0) // $per + 1 AS input,
           coalesce(list_sum(list_transform(heard, lambda t: length(t))), 0) // $per + 1 AS output
    FROM u)
SELECT model, c.step, coalesce(asks = 'embeddings', false), count(*) FILTER (answered AND e.seq IS NULL), sum(c.input),
       sum(c.output), coalesce(sum(ms) FILTER (answered), 0), count(e.seq), coalesce(sum(e.input), 0),
       coalesce(sum(e.output) FILTER (asks IS DISTINCT FROM 'embeddings'), 0)
FROM c LEFT JOIN e USING (seq) GROUP BY ALL ORDER BY ALL"""
_FORKED = "SELECT coalesce(max(seq), 0) FROM journal WHERE thread_id = ? AND kind = 'thread' AND phase = 'forked'"
_ALL = 1 << 62


@dataclass(frozen=True)
class Entry:
    """The calls of one step, or of all that stands outside steps, to one model.

    Attributes:
        step: its name; None outside any.
        embeds: whether they asked for vectors.
        told: the answers that came with a count of tokens; and the time of all.
        untold: those that came without one, and about how many tokens these are.
    """

    step: str | None
    embeds: bool
    told: Usage
    untold: Usage


def billed(thread: Thread) -> list[Entry]:
    """All that this thread was billed for; not what its fork brought along."""
    forked = thread.store.rows(_FORKED, [thread.thread_id])[1][0][0]
    return _entries(thread, after=forked, until=_ALL)


def up_to(thread: Thread, seq: int) -> list[Entry]:
    """All up to a row, also what was copied from another thread."""
    return _entries(thread, after=0, until=seq)


def _entries(thread: Thread, *, after: int, until: int) -> list[Entry]:
    told = {"thread": thread.thread_id, "after": after, "until": until, "per": CHARACTERS_PER_TOKEN}
    return [
        Entry(
            step,
            embeds,
            Usage(model, int(tokens_in), int(tokens_out), ms, calls=calls),
            Usage(model, int(about_in), int(about_out), 0.0, calls=untold, is_estimated=True),
        )
        for model, step, embeds, calls, tokens_in, tokens_out, ms, untold, about_in, about_out in thread.store.rows(
            _CALLS, told
        )[1]
    ]
