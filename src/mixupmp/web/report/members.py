"""The figures on how far members agree, on training, and on shifted inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from mixupmp.web.pages.markup import Markup, element, joined
from mixupmp.web.report.chart import Axis, Chart, figure, percent, plain_number, svg, table
from mixupmp.web.report.figures import legend
from mixupmp.web.report.measures import Numbers, disagreement
from mixupmp.web.report.reading import percentage
from mixupmp.web.report.subject import Subject

MOST_CELLS = 10  # beyond so many members a matrix is wallpaper


def agreement(subject: Subject) -> Markup | None:
    """The share of rows on which each two members vote differently, and how good each is alone."""
    evaluation = subject.evaluation
    count = evaluation.members.shape[0]
    if count < 2:
        return None
    apart = disagreement(evaluation)
    votes = evaluation.members.argmax(-1)
    alone = (votes == evaluation.labels).double().mean(1).numpy()
    unanimous = float((votes == votes[0]).all(0).double().mean())
    pairs = apart[np.triu_indices(count, 1)]
    together = subject.measures.value("acc")
    title = (
        f"{subject.title}: all {count} members agree on {percentage(unanimous, 1)} of the rows; "
        f"alone they reach {percentage(float(alone.mean()), 1)}, together {percentage(together, 1)}"
    )
    mean, most = percentage(float(pairs.mean()), 1), percentage(float(pairs.max()), 1)
    name = f"Two members differ on {mean} of the rows on average, on {most} at most."
    split = _by_agreement(subject)
    caption = f"{name} {split}"
    cells = [(f"Member {m}", f"{100 * alone[m]:.2f}", *(f"{100 * d:.2f}" for d in apart[m])) for m in range(count)]
    head = ("", "Accuracy (%)", *(f"differs from {m} (%)" for m in range(count)))
    numbers = table("Members one by one", head, cells[:40]) if count <= MOST_CELLS else None
    picture = _matrix(apart, name) if count <= MOST_CELLS else _spread(subject, alone, name)
    return figure(title, picture, caption, numbers)


def _by_agreement(subject: Subject) -> str:
    """What unanimity is worth."""
    votes = subject.evaluation.members.argmax(-1)
    same = (votes == votes[0]).all(0).numpy()
    right = subject.measures.correct
    if same.all() or not same.any():
        return ""
    agreed, split = percentage(float(right[same].mean()), 1), percentage(float(right[~same].mean()), 1)
    return f"Where all agree, they are right {agreed} of the time; where they are split, {split}."


def _matrix(apart: Numbers, name: str) -> Markup:
    count = len(apart)
    cell = min(52, 330 // count)
    most = float(apart.max()) or 1.0
    parts: list[Markup] = []
    for i in range(count):
        middle = (i + 0.5) * cell
        parts.append(element("text", {"x": 22, "y": 22 + middle, "text-anchor": "end"}, i))
        parts.append(element("text", {"x": 28 + middle, "y": 12, "text-anchor": "middle"}, i))
        for j in range(count):
            strength = 0.04 + 0.6 * float(apart[i, j]) / most
            box = {"x": 28 + j * cell, "y": 18 + i * cell, "width": cell - 2, "height": cell - 2, "rx": 4,
                   "style": f"fill:rgb(var(--heat), {strength:.3f})"}  # fmt: skip
            said = f"{i} and {j} differ on {percent(float(apart[i, j]))}"
            parts.append(element("rect", box, element("title", {}, said)))
            if i != j:
                place = {"x": 27 + (j + 0.5) * cell, "y": 21 + middle, "text-anchor": "middle", "class": "cell"}
                parts.append(element("text", place, f"{100 * apart[i, j]:.1f}"))
    name = f"Members against members, percent of rows on which they differ. {name}"
    return svg(380, 26 + count * cell, name, parts)


def _spread(subject: Subject, alone: Numbers, name: str) -> Markup:
    """Each member's accuracy as a dot, and that of all together as a line."""
    together = subject.measures.value("acc")
    low, high = float(min(alone.min(), together)), float(max(alone.max(), together))
    room = (high - low) * 0.15 or 0.01
    chart = Chart(Axis("Accuracy", low - room, high + room, percent), Axis("", 0, 1, ticks=()), name, 120, left=14)
    chart.line([(together, 0), (together, 1)], subject.stroke)
    chart.text((together, 0.93), "together", "start", (5, 4))
    for member, accuracy in enumerate(alone):
        height = 0.15 + 0.6 * ((member * 7) % 10) / 10
        chart.dot((float(accuracy), height), f"fill:{subject.color}", f"member {member}: {percent(float(accuracy))}")
    return chart.render()


def training(subject: Subject) -> Markup | None:
    """The loss of each member over its epochs."""
    curves = [
        [(record["epoch"], record["loss"]) for record in summary.history if record.get("loss") is not None]
        for summary in subject.summaries
    ]
    drawn = [curve for curve in curves if len(curve) > 1]
    if not drawn:
        return None
    top = max(loss for curve in drawn for _, loss in curve)
    last = max(curve[-1][0] for curve in drawn)
    ends = [curve[-1][1] for curve in drawn]
    ending = f"{min(ends):.3g}" if len(ends) == 1 else f"{min(ends):.3g} to {max(ends):.3g}"
    name = f"Training loss by epoch, a line for each of {len(drawn)} members; at the end it is {ending}."
    chart = Chart(Axis("Epoch", 0, last), Axis("Training loss", 0, top * 1.03), name, height=240)
    for curve in drawn:
        chart.line(curve, f"stroke:{subject.color}", "line thin")
    reached = [s.training_accuracy for s in subject.summaries if s.training_accuracy is not None]
    title = f"{subject.title}: training loss ends at {ending}"
    if reached:
        low, high = percentage(min(reached), 1), percentage(max(reached), 1)
        title += f", training accuracy at {low}" if low == high else f", training accuracy at {low} to {high}"
    stopped = [f"Member {s.member} diverged at step {s.diverged_at}." for s in subject.summaries if s.diverged_at]
    return figure(title, chart.render(), " ".join(stopped) or None)


SHIFTED: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("acc", "Accuracy", percent), ("nll", "NLL", plain_number), ("ece", "ECE", percent)
)  # fmt: skip


def shift(subjects: Sequence[Subject]) -> list[Markup]:
    """Each measure against the severity of corruption, from the clean test set on."""
    evaluated = [subject for subject in subjects if subject.evaluation.shifts]
    return [_shift(evaluated, *measure) for measure in SHIFTED] if evaluated else []


def _shift(subjects: Sequence[Subject], name: str, label: str, show: Callable[[float], str]) -> Markup:
    curves = {subject.title: _curve(subject, name) for subject in subjects}
    values = [value for curve in curves.values() for _, value in curve]
    low = 0.0 if name != "acc" else float(np.floor(min(values) * 10) / 10)
    high = max(values) * 1.05 if name != "acc" else 1.0
    worst = max(severity for curve in curves.values() for severity, _ in curve)
    ends = {title: curve[-1][1] for title, curve in curves.items()}
    best = (max if name == "acc" else min)(ends, key=lambda title: ends[title])
    said = "; ".join(f"{title} {show(round(value, 4))}" for title, value in ends.items())
    x = Axis("Severity of corruption", 0, worst, ticks=tuple(range(worst + 1)))
    chart = Chart(
        x, Axis(label, low, high, show), f"{label} against severity. At severity {worst}: {said}.", height=240
    )
    for subject in subjects:
        curve = curves[subject.title]
        chart.line(curve, subject.stroke)
        for severity, value in curve:
            words = f"{subject.title}, severity {severity:g}: {show(round(value, 4))}"
            chart.dot((severity, value), f"fill:{subject.color}", words, 3)
    title = f"{label} under shift: {best} is best at severity {worst}" if len(subjects) > 1 else f"{label} under shift"
    head = ("Run", *(str(k) for k in range(worst + 1)))
    cells = [(title, *(show(round(value, 4)) for _, value in curve)) for title, curve in curves.items()]
    keys = legend(subjects) if len(subjects) > 1 else None
    return figure(title, joined(keys, chart.render()), None, table(f"{label} by severity", head, cells))


def _curve(subject: Subject, name: str) -> list[tuple[int, float]]:
    """The mean over corruptions at each severity; severity 0 is the clean test set."""
    by_severity: dict[int, list[float]] = defaultdict(list)
    by_severity[0] = [subject.measures.value(name)]
    for point in subject.evaluation.shifts:
        value = point.scores.get(name)
        if value is not None:
            by_severity[point.severity].append(float(value))
    return [(severity, sum(values) / len(values)) for severity, values in sorted(by_severity.items())]
