"""Mixup that minds the distance of a pair: Bouniot et al. 2025 and Yao et al. 2022."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy import stats
from torch import Generator

from mixupmp import CMixup, Mixup, WarpedMixup
from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument


def test_the_share_of_a_pair_is_beta_with_the_authors_parameter(generator: Generator) -> None:
    """scipy's quantile function of Beta(tau, tau), their warping, and our draws have one distribution."""
    base, count = WarpedMixup(1.5, 0.6), 20_000
    squared = torch.tensor([0.5, 1.0, 2.5]).repeat_interleave(count)  # mean 4/3
    share = base.share(torch.rand(4, 3 * count, generator=generator), squared).double().view(3, count)
    for values, distance in zip(share, (0.375, 0.75, 1.875), strict=True):
        tau = 1.5 * float(torch.exp(torch.tensor(-(distance - 1) / (2 * 0.6**2))))
        assert stats.kstest(values.numpy(), stats.beta(tau, tau).cdf).pvalue > 1e-4


def test_near_pairs_are_blended_evenly_and_far_pairs_hardly(generator: Generator) -> None:
    squared = torch.tensor([0.01, 4.0]).repeat_interleave(1000)
    share = WarpedMixup(1.0, 0.25).share(torch.rand(4, 2000, generator=generator), squared)
    near, far = (share - 0.5).abs().view(2, -1)
    assert float(near.max()) < 0.1
    assert float((far > 0.499).float().mean()) > 0.98


@pytest.mark.parametrize("distance", ["inputs", "targets"])
def test_a_wide_warp_is_mixup(distance: Any) -> None:
    seen = Batch(torch.randn(20, 3, 2), torch.eye(5).repeat(4, 1), torch.ones(20))
    warped = WarpedMixup(0.7, 1e4, distance).sample(seen, 500, Generator().manual_seed(4))
    plain = Mixup(0.7).sample(seen, 500, Generator().manual_seed(4))
    for one, other in zip(warped, plain, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_the_distance_is_between_scaled_inputs_or_between_targets() -> None:
    """Rows that differ in their targets alone are all equally near by their inputs, so that nothing is warped."""
    numbers = Batch(torch.zeros(8, 2), torch.arange(8.0).view(8, 1), torch.ones(8))
    plain = Mixup(1.0).sample(numbers, 200, Generator().manual_seed(1)).targets
    by_input = WarpedMixup(1.0, 3.0).sample(numbers, 200, Generator().manual_seed(1)).targets
    by_target = WarpedMixup(1.0, 3.0, "targets").sample(numbers, 200, Generator().manual_seed(1)).targets
    assert float((by_input - plain).abs().mean()) < float((by_target - plain).abs().mean())
    assert bool(torch.isfinite(by_input).all())


def test_c_mixup_chooses_partners_by_the_gaussian_kernel_of_the_targets(generator: Generator) -> None:
    count = 60_000
    targets = torch.tensor([[0.0], [0.5], [3.0]])
    seen = Batch(torch.eye(3), targets, torch.ones(3))
    drawn = CMixup(1.0, 0.7).sample(seen, count, generator)
    assert torch.allclose(drawn.targets, drawn.inputs @ targets, atol=1e-5)
    kernel = torch.exp(-(targets - targets.T).square() / (2 * 0.7**2))
    chance = kernel / kernel.sum(1, keepdim=True) / 3
    apart = float(chance.sum() - chance.diagonal().sum())
    found = float(((drawn.inputs > 0).sum(1) == 2).float().mean())
    assert abs(found - apart) < 5 * (0.25 / count) ** 0.5
    pairs = (drawn.inputs > 0).float()
    near = float((pairs[:, 0] * pairs[:, 1]).mean())
    assert abs(near - float(chance[0, 1] + chance[1, 0])) < 5 * (0.25 / count) ** 0.5


def test_a_wide_kernel_of_targets_is_mixup() -> None:
    seen = Batch(torch.randn(6, 2), torch.arange(6.0).view(6, 1), torch.ones(6))
    wide = CMixup(0.5, 1e5).sample(seen, 300, Generator().manual_seed(0))
    plain = Mixup(0.5).sample(seen, 300, Generator().manual_seed(0))
    assert torch.allclose(wide.inputs, plain.inputs, atol=1e-5)


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), "1"])
def test_widths_are_positive(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="width must be"):
        WarpedMixup(1.0, wrong)
    with pytest.raises(InvalidArgument, match="bandwidth must be"):
        CMixup(1.0, wrong)
    with pytest.raises(InvalidArgument, match="distance must be"):
        WarpedMixup(1.0, 1.0, wrong)
