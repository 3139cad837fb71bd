"""All threads of a store: when each was worked on last, what waits for a person, and what it has cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resumable_nb.journal import processes
from resumable_nb.llm.prices import price
from resumable_nb.timeline.rows import value_of

if TYPE_CHECKING:
    from resumable_nb.journal import Store

Json = dict[str, Any]
_SQL = """
WITH waits AS (
    SELECT thread_id, count(*) AS waiting, list(left(coalesce(step, message), 100)) AS gates
    FROM approvals WHERE phase = 'waiting' GROUP BY 1),
e AS (
    SELECT s.thread_id, s.seq, arg_max(d.phase, d.seq) AS phase
    FROM journal s LEFT JOIN journal d ON d.thread_id = s.thread_id AND d.ref_seq = s.seq AND d.kind = 'effect'
    WHERE s.kind = 'effect' AND s.phase = 'started' GROUP BY s.thread_id, s.seq, s.key
    QUALIFY s.seq = max(s.seq) OVER (PARTITION BY s.thread_id, s.key)),
doubts AS (
    SELECT thread_id, count(*) FILTER (phase = 'lost') AS lost, count(*) FILTER (phase IS NULL) AS running
    FROM e GROUP BY 1),
done AS (
    SELECT thread_id, count(*) FILTER (phase = 'done') AS done,
           count(*) FILTER (phase NOT IN ('done', 'retired', 'pruned')) AS unfinished FROM steps GROUP BY 1),
opened AS (
    SELECT thread_id, arg_max(data, first_seq) AS opener, arg_max(closed_at IS NOT NULL, first_seq) AS closed,
           max(first_seq) AS opened_seq, count(*) AS sessions FROM sessions GROUP BY 1),
forks AS (SELECT thread_id, max(seq) AS forked_seq FROM journal WHERE kind = 'thread' AND phase = 'forked' GROUP BY 1),
m AS (
    SELECT thread_id, coalesce(gen_ai_request_model, '?') AS model,
           sum(coalesce(gen_ai_usage_input_tokens, 0))::BIGINT AS input,
           sum(coalesce(gen_ai_usage_output_tokens, 0))::BIGINT AS output FROM llm_calls GROUP BY 1, 2),
billed AS (SELECT thread_id, list({'model': model, 'input': input, 'output': output}) AS models FROM m GROUP BY 1),
budgets AS (
    SELECT thread_id, arg_max(data->'prices', seq) AS prices
    FROM journal WHERE kind = 'notice' AND name = 'budget' GROUP BY 1)
SELECT t.thread_id AS thread, epoch_ms(t.started_at) AS started, epoch_ms(t.last_at) AS last, t.last_seq AS head,
       t.llm_calls AS calls, t.input_tokens AS input, t.output_tokens AS output, t.forked_from AS forked,
       coalesce(waiting, 0) AS waiting, coalesce(gates, []) AS gates,
       coalesce(lost, 0) AS doubt, coalesce(running, 0) AS running,
       coalesce(done, 0) AS done, coalesce(unfinished, 0) AS unfinished, coalesce(sessions, 0) AS sessions,
       opener, coalesce(closed, true) OR opened_seq < coalesce(forked_seq, 0) AS closed, models, prices
FROM threads t LEFT JOIN waits USING (thread_id) LEFT JOIN doubts USING (thread_id) LEFT JOIN done USING (thread_id)
LEFT JOIN opened USING (thread_id) LEFT JOIN forks USING (thread_id) LEFT JOIN billed USING (thread_id)
LEFT JOIN budgets USING (thread_id)
ORDER BY t.last_at DESC, t.thread_id"""


def overview(store: Store) -> list[Json]:
    """One entry per thread, the one that was worked on last first; times are milliseconds since 1970 (UTC).

    `open` says whether a process has the thread: `yes`, `no`, or `unknown` (on another machine); `who` which one.
    `usd` is None where a price is not known.
    """
    names, rows = store.rows(_SQL)
    return [_told(dict(zip(names, row, strict=True))) for row in rows]


def _told(row: Json) -> Json:
    opener, models, table = _object(row.pop("opener")), row.pop("models") or [], _object(row.pop("prices"))
    alive = False if row.pop("closed") else processes.is_alive(opener)
    row["open"] = {True: "yes", False: "no", None: "unknown"}[alive]
    row["who"] = f"process {opener.get('pid', '?')} on {opener.get('host', '?')} ({opener.get('user', '?')})"
    running = row.pop("running")
    row["doubt"] += running if alive is False else 0  # started, and nobody is left who could know what became of it
    costs = [price(one["model"], one["input"], one["output"], table) for one in models]
    row["usd"] = None if None in costs else sum(cost for cost in costs if cost is not None)
    return row


def _object(text: str | None) -> Json:
    """Empty for none, and for what is nested too deeply: that comes from a file of a stranger."""
    try:
        return value_of(text or "{}") or {}
    except ValueError:
        return {}
