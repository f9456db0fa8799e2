"""`mixupmp demo`: what MixupMP does for a classifier's probabilities, in about a minute."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from mixupmp.cli.options import Json
from mixupmp.cli.output import progress_bar, results, show
from mixupmp.core.errors import check

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mixupmp.cli.demonstration import Demo

MOST_ROWS = 899


def command(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for figure and report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="The number of repeats, for standard errors.")] = 3,
    rows: Annotated[int, typer.Option(help="Training rows, at most 899; with fewer rows there is more to gain.")] = 200,
    as_json: Json = False,
) -> None:
    """Show what MixupMP does for a classifier's probabilities, on real digits, in about a minute.

    One network (NN), a deep ensemble (DE) and MixupMP, each with its default settings and calibrated, on clean and on
    corrupted test images. Prints a table and writes reliability diagrams and a report.

    [bold]Examples[/bold]

        mixupmp demo
        mixupmp demo --rows 800 --out demo-many
    """
    from mixupmp.cli.demo_results import document, figure, reading, report, table
    from mixupmp.cli.demonstration import Demo, run_demo
    from mixupmp.plots import write
    from mixupmp.store.folder import check_writable

    check(seeds >= 1, "--seeds", seeds, "at least 1")
    check(20 <= rows <= MOST_ROWS, "--rows", rows, f"from 20 to {MOST_ROWS}")
    check_writable(out)  # known before anything is trained
    demo = Demo(rows=rows, seeds=tuple(range(seeds)))
    if not as_json:
        for line in _introduction(demo):
            results().print(line, highlight=False)
    started = time.monotonic()
    with _bar(demo) as progress:
        outcome = run_demo(demo, progress)
    picture = write(figure(outcome), out / "reliability.png") if find_spec("matplotlib") else None
    page = report(outcome, out / "report.html")
    seconds = time.monotonic() - started
    lines: list[RenderableType] = [table(outcome).rich(), *map(Text, reading(outcome))]
    drawn = picture or "drawn by matplotlib, which is not installed: pip install 'mixupmp[plot]'"
    lines.append(Text(f"Reliability diagrams: {drawn}"))
    lines.append(Text(f"Report, to open in a browser: {page}   ({seconds:.0f} seconds)"))
    show(as_json, {**document(outcome, picture, seconds), "report": str(page)}, lines)


def _introduction(demo: Demo) -> list[str]:
    return [
        f"[bold]{demo.rows} handwritten digits to learn from[/bold], 8 x 8 pixels, drawn {len(demo.seeds)} times. "
        "Three classifiers:",
        "one network (NN), a deep ensemble (DE) and MixupMP, each with its default settings. What those leave open,",
        "and a temperature, are chosen on held-out training rows; then each is refitted to all rows.",
        "With more rows there is less to gain: try --rows 800.",
    ]


@contextmanager
def _bar(demo: Demo) -> Iterator[Any]:
    """A bar over all fits."""
    with progress_bar() as progress:
        task = progress.add_task("training", total=demo.fits)
        yield lambda done: progress.update(task, advance=1, description=done)
