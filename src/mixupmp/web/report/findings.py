"""What the metrics say, as sentences."""

from __future__ import annotations

from collections.abc import Sequence

from mixupmp.metrics import METRICS
from mixupmp.web.report.evaluated import EvaluatedRun
from mixupmp.web.report.statistics import RunMetrics, is_clear, paired_difference, rows_near

CLOSE = 0.01  # OE and UE up to which confidence is called right
COMPARED = ("acc", "nll", "brier", "ece")


def percentage(value: float, digits: int = 0) -> str:
    """A share as a percentage; 99.96% is not rounded to 100%, which is kept for all."""
    if value in (0, 1):
        return f"{100 * value:.0f}%"
    if digits == 0 and (0.995 <= value < 1 or 0 < value < 0.005):
        digits = 1
    if digits == 1 and 0.9995 <= value < 1:
        return "more than 99.9%"
    return f"{100 * value:.{digits}f}%"


def calibration_verdict(metrics: RunMetrics) -> str:
    """Over-confident, under-confident, both or neither."""
    over, under = metrics.value("oe"), metrics.value("ue")
    if max(over, under) <= CLOSE:
        return "is well calibrated"
    if over > 3 * under:
        return "is over-confident"
    if under > 3 * over:
        return "is under-confident"
    return "is over-confident on some rows and under-confident on others"


def accuracy_at_90(metrics: RunMetrics) -> str:
    """ "When it says 90%, it is right 84% of the time." """
    group = rows_near(metrics, 0.9)
    if group is None:
        mean, accuracy = float(metrics.confidence.mean()), metrics.value("acc")
        return f"On average it says {percentage(mean)} and is right {percentage(accuracy)} of the time."
    margin = f" (± {200 * group.standard_error:.0f} points, {group.rows} rows)"
    said, right = percentage(group.confidence), percentage(group.accuracy)
    return f"When it says {said}, it is right {right} of the time{margin}."


def near_certainty(metrics: RunMetrics, least: float = 0.99) -> str:
    """How often it claims more than 99%, and how often it is wrong there."""
    high = metrics.confidence > least
    rows = int(high.sum())
    if rows == 0:
        return f"It never claims more than {percentage(least)}."
    wrong = rows - int(metrics.correct[high].sum())
    claim = f"It claims more than {percentage(least)} on {percentage(rows / len(high))} of the rows"
    return f"{claim}, and is wrong on {f'{wrong} of those {rows}' if wrong else 'none of them'}."


def comparison(run: EvaluatedRun, baseline: EvaluatedRun) -> str:
    """In which metrics a run is clearly better or worse than another on the same rows."""
    better: list[str] = []
    worse: list[str] = []
    for name in COMPARED:
        metric = METRICS[name]
        change = paired_difference(name, run.metrics, baseline.metrics)
        if is_clear(change):
            side = better if metric.sign * change.mean > 0 else worse
            side.append(f"{metric.title} ({metric.format_change(change.mean)})")
    if not better and not worse:
        return f"{run.title} and {baseline.title} do not differ clearly on these rows."
    parts = [
        f"is clearly {word} in {_listed(names)}" for word, names in (("better", better), ("worse", worse)) if names
    ]
    return f"Against {baseline.title}, {run.title} {' but '.join(parts)}."


def best_run(runs: Sequence[EvaluatedRun], name: str) -> EvaluatedRun:
    """The run with the best value of a metric."""
    return max(runs, key=lambda run: METRICS[name].sign * run.metrics.value(name))


def leaders(runs: Sequence[EvaluatedRun]) -> str:
    """Which of several runs is best at what."""
    accurate, likely, calibrated = (best_run(runs, name) for name in ("acc", "nll", "ece"))
    return (
        f"Most accurate: {accurate.title} ({percentage(accurate.metrics.value('acc'), 1)}). "
        f"Best probabilities: {likely.title} (NLL {likely.metrics.value('nll'):.3f}). "
        f"Best calibrated: {calibrated.title} (ECE {percentage(calibrated.metrics.value('ece'), 1)}). "
        "Which of these leads are more than chance, the table of differences says."
    )


def summary_points(runs: Sequence[EvaluatedRun]) -> list[tuple[str, str, str]]:
    """The page's opening, as (text, emphasized text, text)."""
    points = [(leaders(runs), "", "")] if len(runs) > 2 else []
    for run in runs:
        accuracy = percentage(run.metrics.value("acc"), 1)
        opening = f"{run.title} is right on {accuracy} of the test rows and {calibration_verdict(run.metrics)}. "
        if run.members:
            opening += f"Only {run.members} networks are left; the others diverged or collapsed. "
        points.append((opening, accuracy_at_90(run.metrics), near_certainty(run.metrics) if len(runs) < 3 else ""))
    if len(runs) == 2 and runs[1].same_rows(runs[0]):
        points.append((comparison(runs[1], runs[0]), "", ""))
    return points


def hardest_class(run: EvaluatedRun) -> str:
    """Which class has the lowest recall."""
    labels = run.evaluation.labels.numpy()
    recall = {k: float(run.metrics.correct[labels == k].mean()) for k in sorted(set(labels.tolist()))}
    worst = min(recall, key=lambda k: recall[k])
    if recall[worst] == 1:
        return f"{run.title} finds every row of every class"
    return f"{run.title} finds {percentage(recall[worst])} of “{run.evaluation.classes[worst]}”, its hardest class"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
