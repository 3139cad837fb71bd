"""`resumable-nb verify`: what it says while it works, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from resumable_nb.parameters import parse
from resumable_nb.terminal import counted, one_line, plain, table
from resumable_nb.verify import report
from resumable_nb.verify.judge import CHECKS, Judged
from resumable_nb.verify.notebook import NotebookSubject
from resumable_nb.verify.record import Recorder
from resumable_nb.verify.verification import Settings, Verification, meaning
from resumable_nb.verify.verification import verify as verify_notebook

Say = Callable[[str], None]


def run_verify(
    notebook: Path,
    *,
    say: Say,
    everywhere: bool,
    sample: int,
    judge: str | None,
    before: Path | None,
    thread: str | None,
    parameters: Iterable[tuple[str, str]],
    timeout: float,
    db: Path,
    report: Path | None,
    junit: Path | None,
    keep: Path | None,
    approve: str,
    live: bool,
    **more: Any,
) -> int:
    """Verify, say it, and write it down. Gives the exit code."""
    assert approve == "all"
    subject = NotebookSubject(notebook, thread=thread, parameters=parse(parameters), cell_timeout_s=timeout)
    if before is not None:
        subject = replace(subject, before=replace(subject, text=before))
    settings = Settings(
        sample=None if everywhere else sample,
        is_live=live,
        means_the_same=meaning(judge) if judge else None,
        folder=keep,
        **more,
    )
    with Recorder(db, subject.name, {"sample": settings.sample, "live": live, **more}) as recorder:

        def heard(judged: Judged, number: int, of: int) -> None:
            recorder.trial(judged, subject.versions())
            say(line(judged, number, of))

        done = verify_notebook(subject, settings, say=say, heard=heard)
        recorder.done(done)
        history = recorder.history()
    folder = report or notebook.with_suffix(".verify")
    written = _write(done, history, folder, junit)
    for text in shown(done):
        say(text)
    say(f"\nrecorded in {db}; written: {', '.join(map(str, written))}")
    return 0 if done.passed else 1


def line(judged: Judged, number: int, of: int) -> str:
    """One trial, on one line; more where it failed."""
    failed = [(check, why) for check, (result, why) in judged.results.items() if result == "fail"]
    how = "" if judged.injection.was_reached else " (not reached)"
    head = f"{number}/{of} {'FAIL' if failed else 'ok'} {judged.injection.point}{how}, "
    again = f"{judged.calls_again} of {counted(judged.calls_done, 'call')} again"
    head += f"{judged.injection.recovery_s:.1f} s to the next call, {again}"
    return plain("\n".join([head, *(f"    {check}: {one_line(why, 400)}" for check, why in failed)]))


def shown(done: Verification) -> list[str]:
    """The tables at the end."""
    rows = [(check, *done.counts(check).values()) for check in CHECKS]
    cost = [
        ("seconds from kill to next call", *_numbers(done.recovery_s, 1)),
        ("calls done again", *_numbers(done.calls_again, 0)),
        ("their share of those done", *_numbers(done.share, 2)),
    ]
    equal, tried = done.contexts
    quality = [
        ("completeness", f"{equal} of {tried} contexts were made again from the store, to the letter"),
        ("freshness", f"one kill lost {counted(done.largest_loss, 'answer')} at most; {done.window} promised"),
        ("readability", f"{done.readability:.0%} of the state's fields in plain SQL" + _unreadable(done)),
    ]
    verdict = "passed" if done.passed else "FAILED"
    return [
        "",
        table(["check", "passed", "failed", "n/a"], rows),
        "",
        table(["cost of recovery", "median", "95 %", "worst"], cost),
        "",
        table(["quality of checkpoints", ""], quality, width=None),
        "",
        f"{verdict}: {len(done.judged)} trials at {done.points} boundaries in {done.seconds:.0f} s",
    ]


def _unreadable(done: Verification) -> str:
    return f"; not: {', '.join(done.unreadable)}" if done.unreadable else ""


def _numbers(cost: Any, digits: int) -> Sequence[float]:
    return [round(value, digits or None) for value in (cost.median, cost.p95, cost.worst)]


def _write(done: Verification, history: Sequence[dict[str, Any]], folder: Path, junit: Path | None) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    texts = {folder / "report.md": report.markdown(done, history), folder / "report.html": report.html(done, history)}
    if junit is not None:
        texts[junit] = report.junit(done)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)
