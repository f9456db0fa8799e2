"""Selective prediction: predict where the confidence is high, abstain elsewhere.

`rejection` measures how well an uncertainty ranks the errors. `fit_abstention` finds a confidence threshold above which
the error rate is bounded with high probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mixupmp.core.errors import BadData, check
from mixupmp.core.spec import register
from mixupmp.core.user_line import warn_at_user_line
from mixupmp.metrics.checks import GuaranteeWarning, as_floats, checked_labels, checked_probabilities, pooled

# Largest number of thresholds tested: quantiles of the confidence on the tuning rows.
CANDIDATES = 200
# Predicted class of a row on which the rule abstains.
ABSTAIN = -1


@dataclass(frozen=True)
class Rejection:
    """Accuracy-rejection curve: accuracy of the rows kept when the most uncertain are rejected first."""

    kept: tuple[float, ...]  # coverage: shares of the rows, rising to 1
    accuracy: tuple[float, ...]  # of those rows
    aurc: float  # area under the risk-coverage curve: mean over k of the error rate of the k most certain rows
    excess_aurc: float  # aurc minus that of the best ranking of the same errors (Geifman et al. 2019)


@torch.no_grad()
def rejection(uncertainty: Tensor, correct: Tensor, points: int = 200) -> Rejection:
    """The accuracy-rejection curve at `points` coverages, and AURC over all rows.

    Rows of equal uncertainty count as the exact mean over their random orders.
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


@register
@dataclass(frozen=True)
class Abstention:
    """Predicts where the largest probability is at least `threshold`; abstains everywhere if that is None.

    With probability `confidence` over the rows of the fit, the error rate of its predictions is at most `risk`.
    """

    threshold: float | None
    risk: float
    confidence: float
    accepted: float  # coverage: the share of the test rows it predicts
    bound: float | None  # upper confidence limit of its error rate
    reason: str  # counts behind the choice, or why it abstains everywhere

    def __post_init__(self) -> None:
        usable = self.threshold is None or 0 <= self.threshold <= 2
        check(usable, "threshold", self.threshold, "a confidence or None")

    @torch.no_grad()
    def accepts(self, probabilities: Tensor) -> Tensor:
        """The rows it predicts: bool (rows,)."""
        values = pooled(checked_probabilities(probabilities, members=None))
        threshold = math.inf if self.threshold is None else self.threshold
        return values.amax(1).double() >= threshold

    @torch.no_grad()
    def predict(self, probabilities: Tensor) -> Tensor:
        """Predicted classes (rows,), -1 where it abstains."""
        values = pooled(checked_probabilities(probabilities, members=None))
        return torch.where(self.accepts(values), values.argmax(1), ABSTAIN)


@torch.no_grad()
def fit_abstention(
    probabilities: Tensor,
    labels: Tensor,
    risk: float = 0.01,
    confidence: float = 0.95,
    seed: int = 0,
    tuning: float = 0.25,
) -> Abstention:
    """The lowest threshold on the largest probability at which the error rate of the predictions is at most `risk`.

    Split fixed-sequence testing (Angelopoulos et al. 2021, Learn then Test). A seeded share `tuning` of the rows orders
    the thresholds, descending from one whose test is likely to succeed. The other rows test the hypotheses
    "the error rate is above `risk`" in that order, each at level 1 - confidence, until one is not rejected. As the
    order is fixed in advance, the family-wise error is controlled without a correction for multiple tests. Given the
    number of accepted rows the errors are binomial, so each test is exact (Clopper & Pearson 1934). Rows must be
    independent draws from the distribution of the rows to come; nothing is assumed about the network.
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
        reason = f"even without errors {needed} test rows are needed and there are {tests}. Hold out more rows."
        return _abstain_always(risk, confidence, reason)
    thresholds = _proposals(top[:cut], wrong[:cut], tests, risk, 1 - confidence)
    return _last_safe(thresholds, top[cut:], wrong[cut:], risk, confidence)


def _last_safe(thresholds: Tensor, top: Tensor, wrong: Tensor, risk: float, confidence: float) -> Abstention:
    """Test the thresholds in order; the last one before the first failure."""
    counts, errors = _accepted(thresholds, top, wrong)
    passed = int((_p_values(errors, counts, risk) <= 1 - confidence).long().cumprod(0).sum())
    if passed == 0:
        reason = (
            f"{int(errors[0])} wrong among the {int(counts[0])} most certain held-out rows do not prove it. "
            "Allow more risk, hold out more rows, or improve the network."
        )
        return _abstain_always(risk, confidence, reason)
    chosen = float(thresholds[passed - 1])
    n, k = int(counts[passed - 1]), int(errors[passed - 1])
    reason = f"{k} of the {n} test rows with a confidence of at least {chosen:.6g} are wrong."
    return Abstention(chosen, risk, confidence, n / len(top), _upper_limit(k, n, confidence), reason)


def _abstain_always(risk: float, confidence: float, why: str) -> Abstention:
    reason = f"no threshold keeps the error at {risk:g} with confidence {confidence:g}, so it always abstains: {why}"
    warn_at_user_line(reason, GuaranteeWarning)
    return Abstention(None, risk, confidence, 0.0, None, reason)


def _proposals(top: Tensor, wrong: Tensor, tests: int, risk: float, level: float) -> Tensor:
    """Thresholds in descending order from the highest whose test is about as likely to succeed as any.

    Success is forecast by a normal approximation of the errors to come under a Beta(1/2, 1/2) prior of their rate. A
    poor forecast costs coverage, never the guarantee. Starting at the best forecast itself, and not half a deviation
    before it, abstained from everything 1.1 to 1.6 times as often with 150 to 450 rows at risks of 5% and 10%.
    """
    from scipy.stats import binom

    places = torch.linspace(0, len(top) - 1, min(CANDIDATES, len(top)), dtype=torch.float64).round().long()
    thresholds = torch.unique(top.sort().values[places]).flip(0)
    counts, errors = (values.double() for values in _accepted(thresholds, top, wrong))
    share, rate = counts / len(top), (errors + 0.5) / (counts + 1)
    # One standard deviation fewer than expected: a test with just enough rows on average has too few half the time.
    expected = (tests * share - (tests * share * (1 - share)).sqrt()).floor().clamp_min(0)
    # Largest number of errors with which a test of this many rows succeeds; -1 if it cannot.
    allowed = torch.from_numpy(binom.ppf(level, expected.numpy(), risk))
    allowed -= (_p_values(allowed, expected, risk) > level).double()
    deviation = (expected * rate * (1 - rate) * (1 + expected / (counts + 2))).sqrt()
    forecast = torch.where(allowed < 0, -torch.inf, (allowed + 0.5 - expected * rate) / deviation)
    return thresholds[int((forecast >= forecast.max() - 0.5).nonzero()[0]) :]


def _accepted(thresholds: Tensor, top: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """Accepted rows of each threshold, and the errors among them."""
    ordered, order = top.sort()
    below = torch.searchsorted(ordered, thresholds)
    before = torch.cat([torch.zeros(1, dtype=torch.int64), wrong[order].long().cumsum(0)])
    return len(top) - below, before[-1] - before[below]


def _p_values(errors: Tensor, counts: Tensor, risk: float) -> Tensor:
    """P(at most this many errors | error rate = risk)."""
    from scipy.stats import binom

    return torch.from_numpy(binom.cdf(errors.numpy(), counts.numpy(), risk))


def _upper_limit(errors: int, count: int, confidence: float) -> float:
    """Clopper and Pearson's one-sided upper confidence limit."""
    from scipy.stats import beta

    return float(beta.ppf(confidence, errors + 1, count - errors)) if errors < count else 1.0
