"""`mixupmp reproduce`: the paper's tables and figures, at a scale of your choice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from mixupmp.cli.output import remark, show
from mixupmp.core.errors import check_known

_PROTOCOL = "text: as the paper describes it; authors: as in the authors' code."
_WORKERS = "Members trained at a time. \\[one for each core or GPU]"


def command(
    name: Annotated[str, typer.Argument(help="An experiment, the path of your own experiment file, or 'list'.")],
    scale: Annotated[str, typer.Option(help="smoke: seconds; cpu: hours on two cores; paper: GPUs.")] = "cpu",
    protocol: Annotated[str, typer.Option(help=_PROTOCOL)] = "text",
    data: Annotated[
        list[str] | None, typer.Option(help="Only this dataset of the experiment; may be repeated.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Where tables and figures are written.")] = Path("results"),
    cache: Annotated[Path | None, typer.Option(help="The folder of trained members. \\[$MIXUPMP_CACHE]")] = None,
    device: Annotated[
        list[str] | None, typer.Option(help="The device to train on; may be repeated to use several. \\[cpu]")
    ] = None,
    precision: Annotated[str, typer.Option(help="For the forward pass: float32, bfloat16 or float16.")] = "float32",
    compiled: Annotated[bool, typer.Option("--compile", help="Compile the networks with torch.compile.")] = False,
    workers: Annotated[int | None, typer.Option(help=_WORKERS, min=1)] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Train nothing; report what is in the cache.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Reproduce a table or figure of the paper, or the ledger of its claims.

    Trained members are cached and shared between experiments; run an interrupted command again to continue it.

    [bold]Examples[/bold]

        mixupmp reproduce list --scale paper
        mixupmp reproduce comparison --scale cpu --data fmnist
        mixupmp reproduce comparison --scale paper --device cuda:0 --device cuda:1 --precision bfloat16
    """
    from mixupmp.core.threads import cores
    from mixupmp.paper.experiments import experiment_named
    from mixupmp.paper.members import Cache, default_cache
    from mixupmp.paper.protocols import protocol_named
    from mixupmp.paper.settings import SCALES
    from mixupmp.paper.study import Study

    check_known("scale", scale, SCALES)
    if name == "list":
        _list(scale, as_json)
        return
    experiment = experiment_named(name)
    devices = tuple(device or ("cpu",))
    study = Study(
        experiment.name,
        scale,
        Cache(cache or default_cache()),
        results,
        workers or (cores() if devices == ("cpu",) else len(devices)),
        say=remark if as_json else typer.echo,
        partial=partial,
        protocol=protocol_named(protocol),
        devices=devices,
        precision=precision,
        compiled=compiled,
    )
    experiment.run(study, data or ())
    written = sorted(str(path) for path in (results / experiment.name).rglob("*") if path.is_file())
    show(as_json, {"experiment": experiment.name, "scale": scale, "written": written}, [f"Written to {results}/."])


def _list(scale: str, as_json: bool) -> None:
    """What there is at this scale, the paper's first; with an estimate of GPU-hours where the scale is the paper's."""
    from mixupmp.paper.estimate import GPU_HOURS
    from mixupmp.paper.experiments import all_experiments

    tables = {True: _table("Of the paper", scale), False: _table("Not of the paper", scale)}
    listed = []
    for experiment in all_experiments().values():
        datasets = experiment.datasets(scale)
        entry = {"name": experiment.name, "title": experiment.title, "datasets": datasets}
        hours, cost = (experiment.gpu_hours(scale), experiment.cost) if scale == "paper" else (None, None)
        listed.append({**entry, "of_the_paper": experiment.in_paper, "gpu_hours": hours, "cost": cost})
        cells = [experiment.name, experiment.title, ", ".join(datasets)]
        tables[experiment.in_paper].add_row(*cells, *([cost or _hours(hours)] if scale == "paper" else []))
    said = [GPU_HOURS] if scale == "paper" else []
    show(as_json, {"scale": scale, "experiments": listed}, [*tables.values(), *said])


def _table(title: str, scale: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("experiment", no_wrap=True, style="bold")
    table.add_column("what it shows")
    table.add_column(f"datasets at scale {scale}")
    if scale == "paper":
        table.add_column("GPU-hours", justify="right")
    return table


def _hours(hours: float | None) -> str:
    return "-" if hours is None else "< 0.1" if hours < 0.05 else f"{hours:,.1f}"
