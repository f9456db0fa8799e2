"""`mixupmp select`: r and alpha chosen on validation rows, and the refit on all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text

from mixupmp.cli.catalogs import names
from mixupmp.cli.fit_options import Address, Config, Out, takes_settings
from mixupmp.cli.options import Json, option
from mixupmp.cli.output import remark, show
from mixupmp.core.errors import InvalidArgument

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mixupmp.core.plan import Plan
    from mixupmp.core.rows import Dataset
    from mixupmp.decide.search import Search
    from mixupmp.decide.select import Selection
    from mixupmp.train.settings import Settings

_HOW = "How it is chosen"
_COMMAS = ", separated by commas"
_RATIOS = f"Values of r to try{_COMMAS}; 0 and inf are always tried."
_ALPHAS = f"Values of alpha to try{_COMMAS}."
_BASES = f"Base measures to try beside Mixup{_COMMAS}: {names('mixupmp.core.base_measures.BASE_MEASURES')}."


@takes_settings("base", "ratio", "alpha", "calibrate", "device")
def command(
    given: dict[str, Any],
    ratios: Annotated[str | None, option(_HOW, _RATIOS, names("mixupmp.decide.search.RATIOS"))] = None,
    alphas: Annotated[str | None, option(_HOW, _ALPHAS, names("mixupmp.decide.search.ALPHAS"))] = None,
    bases: Annotated[str | None, option(_HOW, _BASES)] = None,
    validation: Annotated[float, option(_HOW, "The share of rows to hold out for validation.")] = 0.2,
    folds: Annotated[int | None, option(_HOW, "Judge on so many folds instead.")] = None,
    criterion: Annotated[str, option(_HOW, "nll, brier or error.")] = "nll",
    full: Annotated[bool, option(_HOW, "No halving: all members for all.", "", "--full")] = False,
    address: Address = None,
    config: Config = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Choose r and alpha on validation rows, and show the scores; with --out, refit to all rows and store the run.

    The deep ensemble (r = 0) and the Mixup ensemble (r = inf) are always among the candidates. Among those that are
    not clearly worse than the best, the smallest r wins.

    [bold]Examples[/bold]

        mixupmp select --data digits --epochs 60
        mixupmp select --data fashion-mnist --rows 5000 --bases warped-mixup,cutmix
        mixupmp select --data table.csv --folds 5 --alphas 1 --out runs/chosen
    """
    from mixupmp.decide.calibrators import bound_message
    from mixupmp.decide.select import select
    from mixupmp.train.settings import load_data, plan_from, read_toml, settings_from

    settings = settings_from(read_toml(config) if config is not None else {}, given)
    search = _search(ratios, alphas, bases, validation if folds is None else folds, criterion, not full)
    dataset = load_data(settings.data)
    plan = plan_from(settings, dataset)
    selection = select(plan, search, engine=settings.engine, callback=remark, address=address)
    result: dict[str, Any] = {"selection": selection.to_dict()}
    lines: list[RenderableType] = [
        _table(selection),
        Text(f"Chosen: {selection.chosen}, after {selection.member_fits} fits."),
    ]
    if (bound := bound_message(selection.calibrator)) is not None:
        lines.append(Text(f"note: {bound}", style="yellow"))
    if out is not None:
        result |= {"run": str(out), **_refitted(out, settings, plan, selection, dataset, address)}
        lines.append(Text(f"Refitted on all rows and kept in {out}. Next: mixupmp evaluate {out}"))
    show(as_json, result, lines)


def _search(
    ratios: str | None, alphas: str | None, bases: str | None, validation: float | int, criterion: str, halve: bool
) -> Search:
    from mixupmp.core.base_measures import BaseMeasure
    from mixupmp.core.spec import decode
    from mixupmp.decide.search import ALPHAS, RATIOS, Search

    return Search(
        _numbers("--ratios", ratios) or RATIOS,
        _numbers("--alphas", alphas) or ALPHAS,
        validation,
        criterion,  # type: ignore[arg-type]  # checked there
        halve,
        bases=tuple(decode(name.strip(), BaseMeasure) for name in bases.split(",")) if bases else (),  # type: ignore[type-abstract]
    )


def _refitted(
    out: Path, settings: Settings, plan: Plan, selection: Selection, dataset: Dataset, address: str | None
) -> dict[str, object]:
    """Fit what was chosen to all rows, into a run folder; its metrics on the test rows."""
    from mixupmp.cli.scoring import evaluated
    from mixupmp.core.spec import encode
    from mixupmp.store.folder import RunFolder
    from mixupmp.train.run import fit

    settings = replace(settings, calibrator=encode(selection.calibrator))
    run = RunFolder(out, settings.beyond_plan())
    chosen = selection.chosen.applied(plan)
    posterior = fit(chosen, engine=settings.engine, run=run, progress=True, address=address)
    return evaluated(run, posterior, dataset, selection.calibrator).to_dict()


def _numbers(option: str, text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(option, text, f"numbers{_COMMAS}") from None


def _table(selection: Selection) -> Table:
    table = Table(title=f"{selection.criterion} on {selection.rows} rows that no member was fitted to; lower is better")
    for heading in selection.headings:
        table.add_column(heading, justify="right")
    for result in selection.results:
        table.add_row(*selection.cells(result), "chosen" if result.candidate == selection.chosen else "")
    return table
