"""r and alpha chosen on validation rows, as the paper advises, with the deep ensemble always among the candidates.

Candidates are compared on rows that none of them was fitted to: a validation split or k folds. The budget goes by
successive halving over *members*: every candidate is judged by one member first, and the better half by twice as many,
up to the whole ensemble. A member depends on (seed, number) alone, so what a small ensemble trained is part of the
larger one, and nothing is trained twice. Halving over epochs would be cheaper and wrong: a network stopped early is not
over-confident yet, and would vote for r = 0.

The choice leans to r = 0 by the one-standard-error rule (Breiman et al. 1984): of the candidates that cannot be told
from the best one, the smallest r wins. So where Mixup does not pay, the answer is the deep ensemble.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any, Literal

import torch
from torch import Tensor

from mixupmp.core.base_measures import Mixup
from mixupmp.core.errors import InvalidArgument, MissingExtra, check
from mixupmp.core.likelihoods import Categorical
from mixupmp.core.plan import Plan
from mixupmp.core.rows import Rows
from mixupmp.decide.held_out import CRITERIA, check_criterion, folds, row_losses
from mixupmp.train.ray import connected
from mixupmp.train.run import AllDiverged, Engine, fit

RATIOS = (0.0, 0.1, 0.3, 1.0, 3.0, inf)
ALPHAS = (0.2, 1.0, 2.0)


@dataclass(frozen=True)
class Search:
    """What is tried, on which rows it is judged, and how the budget is spent."""

    ratios: tuple[float, ...] = RATIOS  # 0 and infinity are always added
    alphas: tuple[float, ...] = ALPHAS
    validation: float | int = 0.2  # a share of the rows; a whole number from 2: that many folds
    criterion: Literal["nll", "brier", "error", "crps"] = "nll"
    halving: bool = True  # False: every candidate gets all members
    standard_errors: float = 1.0  # how far from the best score a smaller r may lie and still win

    def __post_init__(self) -> None:
        check(all(r >= 0 for r in self.ratios), "ratios", self.ratios, "numbers in [0, infinity]")
        check(len(self.alphas) > 0 and all(0 < a < inf for a in self.alphas), "alphas", self.alphas, "positive numbers")
        whole = isinstance(self.validation, int) and self.validation >= 2
        must = "a share of the rows between 0 and 1, or a whole number of folds from 2"
        check(whole or 0 < self.validation < 1, "validation", self.validation, must)
        check(self.criterion in CRITERIA, "criterion", self.criterion, f"one of {', '.join(CRITERIA)}")
        check(self.standard_errors >= 0, "standard_errors", self.standard_errors, "zero or more")

    def candidates(self) -> list[Candidate]:
        """Every pair to be tried, r = 0 first and r = infinity next. Without blends there is no alpha: r = 0 is one."""
        blended = sorted({float(r) for r in self.ratios} - {0.0, inf})
        return [Candidate(0.0)] + [Candidate(r, a) for r in (inf, *blended) for a in self.alphas]


@dataclass(frozen=True)
class Candidate:
    """One ratio with one alpha; at ratio 0 there is none."""

    ratio: float
    alpha: float | None = None

    def applied(self, plan: Plan) -> Plan:
        """The plan with this ratio and this Mixup as base measure."""
        base = None if self.alpha is None or self.ratio == 0 else Mixup(self.alpha)
        predictive = replace(plan.method.predictive, ratio=self.ratio, base=base)
        return replace(plan, method=replace(plan.method, predictive=predictive))

    def __str__(self) -> str:
        return f"r={self.ratio:g}" + ("" if self.alpha is None else f", alpha={self.alpha:g}")


@dataclass
class Tried:
    """A candidate and what was seen of it."""

    candidate: Candidate
    members: int = 0  # networks trained in each fold
    score: float = inf  # of all of them together; lower is better
    scores: dict[int, float] = field(default_factory=dict)  # by number of members: its way through the halving
    losses: dict[int, Tensor] = field(default_factory=dict, repr=False)  # (validation rows,), by number of members
    # Against a deep ensemble of as many members, row by row: mean and its standard error; negative is better.
    difference: float = 0.0
    standard_error: float = 0.0


@dataclass(frozen=True)
class Selection:
    """The candidate that was chosen, and the curve that says why."""

    chosen: Candidate
    curve: tuple[Tried, ...]  # by ratio, then alpha
    criterion: str
    rows: int  # on which the candidates were judged
    member_fits: int
    seconds: float

    def table(self) -> str:
        """The curve as a Markdown table."""
        lines = [f"| r | alpha | members | {self.criterion} | against r=0 | |", "|---:|---:|---:|---:|---:|---|"]
        for tried in self.curve:
            candidate = tried.candidate
            alpha = "" if candidate.alpha is None else f"{candidate.alpha:g}"
            against = "" if candidate.ratio == 0 else f"{tried.difference:+.4f} ± {tried.standard_error:.4f}"
            mark = "chosen" if candidate == self.chosen else ""
            lines.append(
                f"| {candidate.ratio:g} | {alpha} | {tried.members} | {tried.score:.4f} | {against} | {mark} |"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Itself as plain JSON."""
        curve = [
            {
                "ratio": _plain(tried.candidate.ratio), "alpha": tried.candidate.alpha, "members": tried.members,
                "score": _plain(tried.score), "scores": {str(k): _plain(v) for k, v in tried.scores.items()},
                "difference": _plain(tried.difference), "standard_error": _plain(tried.standard_error),
            }
            for tried in self.curve
        ]  # fmt: skip
        return {
            "ratio": _plain(self.chosen.ratio), "alpha": self.chosen.alpha, "criterion": self.criterion,
            "rows": self.rows, "member_fits": self.member_fits, "seconds": round(self.seconds, 1), "curve": curve,
        }  # fmt: skip


def select(
    plan: Plan,
    search: Search | None = None,
    *,
    engine: Engine = "auto",
    say: Callable[[str], None] | None = None,
    address: str | None = None,
) -> Selection:
    """Choose r and alpha for this plan, whose own are of no matter. Fit `selection.chosen.applied(plan)` afterwards.

    The plan's training rows are split as the search says; its seed decides the split and every member. With the engine
    "ray" all candidates are on the cluster (at `address`) at once; halving is asynchronous, so which of them get all
    their members then depends on which are done first.
    """
    search = search or Search()
    if not isinstance(plan.train, Rows):
        raise InvalidArgument("plan", type(plan.train).__name__, "a plan with its training rows in memory, to split")
    check_criterion(search.criterion, plan.task.likelihood)
    started = time.perf_counter()
    classes = isinstance(plan.task.likelihood, Categorical)
    pairs = list(folds(plan.train, search.validation, classes, plan.seed))
    plans = [replace(plan, train=train, validation=None) for train, _ in pairs]
    judge = _Judge(plans, [held for _, held in pairs], search.criterion, engine)
    ways = [_Way(candidate, judge) for candidate in search.candidates()]
    networks = plan.method.sampler.networks
    go = _halve if search.halving and networks > 1 else _all_members
    with connected(address) if engine == "ray" else nullcontext():
        go(ways, networks, say or (lambda text: None), len(ways) if engine == "ray" else 1)
    curve = sorted((way.tried for way in ways), key=lambda t: (t.candidate.ratio, t.candidate.alpha or 0.0))
    _compare(curve, judge)
    chosen = _choose(curve, judge, networks, search.standard_errors)
    fits = sum(tried.members for tried in curve) * len(plans)
    return Selection(chosen, tuple(curve), search.criterion, judge.rows, fits, time.perf_counter() - started)


class _Judge:
    """Trains members on the training side of each fold and scores them on the other."""

    def __init__(self, folds: list[Plan], held: list[Rows], criterion: str, engine: Engine) -> None:
        self.folds, self.held, self.criterion, self.engine = folds, held, criterion, engine
        self.rows = sum(map(len, held))
        weights = [torch.ones(len(rows)) if rows.weights is None else rows.weights for rows in held]
        self.weights = torch.cat(weights).double()

    def outputs(self, candidate: Candidate, fold: int, members: list[int]) -> Tensor | None:
        """What these members say about the fold's held-out rows; None where all of them diverged."""
        plan = candidate.applied(self.folds[fold])
        try:
            posterior = fit(plan, engine=self.engine, members=members)
        except AllDiverged:
            return None
        return posterior.member_outputs(self.held[fold].inputs).cpu()

    def losses(self, outputs: Tensor, fold: int) -> Tensor:
        """The loss of each held-out row of the fold, for (members, rows, outputs)."""
        return row_losses(outputs, self.held[fold].labels, self.folds[fold].task.likelihood, self.criterion)

    def mean(self, losses: Tensor) -> float:
        return float((losses * self.weights).sum() / self.weights.sum())

    def difference(self, losses: Tensor, others: Tensor) -> tuple[float, float]:
        """The mean difference of two candidates' losses on the same rows, and its standard error."""
        differences = losses - others
        mean = self.mean(differences)
        share = self.weights / self.weights.sum()
        return mean, float((share * (differences - mean)).square().sum().sqrt())


class _Way:
    """A candidate's way through the search: its members so far."""

    def __init__(self, candidate: Candidate, judge: _Judge) -> None:
        self.tried, self.judge = Tried(candidate), judge
        self.outputs: list[list[Tensor]] = [[] for _ in judge.folds]

    def advance(self, members: int) -> float:
        """Train up to this many members, and return their score together."""
        new = list(range(self.tried.members, members))
        for fold, outputs in enumerate(self.outputs):
            found = self.judge.outputs(self.tried.candidate, fold, new)
            if found is not None:
                outputs.append(found)
        self.tried.members = members
        if all(self.outputs):
            losses = [self.judge.losses(torch.cat(outputs), fold) for fold, outputs in enumerate(self.outputs)]
            self.tried.losses[members] = torch.cat(losses)
            self.tried.score = self.judge.mean(self.tried.losses[members])
        self.tried.scores[members] = self.tried.score
        return self.tried.score


def _all_members(ways: list[_Way], networks: int, say: Callable[[str], None], at_once: int) -> None:
    with ThreadPoolExecutor(at_once) as threads:
        # One after another they stay in this thread, whose number of cores is pinned.
        each = (threads.map if at_once > 1 else map)(lambda way: way.advance(networks), ways)
        for way, score in zip(ways, each, strict=True):
            say(f"{way.tried.candidate}: {networks} members, score {score:.4f}")


def _halve(ways: list[_Way], networks: int, say: Callable[[str], None], at_once: int) -> None:
    """Optuna's asynchronous successive halving, with members for its resource. r = 0 is never pruned."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra(
            "optuna", "select", "Choosing r by successive halving (Search(halving=False) does without)"
        ) from error

    rungs = sorted({min(2**k, networks) for k in range(networks.bit_length() + 1)})

    def objective(trial: Any) -> float:
        way = ways[trial.suggest_int("candidate", 0, len(ways) - 1)]
        for members in rungs:
            score = way.advance(members)
            say(f"{way.tried.candidate}: {members} members, score {score:.4f}")
            trial.report(score if isfinite(score) else 1e30, members)
            if way.tried.candidate.ratio != 0 and trial.should_prune():
                raise optuna.TrialPruned
        return score if isfinite(score) else 1e30

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
        study = optuna.create_study(direction="minimize", pruner=pruner)
        for number in range(len(ways)):
            study.enqueue_trial({"candidate": number})
        study.optimize(objective, n_trials=len(ways), n_jobs=at_once)
    finally:
        optuna.logging.set_verbosity(verbosity)


def _compare(curve: list[Tried], judge: _Judge) -> None:
    for tried in curve[1:]:
        alike = curve[0].losses.get(tried.members)
        if alike is not None and tried.members in tried.losses:
            tried.difference, tried.standard_error = judge.difference(tried.losses[tried.members], alike)


def _choose(curve: list[Tried], judge: _Judge, networks: int, standard_errors: float) -> Candidate:
    """The smallest r of those that cannot be told from the best; among equal r the better score."""
    complete = [tried for tried in curve if tried.members == networks and isfinite(tried.score)]
    if not complete:
        raise AllDiverged("no candidate kept a finite loss: lower the learning rate.")
    best = min(complete, key=lambda tried: tried.score)
    near = []
    for tried in complete:
        mean, error = judge.difference(tried.losses[networks], best.losses[networks])
        if mean <= standard_errors * error:
            near.append(tried)
    return min(near, key=lambda tried: (tried.candidate.ratio, tried.score)).candidate


def _plain(value: float) -> float | str:
    return value if isfinite(value) else str(value)
