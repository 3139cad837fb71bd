"""What looks like a credential: by its name, by its form, or because the environment holds it.

The one place for these rules: values refuse to store what they find here, and the HTTP layer redacts it.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

WHY = "looks like a credential"
REDACTED = b"[redacted]"
MIN_ENVIRONMENT_LENGTH = 12
"""Shorter values of credential-like variables are too likely to occur in ordinary text."""

_WORDS = rb"[A-Za-z0-9_-]"
# A token begins where no word goes on ("task-…"), or after an escape such as the \n of a JSON text.
_START = rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[bfnrt])|(?<=\\u00[0-9a-f][0-9a-f]))"
# Prefix → what follows it. Of a fixed width each, with the rare character that a search can jump to at its end.
_TOKENS: dict[bytes, bytes] = {
    # The look-ahead keeps slugs of plain words out, such as "sk-learn-contrib-package".
    rb"sk-": rb"(?!(?:[a-z]{1,12}[-_])+[a-z]{1,12}(?![A-Za-z0-9_-]))" + _WORDS + rb"{16,}",
    rb"glpat-": _WORDS + rb"{20,}",
    rb"xox[abeoprs]-": rb"[A-Za-z0-9-]{10,}",
    rb"xai-": rb"[A-Za-z0-9]{30,}",
    rb"pypi-": _WORDS + rb"{50,}",
    rb"[sr]k_": rb"(?:live|test)_[A-Za-z0-9]{16,}",
    rb"gh[pousr]_": rb"[A-Za-z0-9]{30,}",
    rb"github_pat_": rb"[A-Za-z0-9_]{30,}",
    rb"hf_": rb"[A-Za-z0-9]{30,}",
    rb"gsk_": rb"[A-Za-z0-9]{30,}",
    rb"npm_": rb"[A-Za-z0-9]{30,}",
    rb"AIza": _WORDS + rb"{30,}",
    rb"A[KS]IA": rb"[A-Z0-9]{16}(?![A-Za-z0-9])",
    rb"ya29\.": _WORDS + rb"{20,}",
    rb"eyJ": _WORDS + rb"{10,}\." + _WORDS + rb"{10,}\." + _WORDS + rb"{10,}",
}
_KEY_BLOCK = (  # up to its end, or as far as it looks like a key
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    rb"(?:.{1,8192}?-----END [A-Z ]*PRIVATE KEY-----|(?:[A-Za-z0-9+/=\s:,-]|\\[nr]){40,})"
)
# user:password@ of a URL. Bounded, so that a long text of colons costs no quadratic time.
_IN_URL = re.compile(rb"://[^\s/?#:@\"'<>]{0,128}:[^\s/?#@\"'<>]{1,256}@")
_SCHEME_AFTER_QUOTE = re.compile(rb"(?:\A|\")[A-Za-z][A-Za-z0-9+.-]{1,30}\Z")
_REST_TO_QUOTE = re.compile(rb"[^\s\"]*(?:\"|\Z)")


def _searches() -> Iterator[re.Pattern[bytes]]:
    """Few patterns, each of which begins with a literal: Python finds that by memchr, at about 1 ns a byte in all.

    An alternation of the prefixes would cost 50 ns a byte.
    """
    for end in (b"-", b"_"):
        branches = [rb"(?<=%s%s)%s" % (_START, *token) for token in _TOKENS.items() if token[0].endswith(end)]
        yield re.compile(end + b"(?:" + b"|".join(branches) + b")")
    for prefix, rest in _TOKENS.items():
        if not prefix.endswith((b"-", b"_")):
            yield re.compile(rb"%s(?<=%s%s)%s" % (prefix, _START, prefix, rest))
    yield re.compile(_KEY_BLOCK, re.DOTALL)


_SEARCHES = tuple(_searches())
_REPLACEMENTS = (
    re.compile(b"|".join(rb"%s%s%s" % (_START, *token) for token in _TOKENS.items())),
    re.compile(_KEY_BLOCK, re.DOTALL),
)

_ENVIRONMENT_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL", re.IGNORECASE)


def environment_secrets(environment: Mapping[str, str] | None = None) -> list[bytes]:
    """Values of credential-like environment variables, longest first, as they stand and as JSON writes them."""
    if environment is not None:
        return _secrets_of(environment)
    raw = getattr(os.environ, "_data", os.environ)  # decoding all of it for every value that is stored would be felt
    return list(_secrets_of_process(tuple(raw.items())))


@functools.lru_cache(maxsize=4)
def _secrets_of_process(_now: tuple[tuple[object, object], ...]) -> list[bytes]:
    return _secrets_of(os.environ)


def _secrets_of(environment: Mapping[str, str]) -> list[bytes]:
    values: set[bytes] = set()
    for name in environment:
        if _ENVIRONMENT_NAME.search(name) and len(value := environment.get(name, "")) >= MIN_ENVIRONMENT_LENGTH:
            values.add(os.fsencode(value))
            for ascii_only in (True, False):
                values.add(json.dumps(value, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogateescape"))
    return sorted(values, key=lambda value: (-len(value), value))


_held: set[bytes] = set()
_HELD_AT_LEAST = 4


def hold(value: object) -> None:
    """Remember the texts in a credential of this process, such as a token that a resource acquired, for `hidden`."""
    parts = [value]
    if isinstance(value, Mapping):
        parts = list(value.values())
    elif not isinstance(value, str | bytes):
        parts = list(getattr(value, "__dict__", {}).values())
    for part in parts:
        if isinstance(part, str | bytes) and len(part) >= _HELD_AT_LEAST:
            _held.add(part.encode("utf-8", "replace") if isinstance(part, str) else part)


def hidden(text: str) -> str:
    """A text that only people read, without credentials: those that `redact` finds, and those that are held.

    A short one is hidden where it stands alone: one that is the word "token" must not hide half of "max_tokens".
    """
    body, _ = redact(text.encode("utf-8", "replace"), {v for v in _held if len(v) >= MIN_ENVIRONMENT_LENGTH})
    for short in sorted((v for v in _held if len(v) < MIN_ENVIRONMENT_LENGTH), key=len, reverse=True):
        body = re.sub(rb"\b%s\b" % re.escape(short) if short.isalnum() else re.escape(short), REDACTED, body)
    return body.decode("utf-8", "replace")


def hidden_in(shown: Any) -> Any:
    """The same for all texts in a JSON value."""
    if isinstance(shown, str):
        return hidden(shown)
    if isinstance(shown, list):
        return [hidden_in(part) for part in shown]
    return {name: hidden_in(part) for name, part in shown.items()} if isinstance(shown, dict) else shown


def redact(body: bytes, extra: Iterable[bytes] = ()) -> tuple[bytes, int]:
    """`body` with every credential in it replaced, and how many there were.

    Args:
        body: any bytes; text is expected to be UTF-8.
        extra: further values that must not be kept, such as the ones in a request's headers.
    """
    hits = 0
    for secret in sorted({value for value in extra if value}, key=len, reverse=True) + environment_secrets():
        if secret in body:
            hits += body.count(secret)
            body = body.replace(secret, REDACTED)
    if _has_token(body):
        for pattern in _REPLACEMENTS:
            body, found = pattern.subn(REDACTED, body)
            hits += found
    return body, hits


def contains_secret(body: bytes, environment: Iterable[bytes] | None = None) -> bool:
    """Whether `redact` would find something, or a whole text is a URL with a password.

    Not every such URL counts: explanations are full of them, and an answer with one must be kept as it is.

    Args:
        body: bytes of a text, or JSON.
        environment: what `environment_secrets()` gave, if it is at hand.
    """
    secrets = environment_secrets() if environment is None else environment
    return any(secret in body for secret in secrets) or _has_token(body) or _is_url_with_password(body)


def _is_url_with_password(body: bytes) -> bool:
    return any(
        _SCHEME_AFTER_QUOTE.search(body[max(0, found.start() - 32) : found.start()])
        and _REST_TO_QUOTE.match(body, found.end())
        for found in _IN_URL.finditer(body)
    )


def _has_token(body: bytes) -> bool:
    return any(search.search(body) for search in _SEARCHES)


def redact_text(text: str) -> str:
    """`text` without credentials, for messages."""
    body = _IN_URL.sub(b"://[redacted]@", text.encode("utf-8", "surrogatepass"))
    return redact(body)[0].decode("utf-8", "surrogatepass")


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SUFFIXES = {"value", "str", "string", "text", "raw", "env", "header", "plain"}
_ALWAYS = {"password", "passwd", "pwd", "passphrase", "apikey", "secret", "secrets", "credential", "credentials"}
_MOSTLY = {"token", "auth", "bearer", "jwt"}
_KEYS = {"api", "access", "secret", "private", "auth", "ssh", "encryption", "signing", "master", "account", "service"}
_VENDORS = {"openai", "anthropic", "mistral", "google", "gemini", "github", "hf", "aws", "azure", "stripe", "groq"}
# A token of a text or of a page is no credential.
_PLAIN_TOKENS = {
    *("next", "page", "stop", "end", "start", "first", "last", "prev", "previous", "new", "special", "sep", "cls"),
    *("eos", "bos", "pad", "mask", "unk", "sync", "continuation", "input", "output", "prompt", "per", "max", "min"),
}


@lru_cache(maxsize=4096)
def is_credential_name(name: str) -> bool:
    """Whether a name says that it holds a credential: `api_key`, `GITHUB_TOKEN`, `dbPassword`; not `tokens`, `key`."""
    if len(name) > 80:
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    while words and (words[-1].isdigit() or words[-1] in _SUFFIXES):
        words.pop()
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "key":
        return before in _KEYS or before in _VENDORS
    return last in _ALWAYS or (last in _MOSTLY and before not in _PLAIN_TOKENS)


def is_credential_item(name: str, value: object) -> bool:
    """Whether a text or bytes under this key or field must not be stored.

    Stricter than for a notebook's name: models of language APIs have fields called `token` that hold a word.
    """
    if type(value) not in (str, bytes, bytearray) or not value or not is_credential_name(name):
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    certain = any(word in _ALWAYS - {"secret", "secrets"} or word == "key" for word in words)
    text = value if isinstance(value, str) else bytes(value).decode("latin-1")  # type: ignore[call-overload]  # checked above
    return certain or (len(text) >= 16 and not re.search(r"\s", text))
