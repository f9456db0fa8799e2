"""`mixupmp methods`: the methods that can be fitted."""

from __future__ import annotations

import json

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from mixupmp.cli.catalogs import methods
from mixupmp.cli.options import Json
from mixupmp.cli.output import results


def command(as_json: Json = False) -> None:
    """List every method with what it is and the options it takes.

    [bold]Example[/bold]

        mixupmp methods
    """
    listed = methods()
    if as_json:
        typer.echo(json.dumps({"methods": listed}, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("method", no_wrap=True, style="bold")
    table.add_column("what it is")
    table.add_column("options, with their defaults")
    for entry in listed:
        options = ", ".join(f"{name}={value}" for name, value in entry["options"].items())
        table.add_row(entry["name"], Text(entry["what"]), Text(options))
    results().print(table)
