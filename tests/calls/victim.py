"""A step with every kind of call, in a process that can be killed. A fork server imports this once."""

from __future__ import annotations

import asyncio
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import openai  # noqa: F401, the fork server shall have it

import resumable_nb
from resumable_nb import failpoints
from resumable_nb.llm.ask import aask
from tests.calls.clients import said


def work() -> list[Any]:
    """A plain call, a stream, two parallel calls, a stream that is left, and a call that depends on it all."""
    first = resumable_nb.ask("Q1")
    second = resumable_nb.ask(f"Q2 {first}", stream=True)
    pair = asyncio.run(_pair())
    prefix = []
    for chunk in resumable_nb.OpenAI().chat.completions.create(model="m", messages=said("Q5"), stream=True):
        prefix.append(chunk.choices[0].delta.content)
        if len(prefix) == 2:
            break
    return [first, second, pair, prefix, resumable_nb.ask(f"Q6 {first} {second} {pair} {prefix}")]


async def _pair() -> list[str]:
    return await asyncio.gather(aask("Q3"), aask("Q4"))


def run(db: Path, base_url: str, failpoint: str, connection: Connection) -> None:
    """Run the step and send what it gives, and the accounts after it; or die at the failpoint."""
    os.environ |= {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "sk-test-SECRET"}
    if failpoint:
        os.environ["RESUMABLE_NB_FAILPOINT"] = failpoint
        failpoints._ARMED = failpoints._armed()  # read at import, which is over
    with resumable_nb.open("t", db=db, query="q") as thread:
        result = thread.step("s", work)
        accounts = thread.sql("SELECT phase, key, coalesce(gen_ai_usage_output_tokens, 0) AS tokens FROM llm_calls")
    connection.send((result, accounts.to_dict("records")))
