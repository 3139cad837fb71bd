"""`resumable-nb`: run notebooks without a browser, and look into their stores. Handlers parse, call and show."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from resumable_nb.cli import deciding, keeping, looking, running
from resumable_nb.cli.shared import cli
from resumable_nb.errors import ResumableError, UsageError
from resumable_nb.terminal import one_line

__all__ = ["cli", "deciding", "keeping", "looking", "main", "running"]  # imported, each has added its commands


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
