"""`mixupmp sign`: a signature that shows who made a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from mixupmp.cli.options import Json, Run
from mixupmp.cli.output import show


def command(
    run: Run,
    key: Annotated[Path, typer.Option(metavar="FILE", help="Ed25519 private key, in PEM or OpenSSH format.")],
    as_json: Json = False,
) -> None:
    """Sign a finished run, so that others can verify who made it.

    It needs the extra `sign`.

    [bold]Examples[/bold]

        openssl genpkey -algorithm ed25519 -out key.pem
        mixupmp sign runs/first --key key.pem
        mixupmp sign runs/first --key ~/.ssh/id_ed25519
    """
    from mixupmp.store.manifest import SIGNATURE
    from mixupmp.store.sign import sign

    sign(run, key)
    path = run / SIGNATURE
    show(as_json, {"run": str(run), "signature": str(path)}, [Text(f"Signed: {path}")])
