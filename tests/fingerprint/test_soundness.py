"""What a cell really reads is what the analysis says it may read."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from resumable_nb.fingerprint import analyse, needs
from tests.fingerprint.programs import EVERY, about_functions, execute, programs

READS = {"p": {"f", "g"}, "q": {"flag", "b", "p", "c"}, "r": {"a", "p", "b"}}


@dataclass
class Held:
    reads: frozenset[str]


HELD = {name: Held(frozenset(READS.get(name, ()))) for name in EVERY}


flags_ = st.lists(st.booleans(), max_size=20)


@settings(max_examples=250, deadline=None)
@given(source=programs, flags=flags_)
def test_every_name_that_a_run_reads_is_needed(source, flags):
    """Whatever way a cell takes, each name whose old value it reads, or leaves, is among its needs."""
    _check(source, flags)


@settings(max_examples=400, deadline=None)
@given(source=about_functions, flags=flags_)
@example(source="def f(*_): return a\np()", flags=[])
@example(source="def f(*_): return g()\na = f\ndef g(*_): return b\na()", flags=[])
@example(source="@now\ndef f(*_): return b", flags=[])
@example(source="while flag():\n    f()\n    def f(*_): return b", flags=[True, True, False])
def test_what_functions_read_is_needed(source, flags):
    """A function counts wherever it may be called: before its definition, under another name, by a function above."""
    _check(source, flags)


def _check(source, flags):
    assume(_compiles(source))
    code = analyse(source)
    run = execute(source, flags)

    needed = needs(code, HELD.get)
    assert run.read <= needed, source
    if run.ended:
        assert run.kept & code.writes <= needed, source


def _compiles(source: str) -> bool:
    try:
        compile(source, "<program>", "exec")
    except SyntaxError:
        return False
    return True
