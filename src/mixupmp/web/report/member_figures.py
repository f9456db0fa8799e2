"""The figures on how far members agree, on training, and on corrupted inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from mixupmp.metrics import METRICS, Metric
from mixupmp.web.report.chart import Axis, Chart, Figure, Heatmap, percent, plain_number
from mixupmp.web.report.evaluated import EvaluatedRun
from mixupmp.web.report.findings import percentage
from mixupmp.web.report.statistics import Floats, disagreement
from mixupmp.web.report.table import ReportTable

MOST_IN_HEATMAP = 10  # members; the numbers of more cannot be read
SHIFTED = ("acc", "nll", "ece")


def agreement(run: EvaluatedRun) -> Figure | None:
    """The share of rows on which each two members predict different classes, and the accuracy of each alone."""
    evaluation = run.evaluation
    count = evaluation.members.shape[0]
    if count < 2:
        return None
    apart = disagreement(evaluation)
    votes = evaluation.members.argmax(-1)
    alone = (votes == evaluation.labels).double().mean(1).numpy()
    same = (votes == votes[0]).all(0).numpy()
    together = percentage(run.metrics.value("acc"), 1)
    title = (
        f"{run.title}: all {count} members agree on {percentage(float(same.mean()), 1)} of the rows; "
        f"alone they reach {percentage(float(alone.mean()), 1)}, together {together}"
    )
    pairs = apart[np.triu_indices(count, 1)]
    mean, most = percentage(float(pairs.mean()), 1), percentage(float(pairs.max()), 1)
    caption = name = f"Two members differ on {mean} of the rows on average, on {most} at most."
    if same.any() and not same.all():
        correct = run.metrics.correct
        agreed, split = percentage(float(correct[same].mean()), 1), percentage(float(correct[~same].mean()), 1)
        caption += f" Where all agree, they are right {agreed} of the time; where they differ, {split}."
    if count > MOST_IN_HEATMAP:
        return Figure(title, (_accuracies(run, alone, name),), caption)
    rows = [(f"Member {m}", f"{100 * alone[m]:.2f}", *(f"{100 * d:.2f}" for d in apart[m])) for m in range(count)]
    head = ("", "Accuracy (%)", *(f"differs from {m} (%)" for m in range(count)))
    table = ReportTable(f"members-{run.number + 1}", "Each member", head, rows)
    name = f"Members against members, percent of rows on which they differ. {name}"
    return Figure(title, (Heatmap(apart.tolist(), name),), caption, table)


def _accuracies(run: EvaluatedRun, alone: Floats, name: str) -> Chart:
    """Each member's accuracy as a dot, and that of all together as a line."""
    together = run.metrics.value("acc")
    low, high = float(min(alone.min(), together)), float(max(alone.max(), together))
    room = (high - low) * 0.15 or 0.01
    chart = Chart(Axis("Accuracy", low - room, high + room, percent), Axis("", 0, 1, ticks=()), name, 120, left=14)
    chart.line([(together, 0), (together, 1)], f"line {run.css}", run.dash)
    chart.text((together, 0.93), "together", "start", (5, 4))
    for member, accuracy in enumerate(alone.tolist()):
        height = 0.15 + 0.6 * ((member * 7) % 10) / 10  # apart, so that equal accuracies do not hide each other
        chart.dot((accuracy, height), run.css, f"member {member}: {percent(accuracy)}")
    return chart


def training(run: EvaluatedRun) -> Figure | None:
    """The training loss of each member by epoch."""
    histories = [
        [(record["epoch"], record["loss"]) for record in summary.history if record.get("loss") is not None]
        for summary in run.summaries
    ]
    curves = [curve for curve in histories if len(curve) > 1]
    if not curves:
        return None
    top = max(loss for curve in curves for _, loss in curve)
    ends = [curve[-1][1] for curve in curves]
    ending = f"{min(ends):.3g}" if len(ends) == 1 else f"{min(ends):.3g} to {max(ends):.3g}"
    name = f"Training loss by epoch, a line for each of {len(curves)} members; at the end it is {ending}."
    epochs = Axis("Epoch", 0, max(curve[-1][0] for curve in curves))
    chart = Chart(epochs, Axis("Training loss", 0, top * 1.03), name, height=240)
    for curve in curves:
        chart.line(curve, f"line thin {run.css}")
    title = f"{run.title}: training loss ends at {ending}"
    accuracies = [s.training_accuracy for s in run.summaries if s.training_accuracy is not None]
    if accuracies:
        low, high = percentage(min(accuracies), 1), percentage(max(accuracies), 1)
        title += f", training accuracy at {low}" if low == high else f", training accuracy at {low} to {high}"
    diverged = [f"Member {s.member} diverged at step {s.diverged_at}." for s in run.summaries if s.diverged_at]
    return Figure(title, (chart,), " ".join(diverged))


def shift(runs: Sequence[EvaluatedRun]) -> list[Figure]:
    """Metrics by the severity of corruption, from the clean test set on."""
    evaluated = [run for run in runs if run.evaluation.shifts]
    return [_shift(evaluated, METRICS[name]) for name in SHIFTED] if evaluated else []


def _shift(runs: Sequence[EvaluatedRun], metric: Metric) -> Figure:
    def show(value: float) -> str:
        return (percent if metric.percent else plain_number)(round(value, 4))

    curves = [(run, _by_severity(run, metric.name)) for run in runs]
    values = [value for _, curve in curves for _, value in curve]
    low, high = 0.0, max(values) * 1.05
    if metric.sign > 0:
        low, high = float(np.floor(min(values) * 10) / 10), 1.0
    worst = max(severity for _, curve in curves for severity, _ in curve)
    ends = "; ".join(f"{run.title} {show(curve[-1][1])}" for run, curve in curves)
    label = metric.title if metric.title == metric.heading else metric.title.capitalize()
    x = Axis("Severity of corruption", 0, worst, ticks=tuple(range(worst + 1)))
    name = f"{label} against severity. At severity {worst}: {ends}."
    chart = Chart(x, Axis(label, low, high, show), name, height=240)
    for run, curve in curves:
        chart.line(curve, f"line {run.css}", run.dash)
        for severity, value in curve:
            chart.dot((severity, value), run.css, f"{run.title}, severity {severity:g}: {show(value)}", 3)
    title = f"{label} under shift"
    if len(runs) > 1:
        best, _ = max(curves, key=lambda pair: metric.sign * pair[1][-1][1])
        title += f": {best.title} is best at severity {worst}"
    severities = sorted({severity for _, curve in curves for severity, _ in curve})
    rows = []
    for run, curve in curves:
        found = {severity: show(value) for severity, value in curve}
        rows.append((run.title, *(found.get(severity, "–") for severity in severities)))
    head = ("Run", *map(str, severities))
    table = ReportTable(f"shift-{metric.name}", f"{metric.heading} by severity", head, rows)
    return Figure(title, (chart,), table=table, legend=len(runs) > 1)


def _by_severity(run: EvaluatedRun, name: str) -> list[tuple[int, float]]:
    """The mean over corruptions at each severity; severity 0 is the clean test set."""
    values: dict[int, list[float]] = defaultdict(list)
    values[0] = [run.metrics.value(name)]
    for point in run.evaluation.shifts:
        value = point.scores.get(name)
        if value is not None:
            values[point.severity].append(float(value))
    return [(severity, sum(found) / len(found)) for severity, found in sorted(values.items())]
