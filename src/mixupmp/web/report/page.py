"""The report: one HTML file that needs nothing else, and its tables as CSV and LaTeX."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from mixupmp.core.errors import BadData, check
from mixupmp.core.files import write_atomically
from mixupmp.core.foreign import Json
from mixupmp.core.spec import encode
from mixupmp.core.version import __version__
from mixupmp.networks import Network
from mixupmp.store.record import FitRecord
from mixupmp.web.pages import render
from mixupmp.web.report import figures, member_figures
from mixupmp.web.report.chart import Figure
from mixupmp.web.report.evaluated import EvaluatedRun, distinguished
from mixupmp.web.report.findings import hardest_class, summary_points
from mixupmp.web.report.gallery import galleries
from mixupmp.web.report.snippet import snippet
from mixupmp.web.report.table import ReportTable
from mixupmp.web.report.table_contents import (
    classes_table,
    detection_table,
    differences_table,
    metrics_table,
    seeds_table,
)


@dataclass(frozen=True)
class Contents:
    """Every table and figure of a report; the first run is the one that the others are compared with."""

    runs: Sequence[EvaluatedRun]
    metrics: ReportTable
    seeds: ReportTable | None
    differences: ReportTable | None
    calibration: Sequence[Figure]
    confidences: Sequence[Figure]
    abstaining: Sequence[Figure]
    detection: ReportTable | None
    shift: Sequence[Figure]
    members: Sequence[Figure]
    training: Sequence[Figure]
    classes: Sequence[ReportTable]

    def tables(self) -> Iterator[ReportTable]:
        """All tables, also those under figures."""
        for entry in fields(self)[1:]:
            part = getattr(self, entry.name)
            for one in part if isinstance(part, Sequence) else [part]:
                table = one.table if isinstance(one, Figure) else one
                if table is not None:
                    yield table


def report_contents(runs: Sequence[EvaluatedRun]) -> Contents:
    """The tables and figures on these runs, which must know the same classes."""
    check(len(runs) > 0, "runs", list(runs), "at least one run")
    runs = distinguished(runs)
    if len({run.evaluation.classes for run in runs}) > 1:
        raise BadData("these runs know different classes, so their scores cannot be compared: report them apart.")
    paired = [run for run in runs if run.same_rows(runs[0])]
    return Contents(
        runs=runs,
        metrics=metrics_table(runs),
        seeds=seeds_table(runs),
        differences=differences_table(paired, runs[0]) if len(paired) > 1 else None,
        calibration=[figures.over_and_under(runs), *map(figures.reliability, runs)],
        confidences=[figures.confidences(run) for run in runs],
        abstaining=[figures.abstaining(runs)],
        detection=detection_table(runs),
        shift=member_figures.shift(runs),
        members=[one for run in runs if (one := member_figures.agreement(run)) is not None],
        training=[one for run in runs if (one := member_figures.training(run)) is not None],
        classes=[classes_table(run) for run in runs],
    )


def write_report(runs: Sequence[EvaluatedRun], path: str | Path, title: str | None = None) -> Path:
    """Write the report of these runs, the first of which the others are compared with; returns its absolute path."""
    path = Path(path)
    check(path.suffix.lower() in (".html", ".htm"), "path", str(path), "a name that ends in .html")
    content = render_report(runs, title)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.encode())
    return path.absolute()


def write_tables(runs: Sequence[EvaluatedRun], folder: str | Path) -> list[Path]:
    """Write every table of the report as CSV and as LaTeX (booktabs); returns their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for table in report_contents(runs).tables():
        for suffix, text in (("csv", table.csv()), ("tex", table.latex())):
            paths.append(folder / f"{table.name}.{suffix}")
            write_atomically(paths[-1], text.encode())
    return paths


def render_report(runs: Sequence[EvaluatedRun], title: str | None = None) -> str:
    """The report of these runs as text."""
    contents = report_contents(runs)
    runs = contents.runs
    return render(
        "report.html.j2",
        contents=contents,
        runs=runs,
        title=title or _title(runs),
        points=summary_points(runs),
        paired=all(run.same_rows(runs[0]) for run in runs),
        curves=_rejection_data(runs),
        galleries=[galleries(run) for run in runs],
        class_headings=[hardest_class(run) for run in runs],
        records=[_record(run) for run in runs],
        version=__version__,
        written=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
    )


def _title(runs: Sequence[EvaluatedRun]) -> str:
    dataset = runs[0].evaluation.dataset
    if len(runs) == 1:
        return f"{runs[0].title} on {dataset}"
    if len(runs) == 2:
        return f"{runs[0].title} and {runs[1].title} on {dataset}"
    return f"{len(runs)} runs on {dataset}"


def _rejection_data(runs: Sequence[EvaluatedRun]) -> list[dict[str, Json]]:
    """The rejection curves for the page's slider."""
    return [
        {"title": run.title}
        | {key: getattr(run.rejection, key).round(5).tolist() for key in ("threshold", "coverage", "accuracy")}
        for run in runs
    ]


@dataclass(frozen=True)
class Record:
    """What a run records of itself: facts by name, the Python that repeats it, and everything as JSON."""

    facts: dict[str, str]
    code: str
    full: str


def _record(run: EvaluatedRun) -> Record:
    record = run.record
    network = record.network.path.rpartition(".")[2] if isinstance(record.network, Network) else str(record.network)
    seconds = sum(summary.seconds for summary in run.summaries)
    facts = {
        "Method": run.title,
        "Members": f"{run.evaluation.members.shape[0]}{f' ({run.members} networks)' if run.members else ''}",
        "Network": network,
        "Training": _training(record),
        "Time": f"{seconds:,.1f} s, summed over members" if seconds else "",
        "Seed": str(record.seed),
        "Data": f"{run.evaluation.dataset}, SHA-256 {(record.sha256 or '–')[:16]}…",
        "Versions": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
        "Command": _command(run.config.get("command")),
        "Folder": run.source,
        "Martingale diagnostic": "" if run.martingale is None else str(run.martingale),
        "Notes": "; ".join(run.notes),
    }
    code = snippet(record, run.evaluation.dataset, run.config.get("spec", {}).get("data")) or ""
    full = json.dumps(dict(run.config) or encode(record), indent=2)
    return Record({name: fact for name, fact in facts.items() if fact}, code, full)


def _command(arguments: object) -> str:
    """The command line that started the run, where one did."""
    if not isinstance(arguments, list) or len(arguments) < 2:
        return ""
    if Path(str(arguments[0])).stem not in ("mixupmp", "__main__"):
        return ""
    return shlex.join(["mixupmp", *map(str, arguments[1:])])


def _training(record: FitRecord) -> str:
    recipe = record.recipe
    if recipe is None or record.rows is None:
        return ""
    return (
        f"{record.rows:,} rows, {recipe.epochs} epochs, {recipe.optimizer}, "
        f"learning rate {recipe.learning_rate:g} ({recipe.schedule}), weight decay {recipe.weight_decay:g}"
    )
