"""`mixupmp methods`: the methods that can be fitted.

What it prints is kept in methods.json, so that it does not wait for torch. Write that file again with
``python -m mixupmp.cli.methods`` when a method changes; a test holds it to the methods themselves.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TypedDict

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from mixupmp.cli.options import Json
from mixupmp.cli.output import results

FILE = Path(__file__).with_name("methods.json")


class MethodEntry(TypedDict):
    """A method's name, the docstring of its constructor, and its options with their defaults."""

    name: str
    what: str
    options: dict[str, object]


def command(as_json: Json = False) -> None:
    """List every method with what it is and the options it takes.

    [bold]Example[/bold]

        mixupmp methods
    """
    listed: list[MethodEntry] = json.loads(FILE.read_text())
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


def described() -> list[MethodEntry]:
    """The methods as they are in the code, which imports torch."""
    from mixupmp.core.methods import method_names
    from mixupmp.core.spec import encode

    return [
        MethodEntry(
            name=name,
            what=inspect.getdoc(constructor) or "",
            options={
                option.name: encode(option.default)
                for option in inspect.signature(constructor).parameters.values()
                if option.name != "kernel"
            },
        )
        for name, constructor in method_names().items()
    ]


if __name__ == "__main__":
    FILE.write_text(json.dumps(described(), indent=2, ensure_ascii=False) + "\n")
