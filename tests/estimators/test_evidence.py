"""What calibration and conformal sets promise, shown on real data."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from scipy.stats import betabinom
from sklearn.datasets import load_digits

from mixupmp import Recipe, data, mixup_ensemble, split
from mixupmp.core.errors import DataNotFound
from mixupmp.decide.conformal import fit_conformal
from mixupmp.estimators import DeepEnsembleClassifier, PosteriorClassifier

COVERAGE = 0.9


def test_conformal_coverage_over_200_random_splits_of_digits() -> None:
    """Given the rows, a random split is exchangeable: the coverage of n held-out rows on m others is beta-binomial."""
    digits = load_digits()
    recipe = Recipe(epochs=15, batch_size=128, optimizer="adamw", learning_rate=5e-3)
    model = DeepEnsembleClassifier(2, recipe=recipe, random_state=0).fit(digits.data[:500], digits.target[:500])
    features, labels = digits.data[500:], torch.from_numpy(digits.target[500:])
    probabilities = torch.from_numpy(model.predict_proba(features))
    rank = -(-(len(labels) // 2 + 1) * 9 // 10)  # ceil((n + 1) 9/10)
    n, m = len(labels) // 2, len(labels) - len(labels) // 2
    law = betabinom(m, rank, n + 1 - rank)
    generator = torch.Generator().manual_seed(0)
    for kind in ("lac", "aps", "raps"):
        covered = []
        for _ in range(200):
            order = torch.randperm(len(labels), generator=generator)
            held, new = order[:n], order[n:]
            sets = fit_conformal(kind, probabilities[held], labels[held]).predict_set(probabilities[new], COVERAGE)
            covered.append(int(sets[torch.arange(m), labels[new]].sum()))
        counts = np.array(covered)
        low, high = law.ppf(0.005), law.ppf(0.995)
        # One in a hundred may lie outside; more than nine of 200 would have a probability under 1e-4.
        assert ((counts < low) | (counts > high)).sum() <= 9
        noise = law.std() / np.sqrt(200)
        assert abs(counts.mean() - law.mean()) < 4 * noise
    # The estimator's own sets are these sets.
    model.calibrate_on(features[::2], labels[::2].numpy(), kind=None)
    direct = fit_conformal("lac", *_sorted_like(model)).predict_set(probabilities[1::2].float(), COVERAGE)
    assert np.array_equal(model.predict_set(features[1::2], COVERAGE), direct.numpy())


def _sorted_like(model: DeepEnsembleClassifier) -> tuple[torch.Tensor, torch.Tensor]:
    assert model.held_out_ is not None
    return model.held_out_


@pytest.mark.slow
def test_temperature_at_least_halves_the_ece_of_a_mixup_ensemble_on_fashion_mnist() -> None:
    try:
        dataset = data.load("fashion-mnist")
    except DataNotFound:
        pytest.skip(f"no Fashion-MNIST under MIXUPMP_DATA={os.environ.get('MIXUPMP_DATA')}")
    _, few = split(dataset.train, 4000 / len(dataset.train))
    train, held = split(few, 0.5)
    recipe = Recipe(epochs=30, learning_rate=0.05)
    method = mixup_ensemble(2.0, members=2)
    model = PosteriorClassifier(method, network="cnn", recipe=recipe, calibrate=False, random_state=0)
    model.fit(train)
    before = model.evaluate(dataset.test)
    model.calibrate_on(held, kept=0)
    after = model.evaluate(dataset.test)
    print(f"ECE {before['ece']:.4f} -> {after['ece']:.4f}, NLL {before['nll']:.4f} -> {after['nll']:.4f}")
    assert before["ece"] is not None
    assert after["ece"] is not None
    assert after["ece"] <= before["ece"] / 2
    assert after["acc"] == before["acc"]
