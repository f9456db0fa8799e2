"""Selective prediction: answer where the posterior is sure, abstain elsewhere.

`rejection` measures how well an uncertainty ranks the mistakes. `fit_abstention` finds the confidence above which the
share of mistakes is bounded, with a guarantee.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from mixupmp.core.errors import BadData, check
from mixupmp.metrics.checks import GuaranteeWarning, as_floats, checked_labels, checked_probabilities, pooled

# Thresholds that the guarantee tries at most, spread evenly over the confidences of the rows that choose them.
CANDIDATES = 200
# What stands for "no answer" among predicted classes.
ABSTAIN = -1


@dataclass(frozen=True)
class Rejection:
    """The accuracy of the rows that are kept when the least sure are rejected first."""

    kept: tuple[float, ...]  # shares of the rows, rising to 1
    accuracy: tuple[float, ...]  # of those rows
    aurc: float  # area under the risk-coverage curve: the mean over k of the error among the k surest rows
    excess_aurc: float  # aurc minus that of the best ranking of the same mistakes


@torch.no_grad()
def rejection(uncertainty: Tensor, correct: Tensor, points: int = 200) -> Rejection:
    """The accuracy-rejection curve at so many points, and AURC over all rows.

    Rows of equal uncertainty come in random order, of which the mean is taken exactly.
    """
    check(points >= 1, "points", points, "at least 1")
    values = as_floats(uncertainty, "uncertainty").cpu()
    check(values.ndim == 1, "uncertainty", tuple(values.shape), "of shape (rows,), one number for each row")
    check(correct.dtype == torch.bool, "correct", str(correct.dtype), "a tensor of bool")
    check(correct.shape == values.shape, "correct", tuple(correct.shape), f"of shape {tuple(values.shape)}")
    if len(values) == 0 or bool(values.isnan().any()):
        raise BadData("uncertainty must hold at least one number and no NaN.")
    rows = len(values)
    _, inverse, counts = torch.unique(values, return_inverse=True, return_counts=True)
    wrong = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, inverse, (~correct.cpu()).double())
    ranks = torch.arange(1, rows + 1, dtype=torch.float64)
    errors = torch.repeat_interleave(wrong / counts, counts).cumsum(0) / ranks
    best = (ranks - (rows - wrong.sum())).clamp_min(0) / ranks
    places = (torch.linspace(0, 1, points + 1, dtype=torch.float64)[1:] * rows - 1e-9).ceil().long().clamp_(1) - 1
    places = torch.unique(places)
    return Rejection(
        kept=tuple((ranks[places] / rows).tolist()),
        accuracy=tuple((1 - errors[places]).tolist()),
        aurc=float(errors.mean()),
        excess_aurc=float((errors - best).mean()),
    )


@dataclass(frozen=True)
class Abstention:
    """Answers where the top confidence is at least `threshold`; abstains everywhere if that is None.

    With probability `confidence` over the rows it was fitted on, at most a share `risk` of its answers is wrong.
    """

    threshold: float | None
    risk: float
    confidence: float
    accepted: float  # the share of the tested rows that it answers
    bound: float | None  # the upper confidence limit of its share of wrong answers
    reason: str  # in words, also why it abstains everywhere

    @torch.no_grad()
    def accepts(self, probabilities: Tensor) -> Tensor:
        """Which rows are answered: bool (rows,)."""
        values = pooled(checked_probabilities(probabilities, members=None))
        threshold = math.inf if self.threshold is None else self.threshold
        return values.amax(1).double() >= threshold

    @torch.no_grad()
    def predict(self, probabilities: Tensor) -> Tensor:
        """The predicted classes (rows,), and -1 where it abstains."""
        values = pooled(checked_probabilities(probabilities, members=None))
        return torch.where(self.accepts(values), values.argmax(1), ABSTAIN)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings: what JSON holds."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Abstention:
        """The rule that `to_dict` described."""
        try:
            rule = cls(**state)
            usable = rule.threshold is None or 0 <= float(rule.threshold) <= 2
        except (TypeError, ValueError) as error:
            raise BadData(f"this is not an abstention rule: {error!r}. Give what to_dict() returned.") from error
        if not usable:
            raise BadData(f"the threshold of an abstention rule must be a confidence or None, got {rule.threshold!r}.")
        return rule


@torch.no_grad()
def fit_abstention(
    probabilities: Tensor,
    labels: Tensor,
    risk: float = 0.01,
    confidence: float = 0.95,
    seed: int = 0,
    tuning: float = 0.25,
) -> Abstention:
    """Find the lowest threshold on the top confidence at which the error among answers is at most `risk`.

    Split fixed-sequence testing (Angelopoulos et al., Learn then Test, 2021). A seeded share `tuning` of the rows
    proposes thresholds in falling order, beginning where a test is likeliest to succeed. The other rows test
    "the error among answers is above risk" for one after the other, each exactly and at the full level
    1 - confidence, and the search ends at the first that cannot be rejected. The order is fixed before the tests, so
    to answer too much the first wrong threshold of the order must be rejected, which has probability at most
    1 - confidence: no correction for many tests is due. Given how many rows a threshold accepts, its errors are
    binomial, so the test is Clopper and Pearson's. It asks nothing of the network, only that rows are independent
    draws of what comes later.
    """
    check(0 < risk < 1, "risk", risk, "between 0 and 1, both excluded")
    check(0 < confidence < 1, "confidence", confidence, "between 0 and 1, both excluded")
    check(0 < tuning < 1, "tuning", tuning, "between 0 and 1, both excluded")
    values = pooled(checked_probabilities(probabilities, members=None)).cpu()
    labels = checked_labels(labels, *values.shape).cpu()
    top, predicted = values.max(1)
    order = torch.randperm(len(top), generator=torch.Generator().manual_seed(seed))
    top, wrong = top.double()[order], (predicted != labels)[order]
    cut = round(tuning * len(top))
    tests = len(top) - cut
    needed = math.ceil(math.log(1 - confidence) / math.log(1 - risk))
    if cut == 0 or tests < needed:
        words = f"even without a mistake it takes {needed} tested rows and there are {tests}. Fit on more rows."
        return _abstain(risk, confidence, words)
    thresholds = _proposals(top[:cut], wrong[:cut], tests, risk, 1 - confidence)
    return _last_safe(thresholds, top[cut:], wrong[cut:], risk, confidence)


def _last_safe(thresholds: Tensor, top: Tensor, wrong: Tensor, risk: float, confidence: float) -> Abstention:
    """Test the thresholds in their order and take the last before the first that fails."""
    counts, errors = _accepted(thresholds, top, wrong)
    passed = int((_p_values(errors, counts, risk) <= 1 - confidence).long().cumprod(0).sum())
    if passed == 0:
        words = (
            f"{int(errors[0])} wrong among the {int(counts[0])} surest of the tested rows are no proof of it. "
            "Allow more risk, fit on more rows, or improve the network."
        )
        return _abstain(risk, confidence, words)
    chosen = float(thresholds[passed - 1])
    n, k = int(counts[passed - 1]), int(errors[passed - 1])
    words = f"{k} of the {n} tested rows with a confidence of at least {chosen:.6g} are wrong."
    return Abstention(chosen, risk, confidence, n / len(top), _upper_limit(k, n, confidence), words)


def _abstain(risk: float, confidence: float, why: str) -> Abstention:
    reason = f"no threshold keeps the error at {risk:g} with confidence {confidence:g}, so it never answers: {why}"
    warnings.warn(reason, GuaranteeWarning, stacklevel=4)
    return Abstention(None, risk, confidence, 0.0, None, reason)


def _proposals(top: Tensor, wrong: Tensor, tests: int, risk: float, level: float) -> Tensor:
    """Thresholds in falling order from the one whose test is the likeliest to succeed.

    The forecast is the normal approximation of the errors to come, given a Beta(1/2, 1/2) prior of their rate. A poor
    one costs answers, never the guarantee.
    """
    from scipy.stats import binom

    places = torch.linspace(0, len(top) - 1, min(CANDIDATES, len(top)), dtype=torch.float64).round().long()
    thresholds = torch.unique(top.sort().values[places]).flip(0)
    counts, errors = (values.double() for values in _accepted(thresholds, top, wrong))
    share, rate = counts / len(top), (errors + 0.5) / (counts + 1)
    # One deviation fewer than expected: a test that just has rows enough on average has too few every other time.
    expected = (tests * share - (tests * share * (1 - share)).sqrt()).floor().clamp_min(0)
    # The most errors that a test of so many rows forgives; -1 if it cannot succeed.
    forgiven = torch.from_numpy(binom.ppf(level, expected.numpy(), risk))
    forgiven -= (_p_values(forgiven, expected, risk) > level).double()
    deviation = (expected * rate * (1 - rate) * (1 + expected / (counts + 2))).sqrt()
    forecast = torch.where(forgiven < 0, -torch.inf, (forgiven + 0.5 - expected * rate) / deviation)
    return thresholds[int(forecast.argmax()) :]


def _accepted(thresholds: Tensor, top: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """How many rows each threshold accepts, and how many of those are wrong."""
    ordered, order = top.sort()
    below = torch.searchsorted(ordered, thresholds)
    before = torch.cat([torch.zeros(1, dtype=torch.int64), wrong[order].long().cumsum(0)])
    return len(top) - below, before[-1] - before[below]


def _p_values(errors: Tensor, counts: Tensor, risk: float) -> Tensor:
    """P(at most so many errors | an error rate of risk), which is small only if the rate is lower."""
    from scipy.stats import binom

    return torch.from_numpy(binom.cdf(errors.numpy(), counts.numpy(), risk))


def _upper_limit(errors: int, count: int, confidence: float) -> float:
    """Clopper and Pearson's one-sided upper limit of a binomial share."""
    from scipy.stats import beta

    return float(beta.ppf(confidence, errors + 1, count - errors)) if errors < count else 1.0
