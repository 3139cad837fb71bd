"""Long runs by hand: `python -m tests.model.run [N] [SEED] [rich]`.

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

from tests.model.session import OPERATIONS, ORDERS, Failure, Person

_THREADS_PER_STORE = 50


def trial(seed: int, store: Path, tally: Counter[str], *, rich: bool = False) -> Failure | None:
    """One random sequence; the failure, if there is one."""
    rng = random.Random(seed)
    person = None
    try:
        person = Person(rng.choice, store, f"thread {seed}", order=rng.choice(ORDERS), rich=rich, tally=tally)
        if rng.random() < 0.8:
            person.run_all()
        for _ in range(rng.randint(1, 12)):
            person.do(rng.choice(OPERATIONS))
        person.finish()
    except Failure as failure:
        return named(failure, seed, person)
    except Exception as error:  # the engine must not raise anything else
        text = "".join(traceback.format_exception(error)[-6:])
        return named(Failure(f"{type(error).__name__}: {error}\n{text}"), seed, person)
    return None


def named(failure: Failure, seed: int, person: Person | None) -> Failure:
    """With what led to it."""
    failure.trace = [f"seed {seed}, order told by {person.told}", *person.trace] if person else [f"seed {seed}"]
    return failure


def main(n: int = 1000, seed: int = 0, rich: str = "") -> int:
    """Run `n` sequences; 1 if there is a counterexample."""
    tally, failures, began = Counter[str](), list[Failure](), time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for s in range(seed, seed + n):
            store = Path(folder) / f"{s // _THREADS_PER_STORE}.duckdb"
            failure = trial(s, store, tally, rich=bool(rich))
            if failure:
                failures.append(failure)
                print(f"seed {s}: {str(failure)[:200]}", flush=True)
    print(", ".join(f"{k} {v}" for k, v in sorted(tally.items())))
    kinds = Counter(str(f).split(":")[0] for f in failures)
    print(len(failures), "counterexamples in", n, f"sequences, {time.monotonic() - began:.0f} s", dict(kinds))
    for kind in sorted(kinds):
        shortest = min((f for f in failures if str(f).startswith(kind)), key=lambda f: len(f.trace))
        print(*shortest.trace, f"==> {shortest}\n", sep="\n  ", flush=True)
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:3]), *sys.argv[3:]))
