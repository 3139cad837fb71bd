"""Credentials are not stored, and not shown."""

from __future__ import annotations

import base64
import json
import random
import string
from typing import Any

import numpy as np
import pandas as pd
import pytest

from resumable_nb.errors import ValueNotStorable
from resumable_nb.values import encode, encode_names, redact
from resumable_nb.values.secrets import contains_secret, hidden, hold, is_credential_item, is_credential_name
from tests.values import models as m

dice = random.Random(5)


def some(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(dice.choice(alphabet) for _ in range(length))


TOKENS = {
    "OpenAI": "sk-" + some(48),
    "OpenAI project": "sk-proj-" + some(40) + "_" + some(9),
    "Anthropic": "sk-ant-api03-" + some(60),
    "OpenRouter": "sk-or-v1-" + some(64, "0123456789abcdef"),
    "GitHub": "ghp_" + some(36),
    "GitHub fine-grained": "github_pat_" + some(60),
    "GitLab": "glpat-" + some(20),
    "Slack": "xoxb-123456789012-" + some(20),
    "AWS": "AKIA" + some(16, string.ascii_uppercase + "234567"),
    "Hugging Face": "hf_" + some(34),
    "Google": "AIza" + some(35),
    "Google OAuth": "ya29." + some(60),
    "JWT": ".".join(("eyJ" + some(30), some(40), some(43))),
    "Stripe": "sk_live_" + some(24),
    "PyPI": "pypi-" + some(90),
    "key block": f"-----BEGIN RSA PRIVATE KEY-----\nMIIE{some(64)}\n{some(64)}==\n-----END RSA PRIVATE KEY-----",
    "cut key block": f"-----BEGIN PRIVATE KEY-----\nMIIE{some(64)}\n{some(64)}",
    "password of a URL": "postgresql://reader:hunter22@db.example/x",
}
AROUND = ["%s", "key=%s", "Bearer %s, x", "a\n%s\nb", "\t%s", '{"k": "%s"}', "é%sé", "\x01%s\x02", "(%s)"]


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("around", AROUND)
def test_a_token_is_found_wherever_it_stands(kind: str, around: str) -> None:
    """In plain text and in JSON, at the beginning, in the middle, after an escape; and nothing else is redacted."""
    token = TOKENS[kind]
    for text in (around % token, json.dumps(around % token, ensure_ascii=False), json.dumps([{"x": around % token}])):
        if "\\u00e9" in text:
            continue  # "\u00e9sk-…" of an ASCII JSON is found, too, but by the look of the escape
        if kind == "password of a URL":  # explanations are full of them: only a whole text counts, and answers are kept
            assert contains_secret(text.encode()) == (around in ("%s", '{"k": "%s"}'))
            assert redact(text.encode()) == (text.encode(), 0)
            continue
        clean, hits = redact(text.encode())
        assert hits == 1
        assert contains_secret(text.encode())
        assert token.encode() not in clean
        assert not contains_secret(clean)


def test_a_url_with_a_password_is_not_stored() -> None:
    """If it is the whole text; and no message shows its password."""
    url = TOKENS["password of a URL"]
    encoded = encode_names(
        {"a": url, "b": [{"x": (url,)}], "c": np.array([url]), "d": {url: len}, "e": f"see {url} for an example"}
    )

    assert set(encoded.failed) == set("abcd")
    assert "hunter22" not in repr(encoded.failed)


@pytest.mark.parametrize("kind", [kind for kind in TOKENS if kind != "password of a URL"])
def test_a_value_with_a_token_is_not_stored_and_not_shown(kind: str) -> None:
    """As a text, in a key, in bytes, in an array, in a frame; the error does not repeat it."""
    token = TOKENS[kind]
    packed = base64.b64encode(token.encode()).decode()
    array = np.empty(2, object)
    array[:] = [1, token]
    places: list[Any] = [
        token,
        [1, {"a": (token,)}],
        {token: 1},
        {token: "\ud800"},
        {(1, token): 1},
        token.encode(),
        bytearray(b"\x00" + token.encode()),
        {token},
        m.Finding(token),
        m.Base(name="x", tags=[token]),
        np.array([token]),
        np.array([token.encode()]),
        np.frombuffer(token.encode(), "u1").copy(),
        array,
        pd.DataFrame({"a": [token]}),
        pd.Series([1], index=[token]),
        pd.DataFrame({token: [1]}),
        pd.Series([1], name=token),
        pd.Categorical([token]),
    ]
    for place in places:
        with pytest.raises(ValueNotStorable, match="looks like a credential") as caught:
            encode({"outer": place}, path="names['cfg']")
        assert token not in str(caught.value)
        encoded = encode_names({"a": place, "b": 2})
        assert encoded.text == '{"b":2}'
        assert encoded.failed["a"].endswith("looks like a credential")
        assert token not in repr(encoded)
        assert packed not in repr(encoded)


def test_a_token_that_spans_several_values_is_not_stored() -> None:
    """The lines of a key file are a key."""
    lines = TOKENS["key block"].splitlines(keepends=True)

    with pytest.raises(ValueNotStorable, match="looks like a credential"):
        encode({"lines": lines})
    assert encode_names({"lines": lines, "n": 1}).failed == {"lines": "looks like a credential"}


def test_values_of_credential_variables_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their form, also escaped, also inside a longer text; short values and other variables are free."""
    monkeypatch.setenv("LAB_API_KEY", 'odd "quoted" \\ value é')
    monkeypatch.setenv("LAB_TOKEN", "a-plain-local-secret")
    monkeypatch.setenv("SHORT_KEY", "local")
    monkeypatch.setenv("LAB_FOLDER", "/home/someone/research")

    for value in [
        'x odd "quoted" \\ value é y',
        ["a-plain-local-secret"],
        b"\xffa-plain-local-secret",
        {"a-plain-local-secret": 1},
    ]:
        assert encode_names({"v": value}).failed == {"v": encode_names({"v": value}).failed["v"]}
        assert encode_names({"v": value}).failed["v"].endswith("looks like a credential")
    assert not encode_names({"v": ["local", "/home/someone/research"]}).failed
    assert redact(json.dumps({"a": 'odd "quoted" \\ value é'}).encode()) == (b'{"a": "[redacted]"}', 1)
    assert redact(b"x a-plain-local-secret and header-value", extra=[b"header-value"]) == (
        b"x [redacted] and [redacted]",
        2,
    )


@pytest.mark.parametrize(
    "text",
    [
        "task-force-on-energy-storage-2030",
        "risk-assessment-framework",
        "sk-learn-contrib-packages-of-2020s"[:27],
        "desk-" + "aB3" * 20,
        "see https://example.org:8080/a@b",
        "http://host/path:x@y",
        "a file begins with -----BEGIN PRIVATE KEY----- here.",
        "my_hf_model_of_things",
        "x" * 5000,
        "eyJ.no.jwt",
        "://" + "a:" * 5000,
        "connect with postgresql://user:password@host/db, then ask",
        "https://example.org:443?mail=a@b.example",
        "ratio 3:4 @ noon",
        "sk-short",
        "AKIA is a prefix",
        base64.b64encode(bytes(range(256)) * 9).decode(),
    ],
)
def test_ordinary_text_is_stored(text: str) -> None:
    """Slugs, links, encoded data and talk about keys are no keys."""
    assert redact(text.encode()) == (text.encode(), 0)
    assert not encode_names({"v": text}).failed


CREDENTIALS = [
    "api_key",
    "API_KEY",
    "apiKey",
    "openai_api_key",
    "OPENAI_KEY",
    "token",
    "auth_token",
    "GITHUB_TOKEN",
    "hf_token",
    "accessToken",
    "password",
    "db_password",
    "dbPassword",
    "secret",
    "client_secret",
    "SECRET_KEY",
    "secrets",
    "credentials",
    "aws_secret_access_key",
    "private_key",
    "passphrase",
    "api_key_2",
    "api_key2",
    "bearer",
    "jwt",
    "pwd",
    "token_str",
]
ORDINARY = [
    "tokens",
    "max_tokens",
    "token_count",
    "n_tokens",
    "key",
    "keys",
    "sort_key",
    "primary_key",
    "cache_key",
    "tokenizer",
    "next_page_token",
    "stop_token",
    "eos_token",
    "monkey",
    "api",
    "idempotency_key",
    "secretary",
    "password_count",
    "cwd",
    "author",
    "authors",
    "x",
    "token_ids",
    "prompt_tokens",
    "keyword",
    "_",
    "_1",
    "key_findings",
    "usage",
]


@pytest.mark.parametrize("name", CREDENTIALS)
def test_names_of_credentials_are_not_stored(name: str) -> None:
    """Whatever text they hold; nothing and numbers are no credentials."""
    assert is_credential_name(name)
    assert encode_names({name: "anything"}).failed == {name: "looks like a credential"}
    assert encode_names({name: ["any", "thing"]}).failed == {name: "looks like a credential"}
    assert not encode_names({name: None}).failed
    assert not encode_names({name: 7}).failed
    assert not encode_names({name: ""}).failed


@pytest.mark.parametrize("name", ORDINARY)
def test_names_that_only_sound_like_it_are_stored(name: str) -> None:
    """Counts of tokens, keys of tables and the like."""
    assert not encode_names({name: "anything"}).failed


def test_secrets_of_pydantic_and_fields_of_credentials_are_not_stored() -> None:
    """In a model, a dict, a dataclass, however deep; and with them what shares an object with them."""
    import pydantic

    shared = [1]
    word = pydantic.SecretStr("hunter22")
    encoded = encode_names(
        {
            "a": word,
            "b": [pydantic.SecretBytes(b"hunter22")],
            "c": m.WithSecret(login="x", word=word),
            "d": {"password": "hunter22"},
            "e": {"deep": [{"apiKey": "hunter22", "list": shared}]},
            "f": m.Extra(client_secret="hunter22hunter22"),
            "g": shared,
            "h": {"token": "word", "password": None},
        }
    )

    assert set(encoded.failed) == set("abcdefg")
    assert "hunter22" not in repr(encoded)
    assert encoded.failed["d"] == "['password']: looks like a credential"
    assert encoded.failed["g"] == "it shares an object with 'e', which cannot be stored"


def test_a_word_under_token_is_no_credential() -> None:
    """Answers of models with log probabilities have a field of that name for each word."""
    assert not is_credential_item("token", "solar")
    assert not is_credential_item("token", " and so on, with blanks")
    assert is_credential_item("token", "0123456789abcdef0123")
    assert is_credential_item("password", "x")


def test_a_short_token_is_hidden_where_it_stands_alone() -> None:
    """A resource's token may be an ordinary word: it is hidden as such, not in the middle of other words."""
    for token in ("token", "p-4!", "Zq8Zq8Zq8Zq8"):
        hold(token)

    assert hidden("max_tokens is 3, not token, ('token')") == "max_tokens is 3, not [redacted], ('[redacted]')"
    assert hidden("?p=p-4!&x=aZq8Zq8Zq8Zq8b") == "?p=[redacted]&x=a[redacted]b"
