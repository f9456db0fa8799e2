"""A run with its predictions on the test rows, as the report shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from mixupmp.core.foreign import Json
from mixupmp.core.member_summary import MemberSummary
from mixupmp.core.methods import Method
from mixupmp.core.posterior import Posterior
from mixupmp.decide.detect import Detector
from mixupmp.decide.martingale import MartingaleDiagnostic
from mixupmp.store.load import document_of
from mixupmp.store.record import FitRecord, read_record
from mixupmp.web.report.evaluation import Evaluation
from mixupmp.web.report.statistics import RejectionCurve, RunMetrics, compute_metrics, rejection_curve

NAMES = {
    "single-network": "Single network",
    "mixup": "Mixup",
    "reg-mixup": "RegMixup",
    "mixup-mp-single": "MixupMP, one member",
    "laplace": "Laplace",
    "deep-ensemble": "Deep ensemble",
    "bayesian-bootstrap": "Bayesian bootstrap",
    "stabilized-bootstrap": "Stabilized bootstrap",
    "dp-mp-perturbed": "DP-MP Perturbed",
    "dp-mp-uniform": "DP-MP Uniform",
    "mixup-mp": "MixupMP",
    "martingale-posterior": "MP",
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
    "martingale-posterior": "mp",
    "reg-mixup": "mp",
    "mixup-mp-single": "mp",
    "mixup-ensemble": "me",
    "mixup": "me",
    "mc-dropout": "mc",
    "mixup-mp-mc": "mc",
    "mixup-mc": "mc",
    "ca-mixup-mc": "mc",
}
WITH_RATIO = ("mixup-mp", "martingale-posterior", "mixup-mp-single", "mixup-mp-mc", "dp-mp-perturbed", "dp-mp-uniform")
DASHES = ("none", "7 4", "2 4", "10 4 2 4")


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """A run and its predictions on the test rows.

    Parameters
    ----------
    title
        Its name in the report.
    record
        What was written down of its fit.
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
    martingale
        Whether rows drawn from its predictions change them on average, where that was measured.
    dash
        The line style that tells it from other runs of the same color.
    number
        Its index in the report.
    detector
        Of rows unlike those that its fit held out.
    """

    title: str
    record: FitRecord
    evaluation: Evaluation
    summaries: tuple[MemberSummary, ...] = ()
    members: str = ""
    notes: tuple[str, ...] = ()
    source: str = ""
    config: Mapping[str, Json] = field(default_factory=dict)
    martingale: MartingaleDiagnostic | None = None
    dash: str = "none"
    number: int = 0
    detector: Detector | None = None

    @property
    def color(self) -> str:
        """The name of the method's color. MixupMP with r=0 and r=infinity has that of the method it then is."""
        method = self.record.method
        name = COLORS.get(method.name, "other")
        if name == "mp" and method.predictive.ratio in (0, inf):
            name = "de" if method.predictive.ratio == 0 else "me"
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


def method_title(method: Method) -> str:
    """A method's name with its parameters: "MixupMP r=1 α=2"."""
    ratio, alpha = method.predictive.ratio, getattr(method.predictive.base, "alpha", None)
    parts = [NAMES.get(method.name, method.name)]
    if method.name == "martingale-posterior" and ratio > 0:
        parts.append(type(method.predictive.base).__name__)
    if method.name in WITH_RATIO:
        parts.append("r=∞" if ratio == inf else f"r={ratio:g}")
    if alpha is not None:
        parts.append(f"α={alpha:g}")
    return " ".join(parts)


def evaluated_run(posterior: Posterior, evaluation: Evaluation, title: str | None = None) -> EvaluatedRun:
    """A posterior that is in memory, of a fit or of networks from elsewhere, for a report."""
    known = posterior.origin or {}
    record = read_record(known if "method" in known.get("spec", {}) else document_of(posterior))
    members = f"{len(posterior.networks)} of {posterior.wanted}" if len(posterior.networks) != posterior.wanted else ""
    title = title or method_title(record.method)
    return EvaluatedRun(title, record, evaluation, tuple(posterior.summaries), members, posterior.notes)


def distinguished(runs: Sequence[EvaluatedRun]) -> list[EvaluatedRun]:
    """The runs with titles and line styles that are all different."""
    titles = Counter(run.title for run in runs)
    seeds = Counter((run.title, run.record.seed) for run in runs)
    colors: Counter[str] = Counter()
    renamed = []
    for number, run in enumerate(runs):
        title = run.title
        if titles[title] > 1:
            seed = run.record.seed
            title += f", seed {seed}" if seeds[title, seed] == 1 else f" ({number + 1})"
        dash = DASHES[colors[run.color] % len(DASHES)]
        colors[run.color] += 1
        renamed.append(replace(run, title=title, dash=dash, number=number))
    return renamed
