"""What a regression posterior is worth: the members are Gaussians, the predictive is their equal mixture.

Everywhere `means` and `deviations` are (members, rows) - one member for a single Gaussian - and `targets` (rows,).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixupmp.core.errors import BadData, check
from mixupmp.metrics.checks import as_floats


@torch.no_grad()
def mixture_nll(means: Tensor, deviations: Tensor, targets: Tensor) -> Tensor:
    """-log (1/B) sum_b N(y; mu_b, sigma_b^2) for each row."""
    means, deviations, targets = _checked(means, deviations, targets)
    scaled = (targets - means) / deviations
    logs = -0.5 * scaled.square() - deviations.log() - 0.5 * math.log(2 * math.pi)
    return math.log(len(means)) - torch.logsumexp(logs, 0)


@torch.no_grad()
def mixture_crps(means: Tensor, deviations: Tensor, targets: Tensor) -> Tensor:
    """The continuous ranked probability score of the mixture for each row, in closed form (Grimit et al., 2006).

    CRPS = mean_b A(y - mu_b, sigma_b) - 1/2 mean_{b,c} A(mu_b - mu_c, sqrt(sigma_b^2 + sigma_c^2)) with
    A(m, s) = 2 s phi(m/s) + m (2 Phi(m/s) - 1), the mean absolute value of N(m, s^2).
    """
    means, deviations, targets = _checked(means, deviations, targets)
    spread = torch.zeros_like(targets)
    for mean, deviation in zip(means, deviations, strict=True):  # a member at a time: no (members, members, rows)
        spread += _mean_absolute(mean - means, (deviation.square() + deviations.square()).sqrt()).mean(0)
    return _mean_absolute(targets - means, deviations).mean(0) - spread / (2 * len(means))


def gaussian_crps(means: Tensor, deviations: Tensor, targets: Tensor) -> Tensor:
    """The CRPS of one Gaussian for each row: sigma (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)), z = (y - mu)/sigma.

    All three are (rows,).
    """
    return mixture_crps(means[None], deviations[None], targets)


@torch.no_grad()
def mixture_cdf(means: Tensor, deviations: Tensor, targets: Tensor) -> Tensor:
    """The mixture's distribution function at each row's target: uniform on [0, 1] if the posterior is calibrated."""
    means, deviations, targets = _checked(means, deviations, targets)
    return _ndtr((targets - means) / deviations).mean(0)


@torch.no_grad()
def interval_coverage(means: Tensor, deviations: Tensor, targets: Tensor, coverage: float = 0.9) -> float:
    """The share of targets inside the mixture's central interval of this probability."""
    _check_coverage(coverage)
    return float(((mixture_cdf(means, deviations, targets) - 0.5).abs() <= coverage / 2).double().mean())


@torch.no_grad()
def mixture_interval(means: Tensor, deviations: Tensor, coverage: float = 0.9) -> tuple[Tensor, Tensor]:
    """The central interval of the mixture with this probability: (lower, upper), each (rows,)."""
    _check_coverage(coverage)
    tail = (1 - coverage) / 2
    return mixture_quantile(means, deviations, tail), mixture_quantile(means, deviations, 1 - tail)


@torch.no_grad()
def mixture_quantile(means: Tensor, deviations: Tensor, level: float) -> Tensor:
    """Where the mixture's distribution function reaches the level, for each row, by bisection."""
    check(0 < level < 1, "level", level, "between 0 and 1, both excluded")
    means, deviations, _ = _checked(means, deviations, None)
    # The quantile of a mixture lies between the lowest and the highest of its parts' quantiles.
    step = float(torch.special.ndtri(torch.tensor(level, dtype=torch.float64)))
    parts = means + step * deviations
    low, high = parts.amin(0), parts.amax(0)
    for _ in range(60):
        middle = (low + high) / 2
        short = _ndtr((middle - means) / deviations).mean(0) < level
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return (low + high) / 2


def _mean_absolute(mean: Tensor, deviation: Tensor) -> Tensor:
    scaled = mean / deviation
    density = torch.exp(-0.5 * scaled.square()) / math.sqrt(2 * math.pi)
    return 2 * deviation * density + mean * (2 * _ndtr(scaled) - 1)


def _ndtr(values: Tensor) -> Tensor:
    """The distribution function of the standard Gaussian."""
    return torch.special.ndtr(values)


def _check_coverage(coverage: float) -> None:
    check(0 < coverage < 1, "coverage", coverage, "between 0 and 1, both excluded")


def _checked(means: Tensor, deviations: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """All three as float64 of shapes (members, rows), (members, rows), (rows,); no targets are zeros."""
    means, deviations = as_floats(means, "means").double(), as_floats(deviations, "deviations").double()
    check(means.ndim == 2 and len(means) >= 1, "means", tuple(means.shape), "of shape (members, rows)")
    check(deviations.shape == means.shape, "deviations", tuple(deviations.shape), f"of shape {tuple(means.shape)}")
    shape = means.shape[1:]
    values = means.new_zeros(shape) if targets is None else as_floats(targets, "targets").double()
    check(values.shape == shape, "targets", tuple(values.shape), f"of shape {tuple(shape)}, one for each row")
    if not all(bool(torch.isfinite(t).all()) for t in (means, deviations, values)):
        raise BadData("means, deviations and targets must hold neither NaN nor infinity.")
    if not bool((deviations > 0).all()):
        raise BadData(f"deviations must be positive, found {float(deviations.min())}.")
    return means, deviations, values
