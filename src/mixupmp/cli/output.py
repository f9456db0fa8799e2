"""What commands print: results on stdout, as tables or as JSON; everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PIPED_WIDTH = 160  # of tables that go to a file or a pipe, where no terminal has its own


def results() -> Console:
    """Where results are printed. A pipe has no width, so tables there are never cut to 80 columns."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(width=width, highlight=False, soft_wrap=False)


def show(as_json: bool, result: dict[str, object], lines: Sequence[RenderableType]) -> None:
    """Print a result: itself as one JSON document, or these lines."""
    if as_json:
        from mixupmp.core.spec import encode  # torch comes with it, which takes a second

        typer.echo(json.dumps(encode(result), indent=2))
        return
    console = results()
    for line in lines:
        console.print(line, markup=False)


def remark(text: str) -> None:
    """Something worth knowing that is no result."""
    typer.echo(text, err=True)


def print_error(text: str) -> None:
    """What went wrong, on stderr."""
    typer.secho("error: ", err=True, nl=False, fg="red", bold=True)
    typer.echo(text, err=True)


def with_progress(blocks: Iterable[object], total: int, label: str) -> Iterator[Any]:
    """The blocks, with a bar and the time that is left on a terminal's stderr."""
    with progress_bar() as bar:
        yield from bar.track(blocks, total=total, description=label)


@contextmanager
def progress_of(label: str, total: int) -> Iterator[Callable[[], None]]:
    """The same for work that calls back: each call is one more of `total`."""
    with progress_bar() as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)


def progress_bar() -> Progress:
    """A bar with the time that is left, on stderr; quiet without a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
