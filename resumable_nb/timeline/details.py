"""What is looked at closer: what checkpoints changed, and word for word what a model was asked and answered.

Texts are cut where they are long, and it is said where: a look must not bring a notebook to a halt.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from resumable_nb.timeline.rows import DEEPEST, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from resumable_nb.journal import Store

Json = dict[str, Any]

TEXT_AT_MOST = 40_000
ANSWER_AT_MOST = 4_000_000
"""Characters of one look."""
_CHANGES = (
    "SELECT seq, changes FROM journal WHERE thread_id = ? AND kind = 'checkpoint' AND seq IN ({}) ORDER BY seq DESC"
)
_CALLS = """
SELECT s.seq, s.run_seq AS run, s.kind, coalesce(s.name, '') AS name, coalesce(s.gen_ai_request_model, '') AS model,
       coalesce(d.phase, 'running') AS phase, coalesce(d.duration_ms, 0) AS ms,
       coalesce(d.gen_ai_usage_input_tokens, 0) AS input, coalesce(d.gen_ai_usage_output_tokens, 0) AS output,
       s.request, coalesce(d.data->'receipt', d.response) AS response, octet_length(d.body) AS size,
       CASE WHEN s.kind = 'effect' THEN coalesce(d.data->>'why', s.key)
            WHEN d.phase NOT IN ('done', 'partial') THEN d.data->>'why' END AS why
FROM journal s LEFT JOIN (
    SELECT ref_seq, arg_max(phase, seq) AS phase, arg_max_null(duration_ms, seq) AS duration_ms,
           arg_max_null(gen_ai_usage_input_tokens, seq) AS gen_ai_usage_input_tokens,
           arg_max_null(gen_ai_usage_output_tokens, seq) AS gen_ai_usage_output_tokens,
           arg_max_null(response, seq) AS response, arg_max_null(body, seq) AS body, arg_max_null(data, seq) AS data
    FROM journal WHERE thread_id = $1 AND kind IN ('llm', 'call', 'effect') AND phase <> 'started' GROUP BY ref_seq) d
ON d.ref_seq = s.seq
WHERE s.thread_id = $1 AND s.kind IN ('llm', 'call', 'effect') AND s.phase = 'started' AND s.run_seq IN ({})
ORDER BY s.seq DESC"""


class Details:
    """Looks closer at one thread.

    Args:
        store: where it is.
        thread_id: its name.
    """

    def __init__(self, store: Store, thread_id: str) -> None:
        self._store, self._thread_id = store, thread_id

    def changes(self, checkpoints: Sequence[int], *, limit: int = ANSWER_AT_MOST) -> Json:
        """What each of these changed in the state, by its number; of those that are too much together, the newest.

        Returns:
            `changes` (number → `{"set": …, "append": …, "drop": …}`, or `{"unread": …}`: why it cannot be told), and
            `left` (how many are not among them).
        """
        found: dict[str, Any] = {}
        for row in self._ask(_CHANGES, checkpoints, [self._thread_id]):
            text = row["changes"] or "{}"
            limit -= len(text)
            if limit < 0:
                break
            found[str(row["seq"])] = _changed(text, row["seq"], self._thread_id)
        return {"changes": found, "left": len(set(checkpoints)) - len(found)}

    def exchanges(self, runs: Sequence[int], *, limit: int = ANSWER_AT_MOST) -> Json:
        """What the runs asked, and what they were answered: calls, newest first.

        Returns:
            `calls`, and `left` (how many are left out, being too much together).
        """
        rows = self._ask(_CALLS, runs, [self._thread_id])
        calls: list[Json] = []
        for row in rows:
            call = _call(row)
            limit -= len(json.dumps(call, ensure_ascii=False))
            if limit < 0:
                break
            calls.append(call)
        return {"calls": calls, "left": len(rows) - len(calls)}

    def _ask(self, sql: str, wanted: Iterable[int], params: list[Any]) -> list[Json]:
        numbers = sorted({int(number) for number in wanted})
        if not numbers:
            return []
        names, rows = self._store.rows(sql.format(", ".join(map(str, numbers))), params)
        return [dict(zip(names, row, strict=True)) for row in rows]


def _changed(text: str, seq: int, thread_id: str) -> Any:
    try:
        return value_of(text)
    except ValueError:
        name = thread_id.replace("'", "''")
        query = f"SELECT changes FROM checkpoints WHERE thread_id = '{name}' AND seq = {seq}"  # noqa: S608 - is only told
        return {
            "unread": f"Checkpoint {seq} put something into the state that is nested more than {DEEPEST} levels deep, "
            f'so neither its state nor a later one can be shown. As text: resumable-nb sql "{query}"'
        }


def _call(row: Json) -> Json:
    """One call as a person reads it: messages, settings, answer."""
    asked, response, size, why = (row.pop(name) for name in ("request", "response", "size", "why"))
    value = _value(asked)
    body = value.get("body") if isinstance(value, dict) and "path" in value else None
    messages, settings = _asked(body) if isinstance(body, dict) else ([_said("arguments", value)] if asked else [], "")
    answer = _said("assistant" if row["kind"] == "llm" else "result", _answered(_value(response)))
    if not answer["text"] and size:
        answer["text"] = f"({size:,} bytes)"
    if not answer["text"] and not asked and row["phase"] in ("done", "partial"):
        answer["text"] = "(what was asked and answered was pruned)"
    call = row | {"messages": messages, "settings": settings, "answer": answer}
    return call | ({"why": why[:TEXT_AT_MOST]} if why else {})


def _value(text: str | None) -> Any:
    """The value of a JSON text; a text that is none, or is nested too deeply, is itself."""
    try:
        return value_of(text) if text else None
    except ValueError:
        return text


def _asked(body: Json) -> tuple[list[Json], str]:
    """The messages of a request, in the form of any provider, and everything else that it says."""
    rest, messages = dict(body), list[Json]()
    for name in ("system", "instructions"):
        if rest.get(name):
            messages.append(_said("system", rest.pop(name)))
    for name in ("messages", "input", "contents", "prompt"):
        for one in _listed(rest.pop(name, None)):
            told = one if isinstance(one, dict) else {"content": one}
            what = told.get("content", told.get("parts"))
            extra = {k: told[k] for k in ("tool_calls", "tool_call_id", "name") if told.get(k)}
            messages.append(
                _said(str(told.get("role", "user")), [what, extra] if extra else told if what is None else what)
            )
    settings = ", ".join(f"{name} {_text(value)}" for name, value in rest.items())
    return messages, settings[:TEXT_AT_MOST]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _answered(response: Any) -> Any:
    """What the model said, in the form of any provider; the whole answer where that is not known."""
    if not isinstance(response, dict):
        return response
    for path in (("choices", "message"), ("candidates", "content")):
        found = [one.get(path[1]) for one in response.get(path[0]) or [] if isinstance(one, dict)]
        said = [m.get("content") or m.get("parts") or m.get("tool_calls") for m in found if isinstance(m, dict)]
        if said:
            return said
    parts = response.get("output") if isinstance(response.get("output"), list) else response.get("content")
    return parts if isinstance(parts, list) and parts else response


def _said(role: str, content: Any) -> Json:
    text = _text(content)
    cut = max(len(text) - TEXT_AT_MOST, 0)
    return {"role": role, "text": text[:TEXT_AT_MOST]} | ({"cut": cut} if cut else {})


def _text(content: Any) -> str:
    """Texts as they are, parts of a message one below the other, other values as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        return "\n".join(filter(None, map(_text, content)))
    if isinstance(content, dict):
        for name in ("text", "content"):
            if isinstance(content.get(name), (str, list)) and content.keys() <= _TEXT_PART:
                return _text(content[name])
    return json.dumps(content, ensure_ascii=False)


_TEXT_PART = {"type", "text", "content", "annotations", "role", "id", "status", "logprobs", "citations", "phase"}
