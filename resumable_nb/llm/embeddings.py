"""Vectors of texts, from an embedding model behind the same clients as `ask`'s; a text is sent once for a store.

A vector depends on the model and the text, on no step and no run. So these calls stand outside the steps in the
journal, and whoever needs the vector of a text, in whatever step, thread or process, gets the one that the store has.
What the store has of a model is read once in a process. In base64, a vector of 1,536 numbers takes 8 KB.

A budget counts a call once, for the thread that made it: in whatever step, run or process its vectors are used.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resumable_nb.calls import accounts
from resumable_nb.calls.protocol import current_scope
from resumable_nb.errors import NoModel
from resumable_nb.llm import usage
from resumable_nb.llm.dialects import words_of
from resumable_nb.llm.usage import Usage
from resumable_nb.scope import Scope, outside

if TYPE_CHECKING:
    import numpy as np

    from resumable_nb.journal import Store
    from resumable_nb.thread import Thread

    Vectors = dict[str, np.ndarray[Any, np.dtype[np.float32]]]

BATCH = 64
_READ_TIMEOUT_S = 120
_RECORDED = """
SELECT asked.request, answered.response, answered.thread_id, answered.seq, answered.gen_ai_usage_input_tokens,
       answered.duration_ms
FROM journal AS answered JOIN journal AS asked
ON asked.thread_id = answered.thread_id AND asked.seq = answered.ref_seq
WHERE answered.kind = 'llm' AND answered.phase = 'done' AND answered.gen_ai_request_model = ?
AND answered.name LIKE '%/embeddings' ORDER BY answered.ts, answered.thread_id, answered.seq
"""
_lock = threading.Lock()


@dataclass
class _Known:
    """What is known of one model in one store.

    Attributes:
        vectors: by text; of one text the newest.
        calls: thread → text → the first of its calls that brought that text's vector.
    """

    vectors: Vectors = field(default_factory=dict)
    calls: dict[str, dict[str, Usage]] = field(default_factory=dict)

    def add(self, found: Vectors, thread_id: str, call: Usage) -> None:
        """The answer of a call."""
        self.vectors.update(found)
        calls = self.calls.setdefault(thread_id, {})
        for text in found:
            calls.setdefault(text, call)

    def calls_for(self, texts: Iterable[str], thread_id: str) -> list[Usage]:
        """The calls of a thread that brought these vectors, in their order."""
        calls = self.calls.get(thread_id, {})
        found = {call.seq: call for text in texts if (call := calls.get(text)) is not None}
        return [found[seq] for seq in sorted(found)]


_known: dict[tuple[str, str], _Known] = {}


class NoVectors(Exception):
    """No vectors are to be had from this model; the message says why."""


def vectors(texts: Sequence[str], model: str) -> Vectors:
    """The vector of each text, by text.

    Args:
        texts: what the store has no vector of is sent, in batches. It is in the journal when this returns.
        model: the name of an embedding model of the server that `ask` uses, or of the embedded model.

    Raises:
        NoVectors: The server has none: no such model or service, no connection, or an answer that is none.
    """
    with _lock, outside():  # branches of a step search at once, and need the same ones
        thread = _thread()
        thread_id = thread.thread_id if thread else ""
        known = _of(thread.store if thread else None, model)
        usage.share(known.calls_for(texts, thread_id))
        missing = [text for text in dict.fromkeys(texts) if text not in known.vectors]
        for batch in _shown(list(_batches(missing))):
            found, tokens, ms = _asked(batch, model)
            known.add(found, thread_id, _usage(batch, model, tokens, ms, thread.session.head if thread else 0))
            usage.share(known.calls_for(batch[:1], thread_id))
        return {text: known.vectors[text] for text in texts}


def share(texts: Sequence[str], model: str) -> None:
    """Tell who counts here that vectors are used which are at hand; nothing is sent."""
    if usage.is_metered() and (thread := _thread()):
        with _lock:
            calls = _of(thread.store, model).calls_for(texts, thread.thread_id)
        usage.share(calls)


def _thread() -> Thread | None:
    running = current_scope()
    return running.thread if isinstance(running, Scope) else None


def _usage(texts: Sequence[str], model: str, tokens: int | None, ms: float | None, seq: int) -> Usage:
    told = tokens or usage.about(sum(map(len, texts)))
    return Usage(model, told, 0, ms or 0.0, is_estimated=not tokens, seq=seq)


def _of(store: Store | None, model: str) -> _Known:
    key = store.store_id if store else "", model
    if key not in _known:
        _known[key] = _recorded(store, model) if store else _Known()
    return _known[key]


def _recorded(store: Store, model: str) -> _Known:
    """What the store has."""
    known = _Known()
    for request, response, thread_id, seq, tokens, ms in store.rows(_RECORDED, [model], timeout_s=_READ_TIMEOUT_S)[1]:
        body = json.loads(request or "{}").get("body")  # what was pruned has neither
        texts = body.get("input") if isinstance(body, dict) else None
        if isinstance(texts, list) and response:
            vectors = zip(texts, _decoded(json.loads(response), len(texts)), strict=True)
            found = {text: vector for text, vector in vectors if vector is not None}
            known.add(found, thread_id, _usage(texts, model, tokens, ms, seq))
    return known


def _batches(texts: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(texts), BATCH):
        yield texts[start : start + BATCH]


def _shown(batches: list[list[str]]) -> Any:
    from tqdm.auto import tqdm

    return tqdm(batches, desc="embedding", disable=len(batches) < 3)


def _asked(texts: list[str], model: str) -> tuple[Vectors, int | None, float]:
    """Vectors, tokens and milliseconds. In base64, a quarter of the size; in numbers where the server does not know it.

    Raises:
        NoVectors: as for `vectors`.
    """
    import openai

    why = ""
    for encoding in ("base64", "float"):
        usage.before_call()
        began = time.monotonic()
        try:
            answer = _answer(texts, model, encoding)
            found = _decoded(answer, len(texts))
        except openai.BadRequestError as error:
            why = words_of(error)
            if "encod" not in why and "base64" not in why:
                break
        except (openai.OpenAIError, NoModel, ValueError) as error:
            why = str(error)
            break
        else:
            if all(vector is not None for vector in found):
                tokens = accounts.answered(answer).input_tokens
                return dict(zip(texts, found, strict=True)), tokens, (time.monotonic() - began) * 1e3
            why = f"it gave {sum(v is not None for v in found)} vectors for {len(texts)} texts"
    raise NoVectors(f"{model}: {why}")


def _answer(texts: list[str], model: str, encoding: Any) -> Any:
    from resumable_nb.llm import models
    from resumable_nb.llm.ask import client_for

    client = client_for(embedded=models.wants_embedded(model))
    create = client.embeddings.with_raw_response.create  # the SDK's own decoding takes numbers for base64
    return json.loads(create(model=model, input=texts, encoding_format=encoding).content)


def _decoded(answer: Any, count: int) -> list[Any]:
    """A vector, or None, for each text."""
    found: list[Any] = [None] * count
    data = answer.get("data") if isinstance(answer, dict) else None
    for place, one in enumerate(data if isinstance(data, list) else ()):
        if isinstance(one, dict) and isinstance(index := one.get("index", place), int) and 0 <= index < count:
            found[index] = _vector(one.get("embedding"))
    return found if len({v.shape for v in found if v is not None}) <= 1 else [None] * count


def _vector(told: Any) -> Any:
    """Of length 1; None for what is none."""
    import numpy as np

    try:
        numbers = base64.b64decode(told, validate=True) if isinstance(told, str) else told
        made = np.frombuffer(numbers, "<f4") if isinstance(numbers, bytes) else np.asarray(numbers, np.float32)
    except (binascii.Error, ValueError, TypeError):
        return None
    length = float(np.linalg.norm(made)) if made.ndim == 1 and made.size else 0.0
    return made / length if 0 < length < float("inf") else None
