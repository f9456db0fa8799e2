"""The demonstration: a network (NN), a deep ensemble (DE) and MixupMP on the embedded digits, over several seeds.

It stands in the regime in which there is something to gain: few rows, and networks that interpolate them. All methods
train on the same rows and share initial weights. NN is the first member of DE; r = 0 is DE itself, so what is trained
once is used for both. MixupMP's r and alpha are chosen by NLL on validation rows that nothing is trained on (their mean
over the seeds), with the first members of each candidate; the rest are trained for the chosen one alone, which gives
the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import inf
from operator import add

import torch
from torch import Tensor

from mixupmp import data
from mixupmp.data.corruptions import corrupt
from mixupmp.data.rows import Dataset, Rows, split
from mixupmp.errors import check, whole
from mixupmp.fit import Engine, fit
from mixupmp.fit.job import Progress, Quiet
from mixupmp.fit.plan import Plan, plan_for
from mixupmp.methods import mixup_mp
from mixupmp.metrics import Result, Scores
from mixupmp.metrics.summary import Summary, summarise
from mixupmp.planning import fewer_rows
from mixupmp.posterior import EnsemblePosterior, Posterior
from mixupmp.recipe import Recipe

METHODS = ("NN", "DE", "MixupMP")
CLEAN = "clean"
# All corruptions of CIFAR-C but `saturate`, which leaves grey images as they are.
FAMILIES: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("gaussian_blur", "glass_blur", "defocus_blur", "motion_blur", "zoom_blur"),
    "weather": ("fog", "frost", "snow", "spatter"),
    "digital": ("contrast", "brightness", "jpeg_compression", "pixelate", "elastic_transform"),
}
Candidate = tuple[float, float]  # r and alpha


@dataclass(frozen=True)
class Demo:
    """What is compared, and on what."""

    rows: int = 200
    validation_rows: int = 200
    seeds: tuple[int, ...] = (0, 1, 2)
    ratios: tuple[float, ...] = (0.0, 0.03, 0.3, inf)
    alphas: tuple[float, ...] = (0.5, 2.0)
    members: int = 4
    trial_members: int = 2  # of each candidate, on validation rows
    severity: int = 4
    # Adam, because it gives the deep ensemble its best NLL of the recipes tried: a rival at its strongest. Half as many
    # Mixup rows as seen ones in a step, because it is faster; their weight is the same.
    recipe: Recipe = field(
        default_factory=lambda: Recipe(
            epochs=150, batch_size=100, pseudo_batch_size=50, optimiser="adamw", learning_rate=0.01, weight_decay=0.0
        )
    )

    def __post_init__(self) -> None:
        check(len(self.seeds) >= 1, "seeds", self.seeds, "at least one seed")
        check(self.ratios[:1] == (0.0,), "ratios", self.ratios, "0 first, which is the deep ensemble, then others")
        check(whole(self.members) and 1 <= self.trial_members <= self.members, "trial_members", self.trial_members,
              f"from 1 to members ({self.members})")  # fmt: skip

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every r with every alpha; r = 0 draws no Mixup rows, so it has but one."""
        return tuple((ratio, alpha) for ratio in self.ratios for alpha in (self.alphas if ratio else self.alphas[:1]))

    @property
    def fits(self) -> int:
        """How many networks are trained at most."""
        others = sum(ratio != 0 for ratio, _ in self.candidates)
        return len(self.seeds) * (self.members + others * self.trial_members + self.members - self.trial_members)


@dataclass(frozen=True)
class Trial:
    """One seed: what the candidates were worth on validation rows, and what the methods are worth on test rows."""

    seed: int
    validation_nll: Mapping[Candidate, float]
    scores: Mapping[tuple[str, str], Scores]  # by method and set of rows
    training_accuracy: float  # of the deep ensemble's members, on average
    fits: tuple[tuple[str, Plan, Posterior], ...] = ()  # each method with its plan, for a report


@dataclass(frozen=True)
class Outcome:
    """Everything that was measured."""

    demo: Demo
    chosen: Candidate
    trials: tuple[Trial, ...]

    def validation(self) -> dict[Candidate, Summary]:
        """The candidates' NLL on validation rows, over the seeds."""
        return {
            candidate: summarise([{"nll": trial.validation_nll[candidate]} for trial in self.trials])["nll"]
            for candidate in self.demo.candidates
        }

    def summaries(self, method: str, rows: str) -> dict[str, Summary]:
        """Means and standard errors over the seeds."""
        return summarise([trial.scores[method, rows].result() for trial in self.trials])

    def pooled(self, method: str, sets: Sequence[str]) -> Result:
        """All seeds, and several sets of rows, as one."""
        return reduce(add, (trial.scores[method, rows] for trial in self.trials for rows in sets)).result()

    def difference(self, metric: str, rows: str, method: str = "MixupMP", rival: str = "DE") -> Summary:
        """The method's measure minus its rival's, paired by seed."""
        pairs = [(trial.scores[method, rows].result(), trial.scores[rival, rows].result()) for trial in self.trials]
        return summarise([{metric: getattr(ours, metric) - getattr(theirs, metric)} for ours, theirs in pairs])[metric]


def run_demo(demo: Demo, engine: Engine = "processes", progress: Progress | None = None) -> Outcome:
    """Fit and measure everything. All seeds share the test rows; a seed chooses the other rows, and the fits."""
    whole_set = data.load("digits")
    sets = _test_sets(whole_set.test, demo.severity)
    repeats = [_Repeat(demo, whole_set, seed, engine, progress or Quiet()) for seed in demo.seeds]
    for repeat in repeats:
        repeat.try_candidates()
    chosen = min(demo.candidates, key=lambda candidate: sum(repeat.nll[candidate] for repeat in repeats))
    return Outcome(demo, chosen, tuple(repeat.judge(chosen, sets) for repeat in repeats))


def _test_sets(test: Rows, severity: int) -> dict[str, Rows]:
    """The clean test rows, and each family of corruptions as one set."""
    sets = {CLEAN: test}
    for family, names in FAMILIES.items():
        images = torch.cat([corrupt(test.inputs, name, severity) for name in names])
        sets[family] = Rows(images, test.labels.repeat(len(names)))
    return sets


class _Repeat:
    """One seed's rows, and the networks trained on them."""

    def __init__(self, demo: Demo, whole_set: Dataset, seed: int, engine: Engine, progress: Progress) -> None:
        self.demo, self.seed, self.engine, self.progress = demo, seed, engine, progress
        both = fewer_rows(whole_set, demo.rows + demo.validation_rows, seed).train
        train, self.validation = split(both, demo.validation_rows / len(both), seed)
        self.dataset = whole_set.with_train(train)

    def try_candidates(self) -> None:
        """Train the deep ensemble in full and the first members of every other candidate; judge by NLL."""
        first = range(self.demo.trial_members)
        self.ensemble = self._fitted(self.demo.candidates[0], range(self.demo.members))
        self.tried = {
            candidate: self._fitted(candidate, first) if candidate[0] else _members(self.ensemble, first)
            for candidate in self.demo.candidates
        }
        self.nll = {candidate: self._nll(posterior) for candidate, posterior in self.tried.items()}

    def judge(self, chosen: Candidate, sets: dict[str, Rows]) -> Trial:
        """Train what is missing of the chosen one, and measure all methods on the test rows."""
        best = self.ensemble
        if chosen[0] != 0:
            rest = range(self.demo.trial_members, self.demo.members)
            best = _joined(self.tried[chosen], self._fitted(chosen, rest)) if rest else self.tried[chosen]
        scores = {}
        for name, rows in sets.items():
            every = self.ensemble.member_probabilities(rows.inputs)
            ours = every if best is self.ensemble else best.member_probabilities(rows.inputs)
            for method, probabilities in zip(METHODS, (every[:1], every, ours), strict=True):
                scores[method, name] = _scored(probabilities, rows)
        accuracies = [story.training_accuracy or 0.0 for story in self.ensemble.summaries]
        plans = self._plan(self.demo.candidates[0]), self._plan(self.demo.candidates[0]), self._plan(chosen)
        posteriors = _members(self.ensemble, range(1)), self.ensemble, best
        fits = tuple(zip(METHODS, plans, posteriors, strict=True))
        return Trial(self.seed, self.nll, scores, sum(accuracies) / len(accuracies), fits)

    def _fitted(self, candidate: Candidate, members: range) -> Posterior:
        return fit(self._plan(candidate), engine=self.engine, members=members, progress=self.progress)

    def _plan(self, candidate: Candidate) -> Plan:
        method = mixup_mp(*candidate, self.demo.members)
        return plan_for(self.dataset, method, "cnn", self.demo.recipe, seed=self.seed)

    def _nll(self, posterior: Posterior) -> float:
        return _scored(posterior.member_probabilities(self.validation.inputs), self.validation).result().nll


def _members(posterior: Posterior, which: range) -> Posterior:
    return EnsemblePosterior([posterior.networks[k] for k in which], posterior.task, len(which))


def _joined(first: Posterior, second: Posterior) -> Posterior:
    networks = first.networks + second.networks
    return EnsemblePosterior(networks, first.task, len(networks))


def _scored(probabilities: Tensor, rows: Rows) -> Scores:
    return Scores(probabilities.shape[-1]).update(probabilities, rows.labels)
