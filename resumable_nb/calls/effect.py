"""Effects: calls that change something outside. Never twice, and never blindly again when it is in doubt.

Rows in the journal, each in one INSERT: `started` with the idempotency key and the hash of the arguments; then the
call; then `done` with the receipt, together with what the state gained by it. An effect is in doubt if it started and
has no receipt: after a crash, and after any exception that is not declared to mean that nothing happened.
"""

from __future__ import annotations

import functools
import inspect
import json
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from resumable_nb import values
from resumable_nb.calls import pauses, standing
from resumable_nb.calls.arguments import Arguments, digest_of, namespace_of, text_of
from resumable_nb.calls.courses import Asked, Course, driven, driven_async
from resumable_nb.calls.family import newest_of_relatives
from resumable_nb.calls.off_loop import off_loop
from resumable_nb.calls.receipt import Receipt
from resumable_nb.calls.rehearsal import Rehearsal, act, check
from resumable_nb.calls.rules import KEY, EffectRules, NotAwaited
from resumable_nb.calls.turns import turn, turn_async
from resumable_nb.errors import ThreadTakenOver, UsageError
from resumable_nb.failpoints import passing
from resumable_nb.journal import Row
from resumable_nb.receipts import Doubt, folded
from resumable_nb.resuming import before_live
from resumable_nb.scope import Run, Scope, scope

if TYPE_CHECKING:
    from resumable_nb.receipts import Effect

F = TypeVar("F", bound=Callable[..., Any])

_WHY_LENGTH = 300
_RECEIPTS_TOLD = 5


def effect(
    *,
    key: Callable[..., str] | str,
    lookup: Callable[[str], Any] | None = None,
    idempotent: bool = False,
    not_done: tuple[type[BaseException], ...] | type[BaseException] = (),
    verify: Callable[[Any], Any] | None = None,
    approve: str | None = None,
    rehearsal: Rehearsal = False,
) -> Callable[[F], F]:
    """Declare a function that changes something outside: it runs once for each key in a thread and all its forks.

    What the function returns is its receipt. Asked again with the same key and arguments, in any run of any step, it
    gives the receipt and does not run; with other arguments it stops. The receipt is in the store when it returns, and
    in `state.receipts`. It has to be a value that can be stored, up to 10 MiB: if the annotation names a class that
    cannot be, the function is not called; if only what it returns shows that, its text is kept, and given back.

    It is in doubt after a crash in the middle, and after any exception but those of `not_done`. Then `lookup` settles
    it; else `idempotent=True` repeats it with the same key; else the step stops, and a person says what happened
    (`resumable-nb settle KEY --happened RECEIPT` or `--did-not-happen`).

    Args:
        key: the idempotency key, made of the arguments: a function that names those it needs, or a text such as
            `"close-{ticket_id}"`. It is passed on to the function as `idempotency_key` if it takes that.
        lookup: asks the outside world by key: the receipt if it happened, None or False if it did not, and will not by
            a request that is still under way. It is asked only when the process that made the call cannot be in it.
        idempotent: calling it again with the same key does no harm.
        not_done: exceptions after which it surely did not happen.
        verify: asked with the receipt, once in each later opening of the thread: does it still stand? When its step is
            skipped, and at the latest before the first new call. If not, it is in doubt: that is said, a step that
            asks for it stops, and a person says what shall be. It is never just repeated.
        approve: a question with the arguments in `{}`, put to a person before the call, about exactly these arguments.
        rehearsal: what stands in for it under `resumable-nb verify`, which changes nothing outside. True: its ledger,
            in place of the function, of `lookup` and of `verify`. A function of the arguments: the same, and this gives
            the receipt (JSON values). "own": the function itself, which goes where `RESUMABLE_NB_LEDGER` says.

    Raises:
        UsageError: On decorating, if this does not fit; on calling, outside any step, or if its receipt could surely
            not be stored.
    """
    errors = not_done if isinstance(not_done, tuple) else (not_done,)

    def decorate(function: F) -> F:
        rules = EffectRules(function, key, lookup, idempotent, errors, verify, approve, rehearsal)
        standing.declare(rules)
        wrapper = functools.wraps(function)(_async_wrapper(rules) if rules.is_async else _sync_wrapper(rules))
        rules.wrapper = weakref.ref(wrapper)
        wrapper.__signature__ = rules.signature  # type: ignore[attr-defined]  # what `inspect.signature` looks for
        return cast("F", wrapper)

    return decorate


def _sync_wrapper(rules: EffectRules) -> Callable[..., Any]:
    def effect_call(*args: Any, **kwargs: Any) -> Any:
        attempt = Attempt(rules, _running_step(rules), rules.bound(args, kwargs))
        if attempt.is_to_be_approved():
            attempt.tell_earlier_receipts()
            from resumable_nb.calls.approval import approve  # the widest imports of this package, seldom needed

            attempt = attempt.approved(approve(attempt.question, attempt.payload).payload)
        with attempt.noting_pauses(), turn(attempt.place):
            return driven(attempt.course())

    return effect_call


def _async_wrapper(rules: EffectRules) -> Callable[..., Any]:
    async def effect_call(*args: Any, **kwargs: Any) -> Any:
        attempt = Attempt(rules, _running_step(rules), rules.bound(args, kwargs))
        if await off_loop(attempt.is_to_be_approved):
            await off_loop(attempt.tell_earlier_receipts)
            from resumable_nb.calls.approval import approval  # as above

            answer = await approval(attempt.question, attempt.payload)
            attempt = attempt.approved(answer.payload)
        with attempt.noting_pauses():
            async with turn_async(attempt.place):
                return await driven_async(attempt.course())

    return effect_call


def _running_step(rules: EffectRules) -> Scope:
    check(rules)
    running = scope()
    if running is None or running.step is None:
        where = "no thread is open" if running is None else "no step is running"
        raise UsageError(
            f"`{rules.name}` changes something outside, and {where}, so nothing would keep it from happening twice. "
            "Call it in a step: a cell that begins with `%%resumable NAME`, or `thread.step(name, fn)`. It was not run."
        )
    return running


# ------------------------------------------------------------------------------------------ one call
_asked_in: weakref.WeakKeyDictionary[Scope, set[str]] = weakref.WeakKeyDictionary()
_told_in: weakref.WeakKeyDictionary[Scope, set[str]] = weakref.WeakKeyDictionary()


class Attempt:
    """One call of an effect in a running step."""

    def __init__(self, rules: EffectRules, running: Scope, call: inspect.BoundArguments) -> None:
        self._rules, self._scope, self._thread = rules, running, running.thread
        self._call_with = call
        self.key = rules.key_of(call)
        self._arguments: Arguments = dict(call.arguments)
        self._hash = digest_of(self._arguments, namespace_of(rules.function))
        self._started_seq: int | None = None
        self._receipt = Receipt(rules.name, self.key, running)
        self._began = time.monotonic()
        _asked_in.setdefault(running, set()).add(self.key)

    # ------------------------------------------------------------------ what is known
    @property
    def place(self) -> tuple[str, str]:
        """In this process, one at a time may call it."""
        return self._thread.session.session_id, self.key

    @property
    def _known(self) -> Effect | None:
        return self._thread.fold.effects.by_key.get(self.key)

    @property
    def is_known(self) -> bool:
        """Whether it has a receipt."""
        return (found := self._known) is not None and found.standing == "happened"

    def position(self) -> Literal["give", "look up", "run"]:
        """What is to be done, by what the journal says of the key in this thread and its forks.

        Raises:
            Paused: A person has to say what happened, or the same key was used with other arguments.
        """
        if not self.is_known:
            self._thread.session.refresh()  # somebody may have settled it from elsewhere
        found = self._known
        if not self.is_known and (relative := newest_of_relatives(self._thread, self.key)) is not None:
            if relative.effect.standing == "happened":
                self._check_arguments(relative.effect)
                self._receipt.take(relative.effect.facts, relative.blob)
                self._append_receipt({"from_thread": relative.thread_id})
                found = self._known
            elif relative.effect.standing != "did not happen" and (found is None or found.standing != "in doubt"):
                self._check_arguments(relative.effect)
                return self._in_doubt(relative.effect, relative.thread_id)
        if found is None or found.standing == "did not happen":
            return "run"
        self._check_arguments(found)
        return "give" if found.standing == "happened" else self._in_doubt(found, self._thread.thread_id)

    def _in_doubt(self, found: Effect, thread_id: str) -> Literal["look up", "run"]:
        is_elsewhere = thread_id != self._thread.thread_id
        if found.facts.get("gone"):
            raise pauses.gone(self, found)
        if self._rules.idempotent and self._rules.lookup is None:
            return "run"
        if is_elsewhere and found.standing == "running":
            raise pauses.elsewhere(self, found, thread_id)
        opener = standing.may_be_doing_it(self._thread, found, thread_id)
        if opener is not None and not self._rules.idempotent:
            raise pauses.may_still_run(self, opener, thread_id)
        if not is_elsewhere and self._is_left_running():
            self._write_doubt(found, "it was broken off, and how it ended was not written")
        if self._rules.lookup is None:
            raise pauses.in_doubt(self, found, thread_id)
        return "look up"

    def _is_left_running(self) -> bool:
        """Whether its row says that it runs, and it does not: the turn is ours, and this session began it."""
        found = self._known
        if found is None or found.standing != "running" or found.started.session_id != self._thread.session.session_id:
            return False
        self._started_seq = found.started.seq
        return True

    def _check_arguments(self, found: Effect) -> None:
        if standing.is_another(found, self._rules):
            raise pauses.other_effect(self, found)
        if found.arguments != self._hash:
            raise pauses.other_arguments(self, found)

    # ------------------------------------------------------------------ the course of it
    def course(self) -> Course:
        """What happens, in order. The driver does what is asked, and sends its result or throws its error in."""
        position = yield Asked(self.position)
        if position == "give":
            return (yield from self._give())
        if position == "look up":
            assert self._rules.lookup is not None
            try:
                receipt = yield Asked(partial(self._rules.lookup, self.key), is_ours=False)
            except Exception as error:
                error.add_note(pauses.no_answer(self))
                raise
            if receipt is not None and receipt is not False:
                return (yield from self._record(receipt, how="lookup"))
            yield Asked(self._write_that_it_did_not_happen)
        try:
            yield Asked(self._start)
        except BaseException as error:  # cancelled, say, before the call
            if self._is_left_running():
                yield Asked(partial(self._fail, error, began=False))
            raise
        try:
            receipt = yield Asked(self._run_async if self._rules.is_async else self._run, is_ours=False)
        except BaseException as error:
            yield Asked(partial(self._fail, error))
            raise
        return (yield from self._record(receipt))

    def _give(self) -> Course:
        found = self._known
        assert found is not None
        self._receipt.take(found.facts, self._thread.blob)
        if self._rules.verify is not None and self.key in self._thread.resume.unverified:
            stands = yield Asked(partial(self._rules.verify, self._receipt.value()), is_ours=False)
            yield Asked(partial(standing.told, self._scope, found, stands=bool(stands)))
            if not stands:
                raise pauses.gone(self, found)
        self._receipt.put_into_state()
        return self._receipt.value()

    def _record(self, receipt: Any, *, how: str | None = None) -> Course:
        self._receipt.keep(receipt)
        self._receipt.put_into_state()  # first: the row of the receipt carries what the state gains
        yield Asked(partial(self._append_receipt, {"by": how} if how else {}))
        return self._receipt.value()

    # ------------------------------------------------------------------ the call
    def _arguments_for_the_call(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        extra = {KEY: self.key} if self._rules.takes_key else {}
        return self._call_with.args, {**self._call_with.kwargs, **extra}

    def _run(self) -> Any:
        args, kwargs = self._arguments_for_the_call()
        passing("effect.call.before")
        receipt = self._rehearse() if self._rules.ledger else self._rules.function(*args, **kwargs)
        passing("effect.call.after")
        return self._rules.not_awaited(receipt)

    async def _run_async(self) -> Any:
        args, kwargs = self._arguments_for_the_call()
        passing("effect.call.before")
        if self._rules.ledger:
            receipt = await off_loop(self._rehearse)
        else:
            receipt = await self._rules.function(*args, **kwargs)
        passing("effect.call.after")
        return receipt

    def _rehearse(self) -> Any:
        assert self._rules.ledger is not None
        return act(self._rules.ledger, self._rules, self.key, self._arguments)

    # ------------------------------------------------------------------ rows
    def _start(self) -> None:
        self._scope.refuse_if_paused()
        self._rules.check_receipt()
        before_live(self._scope)
        self.tell_earlier_receipts()
        row = self._row("started", request=text_of(self._rules.name, self._arguments), data={"arguments": self._hash})
        (self._started_seq,) = self._scope.append(row)
        relative = newest_of_relatives(self._thread, self.key)  # again: who looked before either wrote sees it now
        standing = "" if relative is None or self._rules.idempotent else relative.effect.standing
        if relative is not None and standing in ("running", "happened"):
            raise pauses.elsewhere(self, relative.effect, relative.thread_id)

    def _append_receipt(self, about: dict[str, Any]) -> None:
        found = self._known
        if self._started_seq is None and found is not None and found.standing != "did not happen":
            self._started_seq = found.started.seq
        rows = self._thread.value_rows(self._receipt.blobs)
        if self._started_seq is None:  # done elsewhere: this thread has no row of it
            rows.append(self._row("started", data={"arguments": self._hash, **about}))
        done = self._row("done", data={**self._receipt.data, **about})
        done.ref_seq = self._started_seq or -1
        self._append_outcome(*rows, done)

    def _append_outcome(self, *rows: Row) -> None:
        """What became of the call. If the thread was taken over meanwhile, its new owner has to know it too."""
        try:
            self._scope.append(*rows)
        except ThreadTakenOver:
            if self._started_seq is not None:
                self._append_as_visitor(*rows)
            raise

    def _append_as_visitor(self, *rows: Row) -> None:
        visitor = self._thread.store.visitor(self.thread_id)
        if folded(visitor.read(kinds=("effect",))).by_key[self.key].standing == "happened":
            return  # it was found out meanwhile, and that our call failed is no doubt
        for row in rows:  # the progress of the state is that of a run that counts no more
            row.changes = row.parent_seq = None
        visitor.append(*rows)

    def _write_that_it_did_not_happen(self) -> None:
        found = self._known
        if found is not None and found.standing != "did not happen":
            self._scope.append(self._row("not done", ref_seq=found.started.seq, data={"by": "lookup"}))

    def _write_doubt(self, found: Effect, why: str) -> None:
        self._scope.append(self._row("lost", ref_seq=found.started.seq, data={"why": why}))

    def _fail(self, error: BaseException, *, began: bool = True) -> None:
        did_not_happen = not began or isinstance(error, (*self._rules.not_done, NotAwaited))
        why = {"why": values.hidden(f"{type(error).__name__}: {error}"[:_WHY_LENGTH])}
        self._append_outcome(self._row("failed" if did_not_happen else "lost", data=why))
        if not did_not_happen:
            error.add_note(pauses.after_error(self))
            self._scope.note_doubt(self.key, pauses.went_on(self, error))

    def _row(self, phase: str, *, data: dict[str, Any], ref_seq: int | None = None, request: str | None = None) -> Row:
        return Row(
            kind="effect",
            phase=phase,
            name=self._rules.name,
            key=self.key,
            ref_seq=None if phase == "started" else ref_seq or self._started_seq,
            duration_ms=None if phase == "started" else (time.monotonic() - self._began) * 1e3,
            request=request,
            data=json.dumps(data),
        )

    # ------------------------------------------------------------------ what people are told
    def tell_earlier_receipts(self) -> None:
        """Before a live effect: what earlier runs of the step have done and this one has not asked for, once each."""
        running, told = self._scope, _told_in.setdefault(self._scope, set())
        asked = _asked_in.get(running, set())
        earlier = self._thread.fold.effects.of_step(running.step, running.cell_id)
        news = [e for e in earlier if e.started.key not in asked | told]
        if not news:
            return
        told.update(e.started.key or "" for e in news)
        version = "version" if isinstance(running, Run) and any(map(running.is_of_another_version, news)) else "run"
        receipts = [f"`{e.started.key}` ({_shortened(e.facts.get('receipt'))})" for e in news[:_RECEIPTS_TOLD]]
        more = f" and {len(news) - _RECEIPTS_TOLD} more" if len(news) > _RECEIPTS_TOLD else ""
        running.say(
            f"before `{self.key}` is done: an earlier {version} of this step did {', '.join(receipts)}{more}, which "
            "this run has not asked for so far. That stands."
        )

    @property
    def name(self) -> str:
        """The function's name."""
        return self._rules.name

    @property
    def step(self) -> str | None:
        """The step that it is in."""
        return self._scope.step

    def doubts(self, thread_id: str) -> tuple[Doubt, ...]:
        """What a person is asked about: this effect of that thread, and others of the step that need them."""
        effects = self._thread.fold.effects.by_key
        others = [key for key in self.others_in_doubt if standing.needs_person(effects[key])]
        mine = [Doubt(self._thread.store, self.thread_id, key) for key in others]
        return (Doubt(self._thread.store, thread_id, self.key), *mine)

    @property
    def others_in_doubt(self) -> list[str]:
        """The keys of other effects of the step that are in doubt."""
        effects = self._thread.fold.effects.by_key.values()
        mine = [e.started.key or "" for e in effects if e.standing == "in doubt" and e.started.step == self.step]
        return [key for key in mine if key != self.key]

    @property
    def path(self) -> str:
        """The store's file."""
        return str(self._thread.store.path)

    @property
    def thread_id(self) -> str:
        """The thread."""
        return self._thread.thread_id

    @property
    def has_lookup(self) -> bool:
        """Whether the outside world can be asked."""
        return self._rules.lookup is not None

    @property
    def repeats(self) -> bool:
        """Whether it may just be repeated."""
        return self._rules.idempotent

    # ------------------------------------------------------------------ approval
    def is_to_be_approved(self) -> bool:
        """Whether the gate is passed through: not by what was done before anybody wanted to be asked about it."""
        if self._rules.approve is None or not self.is_known:
            return self._rules.approve is not None
        from resumable_nb.asking import Question

        asked = Question.about(self._scope, self.question, self.payload)
        gate = asked.gate()
        asked.give_up()
        return gate is not None and gate.decision is not None and gate.decision.approved

    def noting_pauses(self) -> AbstractContextManager[None]:
        """While it is called: the step cannot end as if nothing had stopped here."""
        return self._scope.noting_pauses()

    @property
    def question(self) -> str:
        """What a person is asked before it."""
        assert self._rules.approve is not None
        return self._rules.approve.format_map(self._arguments)

    @property
    def payload(self) -> Arguments:
        """What they approve: exactly these arguments."""
        return dict(self._arguments)

    def approved(self, payload: Arguments) -> Attempt:
        """The call as it was approved; a person may have edited the arguments."""
        call = self._call_with
        call.arguments.update(payload)
        return Attempt(self._rules, self._scope, call)


def _shortened(receipt: Any) -> str:
    return json.dumps(receipt, ensure_ascii=False)[:80]
