"""`mixupmp methods`: what there is to fit."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from mixupmp.cli.output import show
from mixupmp.core.methods import method_names


def command(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List every method with what it is and the options it takes.

    [bold]Example[/bold]

        mixupmp methods
    """
    listed = [_described(name, constructor) for name, constructor in method_names().items()]
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("method", no_wrap=True, style="bold")
    table.add_column("what it is")
    table.add_column("options, with their defaults")
    for entry in listed:
        options = ", ".join(f"{name}={value}" for name, value in entry["options"].items())
        table.add_row(entry["name"], Text(entry["what"]), Text(options))
    show(as_json, {"methods": listed}, [table])


def _described(name: str, constructor: Any) -> dict[str, Any]:
    options = {
        option.name: option.default
        for option in inspect.signature(constructor).parameters.values()
        if option.name != "kernel"
    }
    return {"name": name, "what": inspect.getdoc(constructor) or "", "options": options}
