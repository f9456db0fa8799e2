"""Sets of classes hold the true one as often as they promise, within the exact law of split conformal prediction."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from mixupmp.core.errors import BadData, InvalidArgument, UnknownName
from mixupmp.core.spec import decode, encode
from mixupmp.decide.conformal import KINDS, Conformal, fit_conformal
from mixupmp.metrics import GuaranteeWarning

SPLITS = 200
# Scores without ties, for which the covered rows of a random split follow a beta-binomial law exactly.
EXACT = [("lac", False), ("aps", True), ("raps", True)]


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    """Probabilities of a logistic regression for the real digits that it was not trained on."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    inputs, labels = load_digits(return_X_y=True)
    model = LogisticRegression(C=0.002, max_iter=500).fit(inputs[:600] / 16, labels[:600])
    return torch.from_numpy(model.predict_proba(inputs[600:] / 16)), torch.from_numpy(labels[600:])


def synthetic(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Over-confident probabilities over six classes."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(rows, 6, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator)[:, 0]
    return torch.softmax(2 * logits, 1), labels


def covered_of_splits(p: Tensor, y: Tensor, fit_rows: int, coverage: float, kind: str, randomized: bool) -> np.ndarray:
    """How many of the other rows' sets hold the true class, for each of many random splits."""
    generator = torch.Generator().manual_seed(7)
    counts = []
    for seed in range(SPLITS):
        order = torch.randperm(len(y), generator=generator)
        fit, rest = order[:fit_rows], order[fit_rows:]
        fitted = fit_conformal(kind, p[fit], y[fit], seed=seed, randomized=randomized, penalty=0.05, free_ranks=2)
        counts.append(int(fitted.predict_set(p[rest], coverage).gather(1, y[rest, None]).sum()))
    return np.array(counts)


@pytest.mark.parametrize(("kind", "randomized"), EXACT)
@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_coverage_on_digits_follows_its_exact_law(
    digits: tuple[Tensor, Tensor], kind: str, randomized: bool, coverage: float
) -> None:
    p, y = digits
    n, m = 499, len(y) - 499
    counts = covered_of_splits(p, y, n, coverage, kind, randomized)
    rank = math.ceil((n + 1) * coverage - 1e-9)
    law = stats.betabinom(m, rank, n + 1 - rank)
    assert counts.mean() == pytest.approx(law.mean(), abs=4 * law.std() / math.sqrt(SPLITS))
    outside = ((counts < law.ppf(0.01)) | (counts > law.ppf(0.99))).sum()
    assert outside <= stats.binom(SPLITS, 0.02).ppf(0.9999)
    assert 0.7 < counts.std() / law.std() < 1.3


@pytest.mark.parametrize(("kind", "randomized"), [*EXACT, ("aps", False), ("raps", False)])
@pytest.mark.parametrize("n", [9, 200])
def test_coverage_of_any_network_is_at_least_what_was_asked(kind: str, randomized: bool, n: int) -> None:
    p, y = synthetic(1500, seed=n)
    counts = covered_of_splits(p, y, n, 0.9, kind, randomized)
    rank = math.ceil((n + 1) * 0.9 - 1e-9)
    law = stats.betabinom(1500 - n, rank, n + 1 - rank)
    assert counts.mean() >= law.mean() - 4 * law.std() / math.sqrt(SPLITS)
    if (kind, randomized) in EXACT:
        assert counts.mean() <= law.mean() + 4 * law.std() / math.sqrt(SPLITS)


def test_scores_and_sets_by_hand() -> None:
    p = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
    for kind, scores in (("lac", [0.4, 0.7, 0.9]), ("aps", [0.6, 0.9, 1.0]), ("raps", [0.6, 1.4, 2.0])):
        found = [
            fit_conformal(kind, p, torch.tensor([k]), randomized=False, penalty=0.5, free_ranks=1).scores[0]
            for k in range(3)
        ]
        assert found == pytest.approx(scores)
    fitted = Conformal("aps", 3, (0.5, 0.7, 0.95, 1.0), randomized=False)
    assert fitted.threshold(0.4) == 0.7
    assert fitted.threshold(0.6) == 0.95
    assert fitted.predict_set(p, 0.6).tolist() == [[True, True, False]]
    assert fitted.predict_set(p, 0.2).tolist() == [[False, False, False]]
    assert fitted.predict_set(p, 0.2, allow_empty=False).tolist() == [[True, False, False]]
    assert fitted.predict_set(p, 0.6, allow_empty=False).tolist() == [[True, True, False]]


def test_randomized_scores_lie_below_the_plain_ones_and_are_uniform_under_the_truth() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.softmax(torch.randn(4000, 5, generator=generator, dtype=torch.float64), 1)
    y = torch.multinomial(p, 1, generator=generator)[:, 0]
    scores = fit_conformal("aps", p, y, seed=3).scores
    # If the probabilities are right, the randomized APS score of the true class is uniform: that is its purpose.
    assert stats.kstest(scores, "uniform").pvalue > 1e-3
    plain = fit_conformal("aps", p, y, randomized=False).scores
    assert all(a <= b for a, b in zip(scores, plain, strict=True))


def test_a_row_has_the_same_set_in_any_company() -> None:
    p, y = synthetic(300, 1)
    fitted = fit_conformal("aps", p[:200], y[:200], seed=5)
    together = fitted.predict_set(p[200:])
    apart = torch.cat([fitted.predict_set(row[None]) for row in p[200:]])
    assert torch.equal(together, apart)
    other = fit_conformal("aps", p[:200], y[:200], seed=6)
    assert other.scores != fitted.scores, "the seed decides the draws"


def test_more_coverage_gives_larger_sets_and_raps_smaller_tails() -> None:
    p, y = synthetic(2000, 2)
    p, y, fresh = p[:1000], y[:1000], p[1000:]
    for kind in KINDS:
        fitted = fit_conformal(kind, p, y)
        inside = [fitted.predict_set(fresh, coverage) for coverage in (0.5, 0.8, 0.95, 0.99)]
        assert all(bool((small <= large).all()) for small, large in itertools.pairwise(inside))
    plain = fit_conformal("aps", p, y, randomized=False).predict_set(fresh, 0.9).sum(1)
    cut = fit_conformal("raps", p, y, randomized=False, penalty=0.2, free_ranks=2).predict_set(fresh, 0.9).sum(1)
    assert cut.max() < plain.max()


def test_too_few_rows_give_everything_and_say_so() -> None:
    p, y = synthetic(30, 3)
    fitted = fit_conformal("lac", p[:18], y[:18])
    assert not fitted.attainable(0.95)
    with pytest.warns(GuaranteeWarning, match=r"coverage 0\.95 needs at least 19 held-out rows and the fit had 18"):
        assert bool(fitted.predict_set(p, 0.95).all())
    enough = fit_conformal("lac", p[:19], y[:19])
    assert enough.attainable(0.95)
    assert enough.threshold(0.95) == max(enough.scores)
    # (n+1) coverage in floats: nine tenths of ten is nine.
    assert fit_conformal("lac", p[:9], y[:9]).attainable(0.9)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_read_back_it_is_the_same(kind: str) -> None:
    p, y = synthetic(200, 4)
    fitted = fit_conformal(kind, p, y, seed=11)
    again = decode(json.loads(json.dumps(encode(fitted))), Conformal)
    assert again == fitted
    assert torch.equal(again.predict_set(p), fitted.predict_set(p))


def test_members_are_pooled() -> None:
    p, y = synthetic(100, 5)
    members = torch.stack([p, p.roll(1, 0)])
    fitted = fit_conformal("lac", members, y)
    assert fitted == fit_conformal("lac", members.mean(0), y)
    assert torch.equal(fitted.predict_set(members), fitted.predict_set(members.mean(0)))


def test_bad_input_is_named() -> None:
    p, y = synthetic(50, 6)
    fitted = fit_conformal("lac", p, y)
    with pytest.raises(UnknownName, match="'raps'"):
        fit_conformal("rap", p, y)
    for coverage in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(InvalidArgument, match="coverage"):
            fitted.predict_set(p, coverage)
    with pytest.raises(InvalidArgument, match="6 classes"):
        fitted.predict_set(torch.tensor([[0.5, 0.5]]))
    with pytest.raises(BadData, match="sum to one"):
        fitted.predict_set(p * 3)
    with pytest.raises(BadData, match="empty"):
        fit_conformal("lac", p[:0], y[:0])
    with pytest.raises(InvalidArgument, match="penalty"):
        fit_conformal("raps", p, y, penalty=-1.0)
    state = encode(fitted)
    with pytest.raises(InvalidArgument, match="classes"):
        decode({"kind": "lac"}, Conformal)
    with pytest.raises(InvalidArgument, match="rising"):
        decode({**state, "scores": [0.5, 0.1]}, Conformal)
    with pytest.raises(InvalidArgument, match="rising"):
        decode({**state, "scores": [0.1, float("nan")]}, Conformal)
    with pytest.raises(UnknownName, match="margin"):
        decode({**state, "kind": "margin"}, Conformal)
