"""Effects under `resumable-nb verify`: its ledger acts in place of the outside world. Standard library only.

`RESUMABLE_NB_LEDGER` is the ledger's URL. What it takes, in JSON:

    POST URL/…             an act; the `Idempotency-Key` header is its key. The answer is its receipt
    GET  URL/keys/KEY      the receipt of a key, or 404
    POST URL/tokens        a new credential; acts that bring `Authorization: Bearer …` are refused when it is revoked
    GET  URL/tokens/TOKEN  200 while it is valid, else 404
    DELETE URL/tokens      none of them is valid any more
    GET  URL/acts          all acts, oldest first: effect, key, arguments, receipt
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from resumable_nb.errors import UsageError

if TYPE_CHECKING:
    from resumable_nb.calls.rules import EffectRules

Rehearsal = bool | Callable[..., Any] | Literal["own"]
_TIMEOUT_S = 30


class Ledger:
    """The verifier's ledger, as a notebook sees it. It keeps every act; `verify` reads how often each was done.

    Args:
        url: where it listens.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def act(
        self,
        effect: str,
        *,
        key: str = "",
        arguments: Mapping[str, object] | None = None,
        receipt: object = None,
        token: str | None = None,
        honours_keys: bool = False,
    ) -> Any:
        """Do something, here in the ledger.

        Args:
            effect: what is done.
            key: the idempotency key.
            arguments: what it is done with.
            receipt: what the outside world would answer; None: the effect and its key.
            token: a credential that must be valid.
            honours_keys: a key that was seen gets the first receipt, and nothing is done.

        Returns:
            The receipt, as plain JSON values.
        """
        body = {"arguments": dict(arguments or {}), "receipt": receipt, "honours_keys": honours_keys}
        headers = {"Idempotency-Key": key} | ({"Authorization": f"Bearer {token}"} if token else {})
        return self._call(f"/{quote(effect, safe='')}", body, headers)

    def find(self, key: str) -> Any:
        """The receipt of a key, or None if it was never done: a `lookup=`."""
        return self._call(f"/keys/{quote(key, safe='')}")

    def token(self) -> str:
        """A new credential: an `acquire=`."""
        return str(self._call("/tokens", {})["token"])

    def is_valid(self, token: str) -> bool:
        """Whether a credential is not revoked: a `probe=`."""
        return self._call(f"/tokens/{quote(token, safe='')}") is not None

    def revoke(self) -> None:
        """No credential that was given out is valid any more."""
        self._call("/tokens", method="DELETE")

    def acts(self) -> list[dict[str, Any]]:
        """All that was done, oldest first: effect, key, arguments and receipt of each."""
        found: list[dict[str, Any]] = self._call("/acts")
        return found

    def _call(
        self, path: str, body: object = None, headers: Mapping[str, str] | None = None, *, method: str | None = None
    ) -> Any:
        data = None if body is None else json.dumps(body, default=repr).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self._url + path, data, sent, method=method)  # noqa: S310 - verify gives it
        try:
            with _opener().open(request, timeout=_TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise


def _opener() -> urllib.request.OpenerDirector:
    """Without the proxies of the environment: the ledger is on this machine."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ledger() -> Ledger | None:
    """The verifier's ledger; None where the notebook does not run under `resumable-nb verify`."""
    url = os.environ.get("RESUMABLE_NB_LEDGER")
    return Ledger(url) if url else None


def check(rules: EffectRules) -> None:
    """Nothing is done in the real world while a notebook is verified.

    Raises:
        UsageError: the effect does not say what stands in for it.
    """
    if not rules.rehearsal and ledger() is not None:
        raise UsageError(
            f"`{rules.name}` changes something outside and does not say what stands in for it under `resumable-nb "
            "verify`, so it was not run. Declare it with `@effect(…, rehearsal=True)`, or with a function that gives "
            "the receipt."
        )


def stands_in(rehearsal: Rehearsal) -> Ledger | None:
    """The ledger that acts, and is asked, in place of such an effect; None: its own function does."""
    return None if rehearsal == "own" else ledger()


def act(desk: Ledger, rules: EffectRules, key: str, arguments: Mapping[str, object]) -> Any:
    """Act in the ledger; gives the receipt."""
    receipt = rules.rehearsal(**arguments) if callable(rules.rehearsal) else None
    honours_keys = rules.idempotent and rules.lookup is None
    return desk.act(rules.name, key=key, arguments=arguments, receipt=receipt, honours_keys=honours_keys)
