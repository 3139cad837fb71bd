"""`resumable-nb`: run notebooks without a browser, and look into their stores. Handlers parse, call and show."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from resumable_nb import __version__
from resumable_nb.errors import ResumableError, ThreadNotFound, UsageError
from resumable_nb.terminal import counted, one_line, plain, table

if TYPE_CHECKING:
    from resumable_nb.journal import Store

Rows = tuple[Sequence[str], Sequence[Sequence[Any]]]
_NO_TEXT = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_DB = click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="RESUMABLE_NB_DB",
    default="research.duckdb",
    show_default=True,
    help="The store.",
)
_THREAD = click.option(
    "--thread",
    metavar="ID",
    envvar="RESUMABLE_NB_THREAD",
    help="The thread; not needed where the store holds one only.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="resumable-nb")
def cli() -> None:
    """Notebook research that survives a dead kernel."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line says, and end the process.

    What goes wrong is said in one line on the error stream. Exit codes: 0 done, 1 failed, 2 the command was given
    wrongly, 3 the notebook waits for a person's decision, 130 stopped by Ctrl-C.
    """
    try:
        code = cli.main(arguments, prog_name="resumable-nb", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        code = _say_error(error.format_message(), error.exit_code)
    except UsageError as error:
        code = _say_error(str(error), 2)
    except ResumableError as error:
        code = _say_error(str(error), 1)
    except (click.Abort, KeyboardInterrupt):
        code = _say_error("Stopped.", 130)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code or 0)


def _say_error(message: str, code: int) -> int:
    click.echo(f"Error: {one_line(message)}", err=True)
    return code


# ---------------------------------------------------------------------- running
@cli.command()
@click.argument("notebook", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--thread", "threads", multiple=True, metavar="ID", help="Outranks its thread. Several: run once for each."
)
@click.option(
    "--set",
    "own",
    nargs=3,
    multiple=True,
    metavar="THREAD NAME VALUE",
    help="Like -p, for one of several threads only.",
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Threads at the same time.")
@click.option(
    "--db", type=click.Path(path_type=Path, dir_okay=False), help="Outranks the store that the notebook names."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The executed notebook.  [default: NOTEBOOK with .executed.ipynb]",
)
@click.option(
    "-p",
    "parameters",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="Set a value of the cell tagged `parameters`: JSON, True, False or None, else text.",
)
@click.option(
    "--max-restarts", type=click.IntRange(0), default=3, show_default=True, help="Kernels after the first one."
)
@click.option("--timeout", type=click.FloatRange(0, min_open=True), help="Seconds that one cell may take.")
def run(
    notebook: Path,
    *,
    threads: tuple[str, ...],
    own: tuple[tuple[str, str, str], ...],
    jobs: int,
    db: Path | None,
    output: Path | None,
    parameters: tuple[tuple[str, str], ...],
    max_restarts: int,
    timeout: float | None,
) -> int:
    """Take NOTEBOOK to its end, through kernels that die.

    Exit codes: 0 done, 1 failed, 2 the command was given wrongly, 3 a step waits for a person's decision, 130 stopped
    by Ctrl-C. After any of them the same command goes on where it was. Of several threads, the worst counts.
    """
    from resumable_nb.parameters import for_threads, parse
    from resumable_nb.runner import run_notebook, run_threads

    options: dict[str, Any] = {"db": db, "max_restarts": max_restarts, "cell_timeout_s": timeout, "say": click.echo}
    sets = for_threads(threads, parameters, own)
    if len(sets) > 1:
        if output is not None:
            raise click.UsageError(
                "--output is for one thread. Of several, each leaves NOTEBOOK.THREAD.executed.ipynb."
            )
        several = run_threads(notebook, sets, jobs=jobs, **options)
        for name, ended in several.items():
            click.echo(f"{plain(name)}: {ended}", err=ended.outcome in ("failed", "stopped"))
        codes = [ended.exit_code for ended in several.values()]
        return next((code for code in (130, 1, 3) if code in codes), 0)
    ended = run_notebook(
        notebook,
        output=output,
        thread=next(iter(sets), None),
        parameters={**parse(parameters), **_only(sets)},
        **options,
    )
    click.echo(str(ended), err=ended.outcome in ("failed", "stopped"))
    return ended.exit_code


def _only(sets: Mapping[str, Mapping[str, object]]) -> Mapping[str, object]:
    return next(iter(sets.values()), {})


@cli.command()
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="A new folder for what it leaves.")
@click.option(
    "--live", is_flag=True, help="Use the model that OPENAI_API_KEY and OPENAI_BASE_URL name: this costs money."
)
@click.option("--kill/--no-kill", default=True, show_default=True, help="Kill the kernel in the middle.")
def demo(folder: Path | None, *, live: bool, kill: bool) -> int:
    """Run the quickstart, kill its kernel in the middle, go on, and show what was not done again."""
    from resumable_nb.demo import run_demo

    code: int = run_demo(folder, live=live, kill=kill, say=click.echo)
    return code


@cli.command()
@click.argument("notebook", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--all", "everywhere", is_flag=True, help="Kill it at every boundary.")
@click.option("--sample", type=click.IntRange(0), default=40, show_default=True, help="Kill it at so many boundaries.")
@click.option("--at", multiple=True, metavar="NAME[:N]", help="Kill it there instead, as a trial is named.")
@click.option("--random", type=click.IntRange(0), default=0, help="Kill it at so many moments besides, by the clock.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which moments are drawn.")
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Trials at the same time.")
@click.option("--live", is_flag=True, help="Let each trial ask the real model anew: this costs money.")
@click.option("--judge", metavar="MODULE:FUNCTION", help="Gets two final states; True if they mean the same.")
@click.option(
    "--before",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Run this version of it until the kill: an edit while it was dead.",
)
@click.option("--approve", type=click.Choice(["all"]), default="all", help="How gates are answered: yes to all.")
@click.option("--thread", metavar="ID", help="Outranks its thread.")
@click.option("-p", "parameters", nargs=2, multiple=True, metavar="NAME VALUE", help="As for `run`.")
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), default=300, show_default=True, help="Seconds for one cell."
)
@click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    default="verify.duckdb",
    show_default=True,
    help="The store that keeps the results.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for report.md and report.html.  [default: NOTEBOOK with .verify]",
)
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML, for CI.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep all trials in this new folder.")
def verify(notebook: Path, **options: Any) -> int:
    """Prove where NOTEBOOK is and is not resumable: it is killed at its durable boundaries, resumed, and judged.

    Its effects act on a ledger, its questions are answered by a recording of one run. Exit code 1 when a check fails.
    """
    from resumable_nb.verify.command import run_verify

    code: int = run_verify(notebook, say=click.echo, **options)
    return code


# ---------------------------------------------------------------------- looking
@cli.command()
@_DB
@click.option("--thread", metavar="ID", envvar="RESUMABLE_NB_THREAD", help="Show the steps of this thread.")
def status(db: Path, thread: str | None) -> None:
    """Show the threads of a store, or the steps of one thread; and what waits for a person, with what answers it."""
    if thread is None:
        found = _rows(
            _store(db),
            "SELECT thread_id AS thread, last_at, llm_calls, input_tokens, output_tokens FROM threads ORDER BY last_at",
        )
    else:
        found = _rows(
            _store(db),
            "SELECT step, phase, last_checkpoint AS checkpoint, llm_calls, input_tokens, output_tokens, "
            "round(duration_ms / 1000, 1) AS seconds FROM steps WHERE thread_id = ? ORDER BY first_at",
            [_thread(db, thread)],
        )
    click.echo(table(*found))
    for line in _waiting(db, thread):
        click.echo(line)


def _waiting(db: Path, thread: str | None) -> list[str]:
    """What a person can answer: in a thread, or in all."""
    from resumable_nb.pending import waiting

    query = (
        "SELECT DISTINCT thread_id FROM (SELECT thread_id FROM approvals WHERE phase = 'waiting' "
        "UNION SELECT thread_id FROM effects WHERE phase = 'in doubt') ORDER BY 1"
    )
    threads = [str(row[0]) for row in _rows(_store(db), query)[1]]
    return [line for name in threads if thread in (None, name) for line in waiting(_store(db), name)]


@cli.command()
@_DB
@_THREAD
def history(db: Path, thread: str | None) -> None:
    """Show the checkpoints of a thread, and what each changed in the state."""
    click.echo(
        table(
            *_rows(
                _store(db),
                "SELECT seq, c.ts AS at, c.step, origin, c.in_lineage, "
                "string_agg(op || ' ' || field, ', ' ORDER BY op DESC, field) AS changed "
                "FROM checkpoints c LEFT JOIN state_changes s USING (thread_id, seq) "
                "WHERE thread_id = ? GROUP BY ALL ORDER BY seq",
                [_thread(db, thread)],
            )
        )
    )


@cli.command()
@click.argument("a", type=click.IntRange(1))
@click.argument("b", type=click.IntRange(1))
@_DB
@_THREAD
def diff(a: int, b: int, db: Path, thread: str | None) -> None:
    """Show what differs between the states at rows A and B, as `history` numbers them."""
    name = _thread(db, thread)
    last = _rows(_store(db), "SELECT last_seq FROM threads WHERE thread_id = ?", [name])[1][0][0]
    if max(a, b) > last:
        raise ThreadNotFound(f"Thread {name!r} has no row {max(a, b)}: it has 1 to {last}. See `history`.")
    found = _rows(
        _store(db),
        "SELECT field, a.value AS before, b.value AS after "
        "FROM state_at(?, ?) a FULL JOIN state_at(?, ?) b USING (field) "
        "WHERE a.value IS DISTINCT FROM b.value ORDER BY field",
        [name, a, name, b],
    )
    click.echo(table(*found) if found[1] else f"The states at {a} and {b} are equal.")


@cli.command()
@click.argument("query")
@_DB
@click.option("--thread", metavar="ID", hidden=True, help="Not used: the query names the thread.")
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option("--wide", is_flag=True, help="Do not cut long values of a table.")
def sql(query: str, db: Path, thread: str | None, form: str, *, wide: bool) -> None:
    """Ask the store: QUERY is one SELECT or EXPLAIN over its views. It can neither write nor reach files."""
    del thread
    columns, rows = _rows(_store(db), query)
    shown: dict[str, Callable[[], str]] = {
        "table": lambda: table(columns, rows, width=None if wide else 60),
        "csv": lambda: _csv(columns, rows),
        "json": lambda: _json(columns, rows),
    }
    click.echo(shown[form]())


@cli.command()
@click.argument("seq", type=click.IntRange(1))
@click.argument("new_id", metavar="NEW")
@_DB
@_THREAD
def fork(seq: int, new_id: str, db: Path, thread: str | None) -> None:
    """Make a thread NEW that starts with the rows 1 to SEQ of another one. What was answered is not asked again."""
    name = _thread(db, thread)
    _store(db).fork(name, seq, new_id)
    click.echo(f"Thread {one_line(new_id)} holds rows 1 to {seq} of {one_line(name)}.")


@cli.command()
@_DB
@click.option("--rebuild", is_flag=True, help="Copy all readable rows into a clean store, and put that in its place.")
@click.option("--without-log", is_flag=True, help="With --rebuild: leave a damaged log (WAL) out; it is kept beside.")
def doctor(db: Path, *, rebuild: bool, without_log: bool) -> int:
    """Check a store from end to end. Only --rebuild changes it; what was there is then kept under a new name."""
    from resumable_nb.journal import repair

    if not db.exists():
        raise UsageError(f"There is no store at {db}.")
    found = repair.examine(db)
    for name, count in sorted(found.rows.items()):
        click.echo(f"thread {plain(name)}: {counted(count, 'row')} can be read")
    for trouble in found.troubles:
        click.echo(plain(trouble), err=True)
    if not rebuild:
        click.echo("nothing is the matter" if not found.troubles else f"to do: {found.needs or 'see above'}")
        return 1 if found.troubles else 0
    target = db.with_name(f"{db.name}.rebuilt")
    copied = repair.rebuild(db, target, with_log=not without_log)
    kept = repair.put_in_place(db, target)
    rows = f"{counted(copied, 'row')} {'is' if copied == 1 else 'are'} in a clean store at {db}"
    click.echo(f"{rows}; what was there is kept as {', '.join(k.name for k in kept)}")
    return 0


# ---------------------------------------------------------------------- deciding
_GATE = click.option("--gate", type=click.IntRange(1), metavar="ROW", help="Which one, where STEP waits at several.")
_COMMENT = click.option("--comment", default="", help="What to say about it; the step and the model can read it.")


@cli.command()
@click.argument("step")
@_DB
@_THREAD
@_COMMENT
@click.option("--payload", metavar="JSON|@FILE", help="Approve this instead; @FILE reads it.")
@_GATE
def approve(step: str, *, db: Path, thread: str | None, comment: str, payload: str | None, gate: int | None) -> None:
    """Say yes to what STEP waits for; it goes on when it is run again.

    Outside steps, STEP is the question itself. The first decision stands.
    """
    from resumable_nb.payloads import from_command

    edited = None if payload is None else from_command(payload)
    _decide(step, db, thread, gate, approve=True, comment=comment, payload=edited)


@cli.command()
@click.argument("step")
@_DB
@_THREAD
@_COMMENT
@_GATE
def reject(step: str, *, db: Path, thread: str | None, comment: str, gate: int | None) -> None:
    """Say no to what STEP waits for. The first decision stands."""
    _decide(step, db, thread, gate, approve=False, comment=comment)


def _decide(step: str, db: Path, thread: str | None, gate: int | None, **decision: Any) -> None:
    from resumable_nb.gates import decide
    from resumable_nb.pending import about

    name = _thread(db, thread)
    decided = decide(_store(db), name, step, gate_seq=gate, **decision)
    for line in about(decided, _store(db), name):
        click.echo(line)
    then = "Run the notebook again to go on." if decision["approve"] else "Run again, and its step stops and says so."
    click.echo(f"{decided} is {decided.decision}. {then}")


@cli.command()
@click.argument("key")
@_DB
@_THREAD
@_COMMENT
@click.option("--happened", "receipt", metavar="RECEIPT", help='It happened; what the outside world answered, or "".')
@click.option("--did-not-happen", is_flag=True, help="It did not happen: its step may run it, with the same key.")
def settle(key: str, *, db: Path, thread: str | None, comment: str, receipt: str | None, did_not_happen: bool) -> None:
    """Say what became of the effect with this idempotency KEY, when nobody else can know. The first word stands."""
    from resumable_nb import receipts

    if (receipt is not None) == did_not_happen:
        raise click.UsageError("Give one of --happened RECEIPT and --did-not-happen.")
    name = _thread(db, thread)
    settled = receipts.settle(
        _store(db), name, key, happened=not did_not_happen, receipt=receipt or None, comment=comment
    )
    click.echo(f"`{one_line(key)}` {settled.standing}. Run its step again to go on.")


def _store(db: Path) -> Store:
    from resumable_nb.journal import Store

    return Store.open(db, create=False)


def _rows(store: Store, query: str, parameters: Sequence[Any] | None = None) -> Rows:
    found: Rows = store.rows(query, parameters)
    return found


def _thread(db: Path, wanted: str | None) -> str:
    """The thread that is meant.

    Raises:
        ThreadNotFound: it is not in the store, or none was named and the store does not hold exactly one.
    """
    known = [row[0] for row in _rows(_store(db), "SELECT thread_id FROM threads ORDER BY last_at DESC")[1]]
    if wanted in known:
        return str(wanted)
    if wanted is None and len(known) == 1:
        return str(known[0])
    listed = ", ".join(known[:10]) or "none"
    if wanted is None:
        raise UsageError(f"Which thread? {db} holds {listed}: give one with --thread.")
    raise ThreadNotFound(f"There is no thread {wanted!r} in {db}. It holds: {listed}.")


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
