"""What a person is told when an effect cannot go on without them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from resumable_nb.errors import Blocked, Paused

if TYPE_CHECKING:
    from resumable_nb.calls.effect import Attempt
    from resumable_nb.journal import Opener
    from resumable_nb.receipts import Effect


def in_doubt(attempt: Attempt, found: Effect, thread_id: str) -> Paused:
    """It started, and nobody knows whether it happened."""
    when = f"{found.started.ts:%Y-%m-%d %H:%M} UTC"
    where = "" if thread_id == attempt.thread_id else f" in thread {thread_id!r}, a fork of the same research,"
    others = ", ".join(f"`{key}`" for key in attempt.others_in_doubt)
    also = f" In doubt in this step as well: {others}." if others else ""
    return Paused(
        f"`{attempt.name}` with the key `{attempt.key}` was started{where} at {when}, and nobody knows whether it "
        f"happened. It was not run again. Look outside, then say what you found: {_commands(attempt, thread_id)} Then "
        f"run this step again.{also}",
        doubts=attempt.doubts(thread_id),
    )


def elsewhere(attempt: Attempt, found: Effect, thread_id: str) -> Blocked:
    """A fork has it in hand."""
    when = f"{found.started.ts:%Y-%m-%d %H:%M} UTC"
    if found.standing == "happened":
        became, then = "was done there meanwhile", "Run this step again: it gets the receipt."
    else:
        became = "has not ended: it runs now, or its process died"
        then = f"Run its step in {thread_id!r} first, then this one again."
    return Blocked(
        f"`{attempt.name}` with the key `{attempt.key}` has started in thread {thread_id!r}, a fork of the same "
        f"research, at {when} and {became}. It was not run here. {then}"
    )


def may_still_run(attempt: Attempt, opener: Opener, thread_id: str) -> Paused:
    """Its process may be in the middle of it: that it is not to be seen outside yet would mean nothing."""
    if opener.runs_elsewhere is None:
        lives = f"started by {opener.told}. Whether that still runs, and may be doing it, cannot be seen from here"
        settle = _commands(attempt, thread_id)
        then = f"Make sure that it has ended. Look outside, then say what you found: {settle} Then"
    else:
        lives = f"started by {opener.told}, which still runs and may be doing it now"
        then = "Wait for it to end, or end that process: restart that kernel. Then"
    told = (
        f"`{attempt.name}` with the key `{attempt.key}` was {lives}. It was not run here. {then} run this step again."
    )
    return Blocked(told) if opener.runs_elsewhere else Paused(told, doubts=attempt.doubts(thread_id))


def other_arguments(attempt: Attempt, found: Effect) -> Blocked:
    """The key is taken."""
    state = {"happened": "it happened", "did not happen": "it did not happen"}.get(found.standing, "it is in doubt")
    return Blocked(
        f"The key `{attempt.key}` of `{attempt.name}` was used before with other arguments (row {found.started.seq}, "
        f"step `{found.started.step}`; {state}). Nothing was run. If this is another action, make its key another one, "
        "of all the arguments that tell it apart; if it is the same one, call it with the arguments of then."
    )


def other_effect(attempt: Attempt, found: Effect) -> Blocked:
    """The key is another function's."""
    other = found.started.name
    return Blocked(
        f"The key `{attempt.key}` belongs to the effect `{other}` (row {found.started.seq}, step "
        f"`{found.started.step}`), so `{attempt.name}` was not run. One key names one action in a thread and its "
        f"forks: put what it does into it, such as `{attempt.name}-…`. (If `{attempt.name}` is only its new name: `del "
        f"{other}`, or restart the kernel, and run this step again.)"
    )


def no_answer(attempt: Attempt) -> str:
    """A note on the exception that a look-up raised."""
    return (
        f"`lookup=` was to say whether `{attempt.name}` with the key `{attempt.key}`, which is in doubt, happened. It "
        f"was not run again. Run this step again when it can be asked, or say what you found: "
        f"{_commands(attempt, attempt.thread_id)}"
    )


def gone(attempt: Attempt, found: Effect) -> Paused:
    """`verify=` says no."""
    return Paused(
        f"`{attempt.name}` with the key `{attempt.key}` was done (row {found.started.seq}), and `verify=` says that it "
        f"does not stand any more. It was not run again. If it shall be, or if it stands after all: "
        f"{_commands(attempt, attempt.thread_id)} Then run this step again.",
        doubts=attempt.doubts(attempt.thread_id),
    )


def after_error(attempt: Attempt) -> str:
    """A note on the exception that an effect raised."""
    if attempt.has_lookup:
        then = "the next run looks it up by its key"
    elif attempt.repeats:
        then = "the next run repeats it with the same key"
    else:
        then = "the next run stops and asks you. Exceptions that mean that nothing happened belong into `not_done=`"
    return f"Whether `{attempt.name}` ({attempt.key}) happened is in doubt: {then}."


def went_on(attempt: Attempt, error: BaseException) -> Paused:
    """The code of the step went on after it, as if it were known that nothing happened."""
    return Paused(
        f"`{attempt.step}` went on after `{attempt.name}` with the key `{attempt.key}` had raised "
        f"{type(error).__name__}, and cannot end: {after_error(attempt)} Run the step again.",
        doubts=attempt.doubts(attempt.thread_id),
    )


def _commands(attempt: Attempt, thread_id: str) -> str:
    parts = ["resumable-nb", "settle", attempt.key, "--thread", thread_id, "--db", attempt.path]
    settle = " ".join(map(shlex.quote, parts))
    return f"`{settle} --happened RECEIPT` or `{settle} --did-not-happen`."
