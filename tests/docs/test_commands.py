"""Every `mixupmp COMMAND --option` that a page or the README shows is one that the command line knows."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import typer

from mixupmp.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Inline code, and lines of code that start with it or with `python -m`.
SHOWN = re.compile(r"(?:`|^ *(?:\$ )?)(?:python -m )?mixupmp ([^`\n]*)", re.MULTILINE)
PROSE = {"mixupmp requires"}  # lines of text that begin with the package's name
GENERAL = {"--help", "--version", "--install-completion", "--show-completion"}


def options(name: str) -> set[str]:
    single = typer.Typer(add_completion=False)
    single.command(name)(importlib.import_module(f"mixupmp.cli.{name}").command)
    parameters = typer.main.get_command(single).params
    return GENERAL | {option for parameter in parameters for option in parameter.opts + parameter.secondary_opts}


def unknown(text: str) -> list[str]:
    """Commands that do not exist, and options that their commands do not have."""
    wrong = []
    code = re.sub(r"\\\n *", "", text)  # a command on several lines
    for shown in SHOWN.findall(code):
        name, *words = shown.split("#")[0].split()
        given = {word.split("=")[0] for word in [name, *words] if word.startswith("--")}
        if name in COMMANDS:
            wrong += [f"{name} {option}" for option in sorted(given - options(name))]
        elif given - GENERAL or not (given or f"mixupmp {name}" in PROSE):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_and_options_of_a_page_exist(page: Path) -> None:
    assert unknown(page.read_text()) == []


def test_wrong_commands_and_options_are_found() -> None:
    assert unknown("`mixupmp fits --data digits`, `mixupmp fit --dta x`") == ["fits", "fit --dta"]
    assert unknown("    mixupmp fit --data digits \\\n      --enginee ray  # --no-option") == ["fit --enginee"]
