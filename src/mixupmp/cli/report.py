"""`mixupmp report`: runs as one page to read, keep and send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from mixupmp.cli.options import OTHER_DATA, DataRoot, Json
from mixupmp.cli.output import remark, show
from mixupmp.core.errors import InvalidArgument, check

if TYPE_CHECKING:
    from mixupmp.core.posterior import Posterior
    from mixupmp.core.rows import Dataset
    from mixupmp.decide.martingale import MartingaleDiagnostic

SEVERITIES = (1, 2, 3, 4, 5)
QUERIES = 200  # test rows of the martingale diagnostic
_RUNS = "Finished runs; the others are compared with the first."
_OUT = "The file to write. An earlier report is replaced; any other file is not."
_DATA = f"Other data: {OTHER_DATA}. \\[the data of each run]"
_SHIFT = "Also evaluate the runs under this corruption, at five severities; may be repeated."
_MARTINGALE = (
    "Test whether each run's predictive is a martingale: simulate this many futures (at least 6) from its own "
    "predictions and refit to each, which takes twice as many fits."
)
_TABLES = "Also write every table to this folder, as CSV and LaTeX."


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help=_RUNS)],
    out: Annotated[Path, typer.Option(metavar="FILE", help=_OUT)] = Path("report.html"),
    data: Annotated[str | None, typer.Option(help=_DATA)] = None,
    data_root: DataRoot = None,
    shift: Annotated[list[str] | None, typer.Option(metavar="NAME", help=_SHIFT)] = None,
    title: Annotated[str | None, typer.Option(help="The title of the page.")] = None,
    tables: Annotated[Path | None, typer.Option(metavar="DIR", help=_TABLES)] = None,
    martingale: Annotated[int | None, typer.Option(metavar="FUTURES", help=_MARTINGALE)] = None,
    as_json: Json = False,
) -> None:
    """Write an HTML report: what was trained, how good it is, and where not to trust it.

    The page is a single self-contained file that you can open from disk, send or print. Predictions on the test rows
    are computed once and cached in the run folder.

    [bold]Examples[/bold]

        mixupmp report runs/first
        mixupmp report runs/ensemble runs/mixup --out comparison.html
        mixupmp report runs/first --shift gaussian_noise --shift contrast
        mixupmp report runs/* --tables paper/tables
        mixupmp report runs/first --martingale 10
    """
    from mixupmp.web.report import read_run, write_report, write_tables

    check_replaceable(out)
    shifts = [(name, severity) for name in shift or [] for severity in SEVERITIES]
    evaluated = []
    for run in runs:
        remark(f"reading {run}")
        one = read_run(run, _reader(run, data, data_root), shifts=shifts, same_data=data is None)
        evaluated.append(one if martingale is None else replace(one, martingale=_diagnostic(run, martingale)))
    path = write_report(evaluated, out, title)
    result: dict[str, object] = {"report": str(path)}
    result["metrics"] = {str(run): one.metrics.result.to_dict() for run, one in zip(runs, evaluated, strict=True)}
    lines = [Text(f"The report is {path}")]
    if tables is not None:
        result["tables"] = [str(written) for written in write_tables(evaluated, tables)]
        lines.append(Text(f"Its tables are in {tables.absolute()}"))
    show(as_json, result, lines)


def _diagnostic(run: Path, futures: int) -> MartingaleDiagnostic:
    """The martingale diagnostic of a run, at up to `QUERIES` of its test rows."""
    from mixupmp.core.rows import Rows
    from mixupmp.decide.martingale import martingale_diagnostic, plan_learner
    from mixupmp.store.folder import RunFolder
    from mixupmp.train.settings import load_data, plan_from, settings_from

    remark(f"simulating {futures} futures of {run}")
    settings = settings_from(RunFolder(run).config()["spec"])
    dataset = load_data(settings.data)
    plan = plan_from(settings, dataset)
    if not isinstance(plan.train, Rows):
        raise InvalidArgument("--martingale", futures, "left out for rows that are streamed")
    queries = dataset.test.inputs[:QUERIES]
    learner = plan_learner(plan, settings.engine)
    return martingale_diagnostic(learner, plan.train.inputs, plan.train.labels.numpy(), queries, futures=futures)


def _reader(run: Path, name: str | None, root: str | None) -> Callable[[Posterior], Dataset]:
    """Reads the test rows, with the run's own class numbers."""
    from mixupmp.cli.scoring import dataset_for, labels_for

    def read(posterior: Posterior) -> Dataset:
        dataset = dataset_for(run, name, root, posterior.task.encoder)
        task = posterior.task
        if not task.classes or dataset.classes == task.classes:
            return dataset
        return replace(dataset, test=labels_for(task, dataset, dataset.test), classes=task.classes)

    return read


def check_replaceable(path: Path) -> None:
    """Whether the page can be written, and replaces nothing but an earlier report."""
    from mixupmp.web.pages import GENERATOR

    check(path.suffix.lower() in (".html", ".htm"), "--out", str(path), "a file that ends in .html")
    if path.exists():
        ours = path.is_file() and f'name="generator" content="{GENERATOR}"' in _opening(path)
        check(ours, "--out", str(path), "new, or an earlier report", "Nothing else is written over.")
    check(path.absolute().parent.is_dir(), "--out", str(path), "in a folder that exists")


def _opening(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(2048).decode("utf-8", "replace")
