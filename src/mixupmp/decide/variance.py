"""Calibrate the variance of a regression posterior after pooling: one factor, fitted on held-out rows.

It is to a mixture of Gaussians what the temperature is to averaged probabilities, and is fitted in the same way: with a
prior toward one, and kept only if its cross-validated gain in NLL exceeds its standard error.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixupmp.decide.calibrate import PRIOR_DEVIATION, beyond, checked_weights, fold_numbers
from mixupmp.decide.calibrators import VARIANCE_BOUNDS, VarianceFactor

# A quarter of a doubling from one to the next: half a step is 4% of a deviation, and costs .002 nats of NLL.
_LOW, _HIGH = (4 * round(math.log2(bound)) for bound in VARIANCE_BOUNDS)
FACTORS = 2 ** (torch.arange(_LOW, _HIGH + 1, dtype=torch.float64) / 4)


def fit_variance_factor(
    means: Tensor, deviations: Tensor, targets: Tensor, *, weights: Tensor | None = None, standard_errors: float = 1.0
) -> VarianceFactor:
    r"""The factor of the pooled predictive's variance, fitted on rows that no member was trained on.

    With beta = 1/factor, the minimum over `FACTORS` of

        sum_i w_i NLL_i(beta)  +  (beta - 1 - log beta) / s^2,

    NLL_i that of the equal mixture of the members' Gaussians, scaled about its mean, and s = `PRIOR_DEVIATION`. One is
    returned unless the gain in NLL, cross-validated and compared row by row, exceeds `standard_errors` of its standard
    errors.

    Parameters
    ----------
    means, deviations : Tensor of shape (members, rows)
    targets : Tensor of shape (rows,)
    weights : Tensor of shape (rows,) or None
        How much each row counts; None: 1.
    standard_errors : float
    """
    return best_factor(nlls_by_factor(means, deviations, targets), weights, standard_errors)


def nlls_by_factor(means: Tensor, deviations: Tensor, targets: Tensor) -> Tensor:
    """The NLL of each row under each of `FACTORS`: (rows, factors)."""
    means, deviations, spread = means.double().cpu(), deviations.double().cpu(), FACTORS.sqrt()[:, None, None]
    center = means.mean(0)
    scaled = ((targets.double().cpu() - center) / spread - (means - center)) / deviations
    logs = -0.5 * scaled.square() - deviations.log() - spread.log() - 0.5 * math.log(2 * math.pi)
    return (math.log(len(means)) - torch.logsumexp(logs, 1)).T


def best_factor(nlls: Tensor, weights: Tensor | None, standard_errors: float = 1.0) -> VarianceFactor:
    """The factor for rows whose NLL under each of `FACTORS` is given."""
    rows = len(nlls)
    counts = checked_weights(weights, rows)
    penalty = (1 / FACTORS - 1 + FACTORS.log()) / PRIOR_DEVIATION**2
    one = int((FACTORS == 1).nonzero())
    fold = fold_numbers(rows)
    gains = torch.zeros_like(counts)
    for number in range(int(fold.max()) + 1 if rows > 1 else 0):
        left_out = fold == number
        found = int((counts[~left_out] @ nlls[~left_out] + penalty).argmin())
        gains[left_out] = nlls[left_out, one] - nlls[left_out, found]
    if not (float(counts @ gains) > 0 and beyond(gains, counts, standard_errors)):
        return VarianceFactor(1.0)
    return VarianceFactor(float(FACTORS[int((counts @ nlls + penalty).argmin())]))
