"""The tables: measures with standard errors, paired differences, and each class by itself."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch

from mixupmp.metrics import summarize
from mixupmp.web.pages.markup import Child, Markup, element
from mixupmp.web.report.chart import table
from mixupmp.web.report.measures import Difference, paired
from mixupmp.web.report.reading import MEASURES, best_by, percentage, shown, signed
from mixupmp.web.report.subject import Subject

COLUMNS = {
    "acc": "ACC %", "nll": "NLL", "brier": "Brier", "ece": "ECE %", "oe": "OE %", "ue": "UE %",
    "entropy": "Entropy", "mutual_information": "Mutual inf.",
}  # fmt: skip

COMPARED = ("acc", "nll", "brier", "ece", "oe", "ue")


def measures_table(subjects: Sequence[Subject]) -> Markup:
    """Every measure of every run; the best is bold where there is more than one."""
    best = {name: best_by(subjects, name) for name in MEASURES} if len(subjects) > 1 else {}
    lines = []
    for subject in subjects:
        cells: list[Child] = [_named(subject)]
        for name in COLUMNS:
            value = shown(name, subject.measures.value(name))
            error = shown(name, subject.measures.errors[name])
            mark = element("b", {}, value) if best.get(name) is subject else value
            cells.append((mark, " ", element("small", {}, f"± {error}")))
        lines.append(cells)
    return table("Measures on the test rows, ± one standard error", ("Run", *COLUMNS.values()), lines)


def repeats_table(subjects: Sequence[Subject]) -> Markup | None:
    """Runs that differ in their seed alone, as one line each: what another seed would give."""
    groups: dict[str, list[Subject]] = defaultdict(list)
    for subject in subjects:
        plan = {key: value for key, value in subject.description.items() if key in ("method", "network", "recipe")}
        groups[json.dumps(plan, sort_keys=True)].append(subject)
    lines = []
    for group in groups.values():
        if len({subject.description.get("seed") for subject in group}) > 1:
            summary = summarize([subject.measures.result for subject in group])
            values = [
                (shown(name, summary[name].mean), " ", element("small", {}, f"± {shown(name, error)}"))
                for name in COLUMNS if name in summary and (error := summary[name].standard_error) is not None
            ]  # fmt: skip
            lines.append([f"{group[0].title.partition(', seed')[0]}, {len(group)} seeds", *values])
    caption = "Mean over seeds, ± one standard error over seeds"
    return table(caption, ("Runs", *COLUMNS.values()), lines) if lines else None


def differences_table(subjects: Sequence[Subject], baseline: Subject) -> Markup:
    """Every run minus the baseline, row by row."""
    lines = []
    for subject in subjects:
        if subject is not baseline:
            changes = paired(subject.measures, baseline.measures)
            lines.append([_named(subject), *(_change(name, changes[name]) for name in COMPARED)])
    caption = f"Difference from {baseline.title} on the same rows, ± one standard error"
    return table(caption, ("Run", *(COLUMNS[name].replace(" %", "") for name in COMPARED)), lines)


def _change(name: str, change: Difference) -> Child:
    words = signed(name, change).replace(" points", "")
    error = element("small", {}, f"± {shown(name, change.error)}")
    more = MEASURES[name][0] if name in MEASURES else False
    if not change.clear:
        return (element("span", {"class": "muted"}, words), " ", error)
    better = (change.value > 0) == more
    mark = element("span", {"class": "visually-hidden"}, " better" if better else " worse")
    return (element("b", {"class": "good" if better else "bad"}, words, " ✓" if better else " ✗", mark), " ", error)


def _named(subject: Subject) -> Child:
    swatch = element("span", {"class": "swatch", "style": f"color:{subject.color}", "aria-hidden": "true"})
    return element("span", {"class": "run"}, swatch, subject.title)


def classes_table(subject: Subject) -> Markup:
    """How each class fares: found, trusted, believed, and taken for what."""
    head = ("Class", "Often taken for", "Rows", "Found %", "Right when said %", "Mean confidence %", "Too sure by")
    return table(f"Each class, {subject.title}", head, list(_classes(subject)), names=2, sortable=True)


def _classes(subject: Subject) -> Iterable[Sequence[Child]]:
    evaluation = subject.evaluation
    count = len(evaluation.classes)
    predicted = torch.from_numpy(subject.measures.predicted)
    confidence = torch.from_numpy(subject.measures.confidence)
    confusion = torch.bincount(evaluation.labels * count + predicted, minlength=count * count).view(count, count)
    for k, name in enumerate(evaluation.classes):
        rows, said = int(confusion[k].sum()), int(confusion[:, k].sum())
        right = int(confusion[k, k])
        others = confusion[k].clone()
        others[k] = 0
        taken = int(others.argmax())
        mistaken = f"{evaluation.classes[taken]} ({int(others[taken])})" if rows and int(others[taken]) else "–"
        mean = float(confidence[predicted == k].mean()) if said else None
        trust = right / said if said else None
        gap = "–" if mean is None or trust is None else f"{100 * (mean - trust):+.1f}".replace("-", "−")
        yield (
            name, mistaken, rows, f"{100 * right / rows:.1f}" if rows else "–",
            "–" if trust is None else f"{100 * trust:.1f}", "–" if mean is None else f"{100 * mean:.1f}", gap,
        )  # fmt: skip


def class_headline(subject: Subject) -> str:
    """Which class is hardest."""
    evaluation = subject.evaluation
    labels = evaluation.labels
    right = torch.from_numpy(subject.measures.correct)
    seen = [k for k in range(len(evaluation.classes)) if bool((labels == k).any())]
    found = {k: float(right[labels == k].mean()) for k in seen}
    worst = min(found, key=lambda k: found[k])
    if found[worst] == 1:
        return f"{subject.title} finds every row of every class"
    return f"{subject.title} finds {percentage(found[worst])} of “{evaluation.classes[worst]}”, its hardest class"
