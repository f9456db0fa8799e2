"""What candidates are compared by: their losses on rows that none of their members was trained on."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite

import torch
from torch import Tensor

from mixupmp.core.base_measures import AtLayer
from mixupmp.core.likelihoods import Gaussian
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import AllDiverged
from mixupmp.core.predictive import TrainingData
from mixupmp.core.rows import Rows
from mixupmp.core.shared import SharedEnsemble
from mixupmp.core.streams import DatasetRows, has_labels
from mixupmp.decide.calibrate import fit_temperature
from mixupmp.decide.calibrators import Temperature, VarianceFactor
from mixupmp.decide.detect import Detector, refitted_detector
from mixupmp.decide.held_out import class_losses, constant_losses, effective_weights, folds, regression_losses
from mixupmp.decide.search import Candidate, Search
from mixupmp.decide.trajectory import outputs_by_epochs, outputs_in_workers
from mixupmp.decide.variance import best_factor, nlls_by_factor
from mixupmp.train.pool import NotPicklable
from mixupmp.train.run import Engine, choose_engine


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


class HeldOutEvaluator:
    """Trains members on the training rows of each fold and computes their losses on its held-out rows."""

    def __init__(self, plan: Plan, search: Search, engine: Engine, held_out: Rows | None = None) -> None:
        assert has_labels(plan.train)
        self.classes = plan.task.likelihood.classes is not None
        self.search, self.engine = search, engine
        self.epochs = sorted(set(search.epochs or (plan.recipe.epochs,)))
        pairs: Sequence[tuple[Rows | DatasetRows, Rows | DatasetRows]]
        self.further: Sequence[tuple[Rows | DatasetRows, Rows | DatasetRows]] = []  # for the temperature alone
        if held_out is not None:
            pairs = [(plan.train, held_out)]
        else:
            parts = max(search.parts, search.calibration_parts or 1) if self.classes else search.parts
            pairs = list(folds(plan.train, search.validation, self.classes, plan.seed, parts))
            if isinstance(search.validation, float):
                pairs, self.further = pairs[: search.parts], pairs[search.parts :]
        self.plan = with_members(plan, search.members)
        self._hold_out(pairs)
        self._try_bases()

    def _hold_out(self, pairs: Sequence[tuple[Rows | DatasetRows, Rows | DatasetRows]]) -> None:
        self.plans = [self.plan.on(train) for train, _ in pairs]
        self.held = [held.read() for _, held in pairs]
        self.rows = sum(map(len, self.held))
        self.labels = torch.cat([rows.labels for rows in self.held])
        self.weights = effective_weights(self.held)

    def _try_bases(self) -> None:
        """Draw a few rows from each base measure, so that one for other data is refused before the first fit."""
        plan, rows = self.plans[0], self.held[0].take(torch.arange(min(8, len(self.held[0]))))
        data = TrainingData(rows, plan.task.likelihood, plan.task.standardize)
        for base in self.search.bases:
            if not isinstance(base, AtLayer):  # which needs a layer's values
                generator = torch.Generator().manual_seed(0)
                base.sample(data.batch(rows, plan.method.predictive.kernel, generator), 2, generator)

    def side_by_side(self, fits: list[tuple[Candidate, int, int]]) -> list[dict[int, Tensor]] | None:
        """Outputs of single members, as (candidate, fold, member), computed by worker processes.

        None where that is not worth it, or members are trained together.
        """
        if self.engine not in ("auto", "processes") or self.plans[0].method.sampler.networks == 1:
            return None
        if self.engine == "auto" and choose_engine(self.plans[0], len(fits)) != "processes":
            return None
        calls = [(c.applied(self.plans[fold]), member, self.held[fold].inputs) for c, fold, member in fits]
        try:
            return outputs_in_workers(calls, self.epochs, self.plans[0].recipe.threads)
        except NotPicklable:
            if self.engine == "processes":
                raise
            return None

    def outputs(self, candidate: Candidate, fold: int, members: list[int]) -> dict[int, Tensor]:
        """Outputs of these members on the fold's held-out rows, by training length."""
        plan, inputs = candidate.applied(self.plans[fold]), self.held[fold].inputs
        return outputs_by_epochs(plan, members, self.epochs, inputs, self.engine)

    def once_for_all(self) -> bool:
        """Whether one network is all there is to train for a candidate and fold, and one training for all lengths."""
        plan = self.plans[0]
        constant = self.search.epochs is not None and plan.recipe.schedule == "constant"
        engine = choose_engine(plan, 1) if self.engine == "auto" else self.engine
        return constant and plan.method.sampler.networks == 1 and engine == "inline"

    def losses(self, outputs: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        """The loss of each held-out row, calibrated if so configured, and the averaged probabilities, for one
        (members, rows, outputs) per fold.
        """
        criterion = self.search.criterion
        if not self.classes:
            variance, pairs = self.variance(outputs), zip(outputs, self.held, strict=True)
            return torch.cat([regression_losses(out, rows.labels, criterion, variance) for out, rows in pairs]), None
        probabilities = torch.cat([fold.double().softmax(-1).mean(0) for fold in outputs])
        scaled = probabilities
        if self.search.calibrate:
            scaled = self.temperature(probabilities)(probabilities)
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

    def temperature(self, probabilities: Tensor | None) -> Temperature:
        """What candidates are compared with, and the chosen one is given: one where it does not help beyond noise."""
        assert probabilities is not None
        return fit_temperature(probabilities, self.labels, warn=False, weights=self.weights)

    def further_outputs(self, candidate: Candidate, members: int) -> tuple[list[Rows], list[Tensor]]:
        """The further parts, and the outputs on each of this candidate trained without it, by which nothing was chosen.

        A part without which every member diverges is left out.
        """
        if not self.further:
            return [], []
        length, numbers = candidate.epochs or self.plan.recipe.epochs, range(members)
        other = copy.copy(self)
        other.epochs = [length]
        other._hold_out(self.further)
        folds_held = range(len(other.held))
        found = other.side_by_side([(candidate, fold, member) for fold in folds_held for member in numbers])
        if found is None:
            by_part = [[other.outputs(candidate, fold, list(numbers))] for fold in folds_held]
        else:
            by_part = [found[fold * members : (fold + 1) * members] for fold in folds_held]
        outputs = [[one[length] for one in part if length in one] for part in by_part]
        kept = [(rows, torch.cat(parts)) for rows, parts in zip(other.held, outputs, strict=True) if parts]
        return [rows for rows, _ in kept], [out for _, out in kept]

    def variance(self, outputs: list[Tensor]) -> VarianceFactor:
        """The same for outputs of a regression: a factor of the variance."""
        if not self.search.calibrate:
            return VarianceFactor(1.0)
        pairs = zip(outputs, self.held, strict=True)
        nlls = [nlls_by_factor(*Gaussian().moments(out.double()), rows.labels) for out, rows in pairs]
        return best_factor(torch.cat(nlls), self.weights)

    def worse_than_constant(self, losses: Tensor) -> str | None:
        """What to say of a regression that predicts new rows worse than one Gaussian for all rows does."""
        if self.classes or self.search.criterion != "nll":
            return None
        pairs = zip(self.plans, self.held, strict=True)
        constant = torch.cat([constant_losses(plan.train, held) for plan, held in pairs])  # type: ignore[arg-type]
        mean, error = self.difference(losses, constant)
        if mean <= 2 * error:
            return None
        return (
            f"on {self.rows} held-out rows the NLL is {mean:.2f} ± {error:.2f} above that of one Gaussian for all: "
            "the inputs may not tell the target, or members are trained too long or too briefly"
        )


def calibration(held: Sequence[Rows], outputs: Sequence[Tensor]) -> tuple[Temperature, Detector]:
    """Temperature and detector from several parts of rows, by (members, rows, outputs) of fits without each of them."""
    probabilities = torch.cat([part.double().softmax(-1).mean(0) for part in outputs])
    labels, weights = torch.cat([rows.labels for rows in held]), effective_weights(held)
    return fit_temperature(probabilities, labels, warn=False, weights=weights), refitted_detector(outputs)


def with_members(plan: Plan, members: int | None) -> Plan:
    """The plan with at most so many members that share weights."""
    sampler = plan.method.sampler
    if members is None or not isinstance(sampler, SharedEnsemble) or sampler.members <= members:
        return plan
    return replace(plan, method=replace(plan.method, sampler=SharedEnsemble(members)))
