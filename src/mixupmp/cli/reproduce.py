"""`mixupmp reproduce`: the paper's tables and figures, at a scale of your choice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from mixupmp.cli.output import remark, show
from mixupmp.core.errors import UnknownName
from mixupmp.core.threads import cores
from mixupmp.paper.members import Cache, default_cache
from mixupmp.paper.registry import all_experiments, experiment_named
from mixupmp.paper.settings import SCALES
from mixupmp.paper.study import Study


def command(
    name: Annotated[str, typer.Argument(help="An experiment, the path of an experiment file of yours, or 'list'.")],
    scale: Annotated[str, typer.Option(help="smoke: seconds; cpu: hours on two cores; paper: a GPU.")] = "cpu",
    data: Annotated[
        list[str] | None, typer.Option(help="Only this dataset of the experiment; may be repeated.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Where tables and figures are written.")] = Path("results"),
    cache: Annotated[Path | None, typer.Option(help="Where trained members are kept [$MIXUPMP_CACHE].")] = None,
    workers: Annotated[int | None, typer.Option(help="Members trained at a time [one for each core].", min=1)] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Train nothing: report what the cache has.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Reproduce a table or figure of the paper, or the ledger of its claims.

    Trained members are cached and shared between experiments; a command that was interrupted goes on where it was.

    [bold]Examples[/bold]

        mixupmp reproduce list

        mixupmp reproduce comparison --scale cpu --data fmnist
    """
    if name == "list":
        _list(as_json)
        return
    if scale not in SCALES:
        raise UnknownName("scale", scale, SCALES)
    experiment = experiment_named(name)
    say = remark if as_json else typer.echo
    kept = Cache(cache or default_cache())
    study = Study(experiment.name, scale, kept, results, workers or cores(), say=say, partial=partial)
    experiment.run(study, data or ())
    written = sorted(str(path) for path in (results / experiment.name / scale).rglob("*") if path.is_file())
    show(as_json, {"experiment": experiment.name, "scale": scale, "written": written}, [f"Written to {results}/."])


def _list(as_json: bool) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("experiment", no_wrap=True, style="bold")
    table.add_column("what it shows")
    table.add_column("datasets at scale cpu")
    listed = []
    for experiment in all_experiments().values():
        datasets = experiment.datasets("cpu")
        listed.append({"name": experiment.name, "title": experiment.title, "datasets": datasets})
        table.add_row(experiment.name, experiment.title, ", ".join(datasets))
    show(as_json, {"experiments": listed}, [table])
