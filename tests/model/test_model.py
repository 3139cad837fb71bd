"""The engine against the oracle: whatever a person does at a notebook, and wherever the kernel is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.model.session import OPERATIONS, ORDERS, Person
from tests.model.writing import Choose


def chooser(data: st.DataObject) -> Choose:
    """Choices that hypothesis makes, and shrinks."""
    return lambda options: data.draw(st.sampled_from(list(options)))


class NotebookMachine(RuleBasedStateMachine):
    """What a person does, one rule for each of `OPERATIONS`."""

    def __init__(self, store: Path) -> None:
        super().__init__()
        self.store, self.person, self.failed = store, None, False

    @initialize(data=st.data(), order=st.sampled_from(ORDERS), run_all=st.booleans())
    def open(self, data: st.DataObject, order: str, run_all: bool) -> None:
        NotebookMachine.threads += 1
        self.person = Person(chooser(data), self.store, f"thread {NotebookMachine.threads}", order=order)
        if run_all:
            self._do("all", data)

    def _do(self, operation: str, data: st.DataObject) -> None:
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

    threads = 0


def _rule_of(operation: str) -> Callable[..., None]:
    def do(self: NotebookMachine, data: st.DataObject) -> None:
        self._do(operation, data)

    do.__name__ = operation.replace("+", "_and_")
    return rule(data=st.data())(do)


for _operation in sorted(set(OPERATIONS)):
    setattr(NotebookMachine, f"do_{_operation.replace('+', '_and_')}", _rule_of(_operation))


def test_any_history_ends_like_a_clean_run(tmp_path: Path) -> None:
    """Run All after any history of edits, failures, kills and take-overs ends as a clean run of the notebook would."""
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: NotebookMachine(tmp_path / "research.duckdb"),
        settings=settings(
            max_examples=60,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
