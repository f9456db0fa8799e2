"""The closed forms for mixtures of Gaussians against quadrature, draws and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.metrics import (
    gaussian_crps,
    interval_coverage,
    mixture_cdf,
    mixture_crps,
    mixture_interval,
    mixture_nll,
    mixture_quantile,
)


def mixture(members: int, rows: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(members, rows, generator=generator, dtype=torch.float64) * 2
    deviations = 0.3 + torch.rand(members, rows, generator=generator, dtype=torch.float64)
    chosen = torch.randint(members, (1, rows), generator=generator)
    noise = torch.randn(rows, generator=generator, dtype=torch.float64)
    return means, deviations, means.gather(0, chosen)[0] + deviations.gather(0, chosen)[0] * noise


def test_nll_of_the_mixture() -> None:
    means, deviations, targets = mixture(3, 6)
    density = stats.norm.pdf(targets.numpy(), means.numpy(), deviations.numpy()).mean(0)
    assert mixture_nll(means, deviations, targets).numpy() == pytest.approx(-np.log(density))
    far = mixture_nll(torch.zeros(2, 1), torch.ones(2, 1), torch.tensor([100.0]))
    assert float(far) == pytest.approx(5000.9189, rel=1e-6), "no underflow far out"


@pytest.mark.parametrize("members", [1, 4])
def test_crps_equals_its_integral(members: int) -> None:
    means, deviations, targets = mixture(members, 4, seed=members)
    found = mixture_crps(means, deviations, targets)
    for row in range(4):
        mean, deviation, target = means[:, row].numpy(), deviations[:, row].numpy(), float(targets[row])

        def gap(x: float, mean: np.ndarray = mean, deviation: np.ndarray = deviation, y: float = target) -> float:
            return float((stats.norm.cdf(x, mean, deviation).mean() - (x >= y)) ** 2)

        expected = integrate.quad(gap, -20, target)[0] + integrate.quad(gap, target, 20)[0]
        assert float(found[row]) == pytest.approx(expected, abs=1e-6)


def test_crps_of_one_gaussian_has_the_known_form() -> None:
    means, deviations, targets = mixture(1, 50)
    z = ((targets - means[0]) / deviations[0]).numpy()
    known = deviations[0].numpy() * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert gaussian_crps(means[0], deviations[0], targets).numpy() == pytest.approx(known)


def test_quantiles_invert_the_distribution_function() -> None:
    means, deviations, _ = mixture(5, 30)
    for level in (0.01, 0.3, 0.5, 0.95):
        at = mixture_quantile(means, deviations, level)
        assert mixture_cdf(means, deviations, at).numpy() == pytest.approx(np.full(30, level), abs=1e-9)
    low, high = mixture_interval(means[:1], deviations[:1], 0.8)
    assert ((high - low) / deviations[0]).numpy() == pytest.approx(np.full(30, 2 * stats.norm.ppf(0.9)))


def test_coverage_of_the_truth_is_nominal_and_agrees_with_the_interval() -> None:
    means, deviations, targets = mixture(3, 20_000)
    for coverage in (0.5, 0.9):
        found = interval_coverage(means, deviations, targets, coverage)
        assert found == pytest.approx(coverage, abs=4 * np.sqrt(coverage * (1 - coverage) / 20_000))
        low, high = mixture_interval(means, deviations, coverage)
        assert float(((targets >= low) & (targets <= high)).double().mean()) == found
    assert interval_coverage(means, deviations / 10, targets, 0.9) < 0.7, "too narrow shows"


def test_bad_input_is_named() -> None:
    means, deviations, targets = mixture(2, 3)
    with pytest.raises(BadData, match="deviations must be positive"):
        mixture_nll(means, -deviations, targets)
    with pytest.raises(BadData, match="NaN"):
        mixture_crps(means * torch.nan, deviations, targets)
    with pytest.raises(InvalidArgument, match="targets"):
        mixture_crps(means, deviations, targets[:2])
    with pytest.raises(InvalidArgument, match="deviations"):
        mixture_nll(means, deviations[:1], targets)
    with pytest.raises(InvalidArgument, match="coverage"):
        interval_coverage(means, deviations, targets, 1.0)
    with pytest.raises(InvalidArgument, match="level"):
        mixture_quantile(means, deviations, 0.0)
