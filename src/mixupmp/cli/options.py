"""Options that several commands share, and how one is declared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

WHAT, HOW, WHERE = "What to fit", "How to train it", "Where to store it"


def option(panel: str, text: str, default: str = "", *names: str, metavar: str | None = None) -> Any:
    """An option of a panel of the help, with its default in brackets."""
    shown = f"{text} \\[{default}]" if default else text
    return typer.Option(*names, help=shown.strip(), rich_help_panel=panel, metavar=metavar)


OTHER_DATA = "the test rows of a dataset by name, or all rows of a file or folder that has no test part"
_INPUT = (
    "An array (.npy, .npz), a table of features (.csv, with or without the labels), an image or sound (.wav), "
    "a folder of them, or sentences (.txt)."
)
Input = Annotated[Path | None, typer.Option("--input", metavar="FILE", help=_INPUT)]
InsteadOfInput = Annotated[str | None, typer.Option(help=f"Instead of --input: {OTHER_DATA}.")]
Resize = Annotated[bool, typer.Option("--resize", help="Resize images that do not have the run's size.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
DATA_ROOT = typer.Option(
    "--data-root", metavar="FOLDER", help="The folder of datasets. \\[$MIXUPMP_DATA, else the cache folder]"
)
DataRoot = Annotated[str | None, DATA_ROOT]
FalseAlarm = Annotated[float, typer.Option(help="The share of familiar rows that may be flagged.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A finished run, or a folder written by mixupmp.save.")]
