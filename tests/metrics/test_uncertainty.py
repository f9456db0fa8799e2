"""Uncertainties of single rows, the margin of appendix A, and the detection of foreign rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.metrics import (
    detection,
    gini,
    mutual_information,
    normalized_margin,
    predictive_entropy,
    variation_ratio,
)


def test_uncertainties_of_known_rows() -> None:
    certain, even = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])
    assert float(predictive_entropy(even)) == pytest.approx(math.log(2))
    assert float(predictive_entropy(certain)) == 0
    assert float(gini(even)) == 0.5
    assert float(gini(even, rescale=True)) == 1
    disagree = torch.stack([certain, certain.flip(1)])
    assert float(mutual_information(disagree)) == pytest.approx(math.log(2))
    assert float(predictive_entropy(disagree)) == pytest.approx(math.log(2)), "of the mean"
    assert float(variation_ratio(disagree)) == 0.5
    assert float(mutual_information(torch.stack([even, even]))) == 0
    assert float(variation_ratio(torch.stack([certain, certain, certain.flip(1)]))) == pytest.approx(1 / 3)
    with pytest.raises(InvalidArgument, match="members, rows, classes"):
        mutual_information(even)


def test_uncertainties_keep_their_bounds() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.softmax(5 * torch.randn(4, 500, 7, generator=generator, dtype=torch.float64), -1)
    information, entropy = mutual_information(p), predictive_entropy(p)
    assert bool((information >= 0).all())
    assert bool((information <= torch.minimum(entropy, torch.tensor(math.log(4))) + 1e-12).all())
    assert bool((gini(p, rescale=True) <= 1).all())
    assert bool((variation_ratio(p) <= 3 / 4).all())


def test_normalized_margin_of_a_network_without_biases() -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 8, bias=False), torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 4, bias=False)]
    network = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2]).double()
    x = torch.randn(20, 3, dtype=torch.float64)
    y = network(x).argmax(1)
    margin = normalized_margin(network(x), y, network.parameters(), order=3)
    assert margin > 0
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= 2.5
    assert normalized_margin(network(x), y, network.parameters(), order=3) == pytest.approx(margin)
    assert normalized_margin(network(x), (y + 1) % 4, network.parameters(), order=3) < 0
    # By hand: logits 3 and 1 against norm 2, order 2.
    hand = normalized_margin(torch.tensor([[3.0, 1.0], [0.0, 5.0]]), torch.tensor([0, 1]), [torch.tensor([2.0])], 2)
    assert hand == pytest.approx(2 / 4)
    with pytest.raises(InvalidArgument, match="parameters"):
        normalized_margin(network(x), y, [], order=3)


@pytest.mark.parametrize("levels", [0, 2, 5, 40])
@pytest.mark.parametrize("seed", [0, 1])
def test_detection_equals_scikit_learn_with_and_without_ties(levels: int, seed: int) -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    generator = torch.Generator().manual_seed(seed)
    inside = torch.randn(300, generator=generator, dtype=torch.float64)
    outside = torch.randn(200, generator=generator, dtype=torch.float64) + 0.7
    if levels:
        inside, outside = (inside * levels / 4).round(), (outside * levels / 4).round()
    truth = np.r_[np.zeros(300), np.ones(200)]
    scores = torch.cat([inside, outside]).numpy()
    found = detection(inside, outside)
    assert found.auroc == pytest.approx(roc_auc_score(truth, scores))
    assert found.aupr_out == pytest.approx(average_precision_score(truth, scores))
    assert found.aupr_in == pytest.approx(average_precision_score(1 - truth, -scores))
    false, true, _ = roc_curve(1 - truth, -scores, drop_intermediate=False)
    assert found.fpr95 == pytest.approx(false[true >= 0.95 - 1e-12].min())


def test_detection_at_its_limits() -> None:
    low, high = torch.zeros(50), torch.ones(30)
    perfect = detection(low, high)
    assert (perfect.auroc, perfect.aupr_in, perfect.aupr_out, perfect.fpr95) == (1, 1, 1, 0)
    assert detection(high, low).auroc == 0
    blind = detection(low, low)
    assert (blind.auroc, blind.fpr95) == (0.5, 1)
    for bad in (torch.tensor([]), torch.tensor([float("nan")])):
        with pytest.raises(BadData, match="outside"):
            detection(low, bad)
