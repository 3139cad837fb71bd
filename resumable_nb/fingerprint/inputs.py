"""The fingerprint of a value."""

from __future__ import annotations

import functools
import hashlib
import itertools
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resumable_nb.errors import ValueNotStorable
from resumable_nb.fingerprint.code import is_input
from resumable_nb.fingerprint.facts import Facts, Kind
from resumable_nb.fingerprint.parts import parts_of
from resumable_nb.fingerprint.parts import short_hash as _hash
from resumable_nb.fingerprint.stand_ins import StandIns, opaque_digest
from resumable_nb.fingerprint.summaries import CREDENTIAL, summary
from resumable_nb.values import encode

LIMIT_BYTES = 512 << 20
_MAX_PARTS = 64
_LONG_TEXT = 1 << 20
_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
    functools._lru_cache_wrapper,  # noqa: SLF001  # the only name of this type
)


def fingerprint(
    value: object,
    *,
    namespace: Mapping[str, Any],
    made_by: str = "",
    name: str = "",
    project: Path | None = None,
    limit_bytes: int = LIMIT_BYTES,
) -> Facts:
    """What a value is, by type and content, and what it can read of the notebook when it is used.

    Args:
        value: it is only read, and no method of its class runs.
        namespace: the notebook's names; functions that have it as their globals are the notebook's.
        made_by: what stands for the cell that made the value: all that is known of a lock or a client.
        name: the name that holds it. One such as `api_key` says that the value must not be shown, nor its digest kept.
        project: the folder whose modules count by source; the working directory by default.
        limit_bytes: a value whose stored form is larger counts by its type and `made_by`.
    """
    shown = summary(value, name)
    if shown == CREDENTIAL:
        return Facts(opaque_digest(value, made_by), storable="it looks like a credential", kind="opaque", summary=shown)
    stand_ins = StandIns(namespace, made_by, project or Path.cwd())
    why = ""
    try:
        try:
            text = encode(value, path=name or "value", limit_bytes=limit_bytes).text
        except ValueNotStorable as error:
            why = str(error)
            text = encode(value, path=name or "value", other=stand_ins, limit_bytes=limit_bytes).text
        whole = stand_ins.complete(text)
    except (ValueNotStorable, RecursionError) as error:
        return Facts(opaque_digest(value, made_by), storable=str(error) or why, kind="opaque", summary=shown)
    code = stand_ins.parts(value)
    parts = {label: _hash(part) for label, part in code.items()} if code else parts_of(value, text)
    return Facts(
        digest=hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest(),
        reads=frozenset(name for name in stand_ins.reads if is_input(name)),
        storable=why,
        kind=_kind(value, code),
        summary=shown,
        parts={"type": type(value).__name__} | dict(itertools.islice(parts.items(), _MAX_PARTS)),
    )


def _kind(value: object, code: Mapping[str, str]) -> Kind:
    if "opaque" in code:
        return "opaque"
    if isinstance(value, type):
        return "class"
    if isinstance(value, types.ModuleType):
        return "module"
    if isinstance(value, _FUNCTIONS):
        return "function"
    return "value"
