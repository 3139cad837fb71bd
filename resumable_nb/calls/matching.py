"""What a request asks: its canonical text, the key that it is matched by, and nothing that is secret.

A question is what is asked (method, path, query, body), not of whom or by whom: host, port, credentials and headers do
not count, so that an answer is found again with a rotated key or with the embedded server on another port. Redaction
comes first: a new token is the same question, and no hash of a secret is kept.
"""

from __future__ import annotations

import base64
import binascii
import email.parser
import email.policy
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from resumable_nb.calls import accounts
from resumable_nb.differences import describe_difference, nearest
from resumable_nb.values.secrets import REDACTED, is_credential_item, is_credential_name, redact

__all__ = ["MAX_DEPTH", "Question", "describe_difference", "nearest", "public_query", "question", "read_json"]

MAX_DEPTH = 200
"""Deeper JSON is not read: Python's own reader gives up at a depth that depends on who calls it."""

LLM_QUERY = frozenset({"api-version", "alt", "beta", "stream", "$alt"})
_SHORTEST_SECRET = 6
# Local servers take any key, and people type these: redacting the words would maim ordinary text.
_NO_SECRETS = frozenset(
    {b"none", b"empty", b"ollama", b"lm-studio", b"unused", b"dummy", b"not-needed", b"no-key", b"local", b"test"}
    | {b"sk-no-key-required", b"placeholder", b"bearer", b"basic", b"token", b"digest", b"negotiate"}
)
_CREDENTIAL_QUERY = frozenset({"key", "sig", "signature", "code", "password", "x-amz-signature", "x-goog-signature"})
_LONG_WORD = re.compile(rb"[\w-]{16}")
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Question:
    """One request, as it is stored and matched.

    Attributes:
        kind: `llm` for what asks a model, else `call`.
        operation: what a model is asked to do, see `accounts.operation`.
        key: SHA-256 of `text`.
        text: canonical JSON without secrets.
        body: the JSON body, if it is JSON.
        secrets: what must not be stored of its answer and of errors: the request's own credentials.
        redacted: how many secrets its body held.
    """

    kind: Literal["llm", "call"]
    name: str
    operation: str | None
    key: str
    text: str
    body: Any
    secrets: tuple[bytes, ...]
    redacted: int


def question(
    method: str,
    target: bytes,
    *,
    headers: Mapping[str, str],
    body: bytes,
    userinfo: bytes = b"",
) -> Question:
    """Read a request.

    Args:
        method: in capitals.
        body: the whole.
        target: path and query, as they stand in the request line.
        headers: by lower-case name.
        userinfo: `user:password` of the URL.
    """
    raw_path, _, raw_query = target.partition(b"?")
    path = (redact(raw_path)[0] if _LONG_WORD.search(raw_path) else raw_path).decode("ascii", "replace")
    operation = accounts.operation(method, path)
    pairs = parse_qsl(raw_query.decode("ascii", "replace"), keep_blank_values=True)
    query, query_secrets = _query(pairs, llm=operation is not None)
    secrets = {*_header_secrets(headers), *query_secrets, *_userinfo_secrets(userinfo)}
    what, value, hits = _body(headers.get("content-type", ""), body, secrets)
    asked = {"method": method, "path": path, "query": query, "body": what}
    text = _canonical(asked)
    return Question(
        kind="llm" if operation else "call",
        name=f"{method} {path}",
        operation=operation,
        key=hashlib.sha256(text.encode()).hexdigest(),
        text=text,
        body=value,
        secrets=_variants(secrets),
        redacted=hits,
    )


def read_json(body: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """The value of a JSON text that the store can hold as such.

    Raises:
        ValueError: It is no JSON (RFC 8259), not UTF-8, or nested more than `max_depth` deep.
    """
    if body.count(b"[") + body.count(b"{") > max_depth and _depth(body) > max_depth:
        raise ValueError(f"JSON nested more than {max_depth} deep")
    return json.loads(body.decode("utf-8"), parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _depth(body: bytes) -> int:
    depth = deepest = 0
    for found in _BRACKETS.finditer(body):
        depth += (found[1] is not None) - (found[2] is not None)
        deepest = max(deepest, depth)
    return deepest


def _canonical(asked: object) -> str:
    """Equal values, equal text.

    Raises:
        ValueError: It holds half of a surrogate pair or a number beyond a double, which the store's JSON cannot hold.
    """
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


# ---------------------------------------------------------------- the body
def _body(content_type: str, body: bytes, secrets: set[bytes]) -> tuple[Any, Any, int]:
    """The body as it is stored, its value if it is JSON, and how many secrets were in it. Adds to `secrets`."""
    if not body:
        return None, None, 0
    kind = content_type.lower()
    if kind.startswith("multipart/"):
        return {"$multipart": _parts(content_type, body)}, None, 0
    if kind.startswith("application/x-www-form-urlencoded"):
        pairs = [(name, value) for name, value in parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)]
        kept, found = _query(pairs, llm=False)
        secrets |= found
        return {"$form": kept}, None, len(found)
    if "json" in kind or body[:1] in b"{[":
        try:
            return _json_body(body, secrets)
        except (ValueError, RecursionError):
            return _opaque(*redact(body, secrets))
    return _opaque(*redact(body, secrets))


def _json_body(body: bytes, secrets: set[bytes]) -> tuple[Any, Any, int]:
    value = read_json(body)
    secrets |= set(_named_secrets(value))
    clean, hits = redact(body, _variants(secrets))
    if hits:
        value = read_json(clean)
    _canonical(value)
    return value, value, hits


def _opaque(clean: bytes, hits: int) -> tuple[Any, None, int]:
    return {"$sha256": hashlib.sha256(clean).hexdigest(), "$bytes": len(clean)}, None, hits


def _named_secrets(value: object) -> Iterable[bytes]:
    """Texts that stand under a name such as `authorization` or `api_key` (remote tools carry them in the body)."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            todo += one.values()
            for name, text in one.items():
                if isinstance(text, str) and (name.lower() == "authorization" or is_credential_item(name, text)):
                    yield from _words(text)
        elif isinstance(one, list):
            todo += one


def _parts(content_type: str, body: bytes) -> list[list[Any]]:
    """Each part by name, file name, type, hash and size. The boundary is random and does not count."""
    head = b"content-type: " + content_type.encode("latin-1", "replace") + b"\r\n\r\n"
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    described = []
    for part in message.iter_parts() if message.is_multipart() else ():
        content = part.get_payload(decode=True)
        content = content if isinstance(content, bytes) else b""
        name, file_name = part.get_param("name", header="content-disposition"), part.get_filename()
        kind = part.get_content_type() if file_name else None
        digest = hashlib.sha256(redact(content)[0]).hexdigest()
        described.append([str(name), file_name, kind, digest, len(content)])
    return described


# ---------------------------------------------------------------- credentials
def _query(pairs: Sequence[tuple[str, str]], *, llm: bool) -> tuple[list[list[str]], set[bytes]]:
    """What is kept of a query or form, sorted, and the secrets in it.

    Of a model's URL only known names are kept. Elsewhere the query is often the question itself: there, what looks
    like a credential by its name is left out.
    """
    kept, secrets = [], set()
    for name, value in pairs:
        if _is_credential_field(name):
            secrets |= set(_words(value))
        elif not llm or name in LLM_QUERY:
            kept.append([name, redact(value.encode())[0].decode("utf-8", "replace")])
        elif len(value) >= 2 * _SHORTEST_SECRET:
            secrets.add(value.encode())
    return sorted(kept), secrets


def public_query(query: bytes) -> bytes:
    """A URL's query without the values of credentials, for messages."""
    parts = []
    for part in query.split(b"&"):
        name, equals, value = part.partition(b"=")
        shown = b"redacted" if _is_credential_field(unquote_to_bytes(name).decode("utf-8", "replace")) else value
        parts.append(name + equals + redact(shown)[0])
    return b"&".join(parts)


def _is_credential_field(name: str) -> bool:
    return name.lower() in _CREDENTIAL_QUERY or is_credential_name(name)


def _header_secrets(headers: Mapping[str, str]) -> Iterable[bytes]:
    for name, value in headers.items():
        if name == "cookie":
            yield from (word for word in _words(value) if re.search(rb"\d", word))
        elif name in ("authorization", "proxy-authorization") or _is_key_header(name):
            yield from _words(value)
            yield from _basic(value)


@functools.lru_cache(maxsize=256)
def _is_key_header(name: str) -> bool:
    return is_credential_name(name) or (name.endswith(("-key", "_key")) and name != "idempotency-key")


def _words(value: str) -> Iterable[bytes]:
    """A credential as a whole, without its scheme, and its fields (`Signature=…`) if they don't look like words."""
    fields = [field for field in re.split(r"[\s,;]+|(?<=\w)=", value) if re.search(r"\d", field)]
    for word in [value, *value.split(), *fields]:
        found = word.strip("\"',;").encode("utf-8", "surrogateescape")
        if len(found) >= _SHORTEST_SECRET and found.lower() not in _NO_SECRETS:
            yield found


def _basic(value: str) -> Iterable[bytes]:
    scheme, _, token = value.partition(" ")
    if scheme.lower() == "basic":
        try:
            yield from _userinfo_secrets(base64.b64decode(token.strip()))
        except (binascii.Error, ValueError):
            return


def _userinfo_secrets(userinfo: bytes) -> Iterable[bytes]:
    user, _, password = userinfo.partition(b":")
    for part in (password or user, unquote_to_bytes(password or user), userinfo):
        if len(part) >= _SHORTEST_SECRET and part.lower() not in _NO_SECRETS:
            yield part


def _variants(secrets: Iterable[bytes]) -> tuple[bytes, ...]:
    """Secrets as they stand, as JSON and URLs write them, and in base64; the longest first."""
    found: set[bytes] = set()
    for secret in secrets:
        text = secret.decode("utf-8", "surrogateescape")
        found |= {secret, base64.b64encode(secret), quote(secret).encode()}
        found |= {json.dumps(text, ensure_ascii=a)[1:-1].encode("utf-8", "surrogateescape") for a in (True, False)}
    return tuple(sorted(found - {REDACTED}, key=lambda value: (-len(value), value)))
