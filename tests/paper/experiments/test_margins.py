"""Margins of weighted losses, on problems whose largest margin is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mixupmp.paper.experiments.margins import (
    BOUND,
    NETWORKS,
    SVM_MARGIN,
    _ratios,
    bootstrap_weights,
    log_softplus,
    margins,
    normalized_margins,
    separable_points,
)


def test_the_margin_of_the_points_is_that_of_a_support_vector_machine() -> None:
    from sklearn.svm import SVC

    points, labels = separable_points()
    both, signs = torch.cat([points, -points]), torch.cat([labels, -labels])  # mirrored: its plane has no offset
    machine = SVC(kernel="linear", C=1e6, tol=1e-8).fit(both.numpy(), signs.numpy())
    assert 1 / np.linalg.norm(machine.coef_) == pytest.approx(SVM_MARGIN, rel=1e-4)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_weighted_and_unweighted_losses_end_at_the_largest_margin(network) -> None:
    for weights in (torch.ones(3, 80, dtype=torch.float64), bootstrap_weights(3, 80)):
        found = margins(network, weights, 400, [10, 400])
        assert found[400] == pytest.approx(network.largest_margin, rel=0.01)
        assert (found[400] <= network.largest_margin * (1 + 1e-9)).all()
        assert ((found[10] - network.largest_margin).abs() > (found[400] - network.largest_margin).abs()).all()


def test_a_normalized_margin_does_not_change_with_the_scale_of_the_weights() -> None:
    points, labels = separable_points()
    for network in NETWORKS:
        start = network.start(2, torch.Generator().manual_seed(0))
        larger = [3 * weight for weight in start]
        expected = normalized_margins(network, start, points, labels)
        assert torch.allclose(normalized_margins(network, larger, points, labels), expected)


def test_the_logarithm_of_a_loss_is_exact_where_the_loss_is_not_zero_yet() -> None:
    values = torch.linspace(-60, 20, 81, dtype=torch.float64)
    expected = torch.log1p(values.exp()).log()
    assert torch.allclose(log_softplus(values[30:]), expected[30:], atol=1e-12)
    assert torch.allclose(log_softplus(torch.tensor([-900.0])), torch.tensor([-900.0]))


def test_the_weights_of_the_bootstrap_are_bounded_and_of_mean_one() -> None:
    weights = bootstrap_weights(50, 80)
    assert torch.allclose(weights.mean(1), torch.ones(50, dtype=torch.float64), atol=1e-5)
    assert float(weights.min()) > 1 / BOUND
    assert float(weights.max()) < BOUND
    assert float(weights.std()) > 0.9  # 1 - 1/BOUND of the plain bootstrap's


def test_ratios_begin_where_both_margins_are_positive() -> None:
    network = NETWORKS[0]
    tracks = {
        (network.name, "BB"): {1: torch.tensor([-1.0, 1.0]), 2: torch.tensor([1.0, 1.0]), 3: torch.tensor([2.0, 1.0])},
        (network.name, "DE"): {1: torch.tensor([1.0, 1.0]), 2: torch.tensor([2.0, 4.0]), 3: torch.tensor([2.0, 2.0])},
    }
    steps, found = _ratios(tracks, network, [1, 2, 3])
    assert steps == [2, 3]
    assert found.tolist() == [[0.5, 0.25], [1.0, 0.5]]
