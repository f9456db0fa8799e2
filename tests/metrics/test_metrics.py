"""Every measure against a hand-computed answer, another library, or a law it must obey."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.metrics import Scores, adaptive_calibration_error, evaluate, mutual_information

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
    rows = min(5000, 300 * step)
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


class LargestTensor(TorchDispatchMode):
    """Notes the bytes of the largest tensor that is made, other than views of the given ones."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in self.known:
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return made


@pytest.mark.parametrize("members", [0, 3])
def test_a_large_update_takes_no_more_memory_than_a_block(members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixupmp.metrics.scores.BLOCK_NUMBERS", 20_000)
    p, y = predictions(100_000, 10, members=members)
    p = p.float()
    scores = Scores(10)
    with LargestTensor(p, y) as largest:
        scores.update(p, y)
    # One block of float32 for each thread; all rows would be fifty times that.
    assert 0 < largest.bytes <= 4 * 20_000 * torch.get_num_threads()
    assert len(scores.to_dict()["cells"]) <= 2 * 15 * 256  # type: ignore[arg-type]


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
