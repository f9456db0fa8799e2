"""Curves against hand-made answers; the bound on the risk against the truth, over many repetitions."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from mixupmp.core.errors import BadData, InvalidArgument
from mixupmp.core.spec import decode, encode
from mixupmp.decide.abstain import ABSTAIN, Abstention, fit_abstention, rejection
from mixupmp.metrics import GuaranteeWarning

REPETITIONS = 200
RISK = 0.1


def test_rejection_by_hand() -> None:
    # From the surest: right, wrong, right, wrong.
    found = rejection(torch.tensor([0.4, 0.1, 0.3, 0.2]), torch.tensor([False, True, True, False]), points=4)
    assert found.kept == (0.25, 0.5, 0.75, 1.0)
    assert found.accuracy == pytest.approx((1, 1 / 2, 2 / 3, 1 / 2))
    assert found.aurc == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    best = (0 + 0 + 1 / 3 + 2 / 4) / 4
    assert found.excess_aurc == pytest.approx(found.aurc - best)


def test_equal_uncertainties_give_the_mean_over_all_orders() -> None:
    uncertainty = torch.tensor([0.1, 0.5, 0.5, 0.5, 0.9])
    correct = torch.tensor([True, False, True, False, True])
    found = rejection(uncertainty, correct)
    areas = []
    for middle in itertools.permutations([1, 2, 3]):
        order = torch.tensor([0, *middle, 4])
        areas.append(rejection(torch.arange(5.0), correct[order]).aurc)
    assert found.aurc == pytest.approx(np.mean(areas))
    assert rejection(torch.zeros(10), torch.arange(10) < 7).aurc == pytest.approx(0.3), "no ranking: the error rate"


def test_the_best_ranking_has_no_excess_and_the_worst_the_most() -> None:
    correct = torch.rand(500, generator=torch.Generator().manual_seed(0)) < 0.8
    best = rejection((~correct).double(), correct)
    assert best.excess_aurc == pytest.approx(0, abs=0.02)
    strict = (~correct).double() + torch.arange(500) * 1e-6
    assert rejection(strict, correct).excess_aurc == pytest.approx(0, abs=1e-12)
    worst = rejection(correct.double(), correct)
    assert worst.excess_aurc > rejection(torch.zeros(500), correct).excess_aurc > 0
    assert best.accuracy[-1] == pytest.approx(float(correct.double().mean()))
    assert len(rejection(torch.rand(7), correct[:7], points=200).kept) == 7, "no more points than rows"


# Mistakes given the confidence s in (1/2, 1): the truth against which the bound is held.
MISTAKES: dict[str, Callable[[Tensor], Tensor]] = {
    "calibrated": lambda s: 1 - s,
    "over-confident": lambda s: (1.5 * (1 - s) + 0.02).clamp(0, 1),
    "surest rows wrong": lambda s: torch.where(s > 0.97, 0.3, 0.05).to(s.dtype),
    "level at the risk": lambda s: torch.full_like(s, RISK + 1e-6),
}


def two_classes(rows: int, mistakes: Callable[[Tensor], Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    sure = 0.5 + 0.5 * torch.rand(rows, generator=generator, dtype=torch.float64)
    wrong = torch.rand(rows, generator=generator, dtype=torch.float64) < mistakes(sure)
    return torch.stack([sure, 1 - sure], 1), wrong.long()


def true_risk(threshold: float, mistakes: Callable[[Tensor], Tensor]) -> float:
    return float(mistakes(torch.linspace(max(threshold, 0.5), 1, 5001, dtype=torch.float64)).mean())


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_the_risk_is_kept_as_often_as_promised(name: str, confidence: float) -> None:
    generator = torch.Generator().manual_seed(1)
    violations = answered = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)
        for seed in range(REPETITIONS):
            p, y = two_classes(2000, MISTAKES[name], generator)
            rule = fit_abstention(p, y, risk=RISK, confidence=confidence, seed=seed)
            if rule.threshold is not None:
                answered += 1
                violations += true_risk(rule.threshold, MISTAKES[name]) > RISK
    assert violations <= stats.binom(REPETITIONS, 1 - confidence).ppf(0.999)
    if name in ("calibrated", "surest rows wrong"):
        assert answered > 0.8 * REPETITIONS, "the guarantee must not be kept by silence"
    if name == "level at the risk":
        # Every threshold is wrong here, by a hair: the level is used up, not wasted.
        assert violations == answered > 0.25 * (1 - confidence) * REPETITIONS


def test_it_answers_about_as_much_as_it_may() -> None:
    # Calibrated: the error above t is (1 - t)/2, so risk .05 allows answers from .9 on, a fifth of all rows.
    p, y = two_classes(40_000, MISTAKES["calibrated"], torch.Generator().manual_seed(2))
    rule = fit_abstention(p, y, risk=0.05)
    assert rule.threshold is not None
    assert 0.9 <= rule.threshold < 0.92
    assert rule.accepted == pytest.approx(2 * (1 - rule.threshold), abs=0.01)
    assert rule.bound is not None
    assert rule.bound <= 0.05
    answered = rule.accepts(p)
    predicted = rule.predict(p)
    assert torch.equal(predicted == ABSTAIN, ~answered)
    assert float((predicted != y)[answered].double().mean()) <= 0.05


def test_a_network_without_mistakes_answers_everything() -> None:
    p, _ = two_classes(500, MISTAKES["calibrated"], torch.Generator().manual_seed(3))
    rule = fit_abstention(p, torch.zeros(500, dtype=torch.int64), risk=0.01)
    assert rule.accepted > 0.98
    assert rule.bound == pytest.approx(1 - 0.05 ** (1 / round(375 * rule.accepted)), rel=1e-6)


def test_where_nothing_qualifies_it_never_answers_and_says_why() -> None:
    p, y = two_classes(300, MISTAKES["calibrated"], torch.Generator().manual_seed(4))
    with pytest.warns(GuaranteeWarning, match="299 test rows are needed and there are 225"):
        few = fit_abstention(p, y, risk=0.01)
    assert few.threshold is None
    assert not bool(few.accepts(p).any())
    assert bool((few.predict(p) == ABSTAIN).all())
    assert "always abstains" in few.reason
    with pytest.warns(GuaranteeWarning, match="do not prove it"):
        bad = fit_abstention(p.repeat(10, 1), 1 - y.repeat(10), risk=0.01)
    assert bad.threshold is None


def test_its_warning_is_at_the_line_of_the_caller_and_says_what_to_do() -> None:
    p, y = two_classes(300, MISTAKES["calibrated"], torch.Generator().manual_seed(4))
    with pytest.warns(GuaranteeWarning, match="Hold out more rows") as said:
        fit_abstention(p, y, risk=0.01)
    assert [one.filename for one in said] == [__file__]


def test_real_digits() -> None:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    inputs, labels = load_digits(return_X_y=True)
    model = LogisticRegression(max_iter=500).fit(inputs[:600] / 16, labels[:600])
    p, y = torch.from_numpy(model.predict_proba(inputs[600:] / 16)), torch.from_numpy(labels[600:])
    rule = fit_abstention(p[:800], y[:800], risk=0.03)
    answered = rule.accepts(p[800:])
    mistakes = float((p[800:].argmax(1) != y[800:])[answered].double().mean())
    everywhere = float((p[800:].argmax(1) != y[800:]).double().mean())
    assert answered.double().mean() > 0.5
    assert mistakes <= 0.03 < everywhere


def test_rows_at_the_threshold_are_answered_in_single_precision_too() -> None:
    p, y = two_classes(4000, MISTAKES["calibrated"], torch.Generator().manual_seed(5))
    single = p.float()
    rule = fit_abstention(single, y, risk=0.1)
    assert rule.threshold is not None
    at = single[single.amax(1).double() == rule.threshold]
    assert len(at) == 1
    assert bool(rule.accepts(at).all())


def test_saved_and_read_back_it_is_the_same() -> None:
    p, y = two_classes(2000, MISTAKES["calibrated"], torch.Generator().manual_seed(6))
    rule = fit_abstention(p, y, risk=0.1)
    assert decode(json.loads(json.dumps(encode(rule))), Abstention) == rule
    silent = Abstention(None, 0.1, 0.9, 0.0, None, "why")
    assert decode(json.loads(json.dumps(encode(silent))), Abstention) == silent
    with pytest.raises(InvalidArgument, match="risk"):
        decode({"threshold": 0.5}, Abstention)
    with pytest.raises(InvalidArgument, match="confidence or None"):
        decode({**encode(rule), "threshold": math.nan}, Abstention)


def test_bad_input_is_named() -> None:
    p, y = two_classes(20, MISTAKES["calibrated"], torch.Generator().manual_seed(7))
    for name, value in (("risk", 0.0), ("risk", 1.0), ("confidence", 1.0), ("tuning", 0.0), ("tuning", 1.0)):
        with pytest.raises(InvalidArgument, match=name):
            fit_abstention(p, y, **{name: value})
    with pytest.raises(BadData, match="sum to one"):
        fit_abstention(p * 2, y)
    with pytest.raises(BadData, match="found 2"):
        fit_abstention(p, torch.full_like(y, 2))
    with pytest.raises(BadData, match="NaN"):
        rejection(torch.tensor([float("nan")]), torch.tensor([True]))
    with pytest.raises(InvalidArgument, match="bool"):
        rejection(torch.tensor([0.1]), torch.tensor([1]))
    with pytest.raises(InvalidArgument, match=r"shape \(1,\)"):
        rejection(torch.tensor([0.1]), torch.tensor([True, False]))
