"""`mixupmp select`: r and alpha chosen on validation rows, and the refit on all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mixupmp.cli import fit_options as given
from mixupmp.cli.options import DataRoot, Json
from mixupmp.cli.output import remark, show
from mixupmp.cli.scoring import score
from mixupmp.core.errors import InvalidArgument
from mixupmp.core.rows import Dataset
from mixupmp.decide.held_out import CRITERIA
from mixupmp.decide.search import ALPHAS, RATIOS, Search
from mixupmp.decide.select import Selection, select
from mixupmp.train.configuration import Settings, read_toml, settings_from
from mixupmp.train.planning import load_data, located, plan_from
from mixupmp.train.run import RunFolder, fit

_HOW = "How it is chosen"
_COMMAS = ", separated by commas"
Ratios = Annotated[
    str | None,
    typer.Option(help=f"What to try{_COMMAS}; 0 and inf always are. \\[{', '.join(f'{r:g}' for r in RATIOS)}]",
                 rich_help_panel=_HOW),
]  # fmt: skip
Alphas = Annotated[
    str | None,
    typer.Option(help=f"What to try{_COMMAS}. \\[{', '.join(f'{a:g}' for a in ALPHAS)}]", rich_help_panel=_HOW),
]
Validation = Annotated[float, typer.Option(help="The share of the rows to judge on.", rich_help_panel=_HOW)]
Folds = Annotated[int | None, typer.Option(help="Judge on so many folds instead.", rich_help_panel=_HOW)]
Criterion = Annotated[str, typer.Option(help=f"{', '.join(CRITERIA[:3])}.", rich_help_panel=_HOW)]
Full = Annotated[bool, typer.Option("--full", help="No halving: all members for all.", rich_help_panel=_HOW)]


def command(
    data: given.Data = None,
    data_root: DataRoot = None,
    download: given.Download = False,
    rows: given.RowCount = None,
    network: given.NetworkName = None,
    members: given.Members = None,
    ratios: Ratios = None,
    alphas: Alphas = None,
    validation: Validation = 0.2,
    folds: Folds = None,
    criterion: Criterion = "nll",
    full: Full = False,
    epochs: given.Epochs = None,
    batch_size: given.BatchSize = None,
    learning_rate: given.LearningRate = None,
    seed: given.Seed = None,
    engine: given.EngineName = None,
    address: given.Address = None,
    config: given.Config = None,
    out: given.Out = None,
    as_json: Json = False,
) -> None:
    """Choose r and alpha on validation rows, and show the curve; with --out, refit on all rows and keep that run.

    The deep ensemble (r = 0) and the Mixup ensemble (r = inf) are always tried. Of what cannot be told from the best,
    the smallest r wins.

    [bold]Examples[/bold]

        mixupmp select --data digits --epochs 60
        mixupmp select --data table.csv --folds 5 --alphas 1 --out runs/chosen
    """
    flags = {
        "data.name": data, "data.root": data_root, "data.download": download or None, "data.rows": rows,
        "network.name": network, "method.members": members, "recipe.epochs": epochs,
        "recipe.batch_size": batch_size, "recipe.learning_rate": learning_rate, "seed": seed, "engine": engine,
    }  # fmt: skip
    settings = located(settings_from(read_toml(config) if config is not None else {}, flags))
    search = Search(
        _numbers("--ratios", ratios) or RATIOS,
        _numbers("--alphas", alphas) or ALPHAS,
        validation if folds is None else folds,
        criterion,  # type: ignore[arg-type]  # checked there
        not full,
    )
    dataset = load_data(settings.data)
    selection = select(plan_from(settings, dataset), search, engine=settings.engine, callback=remark, address=address)
    told = {"selection": selection.to_dict()}
    lines: list[Any] = [_table(selection), Text(f"Chosen: {selection.chosen}, after {selection.member_fits} fits.")]
    if out is not None:
        told |= _refit(settings, dataset, selection, out, address)
        lines.append(Text(f"Refitted on all rows and kept in {out}. Next: mixupmp evaluate {out}"))
    show(as_json, told, lines)


def _refit(
    settings: Settings, dataset: Dataset, selection: Selection, folder: Path, address: str | None
) -> dict[str, Any]:
    chosen = selection.chosen
    method = replace(settings.method, ratio=chosen.ratio)
    if chosen.alpha is not None:
        method = replace(method, alpha=chosen.alpha)
    settings = replace(settings, method=method)
    run = RunFolder(folder, settings.to_dict())
    posterior = fit(plan_from(settings, dataset), engine=settings.engine, run=run, progress=True, address=address)
    result = score(posterior, dataset.test)
    run.add_evaluation(f"{dataset.name}, test rows", result.to_dict())
    return {"run": str(folder), "metrics": result.to_dict()}


def _numbers(option: str, text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(option, text, f"numbers{_COMMAS}") from None


def _table(selection: Selection) -> Table:
    table = Table(title=f"{selection.criterion} on {selection.rows} rows that no member was fitted to; lower is better")
    for heading in ("r", "alpha", "epochs", "members", selection.criterion, "against r=0", ""):
        table.add_column(heading, justify="right")
    for result in selection.results:
        table.add_row(*selection.cells(result), "chosen" if result.candidate == selection.chosen else "")
    return table
