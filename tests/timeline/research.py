"""A piece of research in processes that die: what the timeline has to tell. `python research.py STORE THREAD PART URL`."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import resumable_nb
from resumable_nb import approve, durable, effect

EVIL = "<img src=x onerror=alert(1)><script>window.hit=1</script> [x](javascript:alert(1)) </script><!--"


@durable
def look_up(topic: str) -> str:
    time.sleep(0.05)
    return f"{topic}: three sources {EVIL}"


@effect(key="send-{to}")
def send(to: str) -> dict[str, str]:
    if os.environ.get("PART") == "doubt":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"sent": to}


def main(db: str, thread_id: str, _part: str, url: str) -> None:
    client = resumable_nb.OpenAI(base_url=url, api_key="sk-test-SECRET")

    def ask(marker: str, model: str = "gpt-4o-mini") -> str:
        told = [
            {"role": "system", "content": f"Answer in brief. {EVIL}"},
            {"role": "user", "content": f"{marker}: {EVIL}"},
        ]
        return client.chat.completions.create(model=model, messages=told).choices[0].message.content or ""

    def plan(state: Any) -> None:
        state.update(plan=[f"sources {EVIL}", "read", "send"])
        ask("Q1")

    def sources(state: Any) -> None:
        for number in range(2, 7):
            state.update(findings=[{"claim": f"{ask(f'Q{number}')} {EVIL}", "source": look_up(f"topic {number}")}])
            if os.environ["PART"] == "kill" and number == 4:
                os.kill(os.getpid(), signal.SIGKILL)

    def rank(state: Any) -> None:
        ask("Q7", "gpt-4o")
        if os.environ["PART"] == "fail":
            raise RuntimeError(f"the ranking broke {EVIL}")

    def report(state: Any) -> None:
        approve(f"Send the report? {EVIL}", {"to": "lab", "note": EVIL})
        ask("Q8", "gpt-4o")
        send("lab")
        state.update(findings=[{"claim": "sent", "source": "lab"}])

    with resumable_nb.open(thread_id, db=db, query=f"What do bees like? {EVIL}") as thread:
        for name, step in (
            ("plan", plan),
            ("sources", sources),
            ("rank", rank),
            (f"report <b>{EVIL[:14]}</b>", report),
        ):
            thread.step(name, step)


if __name__ == "__main__":
    os.environ["PART"] = sys.argv[3]
    main(*sys.argv[1:])
