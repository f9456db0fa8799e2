"""Every command of `mixupmp` with its arguments and options, as Markdown."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import typer

from mixupmp.cli import COMMANDS


def reference() -> str:
    """A section for each command, from the same declarations as its `--help`."""
    return "\n".join(section(name) for name in COMMANDS)


def section(name: str) -> str:
    single = typer.Typer(add_completion=False)
    single.command(name)(importlib.import_module(f"mixupmp.cli.{name}").command)
    command = typer.main.get_command(single)
    rows = [row(parameter) for parameter in command.params if parameter.name != "help"]
    about = plain(inspect.cleandoc(command.help or ""))
    table = ["| argument or option | |", "|---|---|", *rows] if rows else []
    return "\n".join([f"## mixupmp {name}", "", about, "", *table, ""])


def row(parameter: Any) -> str:
    names = parameter.opts + parameter.secondary_opts if parameter.param_type_name == "option" else []
    shown = ", ".join(f"`{name}`" for name in names) or f"`{parameter.metavar or parameter.name.upper()}`"
    given = f" `{parameter.metavar}`" if names and parameter.metavar else ""
    return f"| {shown}{given} | {plain(parameter.help or '')} |"


def plain(text: str) -> str:
    """Help text without rich's markup; what is left of brackets is no link."""
    return re.sub(r"(?<!\\)\[/?[a-z ]+\]", "", text).replace("\\[", "[").replace("[", "&#91;").replace("|", "\\|")
