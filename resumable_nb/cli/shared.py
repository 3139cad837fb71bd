"""What the commands share: their group, the options for store and thread, and how they reach both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from resumable_nb import __version__
from resumable_nb.errors import ThreadNotFound, UsageError

if TYPE_CHECKING:
    from resumable_nb.journal import Store
    from resumable_nb.journal.statements import Parameters

Rows = tuple[Sequence[str], Sequence[Sequence[Any]]]

DB = click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="RESUMABLE_NB_DB",
    default="research.duckdb",
    show_default=True,
    help="The store.",
)
THREAD = click.option(
    "--thread",
    metavar="ID",
    envvar="RESUMABLE_NB_THREAD",
    help="The thread; not needed where the store holds one only.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="resumable-nb")
def cli() -> None:
    """Notebook research that survives a dead kernel."""


def store_at(db: Path) -> Store:
    """The store in that file; it is not made if there is none."""
    from resumable_nb.journal import Store

    return Store.open(db, create=False)


def ask(store: Store, query: str, parameters: Parameters = None) -> Rows:
    """The names of the columns, and the rows, as DuckDB gives them."""
    found: Rows = store.rows(query, parameters)
    return found


def thread_in(db: Path, wanted: str | None) -> str:
    """The thread that is meant.

    Raises:
        ThreadNotFound: it is not in the store, or none was named and the store does not hold exactly one.
    """
    known = [row[0] for row in ask(store_at(db), "SELECT thread_id FROM threads ORDER BY last_at DESC")[1]]
    if wanted in known:
        return str(wanted)
    if wanted is None and len(known) == 1:
        return str(known[0])
    listed = ", ".join(known[:10]) or "none"
    if wanted is None:
        raise UsageError(f"Which thread? {db} holds {listed}: give one with --thread.")
    raise ThreadNotFound(f"There is no thread {wanted!r} in {db}. It holds: {listed}.")
