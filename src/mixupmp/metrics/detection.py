"""How well an uncertainty tells foreign inputs from those the network was trained for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mixupmp.core.errors import BadData, check
from mixupmp.metrics.checks import as_floats


@dataclass(frozen=True)
class Detection:
    """Exact measures of detection; with equal uncertainties everywhere AUROC is .5 and FPR95 is 1."""

    auroc: float  # P(a foreign row is less sure than a familiar one), ties counted half
    aupr_out: float  # average precision with the foreign rows as the positives
    aupr_in: float  # average precision with the familiar rows as the positives
    fpr95: float  # the share of foreign rows still taken for familiar when 95% of the familiar are


def detection(inside: Tensor, outside: Tensor) -> Detection:
    """AUROC, AUPR and FPR95 from the uncertainties of familiar (`inside`) and foreign (`outside`) rows.

    Larger means less sure: entropy, mutual information, 1 - confidence. FPR95 takes the familiar rows as the
    positives, as is usual for detectors: it accepts as few uncertainties, from the lowest, as hold at least 95%
    of the familiar rows. A tie goes all one way.
    """
    familiar, foreign = _scores(inside, "inside"), _scores(outside, "outside")
    # From the least sure down, one step for each distinct value: rows so far on each side.
    values = torch.unique(torch.cat([familiar, foreign])).flip(0)
    seen_in, seen_out = (_at_least(scores, values) for scores in (familiar, foreign))
    true, false = seen_out / len(foreign), seen_in / len(familiar)
    zero = torch.zeros(1, dtype=torch.float64)
    auroc = float(torch.trapezoid(torch.cat([zero, true]), torch.cat([zero, false])))
    kept_in = len(familiar) - torch.cat([zero, seen_in])
    kept_out = len(foreign) - torch.cat([zero, seen_out])
    # The strictest cut that still keeps 95% of the familiar; the first entry keeps all. Counts are whole numbers,
    # so the product is compared and not a quotient.
    enough = kept_in * 100 >= 95 * len(familiar)
    return Detection(
        auroc=auroc,
        aupr_out=_average_precision(seen_out, seen_in),
        aupr_in=_average_precision(kept_in.flip(0)[1:], kept_out.flip(0)[1:]),
        fpr95=float(kept_out[enough].min()) / len(foreign),
    )


def _scores(values: Tensor, name: str) -> Tensor:
    scores = as_floats(values, name).double().cpu()
    check(scores.ndim == 1, name, tuple(scores.shape), "of shape (rows,), one uncertainty for each row")
    if len(scores) == 0 or bool(scores.isnan().any()):
        raise BadData(f"{name} must hold at least one uncertainty and no NaN.")
    return scores


def _at_least(scores: Tensor, values: Tensor) -> Tensor:
    """How many of the scores are at least each of the values."""
    below = torch.searchsorted(scores.sort().values, values, right=False)
    return (len(scores) - below).double()


def _average_precision(positives: Tensor, negatives: Tensor) -> float:
    """sum of (recall step) x precision, for counts accumulated from the surest positive on."""
    steps = torch.diff(positives, prepend=torch.zeros(1, dtype=torch.float64))
    return float((steps * positives / (positives + negatives)).sum() / positives[-1])
