"""The ledger: concordance with the paper's tables, its sentences one by one, and apart from them identities, costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, inf, log, sqrt

import torch
from scipy.special import betaln
from scipy.stats import t as student

from mixupmp.core.base_measures.paper import symmetric_beta
from mixupmp.core.foreign import Json
from mixupmp.core.methods import (
    Method,
    bayesian_bootstrap,
    deep_ensemble,
    dp_mp_uniform,
    mixup,
    mixup_ensemble,
    mixup_mp,
)
from mixupmp.core.recipe import Recipe
from mixupmp.core.weights import Dirichlet
from mixupmp.data import load
from mixupmp.paper.agreement import Agreement, agreements
from mixupmp.paper.claims import Claim, all_claims
from mixupmp.paper.effects import LEVEL
from mixupmp.paper.evidence import PaperEvidence, RunEvidence
from mixupmp.paper.lines import ALPHAS
from mixupmp.paper.verdicts import FAILS, HOLDS, NOT_RUN, OPEN, Verdict, judge
from mixupmp.train.plans import plan_for
from mixupmp.train.run import fit


@dataclass(frozen=True)
class Judged:
    """A sentence with what our runs and the paper's own tables say of it: by the same rule, and by mere signs."""

    claim: Claim
    here: Verdict
    paper: Verdict
    signs: Verdict = field(default_factory=lambda: Verdict(NOT_RUN))


@dataclass(frozen=True)
class Check:
    """An identity or a cost: what is said, what was found, and whether it is so."""

    name: str
    says: str
    found: str
    verdict: str


@dataclass(frozen=True)
class Ledger:
    """Everything that CLAIMS.md shows; `runs` has the record of each by its folder.

    Parameters
    ----------
    sentences
        Those on images, each said once.
    plane
        Those on the examples in the plane and the known margins, whose repeats share their training rows.
    restated
        Those that say what an earlier one says.
    """

    runs: dict[str, dict[str, Json]]
    concordances: dict[str, Agreement]
    sentences: list[Judged]
    plane: list[Judged]
    restated: list[Judged]
    extensions: list[Judged]
    identities: list[Check]
    costs: list[Check]

    def to_dict(self) -> dict[str, object]:
        """As plain JSON."""
        return {
            "concordance": {name: one.to_dict() for name, one in self.concordances.items()},
            "sentences": {one.claim.name: [one.here.verdict, one.paper.verdict] for one in self.sentences},
            "plane": {one.claim.name: [one.here.verdict, one.paper.verdict] for one in self.plane},
            "restated": {one.claim.name: [one.here.verdict, one.paper.verdict] for one in self.restated},
            "extensions": {one.claim.name: one.here.verdict for one in self.extensions},
            "identities": {one.name: one.verdict for one in self.identities},
            "costs": {one.name: one.verdict for one in self.costs},
        }


def make_ledger(runs: RunEvidence) -> Ledger:
    """Judge everything by what the experiments of one scale have written."""
    paper, signs, claims = PaperEvidence(), PaperEvidence(by_sign=True), all_claims()
    judged = [Judged(one, judge(one, runs), judge(one, paper), judge(one, signs)) for one in claims]
    restated = [one for one in judged if one.claim.restates]
    plane = [one for one in judged if one.claim.on_one_draw]
    sentences = [one for one in judged if not (one.claim.restates or one.claim.on_one_draw)]
    extended = [Judged(one, judge(one, runs, one.extensions), Verdict(NOT_RUN)) for one in claims if one.extensions]
    return Ledger(runs.records(), agreements(runs), sentences, plane, restated, extended, identities(), costs(runs))


def identities() -> list[Check]:
    """What follows from the definitions, computed."""
    says = "section 4, relationship to other methods"
    both, bootstrap = mixup_ensemble(2.0, 2), bayesian_bootstrap(2)
    pairs: list[tuple[str, str, Method, Method]] = [
        ("r0-is-de", f"r = 0 recovers DE ({says})", mixup_mp(0, 2.0, 2), deep_ensemble(2)),
        ("c0-is-bb", "section 2.1: c = 0 recovers the Bayesian bootstrap", dp_mp_uniform(0, members=2), bootstrap),
        ("rinf-is-mixup-ensemble", f"r = ∞ and B > 1: Mixup ensemble ({says})", mixup_mp(inf, 2.0, 2), both),
        ("rinf-b1-is-mixup", f"r = ∞ and B = 1: Mixup ({says})", mixup_mp(inf, 2.0, 1), mixup(2.0)),
    ]
    found = []
    for name, text, one, other in pairs:
        gap = _weight_gap(one, other)
        found.append(Check(name, text, f"largest difference of a weight: {gap:g}", HOLDS if gap == 0 else FAILS))
    return [*found, *_dirichlet(), _distance_of_blends()]


def _weight_gap(one: Method, other: Method) -> float:
    rows = load("digits")
    rows = rows.with_train(rows.train.take(torch.arange(200)))
    recipe = Recipe(epochs=1, batch_size=64)
    first, second = (fit(plan_for(rows, method, "cnn", recipe), engine="inline") for method in (one, other))
    pairs = zip(first.networks[0].parameters(), second.networks[0].parameters(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


def _dirichlet(rows: int = 50, ratio: float = 0.5, draws: int = 2000) -> list[Check]:
    """E[w_i] = 1/(n + c) of a seen row and c/(n + c) of the tail, over many draws."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.stack([Dirichlet().draw(rows, rows, ratio, generator).double() for _ in range(draws)])
    tails, firsts, c = weights[:, rows:].sum(1), weights[:, 0], ratio * rows
    found = []
    for name, says, values, expected in (
        ("expected-weight", "section 2.1: E[w_i] = 1/(n + c) of an observed row", firsts, 1 / (rows + c)),
        ("expected-tail", "section 2.1: E[sum of the tail] = c/(n + c)", tails, c / (rows + c)),
    ):
        error = float(values.std()) / sqrt(draws)
        holds = abs(float(values.mean()) - expected) < 4 * error
        text = f"{float(values.mean()):.5f} ({error:.5f}) of {draws} draws, expected {expected:.5f}"
        found.append(Check(name, says, text, HOLDS if holds else FAILS))
    return found


def _distance_of_blends(draws: int = 100_000) -> Check:
    """How far blends are from the nearer of their two rows, E[min(lambda, 1 - lambda)] = 1/2 - 4^-a / (a B(a, a))."""
    generator = torch.Generator().manual_seed(0)
    holds, found, expected = True, [], []
    for alpha in (*ALPHAS, 1000.0):
        share = symmetric_beta(alpha, *torch.rand(2, draws, generator=generator, dtype=torch.float64))
        nearer = torch.minimum(share, 1 - share)
        found.append(float(nearer.mean()))
        expected.append(0.5 - exp(-alpha * log(4) - betaln(alpha, alpha)) / alpha)
        holds = holds and abs(found[-1] - expected[-1]) < 4 * float(nearer.std()) / sqrt(draws)
    texts = (", ".join(f"{value:.3f}" for value in values) for values in (found, expected))
    says = (
        "section 4: for small α samples are close to original observations; for larger ones, more space-filling; "
        "section 5.2: as α → ∞, pairs are equally mixed"
    )
    text = "mean distance to the nearer row for α = .1, .4, 1, 2, 1000: {} of the way, expected {}".format(*texts)
    rising = all(low < high for low, high in pairwise(found))
    return Check("alpha-distance", says, text, HOLDS if holds and rising else FAILS)


def costs(runs: RunEvidence) -> list[Check]:
    """Appendix F, from the measured steps."""
    measured = runs.read("complexity", "", "costs.json")
    checks: list[tuple[str, str, str, float, float, Callable[[dict[str, float]], tuple[float, float]]]] = [
        ("cost-mixupmp-time", "MixupMP costs (n_mb + t_mb) / n_mb = 2 times as much time", "MixupMP", 2, 0.5, _time),
        ("cost-mixupmp-memory", "and in memory", "MixupMP", 2, 0.1, lambda cost: (cost["memory_ratio"], 0.0)),
        ("cost-order", "the same order of magnitude as DE, taken as less than 10 times", "MixupMP", 1, 9, _time),
        ("cost-bb", "BB: the additional cost of adding in weights is negligible", "BB", 1, 0.1, _time),
    ]
    found = []
    for name, says, method, expected, tolerance, value in checks:
        if not measured:
            found.append(Check(name, f"appendix F: {says}", "-", NOT_RUN))
            continue
        ratio, reach = value(measured[method])
        size = abs(ratio - expected)
        verdict = HOLDS if size + reach <= tolerance else FAILS if size - reach > tolerance else OPEN
        text = f"{ratio:.2f} ± {reach:.2f} times DE's step (tolerance {tolerance:g})"
        found.append(Check(name, f"appendix F: {says}", text, verdict))
    return found


def _time(cost: dict[str, float]) -> tuple[float, float]:
    quantile = float(student.ppf(1 - LEVEL, cost.get("rounds", 12) - 1))
    return cost["time_ratio"], quantile * cost["time_error"]
