"""What commands print: results on stdout, as tables or as JSON; everything else on stderr."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from mixupmp.core.errors import check

T = TypeVar("T")
SHOWN = 10  # rows of predictions on the terminal
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


def first_rows(shown: Sequence[Mapping[str, str]], rows: int, text: Sequence[str] = ("file",)) -> list[RenderableType]:
    """A table of the first of so many rows, the columns of text to the left, and how many there are more."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in shown[0]:
        table.add_column(heading, justify="left" if heading in text else "right")
    for row in shown:
        table.add_row(*map(Text, row.values()))
    more = rows - len(shown)
    return [table, *([Text(f"... and {more} rows more: --out FILE keeps them all")] if more > 0 else [])]


def check_out(out: Path | None, endings: Sequence[str]) -> None:
    """Before any work: whether the file can be written, and would be new."""
    if out is not None:
        check(out.suffix in endings, "--out", str(out), f"a file that ends in {', '.join(endings)}")
        check(not out.exists(), "--out", str(out), "a new file", "Nothing is written over.")
        check(out.parent.is_dir(), "--out", str(out), "in a folder that exists")


def json_file(records: Sequence[Mapping[str, object]]) -> bytes:
    """Records as a list in JSON."""
    return (json.dumps(records, indent=1) + "\n").encode()


def csv_file(records: Sequence[Mapping[str, object]]) -> bytes:
    """Records of the same keys as lines with commas, under a heading."""
    content = io.StringIO()
    writer = csv.DictWriter(content, tuple(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return content.getvalue().encode()


def remark(text: str) -> None:
    """Something worth knowing that is no result."""
    typer.echo(text, err=True)


def print_error(text: str) -> None:
    """What went wrong, on stderr."""
    typer.secho("error: ", err=True, nl=False, fg="red", bold=True)
    typer.echo(text, err=True)


def with_progress(blocks: Iterable[T], total: int, label: str) -> Iterator[T]:
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
