"""When a thread was opened again: did effects in doubt happen after all, and do the finished ones still stand?

Asked once in an opening, of the effects whose function is declared by then: before the first new call of a step, all of
them; before a step is skipped, those of the step. What `lookup` finds is recorded. What `verify` says no to is put in
doubt and said; nothing is ever run for it here. An effect that is not found stays in doubt, and its step asks again.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from resumable_nb import receipts, values
from resumable_nb.calls.turns import is_taken
from resumable_nb.resuming import asks

if TYPE_CHECKING:
    from resumable_nb.calls.rules import EffectRules
    from resumable_nb.journal import Opener
    from resumable_nb.receipts import Effect
    from resumable_nb.scope import Scope
    from resumable_nb.thread import Thread

GONE = "verify= says that it does not stand any more"
_WHY_LENGTH = 300
_declared: dict[str, EffectRules] = {}
_change = 0


def declare(rules: EffectRules) -> None:
    """An effect is declared; anew, as by running its cell again, it replaces the one of that name."""
    global _change
    _declared[rules.name], _change = rules, _change + 1


def is_another(effect: Effect, rules: EffectRules) -> bool:
    """Whether a row is of another effect that is declared here too; a function under a new name is not another."""
    name = effect.started.name or ""
    other = _declared.get(name)
    return name != rules.name and other is not None and other.wrapper() is not None


def needs_person(effect: Effect) -> bool:
    """Whether only a person can say what became of it."""
    rules = _declared.get(effect.started.name or "")
    return bool(effect.facts.get("gone")) or rules is None or (rules.lookup is None and not rules.idempotent)


def may_be_doing_it(thread: Thread, found: Effect, thread_id: str) -> Opener | None:
    """Who may still be in the call: the thread was taken over, or forked, meanwhile. None: nobody is."""
    session, starter = thread.session, found.started.session_id
    if found.call_has_ended or starter == session.session_id:
        return None
    there = session if thread_id == session.thread_id else thread.store.visitor(thread_id)
    opener = there.opener(starter)
    if is_taken((starter, found.started.key or "")):
        return opener._replace(runs_elsewhere=True)
    return None if opener.runs_elsewhere is False else opener


# ------------------------------------------------------------------------------------------ asking
def _settle(ground: Scope) -> None:
    """Before the first new call: look up what is in doubt, then verify what is done."""
    resume, effects = ground.thread.resume, ground.thread.fold.effects.by_key
    if not resume.is_to_ask(_change):
        return
    for key in [k for k in resume.doubts if k not in resume.not_asked and effects[k].standing == "in doubt"]:
        _look_up(ground, effects[key])
    _verify(ground, [effects[key] for key in sorted(resume.unverified - resume.not_asked)])


def _verify_step(ground: Scope, step: str | None, cell_id: str) -> None:
    resume = ground.thread.resume
    if resume.unverified:
        mine = ground.thread.fold.effects.of_step(step, cell_id)
        _verify(ground, [e for e in mine if e.started.key in resume.unverified - resume.not_asked])


def _look_up(ground: Scope, effect: Effect) -> None:
    key, rules = effect.started.key or "", _declared.get(effect.started.name or "")
    if rules is None or rules.lookup is None or effect.facts.get("gone"):
        return
    if may_be_doing_it(ground.thread, effect, ground.thread.thread_id) is not None:
        return  # what is not there yet may come
    ground.thread.resume.not_asked.add(key)
    found = _answer(ground, effect, "looked up", functools.partial(rules.lookup, key))
    if found is None or found is False or isinstance(found, _NoAnswer):
        return
    kept = receipts.kept(found, name=rules.name, key=key)
    if kept.line:
        ground.notice(kept.line)
    row = receipts.completing(effect, "done", kept.data | {"by": "lookup"})
    ground.thread.append(*ground.thread.value_rows(kept.blobs), row)
    ground.notice(
        f"`{rules.name}` with the key `{key}` was in doubt: it happened, as lookup= says. It is not run again"
    )
    ground.thread.resume.show()


def _verify(ground: Scope, effects: Iterable[Effect]) -> None:
    resume = ground.thread.resume
    for effect in effects:
        key, rules = effect.started.key or "", _declared.get(effect.started.name or "")
        if rules is None or rules.verify is None:
            continue
        resume.not_asked.add(key)
        stands = _answer(ground, effect, "verified", functools.partial(_ask_whether, rules.verify, ground, effect))
        if isinstance(stands, _NoAnswer):
            continue
        told(ground, effect, stands=bool(stands))


def told(ground: Scope, effect: Effect, *, stands: bool) -> None:
    """`verify=` has answered. What does not stand is in doubt from now on, until a person says what shall be."""
    key, resume = effect.started.key or "", ground.thread.resume
    if stands:
        resume.stands(key)
        return
    ground.thread.append(receipts.completing(effect, "lost", {"why": GONE, "gone": True}))
    is_of_others = ground.step != effect.started.step
    resume.does_not_stand(
        receipts.Doubt(ground.thread.store, ground.thread.thread_id, key, effect.started.step if is_of_others else None)
    )
    ground.notice(
        f"`{effect.started.name}` with the key `{key}` was done by step `{effect.started.step}`, and verify= says that "
        f"it does not stand any more. It was not run again. If it shall be: `%resumable settle {json.dumps(key)} "
        f"--did-not-happen`, then `%resumable fresh {effect.started.step}`, and run that step. If it stands after all: "
        f"`%resumable settle {json.dumps(key)} --happened RECEIPT`"
    )


class _NoAnswer:
    """Asking failed."""


def _answer(ground: Scope, effect: Effect, how: str, ask: Callable[[], Any]) -> Any:
    """What the outside says. That it cannot be asked is said; the step of the effect asks again, and fails by it."""
    try:
        answer = ask()
        return _in_own_loop(answer) if inspect.iscoroutine(answer) else answer
    except Exception as error:  # noqa: BLE001 - of the user's function, which may fail in any way
        text = f"{type(error).__name__}: {error}"[:_WHY_LENGTH].encode("utf-8", "replace")
        why = values.redact(text)[0].decode("utf-8", "replace")
        ground.notice(f"the effect `{effect.started.key}` could not be {how} ({why}); its step asks again when it runs")
        return _NoAnswer()


def _in_own_loop(answer: Any) -> Any:
    """The result of a coroutine, in a thread with an event loop of its own: this one may be running."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(asyncio.run(answer))
        except BaseException as error:  # noqa: BLE001 - raised where it was asked
            found.append(error)

    thread = threading.Thread(target=run, name="resumable_nb asks")
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def _ask_whether(verify: Callable[[Any], Any], ground: Scope, effect: Effect) -> Any:
    """Whether it stands, by its receipt as the function gave it."""
    thread, key = ground.thread, effect.started.key
    text = json.dumps(effect.facts.get("receipt"))
    return verify(values.decode(text, thread.blob, thread.resolve, what=f"the receipt of {key!r}"))


asks.effects, asks.effects_of_step = _settle, _verify_step
