"""The engine against the oracle: whatever a person does at a notebook, and wherever the kernel is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.model.run import two_notebooks
from tests.model.session import OPERATIONS, ORDERS, Person
from tests.model.writing import Choose


def chooser(data: st.DataObject) -> Choose:
    """Choices that hypothesis makes, and shrinks."""
    return lambda options: data.draw(st.sampled_from(list(options)))


class NotebookMachine(RuleBasedStateMachine):
    """What a person does, one rule for each of `OPERATIONS`."""

    threads = count(1)

    def __init__(self, store: Path, kind: str) -> None:
        super().__init__()
        self.store, self.kind, self.failed = store, kind, False
        self.person: Person | None = None

    @initialize(data=st.data(), order=st.sampled_from(ORDERS), run_all=st.booleans())
    def open(self, data: st.DataObject, order: str, run_all: bool) -> None:
        name = f"thread {next(self.threads)}"
        self.person = Person(chooser(data), self.store, name, order=order, kind=self.kind)
        if run_all:
            self.do("all", data)

    def do(self, operation: str, data: st.DataObject) -> None:
        assert self.person is not None
        self.failed = True
        self.person.draw(chooser(data))
        self.person.do(operation)
        self.failed = False

    def teardown(self) -> None:
        if self.person is not None:
            self.person.draw(lambda options: options[0])
            try:
                if not self.failed:
                    self.person.finish()
            finally:
                self.person.close()


def _rule_of(operation: str) -> Callable[..., None]:
    def do(self: NotebookMachine, data: st.DataObject) -> None:
        self.do(operation, data)

    do.__name__ = operation.replace("+", "_and_")
    return rule(data=st.data())(do)


for _operation in sorted(set(OPERATIONS)):
    setattr(NotebookMachine, f"do_{_operation.replace('+', '_and_')}", _rule_of(_operation))


@pytest.mark.parametrize(("kind", "examples"), [("plain", 45), ("rich", 15), ("aliases", 15)])
def test_any_history_ends_like_a_clean_run(kind: str, examples: int, tmp_path: Path) -> None:
    """Run All after any history of edits, failures, kills and take-overs ends as a clean run of the notebook would."""
    machine: Any = lambda: NotebookMachine(tmp_path / "research.duckdb", kind)  # noqa: E731
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


@pytest.mark.parametrize("seed", range(4))
def test_two_notebooks_on_one_thread_have_a_lineage_each(seed: int, tmp_path: Path) -> None:
    """Whatever the one does, Run All of the other ends as a clean run from the checkpoint that it began with."""
    failure = two_notebooks(seed, tmp_path / "research.duckdb", Counter())

    assert failure is None, "\n".join([*failure.trace, str(failure)])
