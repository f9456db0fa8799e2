"""What answers without torch, and that what it answers is still true."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mixupmp
from mixupmp.cli import COMMANDS, catalogs
from mixupmp.decide.detect import AUTO, FALSE_ALARM

HEAVY = ("torch", "sklearn", "numpy", "pandas", "matplotlib")
PROGRAM = f"""
import sys
from mixupmp.cli import main
try:
    main(sys.argv[1:] or None)
finally:
    loaded = [name for name in {HEAVY!r} if name in sys.modules]
    print("LOADED", loaded, file=sys.stderr)
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("methods",), ("methods", "--json"), ("--no-such",)]
    + [(command, "--help") for command in COMMANDS],
)
def test_nothing_heavy_is_imported_for(arguments: tuple[str, ...]) -> None:
    finished = run(*arguments)
    assert "LOADED []" in finished.stderr
    assert finished.returncode == (2 if arguments == ("--no-such",) else 0)


def test_shell_completion_of_commands_imports_nothing_heavy() -> None:
    finished = run(_MIXUPMP_COMPLETE="complete_bash", COMP_WORDS="mixupmp ev", COMP_CWORD="1")
    assert "LOADED []" in finished.stderr
    assert finished.stdout.split() == ["evaluate"]


@pytest.mark.parametrize("command", COMMANDS)
def test_shell_completion_of_options_imports_nothing_heavy(command: str) -> None:
    finished = run(_MIXUPMP_COMPLETE="complete_bash", COMP_WORDS=f"mixupmp {command} --", COMP_CWORD="2")
    assert "LOADED []" in finished.stderr
    assert "--help" in finished.stdout.split()


def test_a_fit_and_a_run_import_no_more_of_torch_and_scikit_learn_than_they_need(tmp_path: Path) -> None:
    """Each of these takes about as long to import as torch itself."""
    heavy = ("torch._dynamo", "sympy", "sklearn.base", "scipy.stats", "pandas", "matplotlib")
    program = PROGRAM.replace(repr(HEAVY), repr(heavy))
    options = ("--epochs", "1", "--members", "2", "--ratio", "1", "--alpha", "2", "--no-calibrate")
    run = str(tmp_path / "run")
    for arguments in (("fit", "--data", "digits", *options, "--out", run), ("evaluate", run)):
        command = [sys.executable, "-c", program, *arguments]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr
        assert "LOADED []" in finished.stderr, arguments


def test_every_command_is_listed_with_the_first_line_of_its_help() -> None:
    listed = run("--help", COLUMNS="200").stdout
    for name, line in COMMANDS.items():
        command = importlib.import_module(f"mixupmp.cli.{name}").command
        assert (inspect.getdoc(command) or "").splitlines()[0] == line
        assert line in listed


def test_a_command_that_does_not_exist_is_refused_with_a_guess() -> None:
    finished = run("evaluat")
    assert finished.returncode == 2
    assert "evaluate" in finished.stderr


def test_the_file_of_catalogs_says_what_the_code_does() -> None:
    again = "write it again: python -m mixupmp.cli.catalogs"
    assert json.loads(catalogs.FILE.read_text()) == catalogs.described(), again


@pytest.mark.parametrize("command", ["detect", "serve"])
def test_defaults_that_are_written_in_two_places_agree(command: str) -> None:
    options = inspect.signature(importlib.import_module(f"mixupmp.cli.{command}").command).parameters
    assert options["false_alarm"].default == FALSE_ALARM
    assert command == "serve" or options["score"].default == AUTO


def test_every_public_name_is_there() -> None:
    for name in mixupmp.__all__:
        assert getattr(mixupmp, name) is not None
    assert {name for name in mixupmp.__all__ if not name.startswith("_")} <= set(dir(mixupmp))
    assert mixupmp.metrics.__name__ == "mixupmp.metrics"
    with pytest.raises(AttributeError, match="No mixupmp attribute nothing"):
        mixupmp.nothing  # type: ignore[attr-defined] # noqa: B018
