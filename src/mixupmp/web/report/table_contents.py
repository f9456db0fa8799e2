"""The report's tables: metrics with standard errors, differences, seeds, and each class."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import torch

from mixupmp.core.spec import encode
from mixupmp.decide.detect import PROBABILITY_SCORES
from mixupmp.metrics import Metric, Summary, best, difference, summarize
from mixupmp.web.report.evaluated import EvaluatedRun
from mixupmp.web.report.statistics import is_clear, paired_difference, shown_metrics
from mixupmp.web.report.table import ReportCell, ReportTable

FALSE_ALARMS = (0.01, 0.05, 0.1)


def metrics_table(runs: Sequence[EvaluatedRun]) -> ReportTable:
    """Every metric of every run, with the best in bold."""
    rows: list[list[ReportCell]] = [[_named(run)] for run in runs]
    for metric in shown_metrics():
        values = {k: run.metrics.summaries[metric.name] for k, run in enumerate(runs)}
        bold = best(metric, values, _compare(runs, metric.name))
        for k, value in values.items():
            rows[k].append(_value(metric, value, k in bold))
    rows += [_uncalibrated(run) for run in runs if run.metrics.raw is not None]
    caption = "Metrics on the test rows, ± one standard error"
    if len(runs) > 1:
        caption += "; in bold the best, and those within two standard errors of it"
    return ReportTable("metrics", caption, ("Run", *_columns()), rows)


def _uncalibrated(run: EvaluatedRun) -> list[ReportCell]:
    """A run's metrics before calibration; never among the best, as they are not what it predicts."""
    assert run.metrics.raw is not None
    values = (metric.format(run.metrics.raw[metric.name]) for metric in shown_metrics())
    return [ReportCell(f"{run.title}, before calibration", color=run.color), *map(ReportCell, values)]


def _compare(runs: Sequence[EvaluatedRun], name: str) -> Callable[[int, int], Summary]:
    """The difference of two runs in a metric: paired by row where both have the same test rows."""

    def compare(ours: int, theirs: int) -> Summary:
        if runs[ours].same_rows(runs[theirs]):
            return paired_difference(name, runs[ours].metrics, runs[theirs].metrics)
        return difference(runs[ours].metrics.summaries[name], runs[theirs].metrics.summaries[name])

    return compare


def seeds_table(runs: Sequence[EvaluatedRun]) -> ReportTable | None:
    """Runs that differ in their seed alone, as one line each."""
    groups: dict[str, list[EvaluatedRun]] = defaultdict(list)
    for run in runs:
        plan = encode([run.record.method, run.record.network, run.record.recipe])
        groups[json.dumps(plan, sort_keys=True)].append(run)
    rows = []
    for group in groups.values():
        if len({run.record.seed for run in group}) > 1:
            summaries = summarize([run.metrics.result for run in group])
            name = f"{group[0].title.partition(', seed')[0]}, {len(group)} seeds"
            rows.append([ReportCell(name), *(_value(metric, summaries[metric.name]) for metric in shown_metrics())])
    return (
        ReportTable("seeds", "Mean over seeds, ± one standard error over seeds", ("Runs", *_columns()), rows)
        if rows
        else None
    )


def differences_table(runs: Sequence[EvaluatedRun], baseline: EvaluatedRun) -> ReportTable:
    """Every run minus the baseline, row by row."""
    compared = [metric for metric in shown_metrics() if metric.sign]
    rows = []
    for run in runs:
        if run is not baseline:
            changes = (paired_difference(metric.name, run.metrics, baseline.metrics) for metric in compared)
            rows.append([_named(run), *map(_change, compared, changes)])
    caption = f"Difference from {baseline.title} on the same rows, ± one standard error"
    return ReportTable("differences", caption, ("Run", *(metric.column for metric in compared)), rows)


def classes_table(run: EvaluatedRun) -> ReportTable:
    """Recall, precision and confidence of each class, and what it is most often taken for."""
    head = ("Class", "Often taken for", "Rows", "Recall %", "Precision %", "Mean confidence %", "Over-confident by")
    name = f"classes-{run.number + 1}"
    return ReportTable(name, f"Each class, {run.title}", head, list(_classes(run)), text_columns=2, sortable=True)


def _classes(run: EvaluatedRun) -> Iterator[Sequence[str]]:
    evaluation = run.evaluation
    count = len(evaluation.classes)
    predicted = torch.from_numpy(run.metrics.predicted)
    confidence = torch.from_numpy(run.metrics.confidence)
    confusion = torch.bincount(evaluation.labels * count + predicted, minlength=count * count).view(count, count)
    for k, name in enumerate(evaluation.classes):
        rows, answers, right = int(confusion[k].sum()), int(confusion[:, k].sum()), int(confusion[k, k])
        others = confusion[k].clone()
        others[k] = 0
        other = int(others.argmax())
        mistaken = f"{evaluation.classes[other]} ({int(others[other])})" if int(others[other]) else "–"
        recall = f"{100 * right / rows:.1f}" if rows else "–"
        if not answers:
            yield name, mistaken, str(rows), recall, "–", "–", "–"
            continue
        mean, precision = 100 * float(confidence[predicted == k].mean()), 100 * right / answers
        gap = f"{mean - precision:+.1f}".replace("-", "−")
        yield name, mistaken, str(rows), recall, f"{precision:.1f}", f"{mean:.1f}", gap


def detection_table(runs: Sequence[EvaluatedRun]) -> ReportTable | None:
    """How many test rows are flagged as unlike the held-out ones by entropy, and the accuracy on them and others."""
    rows: list[list[ReportCell | str]] = [[_named(run), *cells] for run in runs for cells in _flagged(run)]
    head = ("Run", "Held-out rows", "False alarms wanted %", "Flagged %", "ACC flagged %", "ACC others %")
    caption = "Test rows flagged as unlike the rows held out from training, by entropy"
    return ReportTable("detection", caption, head, rows) if rows else None


def _flagged(run: EvaluatedRun) -> Iterator[Sequence[str]]:
    detector, correct = run.detector, torch.from_numpy(run.metrics.correct)
    if detector is None or "entropy" not in detector.held_out:
        return
    scores = PROBABILITY_SCORES["entropy"](run.evaluation.members.double())
    for rate in FALSE_ALARMS:
        flagged = scores > detector.threshold(rate, "entropy")
        parts = (correct[flagged], correct[~flagged])
        shares = (f"{100 * float(part.mean()):.1f}" if len(part) else "–" for part in parts)
        yield str(detector.rows), f"{100 * rate:g}", f"{100 * float(flagged.double().mean()):.1f}", *shares


def _named(run: EvaluatedRun) -> ReportCell:
    return ReportCell(run.title, color=run.color)


def _columns() -> list[str]:
    return [metric.column for metric in shown_metrics()]


def _value(metric: Metric, summary: Summary, bold: bool = False) -> ReportCell:
    error = "" if summary.standard_error is None else metric.format(summary.standard_error)
    return ReportCell(metric.format(summary.mean), error, "best" if bold else "")


def _change(metric: Metric, change: Summary) -> ReportCell:
    text = metric.format_change(change.mean).replace(" points", "")
    error = metric.format(change.standard_error or 0.0)
    if not is_clear(change):
        return ReportCell(text, error, "unclear")
    return ReportCell(text, error, "better" if metric.sign * change.mean > 0 else "worse")
