"""A run with its predictions on the test rows, as the report shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mixupmp.core.plan import Plan
from mixupmp.core.posterior import Posterior, Summary
from mixupmp.web.report.evaluation import Evaluation
from mixupmp.web.report.statistics import RejectionCurve, RunMetrics, compute_metrics, rejection_curve

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
# The page's color of each method; the others share one.
COLORS = {
    "single-network": "nn",
    "deep-ensemble": "de",
    "mixup-mp": "mp",
    "mixup-mp-single": "mp",
    "mixup-ensemble": "me",
    "mixup": "me",
    "mc-dropout": "mc",
    "mixup-mp-mc": "mc",
    "mixup-mc": "mc",
    "ca-mixup-mc": "mc",
}
WITH_RATIO = ("mixup-mp", "mixup-mp-single", "mixup-mp-mc", "dp-mp-perturbed", "dp-mp-uniform")
DASHES = ("none", "7 4", "2 4", "10 4 2 4")


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """A run and its predictions on the test rows.

    Parameters
    ----------
    title
        Its name in the report.
    description
        The plan it was fitted by, as JSON.
    evaluation
        Its predictions.
    summaries
        How each member's fit ended.
    members
        "3 of 4" where networks are missing.
    notes
        What went wrong in its fit.
    source
        The run's folder.
    config
        Everything its folder records.
    dash
        The line style that tells it from other runs of the same color.
    number
        Its index in the report.
    """

    title: str
    description: Mapping[str, Any]
    evaluation: Evaluation
    summaries: tuple[Summary, ...] = ()
    members: str = ""
    notes: tuple[str, ...] = ()
    source: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    dash: str = "none"
    number: int = 0

    @property
    def color(self) -> str:
        """The name of the method's color. MixupMP with r=0 and r=infinity has that of the method it then is."""
        method = self.description["method"]
        name = COLORS.get(method.get("name", ""), "other")
        ratio = (method.get("predictive") or {}).get("ratio")
        if name == "mp" and ratio in (0, "inf"):
            name = "de" if ratio == 0 else "me"
        if name == "de" and self.evaluation.members.shape[0] == 1:
            name = "nn"
        return name

    @property
    def css(self) -> str:
        """The class of its color."""
        return f"c-{self.color}"

    @cached_property
    def metrics(self) -> RunMetrics:
        return compute_metrics(self.evaluation)

    @cached_property
    def rejection(self) -> RejectionCurve:
        return rejection_curve(self.metrics)

    def same_rows(self, other: EvaluatedRun) -> bool:
        """Whether both were evaluated on the same test rows."""
        return self.evaluation.fingerprint == other.evaluation.fingerprint


def method_title(description: Mapping[str, Any]) -> str:
    """A method's name with its parameters: "MixupMP r=1 α=2"."""
    method = description["method"]
    name = method.get("name", "A posterior")
    predictive = method.get("predictive") or {}
    parts = [NAMES.get(name, name)]
    base = predictive.get("base") or {}
    if predictive and name in WITH_RATIO:
        ratio = predictive["ratio"]
        parts.append("r=∞" if ratio == "inf" else f"r={ratio:g}")
    if isinstance(base, dict) and "alpha" in base:
        parts.append(f"α={base['alpha']:g}")
    return " ".join(parts)


def evaluated_run(plan: Plan, posterior: Posterior, evaluation: Evaluation, title: str | None = None) -> EvaluatedRun:
    """A fit that is in memory, for a report."""
    description = plan.describe()
    members = f"{len(posterior.networks)} of {posterior.wanted}" if len(posterior.networks) != posterior.wanted else ""
    title = title or method_title(description)
    return EvaluatedRun(title, description, evaluation, tuple(posterior.summaries), members, posterior.notes)


def distinguished(runs: Sequence[EvaluatedRun]) -> list[EvaluatedRun]:
    """The runs with titles and line styles that are all different."""
    titles = Counter(run.title for run in runs)
    seeds = Counter((run.title, run.description.get("seed")) for run in runs)
    colors: Counter[str] = Counter()
    renamed = []
    for number, run in enumerate(runs):
        title = run.title
        if titles[title] > 1:
            seed = run.description.get("seed")
            title += f", seed {seed}" if seeds[title, seed] == 1 else f" ({number + 1})"
        dash = DASHES[colors[run.color] % len(DASHES)]
        colors[run.color] += 1
        renamed.append(replace(run, title=title, dash=dash, number=number))
    return renamed
