"""`mixupmp fit`: from data to a run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from mixupmp.cli.fit_options import Address, Config, Out, takes_settings
from mixupmp.cli.options import WHERE, Json, option
from mixupmp.cli.output import show
from mixupmp.core.errors import BadRun, InvalidArgument

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mixupmp.cli.scoring import Results
    from mixupmp.core.plan import Plan
    from mixupmp.core.posterior import Posterior
    from mixupmp.decide.default import Choice
    from mixupmp.decide.select import Selection
    from mixupmp.store.folder import RunFolder
    from mixupmp.train.run import Engine
    from mixupmp.train.settings import Settings


_RESUME = "Continue an interrupted run; the result is the same, bit for bit."
_OVERRIDE = "Resume even if settings, data or versions have changed."
_KEEP = "Keep members whose output does not depend on their inputs; they are left out otherwise."
_TENSORBOARD = "Log losses, validation metrics and disagreement for TensorBoard."


@takes_settings()
def command(
    given: dict[str, Any],
    address: Address = None,
    config: Config = None,
    out: Out = None,
    resume: Annotated[Path | None, option(WHERE, _RESUME, metavar="RUN")] = None,
    override: Annotated[bool, option(WHERE, _OVERRIDE, "", "--override")] = False,
    keep_collapsed: Annotated[bool, option(WHERE, _KEEP, "", "--keep-collapsed")] = False,
    tensorboard: Annotated[Path | None, option(WHERE, _TENSORBOARD, "", "--tensorboard", metavar="FOLDER")] = None,
    as_json: Json = False,
) -> None:
    """Fit a posterior, store it in a run folder, and evaluate it on the test rows, raw and calibrated.

    If you leave out r or, for tables, the number of epochs, they are chosen on held-out rows. alpha is .4 if you leave
    out r too, and chosen as well if you do not.

    [bold]Examples[/bold]

        mixupmp fit --out runs/first
        mixupmp fit --data fashion-mnist --rows 5000 --epochs 100 --ratio 1
        mixupmp fit --data my-images/ --network resnet18 --method deep-ensemble
        mixupmp fit --data texts.csv --text sentence
        mixupmp fit --data fashion-mnist --method martingale-posterior --base cutmix
        mixupmp fit --config recipe.toml --seed 1
        mixupmp fit --resume runs/first
    """
    from mixupmp.cli.scoring import add_reference, evaluated
    from mixupmp.train.plans import under_trained
    from mixupmp.train.settings import load_data, plan_from

    settings = _settings(given, config, resume, out)
    dataset = load_data(settings.data)
    chosen = choice_for(settings, plan_from(settings, dataset))
    plan = chosen.plan
    run = _run_folder(resume or out or _free_folder(settings, plan), settings, chosen)
    posterior = _fitted(plan, settings, run, resume is not None, override, tensorboard, address, keep_collapsed)
    add_reference(run, posterior, plan)
    results = evaluated(run, posterior, dataset, chosen.calibrator)
    message = under_trained(plan, posterior) if "epochs" in given.get("recipe", {}) else None
    summary = _summary(run, chosen, posterior, results) | {"under_trained": message}
    show(as_json, summary, _lines(run, chosen, settings, posterior, results, message))


def _settings(given: dict[str, Any], config: Path | None, resume: Path | None, out: Path | None) -> Settings:
    """The settings of a file or of a run that is resumed, with the options over them."""
    from mixupmp.train.settings import read_toml, settings_from

    if resume is not None and (out is not None or config is not None):
        raise InvalidArgument("--resume", str(resume), "without --out and --config", "A run knows its own settings.")
    document = _spec_of(resume) if resume is not None else read_toml(config) if config is not None else {}
    return settings_from(document, given)


def _run_folder(path: Path, settings: Settings, chosen: Choice) -> RunFolder:
    """The folder, which keeps the settings, the calibrator, and the scores of the rows that were held out."""
    from safetensors.torch import save

    from mixupmp.core.spec import encode
    from mixupmp.store.folder import RunFolder

    settings = replace(settings, calibrator=encode(chosen.calibrator))
    scores = None if chosen.detector is None else save(chosen.detector.tensors())
    return RunFolder(path, settings.beyond_plan(), scores)


def _fitted(
    plan: Plan,
    settings: Settings,
    run: RunFolder,
    resume: bool,
    override: bool,
    tensorboard: Path | None,
    address: str | None,
    keep_collapsed: bool,
) -> Posterior:
    """The posterior, fitted with bars on the screen and, where it is wanted, records for TensorBoard."""
    from mixupmp.train.loggers import TensorBoardLogger, log_posterior, logging_to
    from mixupmp.train.progress import ProgressBars
    from mixupmp.train.run import fit

    logger = TensorBoardLogger(tensorboard) if tensorboard is not None else None
    with ProgressBars(plan.method.sampler.networks) as bars:
        posterior = fit(
            plan,
            engine=settings.engine,
            run=run,
            resume=resume,
            override=override,
            checkpoints=settings.checkpoints,
            progress=logging_to(logger, plan, bars),
            address=address,
            keep_collapsed=keep_collapsed,
        )
    log_posterior(logger, posterior, plan.validation)
    return posterior


def _spec_of(run: Path) -> dict[str, Any]:
    from mixupmp.store.folder import RunFolder

    spec: dict[str, object] = RunFolder(run).config()["spec"]
    if "data" not in spec:
        raise BadRun(f"{run} was not started by this command: resume it in Python, fit(plan, run=..., resume=True).")
    return spec


def choice_for(settings: Settings, plan: Plan) -> Choice:
    """What the settings leave open, chosen as the estimators do; a run that is resumed has nothing open."""
    from mixupmp.decide.calibrators import read_calibrator
    from mixupmp.decide.default import Choice, calibrated, choose

    if "method.type" in settings.given:
        return Choice(plan, None, read_calibrator(settings.calibrator))
    engine: Engine = "auto" if settings.engine == "ray" else settings.engine
    if plan.method.name not in ("mixup-mp", "shared-mixup-mp", "martingale-posterior"):
        return calibrated(plan, engine) if settings.calibrate else Choice(plan)
    predictive = plan.method.predictive
    return choose(
        plan,
        ratio=predictive.ratio if "method.ratio" in settings.given else None,
        alpha=getattr(predictive.base, "alpha", None) if "method.alpha" in settings.given else None,
        length="recipe.epochs" not in settings.given,
        calibrate=settings.calibrate,
        engine=engine,
    )


def _free_folder(settings: Settings, plan: Plan) -> Path:
    base = f"{Path(settings.data.name).stem}-{plan.method.name}"
    number = 1
    while (folder := Path("runs") / (base if number == 1 else f"{base}-{number}")).exists():
        number += 1
    return folder


def _summary(run: RunFolder, chosen: Choice, posterior: Posterior, results: Results) -> dict[str, Any]:
    from mixupmp.decide.calibrators import bound_message

    predictive = chosen.plan.method.predictive
    return {
        "run": str(run.path),
        "ratio": predictive.ratio,
        "alpha": getattr(predictive.base, "alpha", None),
        "epochs": chosen.plan.recipe.epochs,
        "members": posterior.members,
        "networks": len(posterior.networks),
        "wanted": posterior.wanted,
        "notes": list(posterior.notes),
        "training_accuracy": [summary.training_accuracy for summary in posterior.summaries],
        **results.to_dict(),
        "selection": None if chosen.selection is None else chosen.selection.to_dict(),
        "calibration_note": bound_message(chosen.calibrator),
    }


def _chosen(selection: Selection, settings: Settings) -> str:
    """What was chosen, without what was given."""
    found, parts = selection.chosen, []
    if "method.ratio" not in settings.given:
        parts.append(f"r={found.ratio:g}")
    if "method.alpha" not in settings.given and found.alpha is not None:
        parts.append(f"alpha={found.alpha:g}")
    if found.epochs is not None:
        parts.append(f"{found.epochs} epochs")
    if selection.calibrator is not None:
        more = f" (on {selection.calibration_rows})" if selection.calibration_rows > selection.rows else ""
        parts.append(f"temperature {selection.calibrator.temperature:.2f}{more}")
    return f"Chosen on {selection.rows} held-out rows: {', '.join(parts)}."


def _lines(
    run: RunFolder, chosen: Choice, settings: Settings, posterior: Posterior, results: Results, message: str | None
) -> list[RenderableType]:
    from mixupmp.decide.calibrators import bound_message
    from mixupmp.metrics import MetricTable, standard_metrics

    lines = results.lines(chosen.plan.method.name)
    metrics = (*standard_metrics(), "mutual_information")
    rows = results.raw.rows
    title = f"{posterior.members} members on {rows} test rows of {Path(settings.data.name).name}"
    notes = [Text(f"note: {note}.", style="yellow") for note in posterior.notes]
    if message is not None:
        notes.append(Text(f"note: {message.replace('epochs', '--epochs')}", style="yellow"))
    if (bound := bound_message(chosen.calibrator)) is not None:
        notes.append(Text(f"note: {bound}", style="yellow"))
    if chosen.selection is not None:
        notes.append(Text(_chosen(chosen.selection, settings)))
    return [
        MetricTable(lines, metrics, title).rich(),
        *notes,
        Text(f"Kept in {run.path}. Next: mixupmp evaluate {run.path}, mixupmp predict {run.path} --input FILE"),
    ]
