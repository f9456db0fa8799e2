"""The command `mixupmp`.

To add a command, write a module here whose `command` is a function, and one line of `COMMANDS`: its name and the first
line of its docstring. A command's module is imported when that command is named, and imports what needs torch inside
its functions, so ``--help`` and shell completion do not wait for that.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from mixupmp.cli.output import print_error
from mixupmp.core.errors import MixupMPError
from mixupmp.core.version import __version__

COMMANDS = {
    "demo": "Show what MixupMP does for a classifier's probabilities, on real digits, in about a minute.",
    "methods": "List every method with what it is and the options it takes.",
    "fit": "Fit a posterior, store it in a run folder, and evaluate it on the test rows, raw and calibrated.",
    "evaluate": "Evaluate a run: accuracy, NLL, Brier score, calibration (ECE = OE + UE), uncertainty.",
    "predict": "Predict probabilities, the most probable class, entropy and mutual information (disagreement).",
    "detect": "Flag rows unlike the training data, with a bound on the rate of false alarms.",
    "select": "Choose r and alpha on validation rows, and show the scores; with --out, refit to all rows and store the "
    "run.",
    "report": "Write an HTML report: what was trained, how good it is, and where not to trust it.",
    "explore": "Write an HTML page for browsing results: pick a dataset, methods and a metric.",
    "playground": "Play with r and alpha: draw points, choose a predictive, and watch the uncertainty landscape train.",
    "serve": "Serve a run: POST /predict takes JSON, .npy or an image; the page at / shows the members vote.",
    "corrupt": "Corrupt a test set as CIFAR-C does: 19 corruptions at 5 severities.",
    "reproduce": "Reproduce a table or figure of the paper, or the ledger of its claims.",
    "sign": "Sign a finished run, so that others can verify who made it.",
    "verify": "Check every file of a run against its manifest and, with --key, the manifest against its signature.",
}


class LazyGroup(TyperGroup):
    """Imports the module of a command when it is run; until then a command is its line of `COMMANDS`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name, with its options."""
        if args[0] not in COMMANDS:
            return super().resolve_command(ctx, args)
        single = typer.Typer(rich_markup_mode="rich", add_completion=False)
        single.command(args[0])(importlib.import_module(f"mixupmp.cli.{args[0]}").command)
        return args[0], typer.main.get_command(single), args[1:]


app = typer.Typer(
    name="mixupmp",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # an error that is not ours is a bug: its plain traceback is what we need to see
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, line in COMMANDS.items():
    app.command(name, help=line)(lambda: None)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """How sure is your classifier, really? Martingale posteriors for neural networks.

    Start with [bold]mixupmp demo[/bold], then fit your own: [bold]mixupmp fit --data my-images/ --out run[/bold]
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit: 2 for errors that the user can put right, 130 or 143 for a signal."""
    before, warnings.formatwarning = warnings.formatwarning, _note
    try:
        app(args=None if arguments is None else list(arguments), prog_name="mixupmp")
    except MixupMPError as error:
        print_error(str(error))
        sys.exit(error.code)
    finally:
        warnings.formatwarning = before
    sys.exit(0)


def _note(message: Warning | str, category: type[Warning], *place: object, **line: object) -> str:
    """A warning of ours without the place in the code; another's with its category."""
    ours = category.__module__.startswith("mixupmp.")
    return f"note: {message}\n" if ours else f"{category.__name__}: {message}\n"
