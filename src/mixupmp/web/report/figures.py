"""The figures on calibration and on what abstaining buys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mixupmp.metrics import ReliabilityBin
from mixupmp.web.pages.markup import Markup, element, joined
from mixupmp.web.report.chart import Axis, Chart, figure, percent, table
from mixupmp.web.report.measures import share_error
from mixupmp.web.report.reading import percentage, verdict
from mixupmp.web.report.subject import Subject

FIFTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LEFT = 62  # of the reliability diagram and the counts below it, so that their axes stand one over the other


def legend(subjects: Sequence[Subject]) -> Markup:
    """Which line is whose."""
    entries = []
    for subject in subjects:
        line = element("path", {"d": "M1 6H33", "class": "line", "style": subject.stroke})
        sample = element("svg", {"viewBox": "0 0 34 12", "width": 34, "height": 12, "aria-hidden": "true"}, line)
        entries.append(element("li", {}, sample, subject.title))
    return element("ul", {"class": "legend"}, entries)


def reliability(subject: Subject) -> Markup:
    """Confidence against accuracy, with the gap between them and the number of rows behind each point."""
    measures = subject.measures
    lines = [line for line in measures.result.reliability if line.count]
    name = f"Reliability diagram of {subject.title}: it {verdict(measures)}. The numbers are in the table below."
    axis = Axis("", 0, 1, percent, FIFTHS)
    chart = Chart(axis, Axis("Share that is right", 0, 1, percent, FIFTHS), name, height=290, left=LEFT)
    chart.line([(0, 0), (1, 1)], "", "guide")
    for line in lines:
        _gap(chart, line)
    for line in lines:
        assert line.confidence is not None
        assert line.accuracy is not None
        spread = 2 * share_error(line.accuracy, line.count)
        ends = (max(line.accuracy - spread, 0), min(line.accuracy + spread, 1))
        chart.line([(line.confidence, end) for end in ends], f"stroke:{subject.color}", "whisker")
        said = f"says {percent(line.confidence)}, right {percent(line.accuracy)} of {line.count} rows"
        chart.dot((line.confidence, line.accuracy), f"fill:{subject.color}", said)
    said, right = percentage(float(measures.confidence.mean()), 1), percentage(measures.value("acc"), 1)
    title = f"{subject.title} {verdict(measures)}: on average it says {said} and is right {right}"
    return figure(title, joined(chart.render(), _counts(subject)), None, _numbers(lines))


def how_to_read() -> Markup:
    """What the points and bars of a reliability diagram mean."""
    return element(
        "p", {},
        "In a reliability diagram each point is the rows of one range of confidence; on the diagonal, confidence is "
        "what it claims to be. Bars show the gap: ", element("span", {"class": "over"}, "too sure"),
        " below the diagonal, ", element("span", {"class": "under"}, "too modest"),
        " above it. Whiskers are two standard errors; the histogram below counts the rows behind each point.",
    )  # fmt: skip


def _gap(chart: Chart, line: ReliabilityBin) -> None:
    assert line.confidence is not None
    assert line.accuracy is not None
    kind = "over" if line.confidence > line.accuracy else "under"
    said = (
        f"{percent(line.lower)} to {percent(line.upper)}: gap {100 * abs(line.confidence - line.accuracy):.1f} points"
    )
    width = (line.upper - line.lower) * 0.44
    middle = (line.lower + line.upper) / 2
    chart.bar((middle - width, line.accuracy, middle + width, line.confidence), f"fill:var(--{kind})", said, "gap")


def _counts(subject: Subject) -> Markup:
    """How many rows are behind each point."""
    lines = subject.measures.result.reliability
    most = max(line.count for line in lines)
    name = f"Rows by confidence for {subject.title}; the largest range holds {most}."
    axis = Axis("Confidence", 0, 1, percent, FIFTHS)
    chart = Chart(axis, Axis("Rows", 0, most), name, height=130, left=LEFT)
    for line in lines:
        said = f"{percent(line.lower)} to {percent(line.upper)}: {line.count} rows"
        chart.bar((line.lower, 0, line.upper, line.count), f"fill:{subject.color}", said)
    return chart.render()


def _numbers(lines: Sequence[ReliabilityBin]) -> Markup:
    cells = [
        (f"{percent(line.lower)} to {percent(line.upper)}", line.count, percent(line.confidence or 0),
         percent(line.accuracy or 0))
        for line in lines
    ]  # fmt: skip
    return table("By range of confidence", ("Range", "Rows", "Mean confidence", "Right"), cells)


def confidences(subject: Subject) -> Markup:
    """How confident it is where it is right, and where it is wrong."""
    measures = subject.measures
    edges = np.linspace(0, 1, 21)
    right = np.histogram(measures.confidence[measures.correct > 0], edges)[0]
    wrong = np.histogram(measures.confidence[measures.correct == 0], edges)[0]
    mistakes = int(wrong.sum())
    bold = int(((measures.confidence > 0.9) & (measures.correct == 0)).sum())
    title = f"{subject.title} makes {bold} of its {mistakes} mistakes with more than 90% confidence"
    if mistakes == 0:
        title = f"{subject.title} makes no mistake on these rows"
    shares = [counts / max(int(counts.sum()), 1) for counts in (right, wrong)]
    most = float(max(share.max() for share in shares)) * 1.05
    axis = Axis("Confidence", 0, 1, percent, FIFTHS)
    high = Axis("Share of each", -most, most, lambda value: percent(abs(value)))
    chart = Chart(axis, high, f"Histogram of confidence. {title}.", height=250)
    for place, (low, top) in enumerate(pairwise(edges.tolist())):
        span = f"{percent(low)} to {percent(top)}"
        up, down = float(shares[0][place]), float(shares[1][place])
        chart.bar((low, 0, top, up), f"fill:{subject.color}", f"{span}: {right[place]} right rows")
        chart.bar((low, 0, top, -down), "fill:var(--over)", f"{span}: {wrong[place]} wrong rows")
    chart.text((0, most), "where it is right", "start", (4, 14))
    chart.text((1, -most), "where it is wrong", "end", (-4, -8))
    cells = [
        (f"{percent(float(edges[k]))} to {percent(float(edges[k + 1]))}", int(right[k]), int(wrong[k]))
        for k in range(20) if right[k] or wrong[k]
    ]  # fmt: skip
    numbers = table("Rows by confidence", ("Confidence", "Right", "Wrong"), cells)
    return figure(title, chart.render(), None, numbers)


def over_and_under(subjects: Sequence[Subject]) -> Markup:
    """OE and UE of all runs, back to back."""
    most = max(max(subject.measures.value("oe"), subject.measures.value("ue")) for subject in subjects)
    most = max(most * 1.4, 0.01)
    spot = Axis("too modest (UE)  ←  error  →  too sure (OE)", -most, most, lambda value: percent(abs(value)))
    height = 40 * len(subjects) + 60
    name = "; ".join(
        f"{s.title}: over-confidence {percentage(s.measures.value('oe'), 2)}, "
        f"under-confidence {percentage(s.measures.value('ue'), 2)}"
        for s in subjects
    )
    chart = Chart(spot, Axis("", 0, len(subjects), ticks=()), name, height=height, left=14)
    for place, subject in enumerate(reversed(subjects)):
        over, under = subject.measures.value("oe"), subject.measures.value("ue")
        chart.bar((0, place + 0.12, over, place + 0.5), "fill:var(--over)", f"OE {percentage(over, 2)}")
        chart.bar((-under, place + 0.12, 0, place + 0.5), "fill:var(--under)", f"UE {percentage(under, 2)}")
        chart.text((-most, place + 0.62), subject.title, "start", (0, -1))
        chart.text((over, place + 0.2), percentage(over, 2), "start", (4, 1))
        chart.text((-under, place + 0.2), percentage(under, 2), "end", (-4, 1))
    chart.line([(0, 0), (0, len(subjects))], "", "axis")
    sides = {verdict(subject.measures) for subject in subjects}
    title = "Where calibration errors come from: too sure, or too modest"
    if len(sides) == 1:
        title = f"Calibration errors: {'it' if len(subjects) == 1 else 'every run'} {sides.pop()}"
    caption = "ECE is the sum of both. Over-confidence is the one that does harm: nobody checks what is said firmly."
    cells = [(s.title, *(f"{100 * s.measures.value(m):.2f}" for m in ("oe", "ue", "ece"))) for s in subjects]
    return figure(title, chart.render(), caption, table("In percent", ("Run", "OE", "UE", "ECE"), cells))


def abstaining(subjects: Sequence[Subject]) -> Markup:
    """Accuracy on the answered rows against the share that is left unanswered."""
    lowest = min(float(s.rejection.accuracy.min()) for s in subjects)
    low = max(np.floor(lowest * 50 - 0.01) / 50, 0)
    y = Axis("Accuracy of what is answered", float(low), 1, percent)
    x = Axis("Left unanswered, least confident first", 0, 1, percent, FIFTHS)
    at = {s.title: float(np.interp(0.9, s.rejection.coverage, s.rejection.accuracy)) for s in subjects}
    said = "; ".join(f"{name}: {percentage(value, 1)}" for name, value in at.items())
    chart = Chart(
        x, y, f"Accuracy-rejection curves. With 10% left unanswered, accuracy is: {said}.", height=310, width=440
    )
    for subject in subjects:
        curve = subject.rejection
        points = zip((1 - curve.coverage).tolist(), curve.accuracy.tolist(), strict=True)
        chart.line(list(points), subject.stroke)
    first = max(subjects, key=lambda s: at[s.title])
    now, then = percentage(first.measures.value("acc"), 1), percentage(at[first.title], 1)
    title = f"Leaving the 10% least sure rows to a person lifts {first.title} from {now} to {then}"
    cells = [
        (s.title, *(_at(s, coverage) for coverage in (1.0, 0.95, 0.9, 0.8, 0.5)), f"{s.rejection.area:.4f}")
        for s in subjects
    ]  # fmt: skip
    head = ("Run", "All", "95%", "90%", "80%", "50%", "AURC")
    numbers = table("Accuracy (%) by share of rows answered", head, cells)
    caption = "A curve that rises steeply belongs to a classifier that knows which rows it does not know."
    keys = legend(subjects) if len(subjects) > 1 else None
    return figure(title, joined(keys, chart.render()), caption, numbers)


def _at(subject: Subject, coverage: float) -> str:
    curve = subject.rejection
    return f"{100 * float(np.interp(coverage, curve.coverage, curve.accuracy)):.2f}"
