"""The figures on calibration and on what abstaining gains."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mixupmp.metrics import ReliabilityBin
from mixupmp.web.report.chart import Axis, Chart, Figure, percent
from mixupmp.web.report.evaluated import EvaluatedRun
from mixupmp.web.report.findings import calibration_verdict, percentage
from mixupmp.web.report.statistics import share_error
from mixupmp.web.report.table import ReportTable

FIFTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LEFT = 62  # margin of the reliability diagram and of the histogram below it, so that their axes are aligned


def reliability(run: EvaluatedRun) -> Figure:
    """The reliability diagram over a histogram of the rows behind each point."""
    metrics = run.metrics
    bins = [one for one in metrics.result.reliability if one.count]
    verdict = calibration_verdict(metrics)
    name = f"Reliability diagram of {run.title}: it {verdict}. The numbers are in the table below."
    accuracy = Axis("Accuracy", 0, 1, percent, FIFTHS)
    chart = Chart(Axis("", 0, 1, percent, FIFTHS), accuracy, name, height=290, left=LEFT)
    chart.line([(0, 0), (1, 1)], "guide")
    for one in bins:
        _gap(chart, one)
    for one in bins:
        _point(chart, one, run.css)
    said, right = percentage(float(metrics.confidence.mean()), 1), percentage(metrics.value("acc"), 1)
    title = f"{run.title} {verdict}: on average it says {said} and is right {right}"
    rows = [(_span(b), str(b.count), percent(b.confidence or 0), percent(b.accuracy or 0)) for b in bins]
    head = ("Confidence", "Rows", "Mean confidence", "Accuracy")
    table = ReportTable(f"reliability-{run.number + 1}", "By range of confidence", head, rows)
    return Figure(title, (chart, _bin_counts(run)), table=table)


def _span(one: ReliabilityBin) -> str:
    return f"{percent(one.lower)} to {percent(one.upper)}"


def _gap(chart: Chart, one: ReliabilityBin) -> None:
    assert one.confidence is not None
    assert one.accuracy is not None
    side = "over" if one.confidence > one.accuracy else "under"
    width, middle = (one.upper - one.lower) * 0.44, (one.lower + one.upper) / 2
    points = 100 * abs(one.confidence - one.accuracy)
    title = f"{_span(one)}: gap {points:.1f} points"
    chart.bar((middle - width, one.accuracy, middle + width, one.confidence), f"gap c-{side}", title)


def _point(chart: Chart, one: ReliabilityBin, css: str) -> None:
    assert one.confidence is not None
    assert one.accuracy is not None
    spread = 2 * share_error(one.accuracy, one.count)
    ends = (max(one.accuracy - spread, 0), min(one.accuracy + spread, 1))
    chart.line([(one.confidence, end) for end in ends], f"whisker {css}")
    title = f"says {percent(one.confidence)}, right {percent(one.accuracy)} of {one.count} rows"
    chart.dot((one.confidence, one.accuracy), css, title)


def _bin_counts(run: EvaluatedRun) -> Chart:
    bins = run.metrics.result.reliability
    most = max(one.count for one in bins)
    name = f"Rows by confidence for {run.title}; the largest range has {most}."
    chart = Chart(Axis("Confidence", 0, 1, percent, FIFTHS), Axis("Rows", 0, most), name, height=130, left=LEFT)
    for one in bins:
        title = f"{_span(one)}: {one.count} rows"
        chart.bar((one.lower, 0, one.upper, one.count), f"bar {run.css}", title)
    return chart


def confidences(run: EvaluatedRun) -> Figure:
    """Histograms of confidence: of right predictions upwards, of wrong ones downwards."""
    metrics = run.metrics
    edges = np.linspace(0, 1, 21)
    right = np.histogram(metrics.confidence[metrics.correct > 0], edges)[0]
    wrong = np.histogram(metrics.confidence[metrics.correct == 0], edges)[0]
    mistakes = int(wrong.sum())
    confident = int(((metrics.confidence > 0.9) & (metrics.correct == 0)).sum())
    title = f"{run.title} makes {confident} of its {mistakes} mistakes with more than 90% confidence"
    if mistakes == 0:
        title = f"{run.title} makes no mistake on these rows"
    up, down = (counts / max(int(counts.sum()), 1) for counts in (right, wrong))
    most = float(max(up.max(), down.max())) * 1.05
    shares = Axis("Share of each", -most, most, lambda value: percent(abs(value)))
    chart = Chart(Axis("Confidence", 0, 1, percent, FIFTHS), shares, f"Histogram of confidence. {title}.", height=250)
    rows = []
    for k, (low, high) in enumerate(pairwise(edges.tolist())):
        span = f"{percent(low)} to {percent(high)}"
        chart.bar((low, 0, high, float(up[k])), f"bar {run.css}", f"{span}: {right[k]} right rows")
        chart.bar((low, 0, high, -float(down[k])), "bar c-over", f"{span}: {wrong[k]} wrong rows")
        if right[k] or wrong[k]:
            rows.append((span, str(right[k]), str(wrong[k])))
    chart.text((0, most), "where it is right", "start", (4, 14))
    chart.text((1, -most), "where it is wrong", "end", (-4, -8))
    table = ReportTable(f"confidence-{run.number + 1}", "Rows by confidence", ("Confidence", "Right", "Wrong"), rows)
    return Figure(title, (chart,), table=table)


def over_and_under(runs: Sequence[EvaluatedRun]) -> Figure:
    """OE and UE of all runs, back to back."""
    values = [(run, run.metrics.value("oe"), run.metrics.value("ue")) for run in runs]
    most = max(max(max(over, under) for _, over, under in values) * 1.4, 0.01)
    name = "; ".join(
        f"{run.title}: over-confidence {percentage(over, 2)}, under-confidence {percentage(under, 2)}"
        for run, over, under in values
    )
    x = Axis("under-confident (UE)  ←  error  →  over-confident (OE)", -most, most, lambda value: percent(abs(value)))
    chart = Chart(x, Axis("", 0, len(runs), ticks=()), name, height=40 * len(runs) + 60, left=14)
    for place, (run, over, under) in enumerate(reversed(values)):
        chart.bar((0, place + 0.12, over, place + 0.5), "bar c-over", f"OE {percentage(over, 2)}")
        chart.bar((-under, place + 0.12, 0, place + 0.5), "bar c-under", f"UE {percentage(under, 2)}")
        chart.text((-most, place + 0.62), run.title, "start", (0, -1))
        chart.text((over, place + 0.2), percentage(over, 2), "start", (4, 1))
        chart.text((-under, place + 0.2), percentage(under, 2), "end", (-4, 1))
    chart.line([(0, 0), (0, len(runs))], "axis")
    verdicts = {calibration_verdict(run.metrics) for run in runs}
    title = "Calibration errors: over-confident, or under-confident"
    if len(verdicts) == 1:
        title = f"Calibration errors: {'it' if len(runs) == 1 else 'every run'} {verdicts.pop()}"
    caption = "ECE is the sum of both. Over-confidence does the harm: nobody checks an answer that is given as certain."
    rows = [(r.title, *(f"{100 * r.metrics.value(m):.2f}" for m in ("oe", "ue", "ece"))) for r in runs]
    return Figure(
        title, (chart,), caption, ReportTable("over-and-under", "In percent", ("Run", "OE", "UE", "ECE"), rows)
    )


def abstaining(runs: Sequence[EvaluatedRun]) -> Figure:
    """Accuracy-rejection curves."""
    low = max(np.floor(min(float(run.rejection.accuracy.min()) for run in runs) * 50 - 0.01) / 50, 0)
    at_90 = {run.title: run.rejection.accuracy_at(0.9) for run in runs}
    found = "; ".join(f"{name}: {percentage(value, 1)}" for name, value in at_90.items())
    name = f"Accuracy-rejection curves. With 10% left unanswered, accuracy is: {found}."
    x = Axis("Left unanswered, least confident first", 0, 1, percent, FIFTHS)
    chart = Chart(x, Axis("Accuracy of what is answered", float(low), 1, percent), name, height=310, width=440)
    for run in runs:
        points = zip((1 - run.rejection.coverage).tolist(), run.rejection.accuracy.tolist(), strict=True)
        chart.line(list(points), f"line {run.css}", run.dash)
    best = max(runs, key=lambda run: at_90[run.title])
    before, after = percentage(best.metrics.value("acc"), 1), percentage(at_90[best.title], 1)
    title = f"Leaving the 10% least certain rows to a person lifts {best.title} from {before} to {after}"
    rows = []
    for run in runs:
        shares = (f"{100 * run.rejection.accuracy_at(coverage):.2f}" for coverage in (1.0, 0.95, 0.9, 0.8, 0.5))
        rows.append((run.title, *shares, f"{run.rejection.aurc:.4f}"))
    head = ("Run", "All", "95%", "90%", "80%", "50%", "AURC")
    table = ReportTable("abstaining", "Accuracy (%) by share of rows answered", head, rows)
    caption = "A curve that rises steeply belongs to a classifier that knows which rows it does not know."
    return Figure(title, (chart,), caption, table, legend=len(runs) > 1)
