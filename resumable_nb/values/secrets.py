"""What looks like a credential: by its name, by its form, or because the environment holds it.

The one place for these rules: values refuse to store what they find here, and the HTTP layer redacts it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

WHY = "looks like a credential"
REDACTED = b"[redacted]"
MIN_ENVIRONMENT_LENGTH = 12
"""Shorter values of credential-like variables are too likely to occur in ordinary text."""

_B64URL = rb"[A-Za-z0-9_-]"
# A fixed text that each token contains → the pattern of the whole token. Looking for the fixed text first is a plain
# memory search, so that megabytes of text cost milliseconds. The look-behind keeps "task-…" and "risk-…" out.
_PATTERNS: dict[bytes, re.Pattern[bytes]] = {
    fixed: re.compile(rb"(?<![A-Za-z0-9_-])" + pattern, re.DOTALL)
    for fixed, pattern in {
        # … and the look-ahead a slug of plain words such as "sk-learn-contrib-package".
        b"sk-": rb"sk-(?!(?:[a-z]{1,12}[-_])+[a-z]{1,12}(?![A-Za-z0-9_-]))" + _B64URL + rb"{16,}",
        b"sk_": rb"sk_(?:live|test)_[A-Za-z0-9]{16,}",
        b"rk_": rb"rk_(?:live|test)_[A-Za-z0-9]{16,}",
        b"AIza": rb"AIza" + _B64URL + rb"{30,}",
        b"ya29.": rb"ya29\." + _B64URL + rb"{20,}",
        b"ghp_": rb"ghp_[A-Za-z0-9]{30,}",
        b"gho_": rb"gho_[A-Za-z0-9]{30,}",
        b"ghu_": rb"ghu_[A-Za-z0-9]{30,}",
        b"ghs_": rb"ghs_[A-Za-z0-9]{30,}",
        b"ghr_": rb"ghr_[A-Za-z0-9]{30,}",
        b"github_pat_": rb"github_pat_[A-Za-z0-9_]{30,}",
        b"glpat-": rb"glpat-" + _B64URL + rb"{20,}",
        b"xox": rb"xox[abeoprs]-[A-Za-z0-9-]{10,}",
        b"AKIA": rb"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])",
        b"ASIA": rb"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])",
        b"eyJ": rb"eyJ" + _B64URL + rb"{10,}\." + _B64URL + rb"{10,}\." + _B64URL + rb"{10,}",
        b"hf_": rb"hf_[A-Za-z0-9]{30,}",
        b"gsk_": rb"gsk_[A-Za-z0-9]{30,}",
        b"xai-": rb"xai-[A-Za-z0-9]{30,}",
        b"pypi-": rb"pypi-" + _B64URL + rb"{50,}",
        b"npm_": rb"npm_[A-Za-z0-9]{30,}",
    }.items()
} | {
    b"PRIVATE KEY-----": re.compile(
        rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    # user:password@ of a URL. Bounded, so that a long text of colons costs no quadratic time.
    b"://": re.compile(rb"(?<=://)[^\s/:@\"'<>]{0,128}:[^\s/@\"'<>]{1,256}(?=@)"),
}

_ENVIRONMENT_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL", re.IGNORECASE)


def environment_secrets(environment: Mapping[str, str] | None = None) -> list[bytes]:
    """Values of credential-like environment variables, longest first, as they stand and as JSON writes them."""
    values: set[bytes] = set()
    for name, value in (os.environ if environment is None else environment).items():
        if len(value) >= MIN_ENVIRONMENT_LENGTH and _ENVIRONMENT_NAME.search(name):
            values.add(os.fsencode(value))
            for ascii_only in (True, False):
                values.add(json.dumps(value, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogateescape"))
    return sorted(values, key=lambda value: (-len(value), value))


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
    for fixed, pattern in _PATTERNS.items():
        if fixed in body:
            body, found = pattern.subn(REDACTED, body)
            hits += found
    return body, hits


def contains_secret(body: bytes, environment: Iterable[bytes] | None = None) -> bool:
    """Whether `redact` would find something. `environment`: what `environment_secrets()` gave, if it is at hand."""
    secrets = environment_secrets() if environment is None else environment
    return any(secret in body for secret in secrets) or any(
        fixed in body and pattern.search(body) for fixed, pattern in _PATTERNS.items()
    )


def redact_text(text: str) -> str:
    """`text` without credentials, for messages."""
    return redact(text.encode("utf-8", "surrogatepass"))[0].decode("utf-8", "surrogatepass")


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
    """Whether a name says that it holds a credential: `api_key`, `GITHUB_TOKEN`, `dbPassword`; not `tokens` or `key`."""
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
