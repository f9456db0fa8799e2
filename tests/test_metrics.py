"""Every measure against a hand-computed answer, another library, or a law it must obey."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mixupmp.errors import BadData, InvalidArgument
from mixupmp.metrics import (
    Scores,
    adaptive_calibration_error,
    detection,
    display,
    evaluate,
    gini,
    mutual_information,
    normalised_margin,
    predictive_entropy,
    summarise,
    variation_ratio,
)
from mixupmp.metrics.scores import BLOCK_NUMBERS

SCALARS = ("acc", "nll", "brier", "ece", "oe", "ue", "adaptive_ece", "entropy", "gini", "gini_rescaled")


def predictions(
    rows: int, classes: int = 10, seed: int = 0, members: int = 0, sharpness: float = 2.0
) -> tuple[Tensor, Tensor]:
    """Random float64 probabilities and labels that agree with them more often than not."""
    generator = torch.Generator().manual_seed(seed)
    shape = (members, rows, classes) if members else (rows, classes)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64) * sharpness
    probabilities = torch.softmax(logits, -1)
    mean = probabilities.mean(0) if members else probabilities
    return probabilities, torch.multinomial(mean.sqrt(), 1, generator=generator)[:, 0]


def by_the_book(p: np.ndarray, y: np.ndarray, bins: int = 15) -> dict[str, float]:
    """The definitions in plain loops."""
    n, classes = p.shape
    top, hit = p.max(1), p.argmax(1) == y
    over = under = 0.0
    for m in range(bins):
        inside = (top > m / bins) & (top <= (m + 1) / bins)
        if inside.any():
            gap = top[inside].mean() - hit[inside].mean()
            over += inside.sum() / n * max(gap, 0)
            under += inside.sum() / n * max(-gap, 0)
    impurity = (1 - (p**2).sum(1)).mean()
    return {
        "acc": hit.mean(),
        "nll": -np.log(p[np.arange(n), y]).mean(),
        "brier": ((p - np.eye(classes)[y]) ** 2).sum(1).mean(),
        "ece": over + under,
        "oe": over,
        "ue": under,
        "entropy": -(p * np.log(p)).sum(1).mean(),
        "gini": impurity,
        "gini_rescaled": impurity * classes / (classes - 1),
    }


def test_answers_computed_by_hand() -> None:
    # Confidences .9 .9 .6 .3: bins 14, 14, 9 and 5 of 15. Correct: yes, no, yes, no.
    p = torch.tensor([[0.9, 0.05, 0.05], [0.9, 0.1, 0.0], [0.2, 0.6, 0.2], [0.35, 0.3, 0.35]], dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 1])
    result = Scores(3).update(p, y).result()
    assert result.acc == 0.5
    assert result.oe == pytest.approx((2 * (0.9 - 0.5) + 0.35) / 4)
    assert result.ue == pytest.approx((1 - 0.6) / 4)
    assert result.ece == result.oe + result.ue
    assert result.nll == pytest.approx(-(math.log(0.9) + math.log(0.1) + math.log(0.6) + math.log(0.3)) / 4)
    lines = {index: line for index, line in enumerate(result.reliability) if line.count}
    assert {i: (line.count, line.accuracy) for i, line in lines.items()} == {13: (2, 0.5), 8: (1, 1.0), 5: (1, 0.0)}
    assert result.reliability[0].confidence is None
    assert result.reliability_table()[13]["upper"] == pytest.approx(14 / 15)


@pytest.mark.parametrize("classes", [2, 3, 10, 40])
@pytest.mark.parametrize("bins", [1, 10, 15])
def test_equals_the_definitions(classes: int, bins: int) -> None:
    p, y = predictions(3001, classes, seed=classes)
    expected = by_the_book(p.numpy(), y.numpy(), bins)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        result = Scores(classes, bins).update(p.to(dtype), y).result().to_dict()
        assert {name: result[name] for name in expected} == pytest.approx(expected, abs=tolerance)


def test_equals_torchmetrics_on_random_input() -> None:
    from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error

    for seed in range(5):
        p, y = predictions(2000, 10, seed, sharpness=1.0 + seed)
        result = evaluate(p, y)
        theirs = multiclass_calibration_error(p, y, 10, n_bins=15, norm="l1")
        assert result["ece"] == pytest.approx(float(theirs), abs=1e-6)  # theirs is float32
        assert result["acc"] == pytest.approx(float(multiclass_accuracy(p, y, 10, average="micro")), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [3, 10, 15, 20])
def test_an_edge_belongs_to_the_bin_below_it(dtype: torch.dtype, bins: int) -> None:
    # With m/bins as the top confidence, the row is in bin m, the (m-1)-th from zero, however m/bins is rounded.
    for m in range(bins // 2 + 1, bins + 1):
        p = torch.tensor([[m / bins, 1 - m / bins]], dtype=dtype)
        reliability = Scores(2, bins).update(p, torch.tensor([0])).result().reliability
        assert [line.count for line in reliability].index(1) == m - 1
        above = p.clone()
        above[0, 0] += 4 * torch.finfo(dtype).eps
        reliability = Scores(2, bins).update(above, torch.tensor([0])).result().reliability
        assert [line.count for line in reliability].index(1) == min(m, bins - 1)


def test_of_equal_top_probabilities_the_first_is_the_prediction() -> None:
    p = torch.full((4, 4), 0.25)
    assert evaluate(p, torch.arange(4))["acc"] == 0.25
    p = torch.tensor([[0.2, 0.4, 0.4], [0.4, 0.2, 0.4], [0.5, 0.0, 0.5]])
    assert evaluate(p, torch.tensor([1, 2, 0]))["acc"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("members", [0, 3])
@pytest.mark.parametrize("step", [1, 7, 400, 5000])
def test_blocks_do_not_matter(members: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Blocks of 256 rows, so that updates are both gathered and cut.
    monkeypatch.setattr("mixupmp.metrics.scores.BLOCK_NUMBERS", 100)
    rows = 500 if step == 1 else 5000
    p, y = predictions(rows, 10, members=members)
    whole = Scores(10).update(p, y).result()
    streamed = Scores(10)
    for start in range(0, rows, step):
        streamed.update(p[..., start : start + step, :], y[start : start + step])
    assert len(streamed) == rows
    result = streamed.result()
    assert result.to_dict() == pytest.approx(whole.to_dict(), abs=1e-12)
    assert result.reliability_table() == [pytest.approx(line, abs=1e-12) for line in whole.reliability_table()]


def test_two_halves_add_up_and_the_state_goes_through_json() -> None:
    p, y = predictions(1000, 5)
    first, second = Scores(5).update(p[:300], y[:300]), Scores(5).update(p[300:], y[300:])
    whole = Scores(5).update(p, y).result()
    merged = first + Scores.from_dict(json.loads(json.dumps(second.to_dict())))
    assert merged.result().to_dict() == pytest.approx(whole.to_dict(), abs=1e-12)
    assert len(first) == 300, "adding changes neither"
    again = Scores.from_dict(json.loads(json.dumps(merged.to_dict())))
    assert again.result() == merged.result()
    with pytest.raises(InvalidArgument, match="5 classes"):
        first + Scores(6)


def test_a_damaged_state_is_refused() -> None:
    state = Scores(2).update(torch.tensor([[0.3, 0.7]]), torch.tensor([1])).to_dict()
    for name in ("cells", "rows", "log_loss", "classes"):
        with pytest.raises(BadData, match="not the state of a Scores"):
            Scores.from_dict({key: value for key, value in state.items() if key != name})
    with pytest.raises(BadData, match="outside"):
        Scores.from_dict({**state, "cells": [10**6]})
    with pytest.raises(BadData, match="counts 2 rows"):
        Scores.from_dict({**state, "rows": 2})
    with pytest.raises(BadData, match="not the state"):
        Scores.from_dict({**state, "counts": [1, 2, 3]})


def test_members_are_pooled_and_their_disagreement_measured() -> None:
    p, y = predictions(700, 4, members=5)
    result = evaluate(p, y)
    pooled = evaluate(p.mean(0), y)
    assert {name: result[name] for name in SCALARS} == pytest.approx({name: pooled[name] for name in SCALARS})
    assert pooled["mutual_information"] is None
    assert result["mutual_information"] == pytest.approx(float(mutual_information(p).mean()))
    assert evaluate(p[:1], y)["mutual_information"] == pytest.approx(0, abs=1e-12)
    mixed = Scores(4).update(p, y).update(p.mean(0), y).result()
    assert mixed.mutual_information is None, "part of the rows came without members"


def test_zero_probability_of_the_label_costs_a_finite_loss() -> None:
    for dtype in (torch.float32, torch.float64):
        result = evaluate(torch.tensor([[1.0, 0.0]], dtype=dtype), torch.tensor([1]))
        assert result["nll"] == pytest.approx(-math.log(torch.finfo(torch.float32).tiny))
        assert result["entropy"] == pytest.approx(0, abs=1e-30)
        assert result["brier"] == pytest.approx(2)


def test_half_precision_other_strides_and_arrays_are_taken() -> None:
    p, y = predictions(512, 6)
    exact = evaluate(p, y)
    for dtype in (torch.float16, torch.bfloat16):
        assert evaluate(p.to(dtype), y)["nll"] == pytest.approx(exact["nll"], abs=0.02)
    assert evaluate(p.T.contiguous().T, y) == pytest.approx(exact)
    assert evaluate(p.numpy(), y.numpy()) == pytest.approx(exact)  # type: ignore[arg-type]
    assert evaluate(p.clone().requires_grad_(), y.int()) == pytest.approx(exact)


def test_a_large_update_takes_no_more_memory_than_a_block() -> None:
    p, y = predictions(500_000, 10)
    p = p.float()
    small = Scores(10).update(p[:20_000], y[:20_000])
    large = Scores(10)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        large.update(p, y)
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert 0 < largest <= 4 * BLOCK_NUMBERS * torch.get_num_threads(), "the bytes of a block, far from all of them"
    assert len(json.dumps(large.to_dict())) < 3 * len(json.dumps(small.to_dict()))


def test_adaptive_bins_hold_equal_mass() -> None:
    # Six rows in three bins of two: confidences .5 .6 | .7 .8 | .9 1., correct 1 0 | 1 1 | 0 1.
    top = torch.tensor([0.9, 0.5, 0.8, 0.6, 1.0, 0.7], dtype=torch.float64)
    p = torch.stack([top, 1 - top], 1)
    y = torch.tensor([1, 0, 0, 1, 0, 0])
    expected = (abs(1.1 - 1) + abs(1.5 - 2) + abs(1.9 - 1)) / 6
    assert adaptive_calibration_error(p, y, bins=3) == pytest.approx(expected)
    assert Scores(2, bins=3).update(p, y).result().adaptive_ece == pytest.approx(expected)
    assert adaptive_calibration_error(p, y, bins=1) == pytest.approx(abs(4.5 - 4) / 6)


def test_adaptive_bins_do_not_part_equal_confidences() -> None:
    p = torch.tensor([[0.8, 0.2]], dtype=torch.float64).repeat(100, 1)
    y = (torch.arange(100) >= 80).long()
    assert adaptive_calibration_error(p, y) == pytest.approx(0, abs=1e-12), "in any order of the rows"


def test_the_streamed_adaptive_error_is_close_to_the_exact_one() -> None:
    for seed in range(4):
        p, y = predictions(20_000, 10, seed, sharpness=1.0 + seed)
        exact = adaptive_calibration_error(p, y)
        assert evaluate(p, y)["adaptive_ece"] == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize(
    ("probabilities", "labels", "error", "words"),
    [
        ([[0.5, 0.6]], [0], BadData, "sum to one"),
        ([[2.0, -1.0]], [0], BadData, "negative"),
        ([[float("nan"), 1.0]], [0], BadData, "NaN"),
        ([[float("inf"), 0.0]], [0], BadData, "infinity"),
        ([[0.5, 0.5], [3.0, 1.0]], [0, 0], BadData, "row 1 sums to 4"),
        ([[0.5, 0.5]], [2], BadData, "0..1 for 2 classes, found 2"),
        ([[0.5, 0.5]], [-1], BadData, "found -1"),
        ([[0.5, 0.5]], [0, 1], InvalidArgument, r"\(1,\)"),
        ([[0.5, 0.5]], [0.0], InvalidArgument, "integers"),
        ([0.5, 0.5], [0], InvalidArgument, "rows, classes"),
        ([[1.0]], [0], InvalidArgument, "two classes"),
        ([[1, 0]], [0], InvalidArgument, "floating-point"),
    ],
)
def test_bad_input_is_named(probabilities: list, labels: list, error: type[Exception], words: str) -> None:
    scores = Scores(2)
    with pytest.raises(error, match=words):
        scores.update(torch.tensor(probabilities), torch.tensor(labels))
    assert len(scores) == 0
    with pytest.raises(error, match=words):
        adaptive_calibration_error(torch.tensor(probabilities), torch.tensor(labels))


def test_a_bad_row_late_in_an_update_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixupmp.metrics.scores.BLOCK_NUMBERS", 100)
    p, y = predictions(1000, 3, members=2)
    p[1, 900] *= 1.1
    scores = Scores(3)
    with pytest.raises(BadData, match=r"row 900 sums to 1\.1"):
        scores.update(p, y)
    assert len(scores) == 0
    with pytest.raises(BadData, match="no row was given"):
        scores.result()
    with pytest.raises(InvalidArgument, match="3 classes"):
        scores.update(*predictions(10, 4))
    with pytest.raises(InvalidArgument, match="bins"):
        Scores(3, bins=0)


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
    p, _ = predictions(500, 7, members=4, sharpness=5.0)
    information, entropy = mutual_information(p), predictive_entropy(p)
    assert bool((information >= 0).all())
    assert bool((information <= torch.minimum(entropy, torch.tensor(math.log(4))) + 1e-12).all())
    assert bool((gini(p, rescale=True) <= 1).all())
    assert bool((variation_ratio(p) <= 3 / 4).all())


def test_means_and_standard_errors_over_repeats() -> None:
    results = [{"acc": 0.9, "mutual_information": None}, {"acc": 0.8, "mutual_information": 0.1}, {"acc": 0.85}]
    summary = summarise(results)
    assert set(summary) == {"acc"}, "a measure that a repeat lacks has no mean"
    assert summary["acc"].mean == pytest.approx(0.85)
    assert summary["acc"].standard_error == pytest.approx(0.05 / math.sqrt(3))
    p, y = predictions(50)
    alone = summarise([Scores(10).update(p, y).result()])
    assert alone["nll"].standard_error is None
    assert alone["nll"].repeats == 1
    with pytest.raises(InvalidArgument, match="results"):
        summarise([])


def test_tables_show_percent_where_the_paper_does() -> None:
    assert display("ece", 0.0467) == ("ECE (%)", pytest.approx(4.67))
    assert display("nll", 0.53) == ("NLL", 0.53)
    assert display("adaptive_ece", 0.01) == ("Adaptive ECE (%)", pytest.approx(1.0))
    assert display("mutual_information", 0.2) == ("Mutual information", 0.2)


def test_normalised_margin_of_a_network_without_biases() -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 8, bias=False), torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 4, bias=False)]
    network = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2]).double()
    x = torch.randn(20, 3, dtype=torch.float64)
    y = network(x).argmax(1)
    margin = normalised_margin(network(x), y, network.parameters(), order=3)
    assert margin > 0
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= 2.5
    assert normalised_margin(network(x), y, network.parameters(), order=3) == pytest.approx(margin)
    assert normalised_margin(network(x), (y + 1) % 4, network.parameters(), order=3) < 0
    # By hand: logits 3 and 1 against norm 2, order 2.
    hand = normalised_margin(torch.tensor([[3.0, 1.0], [0.0, 5.0]]), torch.tensor([0, 1]), [torch.tensor([2.0])], 2)
    assert hand == pytest.approx(2 / 4)
    with pytest.raises(InvalidArgument, match="parameters"):
        normalised_margin(network(x), y, [], order=3)


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
