"""`mixupmp playground`: move r and watch the uncertainty change."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from mixupmp.cli.output import remark

Host = Annotated[str, typer.Option(help="The address to listen on; one that other machines can reach needs a token.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")]
Token = Annotated[str | None, typer.Option(envvar="MIXUPMP_TOKEN", help="A bearer token that clients must send.")]


def command(
    host: Host = "127.0.0.1",
    port: Port = 8712,
    token: Token = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
) -> None:
    """Play with r and alpha: draw points, choose a predictive, and watch the uncertainty landscape train.

    [bold]Examples[/bold]

        mixupmp playground --open
        mixupmp playground --port 0
    """
    from mixupmp.web.playground import serve_playground

    def ready(address: str) -> None:
        remark(f"The playground is at {address}   (Ctrl-C ends it)")
        if show:
            webbrowser.open(address)

    serve_playground(host, port, token, ready)
