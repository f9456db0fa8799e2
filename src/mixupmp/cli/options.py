"""Options that several commands share, so that they read alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
DataRoot = Annotated[
    str | None,
    typer.Option(
        "--data-root", metavar="FOLDER", help="Where datasets lie; else $MIXUPMP_DATA, else the cache folder."
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A finished run, or a folder that mixupmp.save wrote.")]
