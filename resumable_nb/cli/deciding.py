"""Commands by which a person decides: `approve`, `reject`, `settle`, `fresh`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from resumable_nb.cli.shared import DB, THREAD, cli, store_at, thread_in
from resumable_nb.terminal import one_line

GATE = click.option("--gate", type=click.IntRange(1), metavar="ROW", help="Which one, where STEP waits at several.")
COMMENT = click.option("--comment", default="", help="What to say about it; the step and the model can read it.")


@cli.command()
@click.argument("step")
@DB
@THREAD
@COMMENT
@click.option("--payload", metavar="JSON|@FILE", help="Approve this instead; @FILE reads it.")
@GATE
def approve(step: str, *, db: Path, thread: str | None, comment: str, payload: str | None, gate: int | None) -> None:
    """Say yes to what STEP waits for; it goes on when it is run again.

    Outside steps, STEP is the question itself. The first decision stands.
    """
    from resumable_nb.payloads import from_command

    edited = None if payload is None else from_command(payload)
    _decide(step, db, thread, gate, approve=True, comment=comment, payload=edited)


@cli.command()
@click.argument("step")
@DB
@THREAD
@COMMENT
@GATE
def reject(step: str, *, db: Path, thread: str | None, comment: str, gate: int | None) -> None:
    """Say no to what STEP waits for. The first decision stands."""
    _decide(step, db, thread, gate, approve=False, comment=comment)


def _decide(step: str, db: Path, thread: str | None, gate: int | None, **decision: Any) -> None:
    from resumable_nb.gates import decide
    from resumable_nb.pending import about

    name = thread_in(db, thread)
    decided = decide(store_at(db), name, step, gate_seq=gate, **decision)
    for line in about(decided, store_at(db), name):
        click.echo(line)
    then = "Run the notebook again to go on." if decision["approve"] else "Run again, and its step learns of it."
    click.echo(f"{decided} is {decided.decision}. {then}")


@cli.command()
@click.argument("key")
@DB
@THREAD
@COMMENT
@click.option("--happened", "receipt", metavar="RECEIPT", help='It happened; what the outside world answered, or "".')
@click.option("--did-not-happen", is_flag=True, help="It did not happen: its step may run it, with the same key.")
def settle(key: str, *, db: Path, thread: str | None, comment: str, receipt: str | None, did_not_happen: bool) -> None:
    """Say what became of the effect with this idempotency KEY, when nobody else can know. The first word stands."""
    from resumable_nb import receipts

    if (receipt is not None) == did_not_happen:
        raise click.UsageError("Give one of --happened RECEIPT and --did-not-happen.")
    name = thread_in(db, thread)
    settled = receipts.settle(
        store_at(db), name, key, happened=not did_not_happen, receipt=receipt or None, comment=comment
    )
    click.echo(f"`{one_line(key)}` {settled.standing}. Run its step again to go on.")


@cli.command()
@click.argument("step")
@DB
@THREAD
def fresh(step: str, *, db: Path, thread: str | None) -> None:
    """Retire the answers and finished runs of STEP: it runs and asks anew, and pays. Receipts of its effects stay."""
    from resumable_nb.history import read, retirement

    name = thread_in(db, thread)
    store_at(db).visitor(name).append(retirement(read(store_at(db), name), name, step))
    click.echo(f"`{one_line(step)}` will run and ask anew when the notebook is run; receipts of its effects stay.")
