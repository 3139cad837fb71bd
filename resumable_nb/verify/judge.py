"""What is true of a trial that was killed and resumed. Judges see what the world saw and what stores hold, no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from resumable_nb.terminal import counted, one_line
from resumable_nb.verify.plan import DECIDING, WAITING
from resumable_nb.verify.subject import Memory, State

if TYPE_CHECKING:
    from resumable_nb.verify.inject import Baseline, Injection
    from resumable_nb.verify.world import Log, Sent

CHECKS = (
    "state consistency",
    "no repeated effect",
    "same result",
    "gates hold",
    "outside failure",
    "freshness",
    "completeness",
)
Result = Literal["pass", "fail", "n/a"]
Meaning = Callable[[State, State], Any]
"""Of the baseline's state and a trial's: whether they mean the same. For a model that answers anew each time."""
_OF_THE_MOMENT = ("at", "who")
"""Who decided and when: another trial's decision is another one."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What trials are held against.

    Attributes:
        baseline: the uninterrupted run of the notebook as it is now.
        before: that of the notebook as it was until the kill; the same where it was not edited.
        states: by step, the state after it, of `before`.
        is_live: the model answers anew, and the world does not see what is sent.
        means_the_same: judges the final state in place of equality.
    """

    baseline: Baseline
    before: Baseline
    states: Mapping[str, State]
    is_live: bool = False
    means_the_same: Meaning | None = None

    @property
    def window(self) -> int:
        """Calls that a crash may lose: those in flight at once, one in sequential code."""
        return max(1, most_at_once(self.before.log.sent))


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A trial, judged.

    Attributes:
        injection: the trial.
        results: by check, whether it passed, and why not.
        calls_done: answers that were kept when it was killed.
        calls_again: questions that were sent once more than without the kill.
        lost: answers, given or under way, that the kill lost.
    """

    injection: Injection
    results: Mapping[str, tuple[Result, str]]
    calls_done: int
    calls_again: int
    lost: int

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(result != "fail" for result, _ in self.results.values())

    @property
    def share(self) -> float:
        """Calls done again, of those that were done."""
        return self.calls_again / self.calls_done if self.calls_done else 0.0


def judge(expected: Expected, trial: Injection) -> Judged:
    """Hold a trial against all checks."""
    judges = {
        "state consistency": _state_consistency,
        "no repeated effect": _no_repeated_effect,
        "same result": _same_result,
        "gates hold": _gates_hold,
        "outside failure": _outside_failure,
        "freshness": _freshness,
        "completeness": _completeness,
    }
    results: dict[str, tuple[Result, str]] = {}
    for check, judged in judges.items():
        found = list(judged(expected, trial))
        whys = [why for why in found if why]
        results[check] = ("fail", "; ".join(whys)) if whys else ("pass", "") if found else ("n/a", "")
    again = _sent_in_steps(trial.log, trial.memory) - _sent_in_steps(expected.baseline.log, expected.baseline.memory)
    return Judged(
        injection=trial,
        results=results,
        calls_done=sum(map(len, trial.at_kill.answered.values())),
        calls_again=max(0, again),
        lost=_lost(trial),
    )


def most_at_once(sent: tuple[Sent, ...]) -> int:
    """How many questions were under way at the same time at most."""
    moves = sorted([(s.at, 1) for s in sent] + [(s.done_at, -1) for s in sent if s.done_at is not None])
    now = most = 0
    for _, move in moves:
        now += move
        most = max(most, now)
    return most


# ---------------------------------------------------------------- checks: each gives "" for what it saw in order
def _state_consistency(expected: Expected, trial: Injection) -> Iterator[str]:
    kept, resumed = trial.at_kill, trial.resumed[0]
    if kept.trouble or trial.memory.trouble:
        yield kept.trouble or trial.memory.trouble
        return
    if trial.killed.acknowledged:
        missing = trial.killed.acknowledged - kept.rows
        rows = f"{counted(missing, 'row')} acknowledged before the kill {'is' if missing == 1 else 'are'}"
        yield f"{rows} not in the store" if missing > 0 else ""
    if kept.state is None:
        return
    step = kept.checkpoints[-1].step
    if step in expected.states and expected.before is expected.baseline and not expected.is_live:
        yield from _differences("the last checkpoint", kept.state, expected.states[step], "an uninterrupted run")
    if resumed.loaded is not None:
        yield from _differences(
            "the state on resume", resumed.loaded, kept.state, "the last checkpoint before the kill"
        )


def _no_repeated_effect(expected: Expected, trial: Injection) -> Iterator[str]:
    acts = Counter(act["key"] for act in trial.log.acts)
    usual = Counter(act["key"] for act in expected.baseline.log.acts)
    usual |= Counter(act["key"] for act in expected.before.log.acts)
    for key, count in acts.items():
        too_often = count > max(1, usual[key])
        yield f"`{one_line(key, 80)}` was done {count} times" if too_often else ""
    if expected.is_live:  # what was sent is known from the journal only
        if trial.memory.answered:
            again = len(trial.memory.repeated)
            yield f"{again} questions were answered twice in the same place" if again else ""
        return
    answered, free = trial.at_kill.answered, trial.memory.free | expected.baseline.memory.free
    usual = Counter(sent.key for sent in expected.baseline.log.sent)
    usual |= Counter(sent.key for sent in expected.before.log.sent)
    after = Counter(s.key for s in trial.log.sent[len(trial.log_at_kill.sent) :] if s.key not in free)
    for key in answered.keys() - free:
        more = after[key] - max(0, usual[key] - len(answered[key]))
        yield f"a question whose answer was kept was sent {more} more times" if more > 0 else ""
    if expected.before is expected.baseline:
        needed = sum(n for key, n in usual.items() if key not in free) - sum(map(len, answered.values()))
        more = after.total() - max(0, needed)
        other = sum(n for key, n in after.items() if key not in usual)
        told = f", {other} of them in other words than before" if other else ""
        yield f"{more} questions more were sent after the kill than had no answer{told}" if more > 0 else ""


def _same_result(expected: Expected, trial: Injection) -> Iterator[str]:
    ended = trial.resumed[-1]
    if ended.outcome != "done":
        yield f"it did not come to its end: {ended.outcome}: {one_line(ended.message, 300)}"
        return
    state, usual = trial.memory.state or {}, expected.baseline.memory.state or {}
    if expected.means_the_same is not None:
        verdict = expected.means_the_same(usual, state)
        yield "" if verdict is True else f"the judge says of the final state: {one_line(verdict, 200)}"
    elif not expected.is_live:
        yield from _differences("the final state", state, usual, "an uninterrupted run")
        yield from _differences("the names", ended.names or {}, expected.baseline.legs[-1].names or {}, "one")
    done = {act["key"] for act in trial.log.acts}
    missing = [key for key in dict.fromkeys(act["key"] for act in expected.baseline.log.acts) if key not in done]
    yield f"{', '.join(one_line(key, 60) for key in missing)} was never done" if missing else ""


def _gates_hold(expected: Expected, trial: Injection) -> Iterator[str]:
    if trial.point.name in (WAITING, DECIDING[0]):
        yield from _still_waits(trial)
    for place, gate in enumerate(trial.memory.gates):
        if gate.decision == "dropped" and any(g.step == gate.step for g in trial.memory.gates[place + 1 :]):
            continue  # it asks something else instead
        decided = None if gate.decision == "dropped" else gate.decided_at
        behind = [c for c in trial.memory.checkpoints if c.step == gate.step and c.at > gate.at]
        early = decided is None or any(c.at < decided for c in behind)
        yield f"`{gate.step}` went on before anybody had decided" if early and behind else ""
    if expected.before is expected.baseline and not expected.is_live:
        asked, usual = (
            Counter(g.step for g in memory.gates if g.decision != "dropped")
            for memory in (trial.memory, expected.baseline.memory)
        )
        for step in asked | usual:
            other = asked[step] != usual[step]
            yield f"`{step}` asked {asked[step]} times, and {usual[step]} without a kill" if other else ""


def _still_waits(trial: Injection) -> Iterator[str]:
    first = trial.resumed[0]
    if first.outcome != "waiting" or trial.at_wait is None:
        yield f"killed while it waited, it did not wait after the restart: {first.outcome}"
        return
    memory, log = trial.at_wait
    before, now = ([(g.step, g.key) for g in m.gates if g.decided_at is None] for m in (trial.at_kill, memory))
    yield "" if before == now else f"after the restart it waits at other gates: {now} instead of {before}"
    steps = {step for step, _ in before}
    ran = [c.step for c in memory.checkpoints if c.step in steps and c.at > trial.at_kill.rows]
    yield f"behind the gate {', '.join(ran)} has run" if ran else ""
    yield "something was done outside while it waited" if len(log.acts) > len(trial.log_at_kill.acts) else ""


def _outside_failure(expected: Expected, trial: Injection) -> Iterator[str]:
    if not expected.baseline.uses_credentials:
        return
    head = trial.at_kill.rows
    live = [at for at in trial.memory.live if at > head]
    for name, places in trial.at_kill.renewed.items():
        if live and places:
            again = any(head < at < live[0] for at in trial.memory.renewed.get(name, ()))
            yield "" if again else f"the resource `{name}` was used after the restart without being probed or acquired"
    if trial.log_at_kill.tokens and live and trial.resumed[-1].outcome != "done":
        yield "with its credentials revoked while it was dead, it did not come to its end"


def _freshness(expected: Expected, trial: Injection) -> Iterator[str]:
    if expected.is_live or not trial.log_at_kill.sent:
        return
    lost = _lost(trial)
    told = f"the kill lost {counted(lost, 'answer')}; at most {expected.window} can be in flight"
    yield told if lost > expected.window else ""


def _completeness(_: Expected, trial: Injection) -> Iterator[str]:
    found = trial.resumed[-1].contexts
    if found and found["unloadable"]:
        yield f"the state of row {', '.join(map(str, found['unloadable']))} cannot be loaded"
    if found and found["checked"]:
        rows = ", ".join(map(str, found["different"]))
        yield f"what the model was told in row {rows} cannot be made again from the store" if rows else ""


# ---------------------------------------------------------------- counting and comparing
def _sent_in_steps(log: Log, memory: Memory) -> int:
    return sum(sent.key not in memory.free for sent in log.sent)


def _lost(trial: Injection) -> int:
    free = trial.memory.free | trial.at_kill.free
    kept = sum(len(digests) for key, digests in trial.at_kill.answered.items() if key not in free)
    return max(0, sum(sent.key not in free for sent in trial.log_at_kill.sent) - kept)


def _differences(what: str, found: Mapping[str, Any], usual: Mapping[str, Any], of: str) -> Iterator[str]:
    """One line for each field that differs; "" where there is something to compare and none does."""
    for name in dict.fromkeys([*usual, *found]):
        one, other = (_lasting(name, side.get(name, _MISSING)) for side in (found, usual))
        yield "" if one == other else f"`{name}` of {what} is not that of {of}: {_told(one, other)}"


_MISSING = "(missing)"


def _lasting(name: str, value: Any) -> Any:
    if name != "decisions" or not isinstance(value, list):
        return value
    return [{k: v for k, v in d.items() if k not in _OF_THE_MOMENT} if isinstance(d, dict) else d for d in value]


def _told(one: Any, other: Any) -> str:
    """Both, from a little before they part."""
    texts = [one_line(value) for value in (one, other)]
    parts = next((n for n, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = max(0, parts - 20) if parts > 40 else 0
    shown = [("…" if start else "") + one_line(text[start:], 80) for text in texts]
    return ", not ".join(text or "nothing" for text in shown)
