"""When a request is sent again, and after how long: what the OpenAI SDK does, which is told to retry nothing itself."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import tenacity
from tenacity import RetryCallState

DEFAULT_MAX_RETRIES = 2
MAX_WAIT_S = 120.0
"""A server that wants us to wait longer gets no second request: its error is the answer."""

_FIRST_WAIT_S, _LONGEST_BACKOFF_S = 0.5, 8.0
_ANNOUNCED_FROM_S = 5.0
_log = logging.getLogger("resumable_nb.calls")


class Answering(Protocol):
    """What of a response decides about a retry."""

    @property
    def status_code(self) -> int:
        """Of HTTP."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """By name in any case."""
        ...


def wants_retry(response: Answering) -> bool:
    """Whether the server might answer the same request well, later."""
    said = response.headers.get("x-should-retry")
    if said in ("true", "false"):
        return said == "true"
    return response.status_code in (408, 409, 429) or response.status_code >= 500


def wait_s(attempt: int, headers: Mapping[str, str]) -> float:
    """Seconds before the next attempt: what the server asks for, else growing ones.

    Args:
        attempt: how many there have been.
        headers: of the response to the last one; empty if there was none.
    """
    asked = _asked_s(headers)
    if asked is not None:
        return max(asked, 0.0)
    backoff = min(_FIRST_WAIT_S * 2.0 ** (attempt - 1), _LONGEST_BACKOFF_S)
    return backoff * random.uniform(0.75, 1.0)  # noqa: S311, spreads load


def _asked_s(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds or as a date (RFC 9110, section 10.2.3), and OpenAI's in milliseconds."""
    try:
        if "retry-after-ms" in headers:
            return float(headers["retry-after-ms"]) / 1e3
        value = headers["retry-after"]
        number = value.strip().replace(".", "", 1).isdigit()
        return float(value) if number else parsedate_to_datetime(value).timestamp() - time.time()
    except (KeyError, ValueError, TypeError):
        return None


def policy(max_retries: int, *, transient: Callable[[BaseException], bool], name: str) -> dict[str, Any]:
    """Keyword arguments for tenacity's `Retrying` and `AsyncRetrying`. When it gives up, the last outcome stands.

    Args:
        max_retries: how often a request may be sent again.
        transient: whether an exception is one of the connection.
        name: of the request, for the log.
    """

    def wait(state: RetryCallState) -> float:
        outcome = state.outcome
        return wait_s(state.attempt_number, {} if outcome is None or outcome.failed else outcome.result().headers)

    def announce(state: RetryCallState) -> None:
        if state.upcoming_sleep >= _ANNOUNCED_FROM_S:
            _log.warning("%s: trying again in %.0f s (%s)", name, state.upcoming_sleep, _outcome(state))

    return {
        "retry": tenacity.retry_if_exception(transient) | tenacity.retry_if_result(wants_retry),
        "stop": lambda state: state.attempt_number > max_retries or state.upcoming_sleep > MAX_WAIT_S,
        "wait": wait,
        "before_sleep": announce,
        "retry_error_callback": lambda state: state.outcome.result(),
    }


def _outcome(state: RetryCallState) -> str:
    outcome = state.outcome
    if outcome is None or outcome.failed:
        return type(outcome.exception()).__name__ if outcome else "no answer"
    return f"HTTP {outcome.result().status_code}"
