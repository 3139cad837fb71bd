"""`resumable-nb demo`: the quickstart on real texts, its kernel killed in the middle, and what was not done again."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from resumable_nb.errors import StateMismatch, UsageError
from resumable_nb.terminal import one_line, table

THREAD, NOTEBOOK, STORE, REPORT = "quickstart", "01_quickstart.ipynb", "research.duckdb", "report.md"
_KILL = "http.receive.after:4"  # the third question of the research is answered; its findings are not yet in the state
_KEYS = ("OPENAI_", "ANTHROPIC_", "RESUMABLE_NB_")

_SENT_TWICE = """
SELECT count(*) FROM (
    SELECT 1 FROM journal WHERE thread_id = ? AND kind = 'llm' AND phase = 'started'
    GROUP BY step, key, occurrence HAVING count(*) > 1)"""
_RECOVERY = "SELECT data FROM recoveries WHERE thread_id = ? ORDER BY seq DESC LIMIT 1"
_SESSIONS = """
SELECT s.first_seq, s.last_at, min(j.ts) FILTER (j.kind = 'llm' AND j.phase = 'started') AS first_call_at,
       count(*) FILTER (j.kind = 'llm' AND j.phase IN ('done', 'partial')) AS answered
FROM sessions s JOIN journal j USING (thread_id, session_id) WHERE s.thread_id = ? GROUP BY ALL ORDER BY s.first_seq"""
_STEPS_BEFORE = "SELECT count(*) FROM checkpoints WHERE thread_id = ? AND origin = 'step' AND seq < ?"
_CALLS_OF_THEM = """
SELECT count(*) FROM llm_calls l WHERE thread_id = ? AND phase = 'done' AND seq < ? AND step IN (
    SELECT step FROM checkpoints c WHERE c.thread_id = l.thread_id AND c.origin = 'step' AND c.seq < ?)"""
_FINDINGS = """
SELECT finding->>'question' AS question, finding->>'quote' AS quote, finding->>'source' AS source,
       finding->>'location' AS location
FROM findings WHERE thread_id = ? AND is_current"""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What going on after the kill took.

    Attributes:
        skipped: steps that were done before it and did not run again.
        replayed: calls answered from the journal inside the step that was under way.
        spared: calls of the skipped steps.
        again: calls that were in flight when the kernel died and had to be sent once more.
        sent_twice: requests that the journal holds twice.
        seconds: from the last thing the killed kernel wrote to the first new call of the next one.
    """

    skipped: int
    replayed: int
    spared: int
    again: int
    sent_twice: int
    seconds: float


def run_demo(folder: Path | None, *, live: bool, kill: bool, say: Callable[[str], None]) -> int:
    """Run the quickstart in a new folder, and show what happened. It leaves notebook, store and report there.

    Args:
        folder: made by this; by default one with the time in its name under `./resumable-demo`.
        live: use the model that the environment names. Without it no key reaches the kernel.
        kill: kill the first kernel at `RESUMABLE_NB_FAILPOINT`, or after the fourth answer.
        say: told line by line what happens.

    Returns:
        The exit code of the run.

    Raises:
        UsageError: the folder exists, or `live` without a key.
        StateMismatch: a quotation in the report is not in its source.
    """
    from resumable_nb.runner import run_notebook  # noqa: PLC0415 - nbclient takes long to import

    # In this process the point must not be armed: it opens the store too, to show what is in it.
    failpoint = os.environ.pop("RESUMABLE_NB_FAILPOINT", _KILL)
    env = _environment(live=live)
    if kill:
        env["RESUMABLE_NB_FAILPOINT"] = failpoint
    folder = _new_folder(folder)
    shutil.copyfile(_notebook(), folder / NOTEBOOK)
    say(f"Running {NOTEBOOK} in {folder}" + (f"; its kernel will be killed at {failpoint}" if kill else ""))
    began = time.monotonic()
    ended = run_notebook(
        folder / NOTEBOOK,
        thread=THREAD,
        db=folder / STORE,
        output=folder / NOTEBOOK,
        env=env,
        say=lambda t: say(f"  {t}"),
    )
    took_s = time.monotonic() - began
    if ended.outcome != "done":
        say(ended.message)
        return ended.exit_code
    findings = _checked(folder)
    for line in _shown(folder, findings, restarts=ended.restarts, took_s=took_s):
        say(line)
    return 0


def _environment(*, live: bool) -> dict[str, str]:
    """Without `live`, nothing in the kernel's environment leads to a model that costs money."""
    if live and not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        raise UsageError("--live needs OPENAI_API_KEY in the environment, or OPENAI_BASE_URL for another server.")
    kept = ("OPENAI_", "RESUMABLE_NB_MODEL") if live else ()
    return {k: v for k, v in os.environ.items() if not k.startswith(_KEYS) or k.startswith(kept)}


def _new_folder(wanted: Path | None) -> Path:
    folder = wanted or Path("resumable-demo") / datetime.now(UTC).strftime("%Y-%m-%d_%H-%M-%S")
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        if wanted is None or (wanted.is_dir() and not any(wanted.iterdir())):
            return folder.absolute()
        raise UsageError(
            f"{folder} exists already: name a folder that does not, so that nothing is written over."
        ) from error
    return folder.absolute()


def _notebook() -> Path:
    """The quickstart: in the installed package, or beside it in a checkout."""
    here = Path(__file__).parent
    places = [here / "notebooks" / NOTEBOOK, here.parent / "notebooks" / NOTEBOOK]
    return next(place for place in places if place.exists())


def _query(folder: Path, query: str, *parameters: object) -> Sequence[Sequence[Any]]:
    from resumable_nb.journal import Store  # noqa: PLC0415

    return Store.open(folder / STORE, create=False).rows(query, list(parameters))[1]


def _checked(folder: Path) -> Sequence[Sequence[Any]]:
    """The findings, each of which stands in the report, and word for word in its source."""
    from resumable_nb.research import sources  # noqa: PLC0415

    texts, report = sources.load(), (folder / REPORT).read_text(encoding="utf-8")
    findings = _query(folder, _FINDINGS, THREAD)
    for _, quote, source, location in findings:
        if not texts.quotes(quote, source, location) or quote not in report:
            raise StateMismatch(f"{folder / REPORT}: {one_line(quote, 80)!r} is not in {source}, {location}.")
    return findings


def _recovery(folder: Path) -> Recovery | None:
    """Of the last kernel that took over from a dead one; None if none died after it had opened the thread."""
    sessions = _query(folder, _SESSIONS, THREAD)
    if len(sessions) < 2:
        return None
    (_, died_at, _, _), (first_seq, ended_at, first_call_at, _) = sessions[-2:]
    done = _query(folder, _RECOVERY, THREAD)
    facts = json.loads(done[0][0]) if done else {"calls_done": 0, "calls_again": 0}
    spared = _query(folder, _CALLS_OF_THEM, THREAD, first_seq, first_seq)[0][0]
    return Recovery(
        skipped=_query(folder, _STEPS_BEFORE, THREAD, first_seq)[0][0],
        replayed=facts["calls_done"] - spared,
        spared=spared,
        again=facts["calls_again"],
        sent_twice=_query(folder, _SENT_TWICE, THREAD)[0][0],
        seconds=((first_call_at or ended_at) - died_at).total_seconds(),
    )


def _shown(folder: Path, findings: Sequence[Sequence[Any]], *, restarts: int, took_s: float) -> list[str]:
    lines = [f"Done in {took_s:.0f} s with {restarts} restart{'s' * (restarts != 1)}.", ""]
    recovery = _recovery(folder)
    if recovery is not None:
        facts = [
            ("steps skipped", recovery.skipped),
            ("calls of theirs not made again", recovery.spared),
            ("calls answered from the journal", recovery.replayed),
            ("calls sent twice", recovery.sent_twice),
            ("seconds from crash to going on", round(recovery.seconds, 1)),
        ]
        lines += [table(["after the crash", ""], facts), ""]
    lines += [
        f"SELECT … FROM findings   ({len(findings)} rows; each quotation checked word for word in its source)",
        table(["question", "quote", "source"], [row[:3] for row in findings], width=45),
        "",
        f"Left in {folder}:",
        f"  {NOTEBOOK}   the executed notebook",
        f'  {STORE}       the store: resumable-nb sql "SELECT * FROM llm_calls" --db {folder / STORE}',
        f"  {REPORT}             the report",
    ]
    return lines
