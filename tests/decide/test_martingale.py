"""The martingale diagnostic, on predictives of which it is known whether they are martingales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from mixupmp import Dataset, Recipe, Rows, deep_ensemble, fit, plan_for
from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.decide.martingale import Learner, martingale_diagnostic, plan_learner

Floats = NDArray[np.float64]
X, Y = np.zeros((12, 1)), np.array([0] * 8 + [1] * 3 + [2])


def urn(power: float, classes: int = 3) -> Learner:
    """P_n proportional to (count + 1)^power: Polya's urn at power 1, and no martingale at any other."""

    def learn(inputs: Any, labels: NDArray[np.int64], seed: int) -> Callable[[Any], Floats]:
        mass = (np.bincount(labels, minlength=classes) + 1.0) ** power
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


@pytest.mark.parametrize("rows", [1, 5, 50])
@pytest.mark.parametrize("counts", [(25, 25), (45, 5), (50, 0), (40, 5, 5)])
def test_nor_does_an_urn_where_a_rare_label_makes_up_for_many_small_changes(counts: tuple[int, ...], rows: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    inputs = np.zeros((50, 1))
    values = [
        martingale_diagnostic(urn(1, len(counts)), inputs, labels, X[:1], rows=rows, futures=8, seed=seed).p_value
        for seed in range(80)
    ]
    assert np.mean(np.array(values) < 0.05) < 0.15  # binomial(80, .05) is above 11 once in 1,000


@pytest.mark.parametrize("power", [0.5, 3])
def test_an_urn_that_is_flattened_or_sharpened_is_rejected(power: float) -> None:
    values = [
        martingale_diagnostic(urn(power), X, Y, X[:1], rows=24, futures=20, seed=seed).p_value for seed in range(20)
    ]
    assert np.mean(np.array(values) < 0.05) > 0.8


def test_a_drift_that_no_rare_label_can_make_up_for_is_found() -> None:
    def learn(inputs: Floats, labels: NDArray[np.int64], seed: int) -> Callable[[Floats], Floats]:
        found = [1.0, 0.0, 0.0] if len(labels) == len(Y) else [0.9, 0.1, 0.0]
        return lambda inputs: np.tile(found, (len(inputs), 1))

    assert martingale_diagnostic(learn, X, Y, X[:1], futures=12).p_value < 0.01


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


@pytest.mark.parametrize("form", [list, pd.DataFrame, torch.from_numpy, lambda values: [str(v) for v in values]])
def test_inputs_come_in_any_form_and_reach_the_learner_in_it(form: Callable[[Floats], Any]) -> None:
    wanted = martingale_diagnostic(urn(1), X, Y, X[:2])
    kinds = set()

    def learn(inputs: Any, labels: NDArray[np.int64], seed: int) -> Callable[[Any], Floats]:
        kinds.add(type(inputs))
        assert len(inputs) == len(labels)
        return urn(1)(inputs, labels, seed)

    for labels in (Y, list(Y), torch.from_numpy(Y), pd.Series(Y)):
        found = martingale_diagnostic(learn, form(X), labels, form(X[:2]))
        assert np.array_equal(found.drift, wanted.drift)
        assert found.p_value == wanted.p_value
    assert kinds == {type(form(X))}


def test_predictions_may_be_a_tensor() -> None:
    def learn(inputs: Floats, labels: NDArray[np.int64], seed: int) -> Callable[[Floats], Any]:
        predict = urn(1)(inputs, labels, seed)
        return lambda inputs: torch.from_numpy(predict(inputs)).requires_grad_()

    assert martingale_diagnostic(learn, X, Y, X[:1]).p_value == martingale_diagnostic(urn(1), X, Y, X[:1]).p_value


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.array(["a", "b", "c"] * 4), "labels must be the class numbers of rows, counted from 0.*np.unique"),
        (Y + 0.5, "labels must be the class numbers"),
        (Y - 1, "labels must be the class numbers"),
        (Y + 1, "labels must be class numbers below 3, as the learner predicts 3 classes, got 3.*np.unique"),
        (Y[:, None], "labels must be the class numbers"),
        (Y[:5], "labels must be as many as inputs, 12, got 5"),
    ],
)
def test_labels_that_are_no_class_numbers_are_refused(labels: Any, said: str) -> None:
    def learn(inputs: Floats, labels: NDArray[np.int64], seed: int) -> Callable[[Floats], Floats]:
        return lambda inputs: np.full((len(inputs), 3), 1 / 3)

    with pytest.raises(InvalidArgument, match=said):
        martingale_diagnostic(learn, X, labels, X[:1])


def test_queries_must_be_there() -> None:
    with pytest.raises(InvalidArgument, match="queries must be at least one row"):
        martingale_diagnostic(urn(1), X, Y, X[:0])


def predicts(later: Any, first: Any = ((0.2, 0.3, 0.5),)) -> Learner:
    """Other probabilities where new rows have come."""

    def learn(inputs: Floats, labels: NDArray[np.int64], seed: int) -> Callable[[Floats], Any]:
        return lambda inputs: np.repeat(first if len(labels) == len(Y) else later, len(inputs), 0)

    return learn


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        (predicts([[np.nan] * 3]), "the learner's probabilities hold NaN or infinity"),
        (predicts([[0.2, 0.3, 0.5]], [[np.nan] * 3]), "the learner's probabilities hold NaN or infinity"),
        (predicts([[-1.0, 1.0, 1.0]]), "hold a negative number"),
        (predicts([[1.0, 2.0, 3.0]]), "must sum to one"),
        (predicts([[0.5, 0.5]]), r"of shape \(1, 3\), \(rows, classes\), got \(1, 2\)"),
        (predicts([[0.5, 0.5]], [0.5]), r"of shape \(rows, classes\), got \(1,\)"),
    ],
)
def test_predictions_that_are_no_probabilities_are_refused(learner: Learner, said: str) -> None:
    with pytest.raises((InvalidArgument, BadData), match=said):
        martingale_diagnostic(learner, X, Y, X[:1])


def test_a_plan_is_a_learner_also_of_arrays(table: Dataset) -> None:
    plan = plan_for(table, deep_ensemble(2), "mlp", Recipe(epochs=2), seed=0)
    assert isinstance(plan.train, Rows)
    found = martingale_diagnostic(
        plan_learner(plan), plan.train.inputs, plan.train.labels.numpy(), table.test.inputs, rows=2, futures=2
    )
    before = fit(plan).probabilities(table.test.inputs)
    assert found.drift.shape == tuple(before.shape)
    assert np.abs(found.drift.sum(1)).max() < 1e-6  # probabilities sum to one before and after
    assert found.change > 0
    frame, queries = pd.DataFrame(plan.train.inputs.numpy()), table.test.inputs.tolist()
    again = martingale_diagnostic(plan_learner(plan), frame, plan.train.labels, queries, rows=2, futures=2)
    assert np.array_equal(again.drift, found.drift)
