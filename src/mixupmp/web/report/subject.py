"""One run as a report speaks of it: its name, its color, what was trained, and what it answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior, Summary
from mixupmp.web.report.evaluation import Evaluation
from mixupmp.web.report.measures import Curve, Measures, measure, rejection

NAMES = {
    "single-network": "Single network",
    "mixup": "Mixup",
    "mixup-mp-single": "MixupMP, one member",
    "laplace": "Laplace",
    "deep-ensemble": "Deep ensemble",
    "bayesian-bootstrap": "Bayesian bootstrap",
    "stabilized-bootstrap": "Stabilized bootstrap",
    "dp-mp-perturbed": "DP-MP Perturbed",
    "dp-mp-uniform": "DP-MP Uniform",
    "mixup-mp": "MixupMP",
    "mixup-ensemble": "Mixup ensemble",
    "mc-dropout": "MC dropout",
    "mixup-mp-mc": "MixupMP-MC",
    "mixup-mc": "Mixup-MC",
    "ca-mixup-mc": "CAMixup-MC",
}
# Which of the page's colors a method has; the others share one.
COLORS = {
    "single-network": "nn", "deep-ensemble": "de", "mixup-mp": "mp", "mixup-mp-single": "mp", "mixup-ensemble": "me",
    "mixup": "me", "mc-dropout": "mc", "mixup-mp-mc": "mc", "mixup-mc": "mc", "ca-mixup-mc": "mc",
}  # fmt: skip
DASHES = ("none", "7 4", "2 4", "10 4 2 4")


@dataclass(frozen=True, eq=False)
class Subject:
    """A run, in a report."""

    title: str
    description: dict[str, Any]  # the plan as `Plan.describe` gives it
    evaluation: Evaluation
    summaries: tuple[Summary, ...] = ()
    members: str = ""  # "4 of 4", or what is missing
    notes: tuple[str, ...] = ()
    source: str = ""  # the run's folder, if it has one
    config: dict[str, Any] = field(default_factory=dict)
    dash: str = "none"  # tells runs of one method, and so of one color, apart
    number: int = 0

    @property
    def color(self) -> str:
        """The method's color in the page's theme. MixupMP at the ends of r is another method by another name."""
        method = self.description["method"]
        name = COLORS.get(method.get("name", ""), "other")
        ratio = (method.get("predictive") or {}).get("ratio")
        if name == "mp" and ratio in (0, "inf"):
            name = "de" if ratio == 0 else "me"
        if name == "de" and self.evaluation.members.shape[0] == 1:
            name = "nn"
        return f"var(--{name})"

    @property
    def stroke(self) -> str:
        return f"stroke:{self.color};stroke-dasharray:{self.dash}"

    @cached_property
    def measures(self) -> Measures:
        return measure(self.evaluation)

    @cached_property
    def rejection(self) -> Curve:
        return rejection(self.measures)


def title_of(description: dict[str, Any]) -> str:
    """A method's name with what tells it from its siblings: "MixupMP r=1 α=2"."""
    method = description["method"]
    name = method.get("name", "A posterior")
    predictive = method.get("predictive") or {}
    words = [NAMES.get(name, name)]
    base = predictive.get("base") or {}
    if predictive and name in ("mixup-mp", "mixup-mp-single", "mixup-mp-mc", "dp-mp-perturbed", "dp-mp-uniform"):
        ratio = predictive["ratio"]
        words.append("r=∞" if ratio == "inf" else f"r={ratio:g}")
    if isinstance(base, dict) and "alpha" in base:
        words.append(f"α={base['alpha']:g}")
    return " ".join(words)


def subject_of(plan: Plan, posterior: Posterior, evaluation: Evaluation, title: str | None = None) -> Subject:
    """A fit that is in memory, as a report's subject."""
    description = plan.describe()
    members = f"{len(posterior.networks)} of {posterior.wanted}" if len(posterior.networks) != posterior.wanted else ""
    return Subject(
        title or title_of(description), description, evaluation, tuple(posterior.summaries), members, posterior.notes
    )


def told_apart(subjects: Sequence[Subject]) -> list[Subject]:
    """The subjects with titles and line styles that are all different."""
    titles = Counter(subject.title for subject in subjects)
    seeds = Counter((subject.title, subject.description.get("seed")) for subject in subjects)
    colors: Counter[str] = Counter()
    apart = []
    for number, subject in enumerate(subjects):
        title = subject.title
        if titles[title] > 1:
            seed = subject.description.get("seed")
            title += f", seed {seed}" if seeds[title, seed] == 1 else f" ({number + 1})"
        dash = DASHES[colors[subject.color] % len(DASHES)]
        colors[subject.color] += 1
        apart.append(replace(subject, title=title, dash=dash, number=number))
    return apart
