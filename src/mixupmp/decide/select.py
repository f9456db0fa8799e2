"""Choose r, alpha and the training length on held-out rows, with the deep ensemble always among the candidates.

Candidates are compared on rows that none of their members was trained on: a validation split or k folds. The budget is
spent by successive halving (Jamieson & Talwalkar 2016) over *members*: every candidate starts with one, and the better
half gets twice as many, up to the whole ensemble. A member depends on (seed, index) alone, so the members of a small
ensemble are reused in the larger one. Halving over epochs would be cheaper and biased: networks that are stopped early
are not over-confident yet, and favor r = 0.

The choice leans toward r = 0 by the one-standard-error rule (Breiman et al. 1984): of the candidates within one
standard error of the best, the smallest r wins. Where Mixup does not pay, the result is the deep ensemble.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

from mixupmp.core.errors import InvalidArgument
from mixupmp.core.foreign import Json
from mixupmp.core.plan import Plan
from mixupmp.core.rows import Rows
from mixupmp.core.spec import encode, shown
from mixupmp.core.streams import has_labels
from mixupmp.decide.calibrators import Temperature, VarianceFactor
from mixupmp.decide.detect import Detector, refitted_detector
from mixupmp.decide.evaluator import CandidateResult, HeldOutEvaluator, calibration
from mixupmp.decide.held_out import check_criterion
from mixupmp.decide.search import Candidate, Search
from mixupmp.decide.trials import Trial, halve, race
from mixupmp.train.ray_cluster import connected
from mixupmp.train.run import Engine


@dataclass(frozen=True)
class Selection:
    """The chosen candidate and the results it was chosen by.

    For the posterior that is then fitted to all rows, from the chosen candidate's predictions for the held-out ones:
    `calibrator`, a temperature, and `detector`; in regression `variance`, and `note` where it is worse than a constant.
    Where `Search.calibrate` is off, there is neither temperature nor variance factor.
    """

    chosen: Candidate
    results: tuple[CandidateResult, ...]  # by ratio, then alpha
    criterion: str
    rows: int  # held out
    member_fits: int
    seconds: float
    calibrator: Temperature | None = None
    detector: Detector | None = None
    variance: VarianceFactor | None = None
    note: str | None = None
    calibration_rows: int = 0  # held out for temperature and detector: `rows`, or more with `Search.calibration_parts`

    def table(self) -> str:
        """The results as a Markdown table."""
        lines = [f"| {' | '.join(self.headings)} |".replace("  ", " "), "|---:|---:|---:|---:|---:|---:|---|"]
        for result in self.results:
            row = (*self.cells(result), "chosen" if result.candidate == self.chosen else "")
            lines.append("| " + " | ".join(row) + " |")
        return "\n".join(lines)

    @property
    def headings(self) -> tuple[str, ...]:
        """Of the columns of `cells`, and of the mark of the chosen one."""
        based = any(result.candidate.base is not None for result in self.results)
        return ("r", "alpha or base" if based else "alpha", "epochs", "members", self.criterion, "against r=0", "")

    @staticmethod
    def cells(result: CandidateResult) -> tuple[str, ...]:
        """r, alpha or base measure, epochs, members, score and difference to r = 0, as text."""
        candidate = result.candidate
        optional = ["" if value is None else f"{value:g}" for value in (candidate.alpha, candidate.epochs)]
        if candidate.base is not None:
            optional[0] = shown(encode(candidate.base))
        against = "" if candidate.ratio == 0 else f"{result.difference:+.4f} ± {result.standard_error:.4f}"
        return (f"{candidate.ratio:g}", *optional, str(result.members), f"{result.score:.4f}", against)

    def to_dict(self) -> dict[str, Json]:
        """Plain JSON values; infinities as text."""
        shown = ("members", "score", "scores", "by_epochs", "difference", "standard_error")
        curve = [
            {**result.candidate.to_dict(), **{name: getattr(result, name) for name in shown}} for result in self.results
        ]
        return encode(
            {
                **self.chosen.to_dict(),
                "criterion": self.criterion,
                "rows": self.rows,
                "member_fits": self.member_fits,
                "seconds": round(self.seconds, 1),
                "temperature": None if self.calibrator is None else self.calibrator.temperature,
                "calibration_rows": self.calibration_rows,
                "variance_factor": None if self.variance is None else self.variance.factor,
                "curve": curve,
            }
        )


def select(
    plan: Plan,
    search: Search | None = None,
    *,
    engine: Engine = "auto",
    callback: Callable[[str], None] | None = None,
    address: str | None = None,
    held_out: Rows | None = None,
) -> Selection:
    """Choose r, alpha and the training length for this plan; its own ratio and alpha are ignored.

    Fit `selection.chosen.applied(plan)` to all rows afterwards, and apply `selection.calibrator` to its averaged
    probabilities (in regression `selection.variance` to means and deviations). The plan's seed determines the split and
    every member. With the engine "ray", candidates are trained on the cluster at `address` concurrently.

    Parameters
    ----------
    plan
        Its method's predictive is what r and alpha are put into.
    search
        The candidates; None: the default ones.
    engine, address
        As for `fit`.
    callback
        Receives a line of text for each result.
    held_out
        Rows to compare on in place of a share of the plan's own, all of which are then trained on.

    Returns
    -------
    Selection
        `chosen`, `table()`, `calibrator`.
    """
    search = search or Search()
    if not has_labels(plan.train):
        must = "a plan whose training rows are in memory, or streamed with their labels known, to split"
        raise InvalidArgument("plan", type(plan.train).__name__, must)
    check_criterion(search.criterion, plan.task.likelihood)
    started = time.perf_counter()
    evaluator = HeldOutEvaluator(plan, search, engine, held_out)
    trials = [Trial(candidate, evaluator) for candidate in search.candidates(plan)]
    members = min(plan.method.sampler.networks, search.members or plan.method.sampler.networks)
    with connected(address) if engine == "ray" else nullcontext():
        if evaluator.once_for_all():
            race(trials, evaluator, callback)
        else:
            halve(trials, members, search.halving, callback, len(trials) if engine == "ray" else 1)
    results = sorted((t.result for t in trials), key=lambda r: (r.candidate.ratio, r.candidate.alpha or 0.0))
    evaluator.compare(results)
    chosen = evaluator.choose(results, members)
    fits = sum(result.members for result in results) * len(evaluator.plans)
    best = next(trial.best for trial in trials if trial.result is chosen)
    seconds, found = time.perf_counter() - started, tuple(results)
    selection = Selection(chosen.candidate, found, search.criterion, evaluator.rows, fits, seconds)
    if not evaluator.classes:
        note = evaluator.worse_than_constant(chosen.losses[members])
        return replace(selection, variance=evaluator.variance(best) if search.calibrate else None, note=note)
    if not search.calibrate:
        return replace(selection, detector=refitted_detector(best), calibration_rows=evaluator.rows)
    with connected(address) if engine == "ray" else nullcontext():
        further, outputs = evaluator.further_outputs(chosen.candidate, members)
    held = [*evaluator.held, *further]
    calibrator, detector = calibration(held, [*best, *outputs])
    return replace(
        selection,
        calibrator=calibrator,
        detector=detector,
        calibration_rows=sum(map(len, held)),
        member_fits=fits + members * len(evaluator.further),
        seconds=time.perf_counter() - started,
    )
