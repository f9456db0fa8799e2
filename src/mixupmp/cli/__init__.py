"""The command `mixupmp`. To add a command, write a file here whose `command` is a function, and name it in COMMANDS."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from mixupmp.cli.output import complain
from mixupmp.core.errors import MixupMPError
from mixupmp.core.version import __version__
from mixupmp.train.run import FitInterrupted

COMMANDS = (
    "demo", "methods", "fit", "evaluate", "predict", "select", "report", "playground", "serve", "corrupt", "reproduce",
)  # fmt: skip

app = typer.Typer(
    name="mixupmp",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # what is not ours is a bug: its plain traceback is what a report needs
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name in COMMANDS:
    app.command(name)(importlib.import_module(f"mixupmp.cli.{name}").command)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """How sure is your classifier, really? Martingale posteriors for neural networks.

    Start with [bold]mixupmp demo[/bold], then fit your own: [bold]mixupmp fit --data my-images/ --out run[/bold]
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave with its exit code: 2 for whatever the user can put right, 130 or 143 for a signal."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="mixupmp")
    except FitInterrupted as error:
        complain(str(error))
        sys.exit(error.code)
    except MixupMPError as error:
        complain(str(error))
        sys.exit(2)
    sys.exit(0)
