"""What the demo shows of its measurements: a table, sentences, reliability diagrams, a report."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

from mixupmp import data
from mixupmp.cli.demonstration import CLASSIFIERS, CLEAN, FAMILIES, Outcome
from mixupmp.core.foreign import Json
from mixupmp.data.corruptions import SEVERITIES
from mixupmp.estimators.mixup_mp import MixupMPClassifier
from mixupmp.metrics import MetricRow, MetricTable, metric_named
from mixupmp.metrics.catalog import CALIBRATED
from mixupmp.plots import ReliabilityPanel, reliability_figure
from mixupmp.web.report import report_fits

SHOWN = ("acc", "nll", "ece", f"nll{CALIBRATED}", f"ece{CALIBRATED}")
COMPARED = {"acc": "accuracy", f"nll{CALIBRATED}": "NLL", f"ece{CALIBRATED}": "ECE"}


def table(outcome: Outcome) -> MetricTable:
    """Every classifier on every set of test rows."""
    titles = {CLEAN: "clean"} | {family: f"{family} ({len(names)})" for family, names in FAMILIES.items()}
    lines = tuple(
        MetricRow(name, outcome.summaries(name, rows), title) for rows, title in titles.items() for name in CLASSIFIERS
    )
    title = (
        "Mean ± standard error over seeds; bold: the best, and what is within 2 standard errors of it; "
        "cal.: calibrated.\n"
        f"Clean test images, and copies with (so many) kinds of corruption, severity {outcome.demo.severity} of 5."
    )
    return MetricTable(lines, SHOWN, title, percent_digits=1)


def reading(outcome: Outcome) -> list[str]:
    """The results in sentences, whichever way they fell."""
    lines = [f"MixupMP chose {_chosen(outcome)}."]
    for metric, name in COMPARED.items():
        better, worse, level = _verdicts(outcome, metric)
        parts = [f"{word} on {', '.join(sets)}" for word, sets in (("better", better), ("worse", worse)) if sets]
        parts += [f"no clear difference on {', '.join(level)}"] if level else []
        lines.append(f"MixupMP against DE in {name}, both calibrated: {'; '.join(parts)}.")
    return lines


def _verdicts(outcome: Outcome, metric: str) -> tuple[list[str], list[str], list[str]]:
    """The sets of rows on which MixupMP is better, worse, or level: by two standard errors of the paired difference."""
    better: list[str] = []
    worse: list[str] = []
    level: list[str] = []
    for rows in (CLEAN, *FAMILIES):
        change = outcome.difference(metric, rows)
        error = change.standard_error
        clear = error is not None and abs(change.mean) > 2 * error
        (level if not clear else better if metric_named(metric).sign * change.mean > 0 else worse).append(rows)
    return better, worse, level


def _chosen(outcome: Outcome) -> str:
    """MixupMP's r, alpha and temperature of each seed."""
    fitted = (trial.classifiers["MixupMP"] for trial in outcome.trials)
    return "; ".join(_called(one) for one in fitted if isinstance(one, MixupMPClassifier))


def _called(classifier: MixupMPClassifier) -> str:
    ratio, scaled = classifier.ratio_, f"T={classifier.temperature_:.2f}"
    if ratio == 0:
        return f"r=0 (DE) {scaled}"
    return f"r={'inf' if ratio == inf else f'{ratio:g}'} alpha={classifier.alpha_:g} {scaled}"


def figure(outcome: Outcome) -> Any:
    """Reliability diagrams: the classifiers on clean and on corrupted rows."""
    titles = {"NN": "NN: one network", "DE": "DE: a deep ensemble", "MixupMP": "MixupMP"}
    sets = {"clean test images": [CLEAN], "corrupted test images\n(18 corruptions)": list(FAMILIES)}
    panels = [
        ReliabilityPanel(title, name, outcome.pooled(method, members))
        for name, members in sets.items()
        for method, title in titles.items()
    ]
    return reliability_figure(panels, _headline(outcome))


def _headline(outcome: Outcome) -> str:
    """The title of the picture: the gap between confidence and accuracy under corruption, as measured."""
    gaps = {name: outcome.pooled(name, list(FAMILIES)) for name in CLASSIFIERS}
    parts = [f"{name} {_gap(result.oe, result.ue)}" for name, result in gaps.items()]
    first = f"How sure, and how often right, after {outcome.demo.rows} training images, calibrated."
    return f"{first}\nWhen corrupted, {', '.join(parts)}."


def _gap(over: float, under: float) -> str:
    return f"is {over:.1%} too sure" if over > under else f"is {under:.1%} not sure enough"


def document(outcome: Outcome, picture: Path | None, seconds: float) -> dict[str, Json]:
    """All measurements, for --json."""
    trials = [
        {
            "seed": trial.seed,
            "chosen": _called(trial.classifiers["MixupMP"]),
            "metrics": [
                {**scores.result().to_dict(), "method": name, "rows": rows, "calibrated": calibrated}
                for calibrated, by_key in ((False, trial.raw), (True, trial.calibrated))
                for (name, rows), scores in by_key.items()
            ],
        }
        for trial in outcome.trials
    ]
    return {
        "demo": outcome.demo,
        "trials": trials,
        "picture": None if picture is None else str(picture),
        "seconds": round(seconds, 1),
    }


def report(outcome: Outcome, path: Path) -> Path:
    """The first seed's fits as a page, with two corruptions at every severity."""
    shifts = [(name, severity) for name in ("gaussian_noise", "contrast") for severity in SEVERITIES]
    fits = [(name, one.posterior_, one.calibrator_) for name, one in outcome.trials[0].classifiers.items()]
    return report_fits(fits, data.load("digits"), path, shifts, "How sure is it? One network, an ensemble, MixupMP")
