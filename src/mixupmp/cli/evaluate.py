"""`mixupmp evaluate`: what a run is worth, on its own test rows, on other data, under corruption."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mixupmp.cli.catalogs import names
from mixupmp.cli.options import OTHER_DATA, DataRoot, Json, Run
from mixupmp.cli.output import show
from mixupmp.core.errors import InvalidArgument, UnknownName

if TYPE_CHECKING:
    from mixupmp.core.rows import Dataset, Rows

_CORRUPTION = "Corrupt the test images first: gaussian_noise, fog, contrast, ... (CIFAR-C's 19)."
_METRICS = f"The metrics to show, separated by commas: {names('mixupmp.metrics.catalog.evaluated_metrics')}."
_DATA = f"Other data: {OTHER_DATA}. \\[the data of the run]"


class Split(StrEnum):
    """Which rows."""

    test = "test"
    train = "train"
    all = "all"


def command(
    run: Run,
    data: Annotated[str | None, typer.Option(help=_DATA)] = None,
    data_root: DataRoot = None,
    split: Annotated[Split, typer.Option(help="The rows to evaluate.")] = Split.test,
    corruption: Annotated[str | None, typer.Option(metavar="NAME", help=_CORRUPTION)] = None,
    severity: Annotated[int | None, typer.Option(help="The severity of the corruption, 1 to 5. \\[3]")] = None,
    bins: Annotated[int, typer.Option(help="The number of confidence bins for ECE, OE and UE.")] = 15,
    metrics: Annotated[str | None, typer.Option(metavar="NAMES", help=_METRICS)] = None,
    as_json: Json = False,
) -> None:
    """Evaluate a run: accuracy, NLL, Brier score, calibration (ECE = OE + UE), uncertainty.

    [bold]Examples[/bold]

        mixupmp evaluate runs/first
        mixupmp evaluate runs/first --corruption gaussian_noise --severity 5
        mixupmp evaluate runs/first --data other.npz --split all --json
    """
    from mixupmp.cli.scoring import data_of_run, dataset_for, labels_for, score
    from mixupmp.decide.calibrators import calibrator_of
    from mixupmp.metrics import MetricTable
    from mixupmp.store.folder import RunFolder
    from mixupmp.store.load import load

    if severity is not None and corruption is None:
        raise InvalidArgument("--severity", severity, "given with --corruption NAME")
    posterior = load(run)
    dataset = dataset_for(run, data, data_root, posterior.task.encoder)
    rows = _rows(dataset, split, corruption, severity or 3, data_of_run(run, data, data_root).root)
    results = score(posterior, labels_for(posterior.task, dataset, rows), bins, calibrator_of(RunFolder(run).config()))
    part = split if len(dataset.train) else Split.all
    on = f"{dataset.name}, {part} rows" + (f", {corruption} {severity or 3}" if corruption else "")
    table = MetricTable(
        results.lines(run.name or str(run)),
        _columns(metrics),
        f"{posterior.members} members on {results.raw.rows} rows ({on})",
        "run",
    )
    found = {"run": str(run), "on": on, **results.to_dict(), "reliability": results.raw.reliability_table()}
    show(as_json, found, [table.rich()])


def _columns(metrics: str | None) -> tuple[str, ...]:
    from mixupmp.metrics import evaluated_metrics, standard_metrics

    if metrics is None:
        return (*standard_metrics(), "entropy", "mutual_information")
    wanted = tuple(name.strip() for name in metrics.split(","))
    unknown = next((name for name in wanted if name not in evaluated_metrics()), None)
    if unknown is not None:
        raise UnknownName("metric", unknown, evaluated_metrics())
    return wanted


def _rows(dataset: Dataset, split: Split, corruption: str | None, severity: int, root: str | None) -> Rows:
    from mixupmp.cli.scoring import rows_of
    from mixupmp.data import corrupted

    if corruption is None:
        return rows_of(dataset, split)
    if split is not Split.test:
        raise InvalidArgument("--split", str(split), "test with --corruption")
    return corrupted(dataset, corruption, severity, root)
