"""Commands that run notebooks: `run`, `demo`, `verify`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from resumable_nb.cli.shared import cli
from resumable_nb.terminal import plain


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
