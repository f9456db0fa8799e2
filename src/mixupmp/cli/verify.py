"""`mixupmp verify`: whether a run is whole, and who made it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from mixupmp.cli.options import Json, Run
from mixupmp.cli.output import show

_KEY = "Ed25519 public key, in PEM or OpenSSH format, that the run must be signed with."


def command(
    run: Run, key: Annotated[Path | None, typer.Option(metavar="FILE", help=_KEY)] = None, as_json: Json = False
) -> None:
    """Check every file of a run against its manifest and, with --key, the manifest against its signature.

    Exit code 2 says that a file is damaged, missing or unknown, or that the signature is not that of the key.

    [bold]Examples[/bold]

        mixupmp verify runs/first
        mixupmp verify runs/first --key key.pub.pem
    """
    from mixupmp.store.sign import verify

    files = verify(run, key)
    result = {"run": str(run), "files": files, "signed": key is not None}
    signed = f", signed with {key}" if key is not None else "; signature not checked"
    show(as_json, result, [Text(f"{run}: {files} files are as the manifest says{signed}.")])
