"""Vectors of texts, from an embedding model behind the same clients as `ask`'s; a text is sent once for a store.

A vector depends on the model and the text, on no step and no run. So these calls stand outside the steps in the
journal, and whoever needs the vector of a text, in whatever step, thread or process, gets the one that the store has.
What the store has of a model is read once in a process. In base64, a vector of 1,536 numbers takes 8 KB.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from resumable_nb.calls.protocol import current_scope
from resumable_nb.errors import NoModel
from resumable_nb.scope import Scope, outside

if TYPE_CHECKING:
    import numpy as np

    from resumable_nb.journal import Store

    Vectors = dict[str, np.ndarray[Any, np.dtype[np.float32]]]

BATCH = 64
_READ_TIMEOUT_S = 120
_RECORDED = """
SELECT asked.request, answered.response FROM journal AS answered JOIN journal AS asked
ON asked.thread_id = answered.thread_id AND asked.seq = answered.ref_seq
WHERE answered.kind = 'llm' AND answered.phase = 'done' AND answered.gen_ai_request_model = ?
AND answered.name LIKE '%/embeddings' ORDER BY answered.ts, answered.thread_id, answered.seq
"""
_known: dict[tuple[str, str], Vectors] = {}
_lock = threading.Lock()


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
    running = current_scope()
    store = running.thread.store if isinstance(running, Scope) else None
    with _lock, outside():  # branches of a step search at once, and need the same ones
        known = _of(store, model)
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        for batch in _shown(list(_batches(missing))):
            known.update(_asked(batch, model))
        return {text: known[text] for text in texts}


def _of(store: Store | None, model: str) -> Vectors:
    key = store.store_id if store else "", model
    if key not in _known:
        _known[key] = dict(_recorded(store, model)) if store else {}
    return _known[key]


def _recorded(store: Store, model: str) -> Iterator[tuple[str, Any]]:
    """What the store has; of one text the newest."""
    for request, response in store.rows(_RECORDED, [model], timeout_s=_READ_TIMEOUT_S)[1]:
        body = json.loads(request or "{}").get("body")  # what was pruned has neither
        texts = body.get("input") if isinstance(body, dict) else None
        if isinstance(texts, list) and response:
            found = _decoded(json.loads(response), len(texts))
            yield from ((text, vector) for text, vector in zip(texts, found, strict=True) if vector is not None)


def _batches(texts: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(texts), BATCH):
        yield texts[start : start + BATCH]


def _shown(batches: list[list[str]]) -> Any:
    from tqdm.auto import tqdm

    return tqdm(batches, desc="embedding", disable=len(batches) < 3)


def _asked(texts: list[str], model: str) -> Vectors:
    """In base64, which is a quarter of the size; where the server does not know that, in numbers."""
    import openai

    why = ""
    for encoding in ("base64", "float"):
        try:
            found = _decoded(_answer(texts, model, encoding), len(texts))
        except openai.BadRequestError as error:
            why = str(error)
            if "encod" not in why and "base64" not in why:
                break
        except (openai.OpenAIError, NoModel, ValueError) as error:
            why = str(error)
            break
        else:
            if all(vector is not None for vector in found):
                return dict(zip(texts, found, strict=True))
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
