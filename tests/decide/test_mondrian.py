"""Sets by class and by group hold their coverage in each part, within the exact law."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mixupmp.core.errors import InvalidArgument, UnknownName
from mixupmp.core.spec import decode, encode
from mixupmp.decide.conformal import KINDS, fit_conformal
from mixupmp.decide.mondrian import Mondrian, fit_mondrian
from mixupmp.metrics import GuaranteeWarning

SPLITS = 80


def unequal(rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three classes, of which the last is much harder; and two groups, of which "b" has noisier probabilities."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (rows,), generator=generator)
    groups = torch.randint(0, 2, (rows,), generator=generator)
    signal = torch.tensor([4.0, 3.0, 0.5])[labels] * torch.where(groups == 1, 0.3, 1.0)
    logits = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    logits[torch.arange(rows), labels] += signal
    return torch.softmax(logits, 1), labels, groups


@pytest.mark.parametrize("kind", ["lac", "aps"])
@pytest.mark.parametrize("by", ["class", "group"])
def test_every_part_is_covered_as_its_law_says(kind: str, by: str) -> None:
    """The rate at which a part's rows are covered; the marginal predictor misses it for the hard part."""
    fit_rows, coverage = 300, 0.9
    rates, marginal, expected = [], [], []
    for seed in range(SPLITS):
        p, y, g = unequal(900, seed)
        fit, new = slice(0, fit_rows), slice(fit_rows, None)
        part = y if by == "class" else g
        hard = part == int(part.max())
        groups = None if by == "class" else g[fit].tolist()
        fitted = fit_mondrian(kind, p[fit], y[fit], groups, seed=seed)
        sets = fitted.predict_set(p[new], coverage, groups=None if by == "class" else g[new].tolist())
        covered = sets.gather(1, y[new, None])[:, 0]
        rates.append(float(covered[hard[new]].double().mean()))
        n = int(hard[fit].sum())
        expected.append(math.ceil((n + 1) * coverage - 1e-9) / (n + 1))
        whole = fit_conformal(kind, p[fit], y[fit], seed=seed).predict_set(p[new], coverage)
        marginal.append(float(whole.gather(1, y[new, None])[:, 0][hard[new]].double().mean()))
    # Given n rows of a part, its coverage has mean rank / (n + 1) exactly, for scores without ties.
    error = np.std(rates) / math.sqrt(SPLITS)
    assert np.mean(rates) == pytest.approx(np.mean(expected), abs=4 * error)
    assert np.mean(expected) >= coverage
    assert np.mean(marginal) < coverage - 0.02, "the marginal guarantee does not hold in the hard part"


def test_by_class_is_one_threshold_for_each_class() -> None:
    p, y, _ = unequal(400, 1)
    fitted = fit_mondrian("lac", p, y, classes=("x", "y", "z"))
    assert list(fitted.parts) == ["x", "y", "z"]
    limits = [fit_conformal("lac", p[y == k], y[y == k]).threshold(0.8) for k in range(3)]
    assert torch.equal(fitted.predict_set(p, 0.8), 1 - p <= torch.tensor(limits, dtype=torch.float64))


def test_without_empty_sets_the_top_class_is_always_in() -> None:
    p, y, g = unequal(600, 2)
    for fitted, groups in (
        (fit_mondrian("lac", p, y), None),
        (fit_mondrian("lac", p, y, g.tolist()), g.tolist()),
    ):
        allowed = fitted.predict_set(p, 0.3, groups=groups)
        assert not bool(allowed.any(1).all()), "some are empty at this coverage"
        filled = fitted.predict_set(p, 0.3, allow_empty=False, groups=groups)
        assert bool(filled.gather(1, p.argmax(1, keepdim=True)).all())
        assert bool((allowed <= filled).all())
        assert int((filled & ~allowed).sum(1).max()) == 1


def test_parts_with_too_few_rows_are_named_and_hold_everything() -> None:
    p, y, _ = unequal(300, 3)
    keep = (y != 2) | (torch.arange(300) < 12)
    fitted = fit_mondrian("lac", p[keep], y[keep], classes=("x", "y", "rare"))
    assert not fitted.attainable(0.95)
    with pytest.warns(GuaranteeWarning, match="the class rare is in every set"):
        assert bool(fitted.predict_set(p, 0.95)[:, 2].all())
    none = fit_mondrian("lac", p[y != 2], y[y != 2])
    with pytest.warns(GuaranteeWarning, match="the class 2 is in every set"):
        assert bool(none.predict_set(p, 0.5)[:, 2].all())


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_read_back_it_is_the_same(kind: str) -> None:
    p, y, g = unequal(200, 4)
    for groups in (None, ["left" if one else "right" for one in g]):
        fitted = fit_mondrian(kind, p, y, groups, seed=3)
        again = decode(json.loads(json.dumps(encode(fitted))), Mondrian)
        assert again == fitted
        assert torch.equal(again.predict_set(p, 0.7, groups=groups), fitted.predict_set(p, 0.7, groups=groups))


def test_bad_input_is_named() -> None:
    p, y, g = unequal(60, 5)
    fitted = fit_mondrian("lac", p, y, g.tolist())
    with pytest.raises(InvalidArgument, match="groups"):
        fitted.predict_set(p)
    with pytest.raises(InvalidArgument, match="each of the 60 rows"):
        fitted.predict_set(p, groups=[0])
    with pytest.raises(UnknownName, match="'7'"):
        fitted.predict_set(p, groups=[7] * 60)
    with pytest.raises(InvalidArgument, match="each of the 60 rows"):
        fit_mondrian("lac", p, y, [1, 2])
    with pytest.raises(InvalidArgument, match="3 names"):
        fit_mondrian("lac", p, y, classes=("a",))
    state = encode(fit_mondrian("lac", p, y))
    fewer = dict(list(state["parts"].items())[:2])
    for bad in ({}, {**state, "by": "row"}, {**state, "parts": fewer}, {**state, "parts": {}}):
        with pytest.raises(InvalidArgument, match=r"by|Mondrian"):
            decode(bad, Mondrian)
