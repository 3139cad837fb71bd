"""Commands that keep stores and threads: `fork`, `prune`, `export`, `import`, `doctor`, `encrypt`, `decrypt`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from resumable_nb.cli.shared import DB, THREAD, ask, cli, store_at, thread_in
from resumable_nb.errors import UsageError
from resumable_nb.terminal import counted, one_line

TAKE_OVER = click.option("--take-over", is_flag=True, help="Sessions that cannot be seen from here count as over.")


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("moment", metavar="SEQ")
@click.argument("new_id", metavar="NEW")
@DB
@THREAD
def fork(moment: str, new_id: str, db: Path, thread: str | None) -> None:
    """Make a thread NEW that starts with the rows 1 to SEQ of another one. What was answered is not asked again.

    SEQ is a row, the name of a step (up to the end of its last run), `newest`, or -1, -2, …, which count back.
    """
    from resumable_nb.history import find, read

    name = thread_in(db, thread)
    seq = find(read(store_at(db), name), name, moment)
    store_at(db).fork(name, seq, new_id)
    click.echo(f"Thread {one_line(new_id)} holds rows 1 to {seq} of {one_line(name)}.")


@cli.command()
@DB
@click.option("--thread", "threads", multiple=True, metavar="ID", help="Only in this thread.  [default: all]")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Merge all checkpoints but the newest N.")
@click.option(
    "--answers-before",
    metavar="WHEN",
    help="Drop the contents of older answers: 2026-11-29, or an age as 12h, 30d, 6w.",
)
@click.option("--drop", multiple=True, metavar="ID", help="Drop this thread as a whole.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--backup", is_flag=True, help="Keep the old file, under a name with the time.")
@TAKE_OVER
def prune(
    db: Path,
    *,
    threads: tuple[str, ...],
    keep: int | None,
    answers_before: str | None,
    drop: tuple[str, ...],
    yes: bool,
    backup: bool,
    take_over: bool,
) -> None:
    """Make a store smaller. What would go is said first, and done only with --yes or when you agree.

    Receipts of effects, decisions, open questions, the newest state and what was billed always stay.
    """
    from resumable_nb.pruning import Pruning
    from resumable_nb.pruning import prune as prune_store

    if keep is None and answers_before is None and not drop:
        raise UsageError("Say what is to go: --keep N, --answers-before WHEN, --drop ID, or several of them.")

    def agreed(plan: Pruning) -> bool:
        click.echo(plan.going())
        return yes or (sys.stdin.isatty() and click.confirm("Do this?"))

    pruned = prune_store(
        db,
        thread=threads or os.environ.get("RESUMABLE_NB_THREAD") or None,
        keep=keep,
        answers_before=answers_before,
        drop=drop,
        yes=agreed,
        backup=backup,
        take_over=take_over,
    )
    to_do = "" if pruned.is_done or not pruned or sys.stdin.isatty() else " To do this, add --yes."
    click.echo(pruned.outcome() + to_do)


@cli.command()
@click.argument("words", nargs=-1, required=True, metavar="[THREAD] FILE")
@DB
@THREAD
def export(words: tuple[str, ...], db: Path, thread: str | None) -> None:
    """Write a thread to a new FILE that holds all of it: rows as Parquet, exactly. Nothing in it is encrypted.

    THREAD may stand before FILE as well as after --thread.
    """
    from resumable_nb.journal import sealing
    from resumable_nb.transfer import export_thread

    *named, file = words
    agreeing = (
        None,
        os.environ.get("RESUMABLE_NB_THREAD"),
        *named,
    )  # a thread that is named outranks the environment's
    if len(named) > 1 or (named and thread not in agreeing):
        raise UsageError(f"Name one thread and one file, not {', '.join(one_line(w) for w in (thread, *words) if w)}.")
    name = thread_in(db, named[0] if named else thread)
    made = export_thread(name, Path(file), db=db)
    click.echo(f"Thread {one_line(name)} is in {made} ({made.stat().st_size / 2**20:.1f} MB).")
    if sealing.key_of() is not None:
        click.echo(f"{made} is NOT encrypted, though the store is: whoever has the file can read it.", err=True)


@cli.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@DB
@click.option("--as", "new_id", metavar="NEW", help="Another name for the thread.")
def import_(file: Path, db: Path, new_id: str | None) -> None:
    """Take the thread in FILE, as `export` wrote it, into a store. Nothing in FILE is run.

    Where the store has that thread or a fork of it, this becomes a fork: nothing is done or counted twice.
    """
    from resumable_nb.transfer import import_thread

    name = import_thread(file, db=db, new_id=new_id)
    origin = ask(store_at(db), "SELECT forked_from FROM threads WHERE thread_id = ?", [name])[1][0][0]
    beside = f" as a fork of {one_line(origin)}: what that did is not done again" if origin else ""
    click.echo(f"Thread {one_line(name)} is in {db}{beside}.")


@cli.command()
@DB
@click.option("--rebuild", is_flag=True, help="Copy all readable rows into a clean store, and put that in its place.")
@click.option("--without-log", is_flag=True, help="With --rebuild: leave a damaged log (WAL) out; it is kept beside.")
def doctor(db: Path, *, rebuild: bool, without_log: bool) -> int:
    """Check a store from end to end. Only --rebuild changes it; what was there is then kept under a new name."""
    from resumable_nb.checkup import check
    from resumable_nb.journal import repair

    if not db.exists():
        raise UsageError(f"There is no store at {db}.")
    found, is_sound = repair.examine(db), True
    for line in check(db, found, lambda text: click.echo(text, err=True)):
        click.echo(line.text, err=line.is_trouble)
        is_sound = is_sound and not line.is_trouble
    if not rebuild:
        options = {"rebuild": "--rebuild", "rebuild without log": "--rebuild --without-log"}.get(found.needs)
        command = shlex.join(["resumable-nb", "doctor", *(options or "").split(), "--db", str(db)])
        saving = f"; `{command}` saves what can be read, and keeps what is there under another name" if options else ""
        click.echo("nothing is the matter" if is_sound else f"to do: see above{saving}")
        return 0 if is_sound else 1
    target = db.with_name(f"{db.name}.rebuilt")
    copied = repair.rebuild(db, target, with_log=not without_log)
    kept = repair.put_in_place(db, target)
    rows = f"{counted(copied, 'row')} {'is' if copied == 1 else 'are'} in a clean store at {db}"
    click.echo(f"{rows}; what was there is kept as {', '.join(k.name for k in kept)}")
    left = [line.text for line in check(db, repair.examine(db), lambda _: None) if line.is_trouble]
    if left:
        click.echo("\n".join(["What --rebuild cannot mend:", *left]), err=True)
    return 1 if left else 0


@cli.command()
@DB
@TAKE_OVER
def encrypt(db: Path, *, take_over: bool) -> None:
    """Encrypt a store with the key in RESUMABLE_NB_KEY, or change its key from the one in RESUMABLE_NB_OLD_KEY."""
    from resumable_nb.journal import converting

    converting.encrypt(store_at(db), take_over=take_over)
    click.echo(
        f"{db} is encrypted. Nobody can read it without the key, nor can you. Copies, exports and the outputs in "
        "notebooks are as they were, and so is what the disk kept of the old file."
    )


@cli.command()
@DB
@TAKE_OVER
def decrypt(db: Path, *, take_over: bool) -> None:
    """Make a plain store of one that is encrypted with the key in RESUMABLE_NB_KEY."""
    from resumable_nb.journal import converting

    converting.decrypt(store_at(db), take_over=take_over)
    click.echo(f"{db} is not encrypted any more. Unset the key to go on with it.")
