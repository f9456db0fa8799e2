"""The variance factor of a regression posterior against what theory says it does."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mixupmp.core.errors import InvalidArgument
from mixupmp.decide.calibrators import VarianceFactor, bound_message
from mixupmp.decide.variance import FACTORS, fit_variance_factor, nlls_by_factor
from mixupmp.metrics.regression import mixture_nll


def mixtures(rows: int, factor: float, members: int = 3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Targets drawn from mixtures of Gaussians, and means and deviations whose variance needs this factor."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(members, rows, generator=generator, dtype=torch.float64)
    deviations = 0.5 + torch.rand(members, rows, generator=generator, dtype=torch.float64)
    chosen = torch.randint(members, (1, rows), generator=generator)
    noise = torch.randn(rows, generator=generator, dtype=torch.float64)
    targets = means.gather(0, chosen)[0] + deviations.gather(0, chosen)[0] * noise
    return *VarianceFactor(1 / factor)(means, deviations), targets


@pytest.mark.parametrize("truth", [0.3, 1.0, 4.0])
def test_it_recovers_the_factor_that_was_used(truth: float) -> None:
    means, deviations, targets = mixtures(20_000, truth)
    fitted = fit_variance_factor(means, deviations, targets)
    assert fitted.factor == pytest.approx(truth, rel=0.19)  # a step of the grid
    before, after = mixture_nll(means, deviations, targets), mixture_nll(*fitted(means, deviations), targets)
    assert after.mean() <= before.mean()


def test_the_mean_stays_and_the_variance_is_multiplied() -> None:
    means, deviations, _ = mixtures(50, 1.0)
    scaled = VarianceFactor(3.0)(means, deviations)
    assert torch.allclose(scaled[0].mean(0), means.mean(0))
    before, after = (d.square().mean(0) + m.var(0, correction=0) for m, d in ((means, deviations), scaled))
    assert torch.allclose(after, 3 * before)


def test_losses_of_all_factors_are_those_of_each() -> None:
    means, deviations, targets = mixtures(20, 2.0)
    found = nlls_by_factor(means, deviations, targets)
    for place in (0, 10, len(FACTORS) - 1):
        scaled = VarianceFactor(float(FACTORS[place]))(means, deviations)
        assert torch.allclose(found[:, place], mixture_nll(*scaled, targets))


def test_it_stays_one_without_evidence() -> None:
    for seed in range(5):
        few = fit_variance_factor(*mixtures(3, 1.5, seed=seed))
        assert 0.5 < few.factor < 2
    assert fit_variance_factor(*mixtures(1, 4.0)) == VarianceFactor(1.0)


def test_whole_number_weights_are_repeated_rows() -> None:
    means, deviations, targets = mixtures(300, 4.0)
    weights = torch.arange(300) % 3
    repeated = [part.repeat_interleave(weights, -1) for part in (means, deviations, targets)]
    assert fit_variance_factor(means, deviations, targets, weights=weights) == fit_variance_factor(*repeated)


def test_bounds() -> None:
    means, deviations, targets = mixtures(500, 1.0)
    wild = fit_variance_factor(means, deviations, 100 * targets)
    assert wild.at_bound
    assert "variance factor ended at its bound 1024" in (bound_message(wild) or "")
    assert bound_message(VarianceFactor(2.0)) is None
    with pytest.raises(InvalidArgument, match="factor"):
        VarianceFactor(math.nan)
