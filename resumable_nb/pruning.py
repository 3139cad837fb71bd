"""Keeping a store small: what can go of a thread, what stays whatever is pruned, and saying so first.

What never goes: the newest state; receipts, decisions and open questions; who was asked what, when, and what it cost.
Of a checkpoint that goes, the row stays, as a step's row `pruned`: its state is merged into the next one that is kept,
and its run is no longer done. Of an answer that goes, the row stays without its content.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resumable_nb.errors import StateError, ThreadError, ThreadNotFound, UsageError
from resumable_nb.fold import Fold
from resumable_nb.journal import PRUNED, Change, Edit, Freed, Row, Store
from resumable_nb.receipts import folded
from resumable_nb.terminal import counted, plain

if TYPE_CHECKING:
    import os

_AGE = re.compile(r"(\d+)\s*([hdw])")
_NAMED = 8
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def moment(text: str) -> datetime:
    """A date, a time, or an age (`12h`, `30d`, `6w`) as the moment that it means; without a zone it is UTC.

    Raises:
        UsageError: It is none of these.
    """
    if age := _AGE.fullmatch(text.strip()):
        return datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"{text!r} is no date (2026-11-29) and no age (12h, 30d, 6w).") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Pruning:
    """What pruning would do, or did, to a store. As text, it says so to a person.

    Attributes:
        threads: for each thread that changes, what goes.
        is_done: whether it was done.
        size_bytes: of the file before, and after (0: not done).
        backup: where the old file is kept.
    """

    path: Path
    threads: tuple[Pruned, ...]
    is_done: bool = False
    size_bytes: tuple[int, int] = (0, 0)
    backup: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.threads)

    def __str__(self) -> str:
        return f"{self.going()}\n{self.outcome()}" if self.threads else self.outcome()

    def going(self) -> str:
        """What goes and what stays."""
        lines = [line for thread in self.threads for line in thread.lines()]
        # what is put in the place of little content may be longer
        content = _size(max(0, sum(t.freed.size_bytes for t in self.threads)))
        return "\n".join([*lines, f"{content} of content, of a file of {_size(self.size_bytes[0])}"])

    def outcome(self) -> str:
        """Whether it was done."""
        if not self.threads:
            return f"There is nothing to prune in {self.path}."
        if not self.is_done:
            return "Nothing was changed."
        before, after = (_size(n) for n in self.size_bytes)
        kept = f"the old file is kept as {self.backup.name}" if self.backup else "the old file is gone"
        return f"Done: {self.path.name} has {after}, and had {before}; {kept}."


@dataclass(frozen=True)
class Pruned:
    """What goes of one thread.

    Attributes:
        checkpoints: how many go.
        left: how many stay.
        aside: how many of those that go are of other branches: given up by an edit, or left by going back.
        oldest: the row from which on all states are left.
        again: steps that are not done any more, and run again.
        asked_anew: steps that are not done and lose answers: running them costs anew.
        stays: what is kept of what was done outside, and decided.
    """

    change: Change
    freed: Freed
    checkpoints: int = 0
    left: int = 0
    aside: int = 0
    oldest: int = 0
    again: tuple[str, ...] = ()
    asked_anew: tuple[str, ...] = ()
    stays: str = ""

    def lines(self) -> list[str]:
        """For a person."""
        name, freed = plain(self.change.thread_id), self.freed
        if self.change.is_dropped:
            return [f"thread {name}: to go as a whole, {counted(freed.rows, 'row')} {self.stays}"]
        lines = [f"thread {name}:"]
        if self.checkpoints:
            lines.append(
                f"  checkpoints: {self.checkpoints:,} to go, {self.left:,} to stay; states before row {self.oldest} "
                "cannot be seen then"
            )
        if self.aside:
            lines.append(f"  of them, on other branches: {self.aside:,}, which `%resumable back` cannot reach then")
        if free := [name for name in self.again if name not in self.asked_anew]:
            lines.append(f"  not done any more, to be run again on their recorded answers: {_names(free)}")
        if freed.answers:
            tokens = counted(freed.input_tokens + freed.output_tokens, "token")
            lines.append(f"  contents of answers: {freed.answers:,} to go ({tokens} were billed for them)")
        if self.asked_anew:
            lines.append(f"  not done, and without these answers to be asked and paid anew: {_names(self.asked_anew)}")
        if freed.values:
            lines.append(f"  large values: {freed.values:,} to go that nothing refers to then")
        return [*lines, f"  kept: {self.stays}, and what every call was billed for"]


def _names(steps: Sequence[str]) -> str:
    more = f" and {len(steps) - _NAMED} more" if len(steps) > _NAMED else ""
    return ", ".join(f"`{plain(name)}`" for name in steps[:_NAMED]) + more


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MB" if size_bytes >= 2**20 else f"{size_bytes / 2**10:.0f} KB"


def prune(
    db: str | os.PathLike[str] = "research.duckdb",
    *,
    thread: str | Sequence[str] | None = None,
    keep: int | None = None,
    answers_before: str | datetime | None = None,
    drop: str | Sequence[str] = (),
    yes: bool | Callable[[Pruning], bool] = False,
    backup: bool = False,
    take_over: bool = False,
) -> Pruning:
    """Make a store smaller. Without `yes` nothing is changed: what is returned says what would go.

    Receipts of effects, decisions, open questions, the newest state and all accounts stay. A pruned thread opens as
    before and says what is not there any more. The store is written anew, sorted, and put in the place of the old one
    in one step; nobody may have one of its threads open meanwhile.

    Args:
        db: the store.
        thread: the threads that `keep` and `answers_before` are about; all by default.
        keep: how many of the newest checkpoints stay; with them stay the start, and what they rest on.
        answers_before: a moment, a date or an age such as `30d`: the contents of older answers go.
        drop: threads that go as a whole.
        yes: do it; or what is asked, with what would go, whether to do it.
        backup: keep the old file, under a name with the time.
        take_over: count sessions that cannot be seen from here, such as of another machine, as over.

    Raises:
        UsageError: Nothing is asked for, or `keep` is less than 1.
        ThreadNotFound: There is no such thread.
        ThreadInUse: Somebody has a thread of the store open; the message says who.
        ThreadError: A thread to be dropped has effects that a fork must know of, or that are in doubt.
    """
    dropped = [drop] if isinstance(drop, str) else list(drop)
    wanted = [thread] if isinstance(thread, str) else thread
    if keep is None and answers_before is None and not dropped:
        raise UsageError("Say what is to go: keep=N checkpoints, answers_before a date or an age, or threads to drop.")
    if keep is not None and keep < 1:
        raise UsageError(f"keep={keep}: the newest checkpoint always stays, so 1 is the least.")
    store = Store.open(db, create=False)
    known = store.threads()
    for name in [*(wanted or ()), *dropped]:
        if name not in known:
            raise ThreadNotFound(f"{store.path} has no thread {name!r}. It has {', '.join(map(repr, known)) or 'none'}")
    cutoff = moment(str(answers_before)) if answers_before is not None else None
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    found = [_dropped(store, name, dropped) for name in dropped]
    if keep is not None or cutoff is not None:
        named = known if wanted is None else wanted
        found += [_planned(store, name, keep, cutoff, stamp) for name in named if name not in dropped]
    plan = _weighed(store, found, stamp)
    if not plan or not (yes if isinstance(yes, bool) else yes(plan)):
        return plan
    aside = store.path.with_name(f"{store.path.name}.{time.strftime('%Y%m%d-%H%M%S')}") if backup else None
    store.rewrite([t.change for t in plan.threads], stamp, backup=aside, leave_unseen=take_over)
    after = store.path.stat().st_size
    return Pruning(store.path, plan.threads, is_done=True, size_bytes=(plan.size_bytes[0], after), backup=aside)


def _weighed(store: Store, found: list[Pruned], stamp: str) -> Pruning:
    """With what each frees; without the threads of which nothing goes."""
    freed = store.freed([p.change for p in found], stamp)
    weighed = [Pruned(**{**vars(p), "freed": freed[p.change.thread_id]}) for p in found]
    going = tuple(p for p in weighed if p.checkpoints or any(p.freed))
    return Pruning(store.path, going, size_bytes=(store.path.stat().st_size, 0))


def _folded(store: Store, thread_id: str) -> tuple[Fold, list[Row]]:
    fold, rows = Fold(), store.visitor(thread_id).read(bodies=False)
    fold.apply_all(rows)
    return fold, rows


# ------------------------------------------------------------------------------------------ whole threads
def _dropped(store: Store, thread_id: str, with_it: Sequence[str]) -> Pruned:
    fold, rows = _folded(store, thread_id)
    effects = list(fold.effects.by_key.values())
    if open_ones := [str(e.started.key) for e in effects if e.standing in ("in doubt", "running")]:
        raise ThreadError(
            f"Thread {thread_id!r} has effects of which nobody knows whether they happened: {', '.join(open_ones)}. "
            "Settle them first with `resumable-nb settle`; where a process died, open the thread before. Nothing was "
            "changed"
        )
    happened = [e for e in effects if e.standing == "happened"]
    keys = {e.started.key for e in happened}
    lacking = {name: keys - _receipts(store, name) for name in store.family(thread_id) if name not in with_it}
    if missed := set().union(*lacking.values()):
        left = ", ".join(name for name, some in lacking.items() if some)
        raise ThreadError(
            f"Thread {thread_id!r} has {counted(len(missed), 'receipt')} of effects that {left} must not "
            "do again. Drop these too, or prune it with keep=1 and answers_before. Nothing was changed"
        )
    calls = counted(sum(r.kind == "llm" and r.phase in ("done", "partial") for r in rows), "LLM answer")
    parts = [f"{calls} and what they cost", counted(len(happened), "receipt")]
    if waiting := fold.gates.waiting():
        parts.append(f"{counted(len(waiting), 'question')} that wait for a person")
    told = f"with {', '.join(parts)}: what it did outside would be done again by a thread of this name"
    return Pruned(Change(thread_id, fold.head, is_dropped=True), Freed(), stays=told)


def _receipts(store: Store, thread_id: str) -> set[str | None]:
    """Keys of the effects of which the thread itself knows that they happened."""
    known = folded(store.visitor(thread_id).read(kinds=("effect",), bodies=False)).by_key
    return {key for key, effect in known.items() if effect.standing == "happened"}


# ------------------------------------------------------------------------------------------ inside a thread
def _planned(store: Store, thread_id: str, keep: int | None, cutoff: datetime | None, stamp: str) -> Pruned:
    fold, rows = _folded(store, thread_id)
    merging = _Merging(fold, rows, keep, stamp)
    gone = [row for row in fold.checkpoints() if row.seq in merging.gone]
    standing = {row.step for row in fold.checkpoints() if row.step and row.seq in fold.lineage.values()}
    again = dict.fromkeys(r.step for r in gone if r.step and r.seq in fold.lineage.values())
    old = [r for r in rows if cutoff and r.kind in ("llm", "call") and r.phase in ("done", "partial") and r.ts < cutoff]
    loses = dict.fromkeys(r.step for r in old if r.step and not (r.data or "").startswith(PRUNED))
    receipts = sum(e.standing == "happened" for e in fold.effects.by_key.values())
    doubts = sum(e.standing == "in doubt" for e in fold.effects.by_key.values())
    kept = [
        counted(receipts, "receipt"),
        counted(sum(r.kind == "approval" and r.phase in ("approved", "rejected") for r in rows), "decision"),
        counted(len(fold.gates.waiting()), "open question"),
        f"{counted(doubts, 'effect')} in doubt",
    ]
    return Pruned(
        Change(thread_id, fold.head, _edits(merging, thread_id), cutoff),
        Freed(),
        checkpoints=len(gone),
        left=len(merging.kept),
        aside=len(merging.gone - fold.chain_set),
        oldest=merging.oldest,
        again=tuple(n for n in again if n),
        asked_anew=tuple(n for n in loses if n and (n not in standing or n in again)),
        stays=", ".join(part for part in kept if not part.startswith("0 ")) or "the newest state",
    )


def _edits(merging: _Merging, thread_id: str) -> list[Edit]:
    try:
        return merging.edits()
    except StateError as error:  # a thread of ours has none such, but an imported one may
        raise ThreadError(
            f"The checkpoints of thread {thread_id!r} cannot be merged, as a state cannot be built. {error}. Nothing "
            "was changed. Prune the others by naming each with --thread. Of this one, answers can go "
            "(--answers-before), or all of it (--drop); `resumable-nb fork SEQ NEW`, with a checkpoint before that "
            "row, keeps what it was up to there"
        ) from error


class _Merging:
    """Which checkpoints of a thread go, and what becomes of the rows that rest on them.

    Attributes:
        kept: those that stay: the newest; the start; where notebooks and unfinished runs start from; and the runs whose
            record a kept checkpoint takes up.
        gone: the others.
        last_gone: the newest of these.
        oldest: the first that is kept after it. All states from there on are left.
    """

    def __init__(self, fold: Fold, rows: list[Row], keep: int | None, stamp: str) -> None:
        self._fold, self._rows, self._stamp = fold, rows, stamp
        self._by_seq = {row.seq: row for row in fold.checkpoints()}
        newest = sorted(self._by_seq)[-keep:] if keep is not None else sorted(self._by_seq)
        self._unfinished = {r.seq for r in fold.latest_started()}
        rests_on = {fold.root, *(n["base"] for n in fold.notebooks)}
        rests_on |= {r.parent_seq or 0 for r in rows if r.seq in self._unfinished}
        self.kept = {seq for seq in (*newest, *rests_on) if seq in self._by_seq}
        todo = list(self.kept)
        while todo:
            if (source := _taken_up(self._by_seq[todo.pop()]).get("as")) is not None:
                self.kept.add(source)
                todo.append(source)
        self.gone = self._by_seq.keys() - self.kept
        self.last_gone = max([*self.gone, *fold.pruned], default=0)
        self.oldest = min((seq for seq in self.kept if seq > self.last_gone), default=0)

    def edits(self) -> list[Edit]:
        """The rows that change."""
        if not self.gone:
            return []
        found = (self._edit(row) for row in self._rows)
        return [edit for edit in found if edit is not None]

    def _edit(self, row: Row) -> Edit | None:
        if row.seq in self.gone:
            data = {"pruned": self._stamp, **_taken_up(row)}
            return _edited(row, kind="step", phase="pruned", changes=None, parent_seq=None, data=_json(data))
        if row.kind == "outputs" and row.ref_seq in self.gone:
            return _edited(row, phase="pruned", data=None)
        if row.kind == "cell" and row.phase != "dropped" and row.parent_seq in self.gone:
            return _edited(row, phase="dropped", data=None, parent_seq=None)
        if row.kind == "step" and row.parent_seq in self.gone:
            return _edited(row, parent_seq=self._nearest(row.parent_seq), with_values=True)
        if row.kind == "checkpoint" and row.parent_seq in self.gone:
            return self._rebased(row)
        if row.changes is not None and row.kind != "checkpoint":
            return self._progress(row)
        return None

    def _progress(self, row: Row) -> Edit | None:
        """Progress goes with the states before it; but that of a run which has not ended is what it will go on from."""
        if row.run_seq in self._unfinished:
            return None
        if row.seq < self.oldest:
            return _edited(row, changes=None, parent_seq=None, with_values=True)
        if row.parent_seq not in self.gone:
            return None
        run = [seq for seq in self._fold.progress_of(row.run_seq or 0) if seq > self.oldest]
        if row.seq == run[0]:
            return self._rebased(row)
        return _edited(row, parent_seq=self._nearest(row.parent_seq), with_values=True)

    def _rebased(self, row: Row) -> Edit:
        """The same state, from an older checkpoint that stays."""
        base = self._nearest(row.parent_seq or 0)
        changes = self._fold.image(row.seq).changes_from(self._fold.image(base))
        return _edited(row, parent_seq=base, changes=changes, with_values=True)

    def _nearest(self, seq: int) -> int:
        """The checkpoint itself, or the nearest before it in its lineage, that stays; 0 is the empty beginning."""
        while seq in self.gone:
            seq = self._by_seq[seq].parent_seq or 0
        return seq


def _edited(row: Row, *, with_values: bool = False, **columns: Any) -> Edit:
    whole = {name: getattr(row, name) for name in Edit._fields[:-1]}
    return Edit(**{**whole, **columns}, with_values=with_values)


def _taken_up(row: Row) -> dict[str, Any]:
    """Of a checkpoint that takes up an earlier run: which one, what its step was called, and what going back did."""
    return json.loads(row.data) if row.data and row.phase == "taken up" else {}


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
