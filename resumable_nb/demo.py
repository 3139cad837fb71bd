"""`resumable-nb demo`: the quickstart on real texts, its kernel killed in the middle, and what was not done again."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from resumable_nb.errors import StateMismatch, UsageError
from resumable_nb.terminal import counted, one_line, table

THREAD, NOTEBOOK, STORE, REPORT = "quickstart", "01_quickstart.ipynb", "research.duckdb", "report.md"
_KILL = "http.receive.after:4"  # the third question of the research is answered; its findings are not yet in the state
_KEYS = ("OPENAI_", "ANTHROPIC_", "RESUMABLE_NB_")

# Of the session that took over from a dead one: its first row, when the dead one last wrote, its own first question.
_TAKEN_OVER = """
WITH ordered AS (
    SELECT *, lag(last_at) OVER w AS died_at, lag(closed_at) OVER w AS closed_before
    FROM sessions WHERE thread_id = $thread WINDOW w AS (ORDER BY first_seq))
SELECT first_seq, died_at, coalesce(
    (SELECT min(ts) FROM journal j
     WHERE j.session_id = o.session_id AND j.kind = 'llm' AND j.phase = 'started'), last_at)
FROM ordered o WHERE died_at IS NOT NULL AND closed_before IS NULL ORDER BY first_seq DESC LIMIT 1"""
_SKIPPED = """
SELECT DISTINCT step FROM checkpoints c WHERE thread_id = $thread AND origin = 'step' AND seq < $first_seq
AND NOT EXISTS (SELECT 1 FROM journal j WHERE j.thread_id = c.thread_id AND j.step = c.step
                AND j.kind = 'step' AND j.phase = 'started' AND j.seq >= $first_seq)"""
_CALLS = f"""
SELECT count(*) FILTER (step IN ({_SKIPPED})) AS spared, count(*) FILTER (step NOT IN ({_SKIPPED})) AS replayed
FROM llm_calls WHERE thread_id = $thread AND phase = 'done' AND seq < $first_seq"""
_SENT_TWICE = """
SELECT count(*) FROM (
    SELECT 1 FROM journal WHERE thread_id = $thread AND kind = 'llm' AND phase = 'started'
    GROUP BY step, key, occurrence HAVING count(*) > 1)"""
_FINDINGS = """
SELECT finding->>'question' AS question, finding->>'quote' AS quote, finding->>'source' AS source,
       finding->>'location' AS location
FROM findings WHERE thread_id = $thread AND is_current"""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What going on after the kill took.

    Attributes:
        skipped: steps that were done before it and did not run again.
        spared: calls of those steps.
        replayed: calls answered from the journal, in the step that was under way.
        sent_twice: questions that were sent more than once.
        seconds: from the last thing that the killed kernel wrote to the first new question of the next one.
    """

    skipped: int
    spared: int
    replayed: int
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
    from resumable_nb.runner import run_notebook

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


def _query(folder: Path, query: str, **parameters: object) -> list[tuple[Any, ...]]:
    from resumable_nb.journal import Store

    named = {"thread": THREAD, **parameters}
    used = {name: value for name, value in named.items() if f"${name}" in query}
    return Store.open(folder / STORE, create=False).rows(query, used)[1]


def _checked(folder: Path) -> list[tuple[Any, ...]]:
    """The findings, each of which stands in the report, and word for word in its source."""
    from resumable_nb.research import sources

    texts, report = sources.load(), (folder / REPORT).read_text(encoding="utf-8")
    findings = _query(folder, _FINDINGS)
    for _, quote, source, location in findings:
        if not texts.quotes(quote, source, location) or quote not in report:
            raise StateMismatch(f"{folder / REPORT}: {one_line(quote, 80)!r} is not in {source}, {location}.")
    return findings


def _recovery(folder: Path) -> Recovery | None:
    """Of the last kernel that took over from a dead one; None if none died after it had opened the thread."""
    found = _query(folder, _TAKEN_OVER)
    if not found:
        return None
    first_seq, died_at, went_on_at = found[0]
    spared, replayed = _query(folder, _CALLS, first_seq=first_seq)[0]
    return Recovery(
        skipped=len(_query(folder, _SKIPPED, first_seq=first_seq)),
        spared=spared,
        replayed=replayed,
        sent_twice=_query(folder, _SENT_TWICE)[0][0],
        seconds=(went_on_at - died_at).total_seconds(),
    )


def _shown(folder: Path, findings: list[tuple[Any, ...]], *, restarts: int, took_s: float) -> list[str]:
    lines = [f"Done in {took_s:.0f} s with {counted(restarts, 'restart')}.", ""]
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
        f"SELECT … FROM findings   ({counted(len(findings), 'row')}; each checked word for word in its source)",
        table(["question", "quote", "source"], [row[:3] for row in findings], width=45),
        "",
        f"Left in {folder}:",
        f"  {NOTEBOOK}   the executed notebook",
        f'  {STORE}       the store: resumable-nb sql "SELECT * FROM llm_calls" --db {folder / STORE}',
        f"  {REPORT}             the report",
    ]
    return lines
