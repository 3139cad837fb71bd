"""Commands that look into a store and change nothing: `status`, `history`, `diff`, `timeline`, `sql`."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from resumable_nb.cli.shared import DB, THREAD, Rows, ask, cli, store_at, thread_in
from resumable_nb.errors import UsageError
from resumable_nb.terminal import one_line, plain, table

if TYPE_CHECKING:
    from resumable_nb.journal import Store

_NO_TEXT = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


_STEPS = """
WITH asked AS (
    SELECT step, phase = 'waiting' AS waits, phase IN ('approved', 'rejected') AS is_answered
    FROM approvals WHERE thread_id = $1 AND step IS NOT NULL
    UNION ALL SELECT step, phase = 'in doubt', phase IN ('done', 'not done')
    FROM effects WHERE thread_id = $1 AND step IS NOT NULL)
SELECT step,
       CASE WHEN phase = 'waiting' AND step IN (SELECT step FROM asked WHERE is_answered)
                 AND step NOT IN (SELECT step FROM asked WHERE waits) THEN 'decided' ELSE phase END AS phase,
       last_checkpoint AS checkpoint, llm_calls, input_tokens, output_tokens, round(duration_ms / 1000, 1) AS seconds
FROM steps WHERE thread_id = $1 ORDER BY first_at
"""
"""A step that stopped for a person stands so until it is run again; that the person has answered, only this tells."""


@cli.command()
@DB
@click.option("--thread", metavar="ID", envvar="RESUMABLE_NB_THREAD", help="Show the steps of this thread.")
def status(db: Path, thread: str | None) -> None:
    """Show the threads of a store, or the steps of one thread; and what waits for a person, with what answers it."""
    found = _threads(store_at(db)) if thread is None else ask(store_at(db), _STEPS, [thread_in(db, thread)])
    click.echo(table(*found))
    for line in _waiting(db, thread):
        click.echo(line)


def _threads(store: Store) -> Rows:
    """A row for each thread, the one that was worked on last at the end."""
    from datetime import UTC, datetime

    from resumable_nb.timeline import overview

    names = "thread", "last_at", "waits", "in_doubt", "llm_calls", "input_tokens", "output_tokens", "dollars", "open_in"
    rows = [
        [
            one["thread"],
            datetime.fromtimestamp(one["last"] / 1e3, UTC),
            one["waiting"] or None,
            one["doubt"] or None,
            one["calls"],
            one["input"],
            one["output"],
            None if one["usd"] is None else float(f"{one['usd']:.3g}"),
            {"yes": one["who"], "unknown": f"maybe {one['who']}"}.get(one["open"]),
        ]
        for one in reversed(overview(store))
    ]
    return names, rows


def _waiting(db: Path, thread: str | None) -> list[str]:
    """What a person can answer: in a thread, or in all."""
    from resumable_nb.pending import waiting

    query = (
        "SELECT DISTINCT thread_id FROM (SELECT thread_id FROM approvals WHERE phase = 'waiting' "
        "UNION SELECT thread_id FROM effects WHERE phase = 'in doubt') ORDER BY 1"
    )
    threads = [str(row[0]) for row in ask(store_at(db), query)[1]]
    return [line for name in threads if thread in (None, name) for line in waiting(store_at(db), name)]


@cli.command()
@DB
@THREAD
def history(db: Path, thread: str | None) -> None:
    """Show the checkpoints of a thread, and what each changed in the state."""
    click.echo(
        table(
            *ask(
                store_at(db),
                "SELECT seq, c.ts AS at, c.step, origin, c.in_lineage, "
                "string_agg(op || ' ' || field, ', ' ORDER BY op DESC, field) AS changed "
                "FROM checkpoints c LEFT JOIN state_changes s USING (thread_id, seq) "
                "WHERE thread_id = ? GROUP BY ALL ORDER BY seq",
                [thread_in(db, thread)],
            )
        )
    )


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("a")
@click.argument("b")
@DB
@THREAD
def diff(a: str, b: str, db: Path, thread: str | None) -> None:
    """Show what differs between the states at A and B.

    Each is a row as `history` numbers them, the name of a step (after its last run), `newest`, `start`, or -1, -2, …,
    which count back.
    """
    from resumable_nb.history import diff, find, read

    name = thread_in(db, thread)
    fold = read(store_at(db), name)
    click.echo(repr(diff(fold, (a, find(fold, name, a)), (b, find(fold, name, b)))))


@cli.command()
@DB
@THREAD
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file.  [default: THREAD.timeline.html]"
)
def timeline(db: Path, thread: str | None, output: Path | None) -> None:
    """Draw a thread as one HTML file that opens anywhere: its steps and runs, what they cost, states and contexts."""
    from resumable_nb.timeline import page

    name = thread_in(db, thread)
    path = output or Path(re.sub(r"[^\w.-]+", "-", name) + ".timeline.html")
    drawn = page(store_at(db), name)
    try:
        path.write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}. Name another file with --output.") from None
    click.echo(f"{path} shows thread {one_line(name)}.")


@cli.command()
@click.argument("query")
@DB
@click.option(
    "--thread",
    metavar="ID",
    envvar="RESUMABLE_NB_THREAD",
    help="What $thread in the query stands for; not needed where the store holds one only.",
)
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option("--wide", is_flag=True, help="Do not cut long values of a table.")
def sql(query: str, db: Path, thread: str | None, form: str, *, wide: bool) -> None:
    """Ask the store: QUERY is one SELECT or EXPLAIN over its views. It can neither write nor reach files.

    $thread stands in it for the thread; put QUERY in single quotes, or the shell takes that for a variable of its own.
    """
    from resumable_nb.journal import statements

    columns, rows = ask(store_at(db), query, statements.with_thread(query, None, lambda: thread_in(db, thread)))
    shown: dict[str, Callable[[], str]] = {
        "table": lambda: table(columns, rows, width=None if wide else 60),
        "csv": lambda: _csv(columns, rows),
        "json": lambda: _json(columns, rows),
    }
    click.echo(shown[form]())


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if value is None else plain(str(value)) for value in row] for row in rows])
    return text.getvalue().rstrip("\n")


def _json(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Exact: what a terminal would obey is escaped, not left out."""
    text = json.dumps([dict(zip(columns, row, strict=True)) for row in rows], ensure_ascii=False, indent=1, default=str)
    return _NO_TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
