"""The martingale diagnostic, on predictives of which it is known whether they are martingales."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from mixupmp import Dataset, Recipe, Rows, deep_ensemble, fit, plan_for
from mixupmp.core.errors import InvalidArgument
from mixupmp.decide.martingale import Learner, martingale_diagnostic, plan_learner

Floats = NDArray[np.float64]
X, Y = np.zeros((12, 1)), np.array([0] * 8 + [1] * 3 + [2])


def urn(power: float) -> Learner:
    """P_n proportional to (count + 1)^power: Polya's urn at power 1, and no martingale at any other."""

    def learn(inputs: Floats, labels: NDArray[np.int64], seed: int) -> Callable[[Floats], Floats]:
        mass = (np.bincount(labels, minlength=3) + 1.0) ** power
        return lambda inputs: np.tile(mass / mass.sum(), (len(inputs), 1))

    return learn


def expected_drift(power: float) -> Floats:
    """E[P_{n+1}] - P_n of one new row, by summing over its three labels."""
    counts = np.bincount(Y) + 1.0
    before = counts**power / (counts**power).sum()
    after = [(counts + np.eye(3)[k]) ** power for k in range(3)]
    return sum(p * a / a.sum() for p, a in zip(before, after, strict=True)) - before


def test_the_expected_drift_of_an_urn_is_zero_and_of_a_sharpened_one_is_not() -> None:
    assert np.abs(expected_drift(1)).max() < 1e-15
    assert np.abs(expected_drift(3)).max() > 1e-3


def test_an_urn_shows_no_drift_more_often_than_its_level() -> None:
    values = [
        martingale_diagnostic(urn(1), X, Y, X[:1], rows=3, steps=2, futures=12, seed=seed).p_value
        for seed in range(100)
    ]
    assert np.mean(np.array(values) < 0.05) < 0.13  # binomial(100, .05) is above 12 once in 1,000
    assert 0.35 < np.mean(values) < 0.7


def test_the_drift_of_a_sharpened_urn_is_found_and_has_its_size() -> None:
    found = martingale_diagnostic(urn(3), X, Y, X[:2], rows=1, futures=4000)
    assert found.p_value < 0.01
    assert np.abs(found.drift[0] - expected_drift(3)).max() < 4 * found.standard_error.max()
    assert np.array_equal(found.drift[0], found.drift[1])
    assert found.size == pytest.approx(np.sqrt((expected_drift(3) ** 2).mean()), rel=0.3)
    assert found.change > found.size
    assert "drifts" in str(found)


def test_labels_are_drawn_from_the_predictions() -> None:
    seen: list[NDArray[np.int64]] = []

    def learn(inputs: Floats, labels: NDArray[np.int64], seed: int) -> Callable[[Floats], Floats]:
        seen.append(labels[12:])
        return lambda inputs: np.tile([0.2, 0.3, 0.5], (len(inputs), 1))

    martingale_diagnostic(learn, X, Y, X[:1], rows=2000, futures=2)
    drawn = np.bincount(np.concatenate(seen), minlength=3) / 4000
    assert np.abs(drawn - [0.2, 0.3, 0.5]).max() < 4 * np.sqrt(0.25 / 4000)


def test_what_the_seed_alone_changes_cancels_out() -> None:
    def learn(inputs: Floats, labels: NDArray[np.int64], seed: int) -> Callable[[Floats], Floats]:
        own = np.random.default_rng(seed).dirichlet([1.0, 1.0, 1.0])
        return lambda inputs: np.tile(own, (len(inputs), 1))

    found = martingale_diagnostic(learn, X, Y, X[:1], futures=6)
    assert found.change == 0
    assert found.size == 0
    assert found.p_value == 1


@pytest.mark.parametrize("wrong", [{"rows": 0}, {"steps": 0}, {"futures": 1}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        martingale_diagnostic(urn(1), X, Y, X[:1], **wrong)


def test_a_plan_is_a_learner(table: Dataset) -> None:
    plan = plan_for(table, deep_ensemble(2), "mlp", Recipe(epochs=2), seed=0)
    assert isinstance(plan.train, Rows)
    found = martingale_diagnostic(
        plan_learner(plan), plan.train.inputs, plan.train.labels.numpy(), table.test.inputs, rows=2, futures=2
    )
    before = fit(plan).probabilities(table.test.inputs)
    assert found.drift.shape == tuple(before.shape)
    assert np.abs(found.drift.sum(1)).max() < 1e-6  # probabilities sum to one before and after
    assert found.change > 0
