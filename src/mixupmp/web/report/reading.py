"""What the numbers say, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from mixupmp.web.report.measures import Difference, Measures, paired, saying
from mixupmp.web.report.subject import Subject

# How far confidence may be from accuracy, overall, and still be called right.
CLOSE = 0.01
# Whether more is better, and the name of each measure in a sentence.
MEASURES = {
    "acc": (True, "accuracy"),
    "nll": (False, "NLL"),
    "brier": (False, "Brier score"),
    "ece": (False, "calibration error"),
}


def percentage(value: float, digits: int = 0) -> str:
    """A share as a percentage; 99.96% is not rounded to 100%, which is kept for all."""
    if value in (0, 1):
        return f"{100 * value:.0f}%"
    if digits == 0 and (0.995 <= value < 1 or 0 < value < 0.005):
        digits = 1
    if digits == 1 and 0.9995 <= value < 1:
        return "more than 99.9%"
    return f"{100 * value:.{digits}f}%"


def verdict(measures: Measures) -> str:
    """Over-confident, under-confident, both or neither."""
    over, under = measures.value("oe"), measures.value("ue")
    if max(over, under) <= CLOSE:
        return "says about what it knows"
    if over > 3 * under:
        return "is over-confident"
    if under > 3 * over:
        return "is under-confident"
    return "is too sure of some rows and too modest about others"


def says(measures: Measures) -> str:
    """ "When it says 90%, it is right 84% of the time." """
    found = saying(measures)
    if found is None:
        mean, right = float(measures.confidence.mean()), measures.value("acc")
        return f"On average it says {percentage(mean)} and is right {percentage(right)} of the time."
    margin = f" (± {200 * found.error:.0f} points, {found.rows} rows)"
    return f"When it says {percentage(found.said)}, it is right {percentage(found.right)} of the time{margin}."


def sure(measures: Measures, least: float = 0.99) -> str:
    """What its near-certainty is worth."""
    high = measures.confidence > least
    rows = int(high.sum())
    if rows == 0:
        return f"It never claims more than {percentage(least)}."
    wrong = rows - int(measures.correct[high].sum())
    share = percentage(rows / len(high))
    if wrong == 0:
        return f"It claims more than {percentage(least)} on {share} of the rows, and is wrong on none of them."
    return f"It claims more than {percentage(least)} on {share} of the rows, and is wrong on {wrong} of those {rows}."


def compared(subject: Subject, baseline: Subject) -> str:
    """One sentence on how a run differs from the one it is compared with."""
    changes = paired(subject.measures, baseline.measures)
    better: list[str] = []
    worse: list[str] = []
    for name, (more, words) in MEASURES.items():
        if changes[name].clear:
            (better if (changes[name].value > 0) == more else worse).append(f"{words} ({signed(name, changes[name])})")
    if not better and not worse:
        return f"{subject.title} and {baseline.title} cannot be told apart on these rows."
    parts = []
    if better:
        parts.append(f"is clearly better in {_listed(better)}")
    if worse:
        parts.append(f"is clearly worse in {_listed(worse)}")
    return f"Against {baseline.title}, {subject.title} {' but '.join(parts)}."


def signed(name: str, change: Difference) -> str:
    """A difference as it is said: percentage points for shares, plain numbers for the others."""
    sign = "+" if change.value >= 0 else "−"
    if name in ("acc", "ece", "oe", "ue"):
        return f"{sign}{abs(100 * change.value):.2f} points"
    return f"{sign}{abs(change.value):.3f}"


def shown(name: str, value: float) -> str:
    """A measure as tables show it: percent for shares."""
    return f"{100 * value:.2f}" if name in ("acc", "ece", "oe", "ue") else f"{value:.3f}"


def leaders(subjects: Sequence[Subject]) -> str:
    """Who is best at what, of several runs."""
    accurate, probable, calibrated = (best_by(subjects, name) for name in ("acc", "nll", "ece"))
    return (
        f"Most accurate: {accurate.title} ({percentage(accurate.measures.value('acc'), 1)}). "
        f"Best probabilities: {probable.title} (NLL {probable.measures.value('nll'):.3f}). "
        f"Best calibrated: {calibrated.title} (ECE {percentage(calibrated.measures.value('ece'), 1)}). "
        "Which of these leads are more than luck, the table of differences says."
    )


def best_by(subjects: Sequence[Subject], name: str) -> Subject:
    """The subject with the best value of a measure."""
    more, _ = MEASURES[name]
    return sorted(subjects, key=lambda subject: subject.measures.value(name), reverse=more)[0]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
