from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch

from mixupmp.metrics import evaluate as scores_of
from mixupmp.web.report import Evaluation
from mixupmp.web.report.statistics import (
    RunMetrics,
    compute_metrics,
    disagreement,
    is_clear,
    paired_difference,
    rejection_curve,
    rows_near,
    share_error,
)

from .answers import answers


def evaluation_of(members: torch.Tensor, labels: torch.Tensor) -> Evaluation:
    classes = tuple(str(k) for k in range(members.shape[-1]))
    return Evaluation("x", classes, members, labels, torch.empty(0, dtype=torch.int64), torch.empty(0), "rows")


def measured(rows: int = 400, members: int = 3, seed: int = 0) -> tuple[RunMetrics, torch.Tensor, torch.Tensor]:
    probabilities, labels = answers(rows, 4, members, seed)
    return compute_metrics(evaluation_of(probabilities, labels)), probabilities, labels


def test_the_values_are_those_of_the_metrics() -> None:
    metrics, probabilities, labels = measured()
    expected = scores_of(probabilities, labels)
    for name in ("acc", "nll", "brier", "ece", "oe", "ue", "entropy", "mutual_information"):
        assert metrics.value(name) == pytest.approx(expected[name], abs=1e-6), name
    for name, values in metrics.by_row.items():
        assert values.mean() == pytest.approx(expected[name], abs=1e-6), name


def test_the_standard_error_of_accuracy_is_the_binomial_one() -> None:
    metrics, _, labels = measured()
    accuracy, rows = metrics.value("acc"), len(labels)
    assert metrics.summaries["acc"].standard_error == pytest.approx(sqrt(accuracy * (1 - accuracy) / (rows - 1)))


def test_resampled_errors_predict_the_spread_over_fresh_test_sets() -> None:
    spread = np.std([measured(seed=seed)[0].value("ece") for seed in range(40)], ddof=1)
    predicted = np.mean([measured(seed=seed)[0].summaries["ece"].standard_error for seed in range(5)])
    assert 0.5 * spread < predicted < 2 * spread


def test_a_run_does_not_differ_from_itself() -> None:
    metrics, _, _ = measured()
    for name in metrics.summaries:
        change = paired_difference(name, metrics, metrics)
        assert change.mean == 0, name
        assert not is_clear(change)


def test_pairing_makes_a_small_constant_difference_clear() -> None:
    probabilities, labels = answers(400, 4, 1)
    flatter = 0.98 * probabilities + 0.02 / 4
    ours, theirs = (compute_metrics(evaluation_of(p, labels)) for p in (flatter, probabilities))
    change = paired_difference("nll", ours, theirs)
    assert change.mean == pytest.approx(ours.value("nll") - theirs.value("nll"))
    assert is_clear(change)
    assert change.standard_error is not None
    assert change.standard_error < (ours.summaries["nll"].standard_error or 0) / 3, "rows in common must cancel"


def test_what_it_says_against_how_often_it_is_right() -> None:
    # 100 rows said with 90%, 84 of them right; and others, far from 90%.
    probabilities = torch.tensor([[0.9, 0.1]] * 100 + [[0.6, 0.4]] * 50)[None]
    labels = torch.tensor([0] * 84 + [1] * 16 + [0] * 50)
    found = rows_near(compute_metrics(evaluation_of(probabilities, labels)))
    assert found is not None
    assert (found.confidence, found.accuracy, found.rows) == (pytest.approx(0.9), pytest.approx(0.84), 100)
    assert rows_near(compute_metrics(evaluation_of(probabilities[:, 100:], labels[100:]))) is None


def test_always_right_is_not_certain() -> None:
    assert share_error(1.0, 20) > 0.03
    assert share_error(0.5, 10_000) == pytest.approx(0.005, rel=0.01)


def test_abstaining_answers_the_most_confident_first() -> None:
    probabilities = torch.tensor([[0.99, 0.01], [0.9, 0.1], [0.8, 0.2], [0.6, 0.4]])[None]
    curve = rejection_curve(compute_metrics(evaluation_of(probabilities, torch.tensor([0, 0, 1, 0]))), points=4)
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.accuracy.tolist() == pytest.approx([1, 1, 2 / 3, 3 / 4])
    assert curve.threshold.tolist() == pytest.approx([0.99, 0.9, 0.8, 0.6])


def test_disagreement_counts_different_votes() -> None:
    votes = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    members = torch.nn.functional.one_hot(votes, 2).double()
    apart = disagreement(evaluation_of(members, torch.zeros(4, dtype=torch.int64)))
    assert apart.tolist() == [[0, 0.25], [0.25, 0]]
