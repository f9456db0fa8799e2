"""The demonstration: a network (NN), a deep ensemble (DE) and MixupMP on the embedded digits, over several seeds.

It stands in the regime in which there is something to gain: few rows, and networks that interpolate them. All methods
train on the same rows and share initial weights. NN is the first member of DE; r = 0 is DE itself, so what is trained
once is used for both. MixupMP's r and alpha are chosen once, by NLL on the first seed's validation rows, which nothing
is trained on, with the first members of each candidate; the rest are trained for the chosen one alone, which gives the
same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import inf
from operator import add

from torch import Tensor

from mixupmp import data
from mixupmp.core.errors import check, whole
from mixupmp.core.methods import mixup_mp
from mixupmp.core.plan import Plan
from mixupmp.core.posterior import EnsemblePosterior, Posterior
from mixupmp.core.recipe import Recipe
from mixupmp.core.rows import Dataset, Rows, split
from mixupmp.data.corruptions import corrupt
from mixupmp.metrics import Result, Scores
from mixupmp.metrics.comparison import Summary, difference, summarize
from mixupmp.train.plans import fewer_rows, plan_for
from mixupmp.train.progress import Callback
from mixupmp.train.run import Engine, fit

METHODS = ("NN", "DE", "MixupMP")
CLEAN = "clean"
# All corruptions of CIFAR-C but `saturate`, which leaves gray images as they are.
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
    ratios: tuple[float, ...] = (0.0, 0.1, 1.0, inf)  # the paper's
    alphas: tuple[float, ...] = (0.4, 2.0)
    members: int = 4
    trial_members: int = 2  # of each candidate, on validation rows
    severity: int = 4
    # Adam at this rate, because of the recipes tried it gives the deep ensemble its best NLL on validation rows
    # (results/demo/recipe.md): a rival at its strongest. Half as many Mixup rows as seen ones in a step, because it is
    # faster; their weight is the same.
    recipe: Recipe = field(
        default_factory=lambda: Recipe(
            epochs=150, batch_size=100, pseudo_batch_size=50, optimizer="adamw", learning_rate=0.01, weight_decay=0.0
        )
    )

    def __post_init__(self) -> None:
        check(len(self.seeds) >= 1, "seeds", self.seeds, "at least one seed")
        check(self.ratios[:1] == (0.0,), "ratios", self.ratios, "0 first, which is the deep ensemble, then others")
        enough = whole(self.members) and 1 <= self.trial_members <= self.members
        check(enough, "trial_members", self.trial_members, f"from 1 to members ({self.members})")

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every r with every alpha; r = 0 draws no Mixup rows, so it has but one."""
        return tuple((ratio, alpha) for ratio in self.ratios for alpha in (self.alphas if ratio else self.alphas[:1]))

    @property
    def fits(self) -> int:
        """How many networks are trained, unless r = 0 is chosen."""
        searched = sum(ratio != 0 for ratio, _ in self.candidates) * self.trial_members
        return searched + 2 * self.members * len(self.seeds) - self.trial_members


@dataclass(frozen=True)
class Trial:
    """One seed: what the methods are worth on test rows."""

    seed: int
    scores: Mapping[tuple[str, str], Scores]  # by method and set of rows
    training_accuracy: float  # of the deep ensemble's members, on average
    fits: tuple[tuple[str, Plan, Posterior], ...] = ()  # each method with its plan, for a report


@dataclass(frozen=True)
class Outcome:
    """Everything that was measured."""

    demo: Demo
    validation_nll: Mapping[Candidate, float]  # by which r and alpha were chosen
    trials: tuple[Trial, ...]

    @property
    def chosen(self) -> Candidate:
        """MixupMP's r and alpha."""
        return min(self.validation_nll, key=lambda candidate: self.validation_nll[candidate])

    def summaries(self, method: str, rows: str) -> dict[str, Summary]:
        """Means and standard errors over the seeds."""
        return summarize([trial.scores[method, rows].result() for trial in self.trials])

    def pooled(self, method: str, sets: Sequence[str]) -> Result:
        """All seeds, and several sets of rows, as one."""
        return reduce(add, (trial.scores[method, rows] for trial in self.trials for rows in sets)).result()

    def difference(self, metric: str, rows: str, method: str = "MixupMP", rival: str = "DE") -> Summary:
        """The method's metric minus its rival's, paired by seed."""
        return difference(self.summaries(method, rows)[metric], self.summaries(rival, rows)[metric])


def run_demo(demo: Demo, engine: Engine = "processes", progress: Callback | None = None) -> Outcome:
    """Fit and measure everything. All seeds share the test rows; a seed chooses the other rows, and the fits."""
    whole_set = data.load("digits")
    sets = _test_sets(whole_set.test, demo.severity)
    repeats = [Repeat(demo, whole_set, seed, engine, progress or Callback()) for seed in demo.seeds]
    nll = repeats[0].search()
    chosen = min(nll, key=lambda candidate: nll[candidate])
    return Outcome(demo, nll, tuple(repeat.judge(chosen, sets) for repeat in repeats))


def _test_sets(test: Rows, severity: int) -> dict[str, Rows]:
    """The clean test rows, and for each family a copy in which its corruptions take turns."""
    sets = {CLEAN: test}
    for family, names in FAMILIES.items():
        images = test.inputs.clone()
        for turn, name in enumerate(names):
            images[turn :: len(names)] = corrupt(test.inputs[turn :: len(names)], name, severity)
        sets[family] = Rows(images, test.labels)
    return sets


class Repeat:
    """One seed's rows, and the networks trained on them."""

    def __init__(self, demo: Demo, whole_set: Dataset, seed: int, engine: Engine, progress: Callback) -> None:
        self.demo, self.seed, self.engine, self.progress = demo, seed, engine, progress
        both = fewer_rows(whole_set, demo.rows + demo.validation_rows, seed).train
        train, self.validation = split(both, demo.validation_rows / len(both), seed)
        self.dataset = whole_set.with_train(train)
        self.fitted: dict[Candidate, Posterior] = {}

    def search(self) -> dict[Candidate, float]:
        """The NLL of every candidate's first members on validation rows."""
        first = range(self.demo.trial_members)
        ensemble = self._members_of(self.demo.candidates[0])
        for candidate in self.demo.candidates[1:]:
            self.fitted[candidate] = self._fitted(candidate, first)
        tried = {**self.fitted, self.demo.candidates[0]: _members(ensemble, first)}
        return {candidate: self._nll(tried[candidate]) for candidate in self.demo.candidates}

    def judge(self, chosen: Candidate, sets: dict[str, Rows]) -> Trial:
        """Measure all methods on the test rows."""
        ensemble, best = self._members_of(self.demo.candidates[0]), self._members_of(chosen)
        scores = {}
        for name, rows in sets.items():
            every = ensemble.member_probabilities(rows.inputs)
            ours = every if best is ensemble else best.member_probabilities(rows.inputs)
            for method, probabilities in zip(METHODS, (every[:1], every, ours), strict=True):
                scores[method, name] = _scored(probabilities, rows)
        accuracies = [summary.training_accuracy or 0.0 for summary in ensemble.summaries]
        plans = self._plan(self.demo.candidates[0]), self._plan(self.demo.candidates[0]), self._plan(chosen)
        posteriors = _members(ensemble, range(1)), ensemble, best
        fits = tuple(zip(METHODS, plans, posteriors, strict=True))
        return Trial(self.seed, scores, sum(accuracies) / len(accuracies), fits)

    def _members_of(self, candidate: Candidate) -> Posterior:
        """All members of a candidate, training those that are not there yet."""
        there = self.fitted.get(candidate)
        missing = range(0 if there is None else there.members, self.demo.members)
        if missing:
            rest = self._fitted(candidate, missing)
            self.fitted[candidate] = rest if there is None else _joined(there, rest)
        return self.fitted[candidate]

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
