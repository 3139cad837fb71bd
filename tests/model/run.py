"""Long runs by hand: `python -m tests.model.run [N] [SEED] [plain | rich | aliases | two]`.

Prints what was done and compared, and the shortest counterexample of each kind.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.model.checks import Failure
from tests.model.session import OPERATIONS, ORDERS, Person

_THREADS_PER_STORE = 50
_KINDS = ("plain", "rich", "aliases", "two")


def trial(seed: int, store: Path, tally: Counter[str], *, kind: str = "plain") -> Failure | None:
    """One random sequence; the failure, if there is one."""
    rng, people = random.Random(seed), list[Person]()
    try:
        people = [Person(rng.choice, store, f"thread {seed}", order=rng.choice(ORDERS), kind=kind, tally=tally)]
        if rng.random() < 0.8:
            people[0].run_all()
        for _ in range(rng.randint(1, 12)):
            people[0].do(rng.choice(OPERATIONS))
        people[0].finish()
        people[0].close()
    except Exception as error:  # the engine must not raise anything of its own either
        return _failure(error, seed, people)
    return None


def two_notebooks(seed: int, store: Path, tally: Counter[str]) -> Failure | None:
    """Two notebooks on one thread, in turn: each has a lineage of its own."""
    rng, people = random.Random(seed), list[Person]()
    try:
        first = Person(rng.choice, store, f"thread {seed}", order=rng.choice(ORDERS[:3]), tally=tally)
        people.append(first)
        first.run_all()
        people.append(
            Person(rng.choice, store, first.thread_id, order=rng.choice(ORDERS[:3]), beside=first, tally=tally)
        )
        first.companion.in_step = False
        for _ in range(rng.randint(1, 6)):
            person = rng.choice(people)
            person.restart()
            for _ in range(rng.randint(1, 3)):
                person.do(rng.choice(OPERATIONS))
        for person in rng.sample(people, 2):
            person.finish()
        for person in people:
            person.close()
    except Exception as error:
        return _failure(error, seed, people)
    return None


def _failure(error: Exception, seed: int, people: list[Person]) -> Failure:
    """With what led to it."""
    text = "".join(traceback.format_exception(error)[-6:])
    failure = error if isinstance(error, Failure) else Failure(f"{type(error).__name__}: {error}\n{text}")
    told = " and ".join(person.told for person in people)
    failure.trace = [f"seed {seed}, order told by {told}", *(people[0].trace if people else ())]
    return failure


def main(n: int | str = 1000, seed: int | str = 0, kind: str = "plain") -> int:
    """Run `n` sequences; 1 if there is a counterexample."""
    if kind not in _KINDS:
        raise SystemExit(f"{kind!r}: expected one of {', '.join(_KINDS)}")
    n, seed = int(n), int(seed)
    tally, failures, began = Counter[str](), list[Failure](), time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for s in range(seed, seed + n):
            store = Path(folder) / f"{s // _THREADS_PER_STORE}.duckdb"
            failure = two_notebooks(s, store, tally) if kind == "two" else trial(s, store, tally, kind=kind)
            if failure:
                failures.append(failure)
                print(f"seed {s}: {str(failure)[:200]}", flush=True)
    print(", ".join(f"{k} {v}" for k, v in sorted(tally.items())))
    kinds = Counter(str(f).split(":")[0] for f in failures)
    print(len(failures), "counterexamples in", n, f"sequences, {time.monotonic() - began:.0f} s", dict(kinds))
    for found in sorted(kinds):
        shortest = min((f for f in failures if str(f).startswith(found)), key=lambda f: len(f.trace))
        print(*shortest.trace, f"==> {shortest}\n", sep="\n  ", flush=True)
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:4]))
