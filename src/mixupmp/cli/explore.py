"""`mixupmp explore`: results as one page to look around in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from mixupmp.cli.options import Json
from mixupmp.cli.output import show
from mixupmp.core.errors import check

_RESULTS = "The folder of results that `mixupmp reproduce` wrote."
_OUT = "The file to write. An earlier page of this command is replaced; any other file is not."


def command(
    results: Annotated[Path, typer.Argument(metavar="FOLDER", help=_RESULTS)] = Path("results"),
    out: Annotated[Path, typer.Option(metavar="FILE", help=_OUT)] = Path("explorer.html"),
    as_json: Json = False,
) -> None:
    """Write an HTML page for browsing results: pick a dataset, methods and a metric.

    Each method is shown as a dot with its standard error over repeats, for raw or calibrated probabilities, and as a
    row of a table. The page is a single self-contained file.

    [bold]Examples[/bold]

        mixupmp explore results
        mixupmp explore results/comparison --out comparison.html
    """
    from mixupmp.web.explorer import write_explorer
    from mixupmp.web.pages import GENERATOR

    ours = not out.exists() or f'content="{GENERATOR}"' in out.read_text("utf-8", errors="replace")[:2000]
    check(ours, "--out", str(out), "a new file, or a page that this command wrote", "Nothing else is written over.")
    sets = write_explorer(results, out)
    show(as_json, {"page": str(out), "sets": sets}, [Text(f"{sets} sets of results are in {out}")])
