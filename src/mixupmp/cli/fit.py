"""`mixupmp fit`: from data to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from mixupmp.cli import fit_options as given
from mixupmp.cli.options import Json
from mixupmp.cli.output import show
from mixupmp.cli.scoring import evaluated
from mixupmp.core.errors import BadRun, InvalidArgument
from mixupmp.core.posterior import Posterior
from mixupmp.metrics import Line, MetricTable, Result, single, standard_metrics
from mixupmp.train.loggers import TensorBoardLogger, log_posterior, logging_to
from mixupmp.train.plans import Settings, load_data, plan_from, read_toml, settings_from
from mixupmp.train.progress import ProgressBars
from mixupmp.train.run import RunFolder, fit


def command(
    context: typer.Context,
    data: given.Data = None,
    data_root: given.DataRoot = None,
    download: given.Download = None,
    rows: given.RowCount = None,
    network: given.NetworkName = None,
    method: given.MethodName = None,
    ratio: given.Ratio = None,
    alpha: given.Alpha = None,
    members: given.Members = None,
    epochs: given.Epochs = None,
    batch_size: given.BatchSize = None,
    learning_rate: given.LearningRate = None,
    seed: given.Seed = None,
    engine: given.EngineName = None,
    address: given.Address = None,
    config: given.Config = None,
    out: given.Out = None,
    resume: given.Resume = None,
    override: given.Override = False,
    tensorboard: given.TensorBoard = None,
    as_json: Json = False,
) -> None:
    """Fit a posterior, keep it in a run folder, and evaluate it on the test rows.

    [bold]Examples[/bold]

        mixupmp fit --out runs/first
        mixupmp fit --data fashion-mnist --rows 5000 --epochs 100 --ratio 1
        mixupmp fit --data my-images/ --network resnet18 --method deep-ensemble
        mixupmp fit --config recipe.toml --seed 1
        mixupmp fit --resume runs/first
    """
    if resume is not None and (out is not None or config is not None):
        raise InvalidArgument("--resume", str(resume), "without --out and --config", "A run knows its own settings.")
    document = _spec_of(resume) if resume is not None else read_toml(config) if config is not None else {}
    settings = settings_from(document, given.settings_given(command, context))
    dataset = load_data(settings.data)
    plan = plan_from(settings, dataset)
    run = RunFolder(resume or out or _free_folder(settings), settings.beyond_plan())
    logger = TensorBoardLogger(tensorboard) if tensorboard is not None else None
    with ProgressBars(plan.method.sampler.networks) as bars:
        posterior = fit(
            plan,
            engine=settings.engine,
            run=run,
            resume=resume is not None,
            override=override,
            checkpoints=settings.checkpoints,
            progress=logging_to(logger, plan, bars),
            address=address,
        )
    log_posterior(logger, posterior, plan.validation)
    result = evaluated(run, posterior, dataset)
    show(as_json, _summary(run, posterior, result), _lines(run, settings, posterior, result))


def _spec_of(run: Path) -> dict[str, Any]:
    spec: dict[str, Any] = RunFolder(run).config()["spec"]
    if "data" not in spec:
        raise BadRun(f"{run} was not started by this command: resume it in Python, fit(plan, run=..., resume=True).")
    return spec


def _free_folder(settings: Settings) -> Path:
    base = f"{Path(settings.data.name).stem}-{settings.method.name}"
    number = 1
    while (folder := Path("runs") / (base if number == 1 else f"{base}-{number}")).exists():
        number += 1
    return folder


def _summary(run: RunFolder, posterior: Posterior, result: Result) -> dict[str, Any]:
    return {
        "run": str(run.path),
        "members": posterior.members,
        "networks": len(posterior.networks),
        "wanted": posterior.wanted,
        "notes": list(posterior.notes),
        "training_accuracy": [summary.training_accuracy for summary in posterior.summaries],
        "metrics": result.to_dict(),
    }


def _lines(run: RunFolder, settings: Settings, posterior: Posterior, result: Result) -> list[Any]:
    line = Line(settings.method.name, single(result.to_dict()))
    metrics = (*standard_metrics(), "mutual_information")
    title = f"{posterior.members} members on {result.rows} test rows of {Path(settings.data.name).name}"
    notes = [Text(f"note: {note}, and is left out", style="yellow") for note in posterior.notes]
    return [
        MetricTable((line,), metrics, title).rich(),
        *notes,
        Text(f"Kept in {run.path}. Next: mixupmp evaluate {run.path}, mixupmp predict {run.path} --input FILE"),
    ]
