"""`mixupmp demo`: what MixupMP does for a classifier's probabilities, in under a minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from mixupmp import data
from mixupmp.cli.demonstration import CLEAN, FAMILIES, METHODS, Candidate, Demo, Outcome, run_demo
from mixupmp.cli.options import Json
from mixupmp.cli.output import remark, results, show
from mixupmp.core.errors import check
from mixupmp.core.posterior import MemberSummary
from mixupmp.core.threads import cores
from mixupmp.data.corruptions import SEVERITIES
from mixupmp.metrics import Line, MetricTable
from mixupmp.plots import Panel, reliability_figure, write
from mixupmp.plots.style import styled
from mixupmp.store.folder import check_writable
from mixupmp.train.progress import Callback
from mixupmp.web.report import report_fits

MOST_ROWS = 699  # of the 899 training rows, 200 are for validation
SHOWN = ("acc", "nll", "ece", "oe", "ue")


def command(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the picture goes.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(help="Repeats, for the standard errors.")] = 3,
    rows: Annotated[int, typer.Option(help="Training rows, of 699: the fewer, the more there is to gain.")] = 200,
    as_json: Json = False,
) -> None:
    """Show what MixupMP does for a classifier's probabilities, on real digits, in under a minute.

    One network (NN), a deep ensemble (DE) and MixupMP, with r and alpha chosen on validation rows, on clean and on
    corrupted test images. Prints a table and writes reliability diagrams.

    [bold]Examples[/bold]

        mixupmp demo
        mixupmp demo --rows 699 --out demo-many
    """
    check(seeds >= 1, "--seeds", seeds, "at least 1")
    check(10 <= rows <= MOST_ROWS, "--rows", rows, f"from 10 to {MOST_ROWS}")
    with styled():  # a missing matplotlib or an unwritable folder is known before anything is trained
        check_writable(out)
    demo = Demo(rows=rows, seeds=tuple(range(seeds)))
    if not as_json:
        for line in _introduction(demo):
            results().print(line, highlight=False)
    started = time.monotonic()
    with _bar(demo.fits) as progress:
        outcome = run_demo(demo, "processes" if cores() > 1 else "inline", progress)
    picture = write(_figure(outcome), out / "reliability.png")
    report = _report(outcome, out / "report.html")
    seconds = time.monotonic() - started
    lines: list[Any] = [_table(outcome).rich(), *map(Text, _reading(outcome))]
    lines.append(Text(f"Reliability diagrams: {picture}   ({seconds:.0f} seconds)"))
    lines.append(Text(f"Report, to open in a browser: {report}"))
    show(as_json, {**_document(outcome, picture, seconds), "report": str(report)}, lines)


def _report(outcome: Outcome, path: Path) -> Path:
    """The first seed's fits as a page, with two corruptions at every severity."""
    shifts = [(name, severity) for name in ("gaussian_noise", "contrast") for severity in SEVERITIES]
    fits = outcome.trials[0].fits
    return report_fits(fits, data.load("digits"), path, shifts, "How sure is it? One network, an ensemble, MixupMP")


def _introduction(demo: Demo) -> list[str]:
    return [
        f"[bold]{demo.rows} handwritten digits to learn from[/bold], 8 x 8 pixels; {demo.validation_rows} more to "
        f"choose r and alpha on; {len(demo.seeds)} seeds, {demo.members} members each.",
        f"The regime: {demo.rows} rows, {demo.recipe.epochs} epochs, no weight decay. A network learns its rows by "
        "heart, and is then surer of",
        "new ones than it should be: there is something to mend. With more rows there is less to gain: try --rows 699.",
        f"Training {demo.fits} small networks ...",
    ]


def _table(outcome: Outcome) -> MetricTable:
    titles = {CLEAN: "clean"} | {family: f"{family} ({len(names)})" for family, names in FAMILIES.items()}
    lines = tuple(
        Line(method, outcome.summaries(method, rows), title) for rows, title in titles.items() for method in METHODS
    )
    title = (
        "Mean ± standard error over seeds; bold: the best, and what is within 2 standard errors of it.\n"
        f"Clean test images, and copies with (so many) kinds of corruption, severity {outcome.demo.severity} of 5."
    )
    return MetricTable(lines, SHOWN, title, percent_digits=1)


def _reading(outcome: Outcome) -> list[str]:
    """The results in sentences, whichever way they fell."""
    seen = ", ".join(f"{_called(candidate)}: {nll:.3f}" for candidate, nll in outcome.validation_nll.items())
    lines = [f"MixupMP is {_called(outcome.chosen)}, of these by NLL on the first seed's validation rows:", f"  {seen}"]
    fitted = sum(trial.training_accuracy for trial in outcome.trials) / len(outcome.trials)
    lines.append(f"Training accuracy of the networks of DE: {fitted:.1%}.")
    for metric, name, sign in (("acc", "accuracy", -1), ("nll", "NLL", 1), ("ece", "ECE", 1)):
        better, worse, level = _verdicts(outcome, metric, sign)
        parts = [f"{word} on {', '.join(sets)}" for word, sets in (("better", better), ("worse", worse)) if sets]
        parts += [f"no clear difference on {', '.join(level)}"] if level else []
        lines.append(f"MixupMP against DE in {name}: {'; '.join(parts)}.")
    return lines


def _verdicts(outcome: Outcome, metric: str, sign: int) -> tuple[list[str], list[str], list[str]]:
    """The sets of rows on which MixupMP is better, worse, or level: by two standard errors of the paired difference."""
    better: list[str] = []
    worse: list[str] = []
    level: list[str] = []
    for rows in (CLEAN, *FAMILIES):
        change = outcome.difference(metric, rows)
        error = change.standard_error
        clear = error is not None and abs(change.mean) > 2 * error
        (level if not clear else better if sign * change.mean < 0 else worse).append(rows)
    return better, worse, level


def _figure(outcome: Outcome) -> Any:
    titles = ("NN: one network", f"DE: {outcome.demo.members} networks", f"MixupMP: {_called(outcome.chosen)}")
    sets = {"clean test images": [CLEAN], "corrupted test images\n(18 corruptions)": list(FAMILIES)}
    panels = [
        Panel(title, name, outcome.pooled(method, members))
        for name, members in sets.items()
        for method, title in zip(METHODS, titles, strict=True)
    ]
    return reliability_figure(panels, _headline(outcome))


def _headline(outcome: Outcome) -> str:
    """The title of the picture: the gap between confidence and accuracy under corruption, as measured."""
    gaps = {method: outcome.pooled(method, list(FAMILIES)) for method in METHODS}
    parts = [f"{method} {_gap(result.oe, result.ue)}" for method, result in gaps.items()]
    first = f"How sure, and how often right, after {outcome.demo.rows} training images."
    return f"{first}\nWhen corrupted, {', '.join(parts)}."


def _gap(over: float, under: float) -> str:
    return f"is {over:.1%} too sure" if over > under else f"is {under:.1%} not sure enough"


def _called(candidate: Candidate) -> str:
    ratio, alpha = candidate
    if ratio == 0:
        return "r=0 (DE)"
    return f"r={'inf' if ratio == inf else f'{ratio:g}'} alpha={alpha:g}"


def _document(outcome: Outcome, picture: Path, seconds: float) -> dict[str, Any]:
    """All measurements, for --json."""
    trials = [
        {
            "seed": trial.seed,
            "metrics": [
                {"method": method, "rows": rows, **scores.result().to_dict()}
                for (method, rows), scores in trial.scores.items()
            ],
        }
        for trial in outcome.trials
    ]
    chosen = {"ratio": outcome.chosen[0], "alpha": outcome.chosen[1]}
    return {
        "demo": outcome.demo,
        "chosen": chosen,
        "trials": trials,
        "picture": str(picture),
        "seconds": round(seconds, 1),
    }


@dataclass
class _Bar(Callback):
    """One bar for all networks, with the time that is left."""

    progress: Progress
    task: TaskID
    shares: dict[int, float]
    done: int = 0

    def on_step(self, member: int, step: int, total: int, loss: float) -> None:
        self.shares[member] = step / total
        self._show()

    def on_member_end(self, summary: MemberSummary) -> None:
        self.shares.pop(summary.member, None)
        self.done += 1
        self._show()
        if summary.diverged_at is not None:
            remark(f"member {summary.member} diverged and is left out")

    def _show(self) -> None:
        self.progress.update(self.task, completed=self.done + sum(self.shares.values()))

    def __enter__(self) -> _Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()


def _bar(total: int) -> _Bar:
    columns: Sequence[Any] = (
        TextColumn("training"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    return _Bar(progress, progress.add_task("training", total=total), {})
