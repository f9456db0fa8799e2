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
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor

from mixupmp.core.errors import InvalidArgument
from mixupmp.core.plan import Plan
from mixupmp.core.rows import Rows
from mixupmp.core.spec import encode, shown
from mixupmp.core.streams import DatasetRows, has_labels
from mixupmp.decide.calibrate import CalibrationWarning, fit_temperature
from mixupmp.decide.calibrators import Temperature
from mixupmp.decide.detect import Detector, refitted_detector
from mixupmp.decide.held_out import check_criterion, class_losses, disjoint_parts, folds, regression_losses
from mixupmp.decide.search import Candidate, Search, finite_or_text
from mixupmp.decide.trajectory import outputs_by_epochs, outputs_in_workers
from mixupmp.train.pool import NotPicklable
from mixupmp.train.ray import connected
from mixupmp.train.run import AllDiverged, Engine, choose_engine


@dataclass
class CandidateResult:
    """A candidate, at its best training length, and its scores on the held-out rows; lower is better."""

    candidate: Candidate
    members: int = 0  # trained in each fold
    score: float = inf
    scores: dict[int, float] = field(default_factory=dict)  # by number of members, along the halving
    by_epochs: dict[int, float] = field(default_factory=dict)  # with all its members, by training length
    losses: dict[int, Tensor] = field(default_factory=dict, repr=False)  # (held-out rows,), by number of members
    probabilities: Tensor | None = field(default=None, repr=False)  # averaged, before calibration; None in regression
    # Mean and standard error of the paired difference to r = 0 with as many members; negative is better.
    difference: float = 0.0
    standard_error: float = 0.0


@dataclass(frozen=True)
class Selection:
    """The chosen candidate and the results it was chosen by.

    For the posterior that is then fitted to all rows, from the chosen candidate's predictions for the held-out ones:
    `calibrator`, a temperature (None where `Search.calibrate` is off), and `detector`; neither in regression.
    """

    chosen: Candidate
    results: tuple[CandidateResult, ...]  # by ratio, then alpha
    criterion: str
    rows: int  # held out
    member_fits: int
    seconds: float
    calibrator: Temperature | None = None
    detector: Detector | None = None

    def table(self) -> str:
        """The results as a Markdown table."""
        lines = [
            f"| r | alpha | epochs | members | {self.criterion} | against r=0 | |",
            "|---:|---:|---:|---:|---:|---:|---|",
        ]
        for result in self.results:
            row = (*self.cells(result), "chosen" if result.candidate == self.chosen else "")
            lines.append("| " + " | ".join(row) + " |")
        return "\n".join(lines)

    @staticmethod
    def cells(result: CandidateResult) -> tuple[str, ...]:
        """r, alpha, epochs, members, score and difference to r = 0, as text."""
        candidate = result.candidate
        optional = ["" if value is None else f"{value:g}" for value in (candidate.alpha, candidate.epochs)]
        if candidate.base is not None:
            optional[0] = shown(encode(candidate.base))
        against = "" if candidate.ratio == 0 else f"{result.difference:+.4f} ± {result.standard_error:.4f}"
        return (f"{candidate.ratio:g}", *optional, str(result.members), f"{result.score:.4f}", against)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; infinities as text."""
        curve = [
            {
                **result.candidate.to_dict(),
                "members": result.members,
                "score": finite_or_text(result.score),
                "scores": {str(k): finite_or_text(v) for k, v in result.scores.items()},
                "by_epochs": {str(k): finite_or_text(v) for k, v in result.by_epochs.items()},
                "difference": finite_or_text(result.difference),
                "standard_error": finite_or_text(result.standard_error),
            }
            for result in self.results
        ]
        return {
            **self.chosen.to_dict(),
            "criterion": self.criterion,
            "rows": self.rows,
            "member_fits": self.member_fits,
            "seconds": round(self.seconds, 1),
            "temperature": None if self.calibrator is None else self.calibrator.temperature,
            "curve": curve,
        }


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
    probabilities. The plan's seed determines the split and every member. `callback` receives a line of text per
    result. With the engine "ray", candidates are trained on the cluster at `address` concurrently. `held_out` are rows
    to compare on in place of a share of the plan's own, all of which are then trained on.
    """
    search = search or Search()
    if not has_labels(plan.train):
        must = "a plan whose training rows are in memory, or streamed with their labels known, to split"
        raise InvalidArgument("plan", type(plan.train).__name__, must)
    check_criterion(search.criterion, plan.task.likelihood)
    started = time.perf_counter()
    evaluator = _Evaluator(plan, search, engine, held_out)
    trials = [_Trial(candidate, evaluator) for candidate in search.candidates()]
    members = plan.method.sampler.networks
    with connected(address) if engine == "ray" else nullcontext():
        _halve(trials, members, search.halving, callback, len(trials) if engine == "ray" else 1)
    results = sorted((t.result for t in trials), key=lambda r: (r.candidate.ratio, r.candidate.alpha or 0.0))
    evaluator.compare(results)
    chosen = evaluator.choose(results, members)
    fits = sum(result.members for result in results) * len(evaluator.plans)
    calibrator = evaluator.calibrator(chosen) if evaluator.calibrated else None
    best = next(trial.best for trial in trials if trial.result is chosen)
    detector = refitted_detector(best) if evaluator.classes else None
    seconds, found = time.perf_counter() - started, tuple(results)
    return Selection(chosen.candidate, found, search.criterion, evaluator.rows, fits, seconds, calibrator, detector)


class _Evaluator:
    """Trains members on the training rows of each fold and computes their losses on its held-out rows."""

    def __init__(self, plan: Plan, search: Search, engine: Engine, held_out: Rows | None = None) -> None:
        assert has_labels(plan.train)
        self.classes = plan.task.likelihood.classes is not None
        self.calibrated = self.classes and search.calibrate
        self.search, self.engine = search, engine
        self.epochs = sorted(set(search.epochs or (plan.recipe.epochs,)))
        pairs: Sequence[tuple[Rows | DatasetRows, Rows | DatasetRows]]
        if held_out is not None:
            pairs = [(plan.train, held_out)]
        elif search.parts > 1 and self.classes and isinstance(search.validation, float):
            pairs = list(disjoint_parts(plan.train, search.validation, search.parts, plan.seed))
        else:
            pairs = list(folds(plan.train, search.validation, self.classes, plan.seed))
        self.plans = [replace(plan, train=train, validation=None) for train, _ in pairs]
        self.held = [held.read() for _, held in pairs]
        self.rows = sum(map(len, self.held))
        self.labels = torch.cat([rows.labels for rows in self.held])
        weights = [torch.ones(len(rows)) if rows.weights is None else rows.weights for rows in self.held]
        self.weights = torch.cat(weights).double()

    def side_by_side(self, trials: list[_Trial], members: int) -> list[dict[int, Tensor]] | None:
        """Outputs of each trial's missing members, for each fold and member, computed by worker processes.

        None where that is not worth it, or members are trained together.
        """
        new = [(trial, fold, member) for trial in trials for fold, member in trial.missing(members)]
        if self.engine not in ("auto", "processes") or self.plans[0].method.sampler.networks == 1:
            return None
        if self.engine == "auto" and choose_engine(self.plans[0], len(new)) != "processes":
            return None
        fits = [(t.candidate.applied(self.plans[fold]), member, self.held[fold].inputs) for t, fold, member in new]
        try:
            return outputs_in_workers(fits, self.epochs, self.plans[0].recipe.threads)
        except NotPicklable:
            if self.engine == "processes":
                raise
            return None

    def outputs(self, candidate: Candidate, fold: int, members: list[int]) -> dict[int, Tensor]:
        """Outputs of these members on the fold's held-out rows, by training length."""
        plan, inputs = candidate.applied(self.plans[fold]), self.held[fold].inputs
        enough = None if self.search.patience is None else _Patience(self, fold, self.search.patience)
        return outputs_by_epochs(plan, members, self.epochs, inputs, self.engine, enough)

    def fold_score(self, fold: int, outputs: Tensor) -> float:
        """The mean loss on the held-out rows of one fold."""
        held, criterion = self.held[fold], self.search.criterion
        if not self.classes:
            return float(regression_losses(outputs, held.labels, criterion).mean())
        probabilities = outputs.double().softmax(-1).mean(0)
        if self.calibrated:
            probabilities = fit_temperature(probabilities, held.labels, standard_errors=None)(probabilities)
        return float(class_losses(probabilities, held.labels, criterion).mean())

    def losses(self, outputs: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        """The loss of each held-out row, calibrated if so configured, and the averaged probabilities, for one
        (members, rows, outputs) per fold.
        """
        criterion = self.search.criterion
        if not self.classes:
            pairs = zip(outputs, self.held, strict=True)
            return torch.cat([regression_losses(out, rows.labels, criterion) for out, rows in pairs]), None
        probabilities = torch.cat([fold.double().softmax(-1).mean(0) for fold in outputs])
        scaled = probabilities
        if self.calibrated:
            scaled = fit_temperature(probabilities, self.labels, standard_errors=None)(probabilities)
        return class_losses(scaled, self.labels, criterion), probabilities

    def mean(self, losses: Tensor) -> float:
        return float((losses * self.weights).sum() / self.weights.sum())

    def difference(self, losses: Tensor, others: Tensor) -> tuple[float, float]:
        """The mean of the paired differences, and its standard error."""
        differences = losses - others
        mean = self.mean(differences)
        share = self.weights / self.weights.sum()
        return mean, float((share * (differences - mean)).square().sum().sqrt())

    def compare(self, results: list[CandidateResult]) -> None:
        """Each candidate's difference to r = 0, the first of them if it is there, with as many members as both have."""
        for result in results[1:] if results[0].candidate.ratio == 0 else ():
            both = result.losses.keys() & results[0].losses.keys()
            if both:
                pair = self.difference(result.losses[max(both)], results[0].losses[max(both)])
                result.difference, result.standard_error = pair

    def choose(self, results: list[CandidateResult], members: int) -> CandidateResult:
        """The smallest r within `standard_errors` of the best score; among equal r the better score."""
        complete = [result for result in results if result.members == members and isfinite(result.score)]
        if not complete:
            raise AllDiverged("no candidate kept a finite loss: lower the learning rate.")
        best = min(complete, key=lambda result: result.score)
        near = []
        for result in complete:
            mean, error = self.difference(result.losses[members], best.losses[members])
            if mean <= self.search.standard_errors * error:
                near.append(result)
        return min(near, key=lambda result: (result.candidate.ratio, result.score))

    def calibrator(self, result: CandidateResult) -> Temperature:
        assert result.probabilities is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # `Temperature.at_bound` keeps it
            return fit_temperature(result.probabilities, self.labels)


class _Patience:
    """True once a fold's score has not become better for so many lengths."""

    def __init__(self, evaluator: _Evaluator, fold: int, lengths: int) -> None:
        self.evaluator, self.fold, self.lengths = evaluator, fold, lengths
        self.best, self.since = inf, 0

    def __call__(self, outputs: Tensor) -> bool:
        score = self.evaluator.fold_score(self.fold, outputs)
        self.since = 0 if score < self.best else self.since + 1
        self.best = min(self.best, score)
        return self.since >= self.lengths


class _Trial:
    """A candidate's members so far, their outputs on held-out rows, and its result."""

    def __init__(self, candidate: Candidate, evaluator: _Evaluator) -> None:
        self.candidate, self.evaluator = candidate, evaluator
        self.result = CandidateResult(candidate)
        self.outputs: list[dict[int, list[Tensor]]] = [{} for _ in evaluator.plans]
        self.best: list[Tensor] = []  # (members, rows, outputs) of each fold, at the best length

    def missing(self, members: int) -> list[tuple[int, int]]:
        """(fold, member) of those that it lacks to have so many."""
        return list(product(range(len(self.outputs)), range(self.result.members, members)))

    def extend(self, members: int) -> None:
        """Train up to this many members and update the result."""
        new = list(range(self.result.members, members))
        for fold in range(len(self.outputs)):
            self.add(fold, self.evaluator.outputs(self.candidate, fold, new))
        self.update(members)

    def add(self, fold: int, outputs: dict[int, Tensor]) -> None:
        """Take over outputs of further members in a fold, by training length."""
        for epochs, found in outputs.items():
            self.outputs[fold].setdefault(epochs, []).append(found)

    def update(self, members: int) -> None:
        """The result with this many members."""
        self.result.members, self.result.score, self.result.by_epochs = members, inf, {}
        for epochs in self.evaluator.epochs:
            if all(epochs in outputs for outputs in self.outputs):
                self._evaluate(epochs, [torch.cat(outputs[epochs]) for outputs in self.outputs])
        self.result.scores[members] = self.result.score

    def near(self, best: _Trial) -> bool:
        """Whether it is not worse than the best by more than two standard errors of their difference."""
        members = self.result.members
        if not (members in self.result.losses and members in best.result.losses):
            return False  # it diverged
        mean, error = self.evaluator.difference(self.result.losses[members], best.result.losses[members])
        return mean <= 2 * error

    def _evaluate(self, epochs: int, outputs: list[Tensor]) -> None:
        losses, probabilities = self.evaluator.losses(outputs)
        score = self.evaluator.mean(losses)
        self.result.by_epochs[epochs] = score
        if score < self.result.score:
            self.result.score, self.result.probabilities, self.best = score, probabilities, outputs
            self.result.losses[self.result.members] = losses
            if self.evaluator.search.epochs is not None:
                self.result.candidate = replace(self.candidate, epochs=epochs)


def _halve(
    trials: list[_Trial], members: int, halving: bool, callback: Callable[[str], None] | None, concurrent: int
) -> None:
    """Successive halving with members as the resource."""
    rungs = sorted({min(2**k, members) for k in range(members.bit_length() + 1)}) if halving else [members]
    for rung in rungs:
        for trial in _extended(trials, rung, concurrent):
            if callback is not None:
                callback(f"{trial.result.candidate}: {rung} members, score {trial.result.score:.4f}")
        ranked = sorted(trials, key=lambda trial: trial.result.score)
        kept = ranked[: (len(ranked) + 1) // 2]
        trials = [trial for trial in trials if trial in kept or (trial.candidate.ratio == 0 and trial.near(ranked[0]))]


def _extended(trials: list[_Trial], members: int, concurrent: int) -> Iterator[_Trial]:
    """The trials, each once it has so many members."""
    outputs = trials[0].evaluator.side_by_side(trials, members)
    if outputs is not None:
        following = iter(outputs)
        for trial in trials:
            for fold, _ in trial.missing(members):
                trial.add(fold, next(following))
            trial.update(members)
            yield trial
        return
    with ThreadPoolExecutor(concurrent) as threads:
        # One after another they stay in this thread, whose number of cores is pinned.
        extended = (threads.map if concurrent > 1 else map)(partial(_Trial.extend, members=members), trials)
        for trial, _ in zip(trials, extended, strict=True):
            yield trial
