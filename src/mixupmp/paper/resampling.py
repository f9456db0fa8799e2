"""The paired bootstrap over test rows: every measure on resampled test sets, which are the same for all methods.

All methods are evaluated on the same resamples, so the differences of two methods over them are the paired bootstrap
of their difference (Efron & Tibshirani 1993, chapter 16), and nothing of single rows has to be kept.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from mixupmp.metrics.catalog import METRICS

RESAMPLES = 100
UNIT = 1e-5  # deviations are kept as whole numbers of these
MEASURES = ("acc", "nll", "ece", "oe", "ue")
BINS = 15


def deviations(
    pooled: Tensor, labels: Tensor, measures: tuple[str, ...] = MEASURES, copies: int = 1
) -> dict[str, list[int]]:
    """How much each measure of pooled probabilities (rows, classes) changes on each resample, in `UNIT`.

    Where the rows are so many corrupted copies of a test set, one after the other, its rows are resampled with all of
    their copies.
    """
    values, counts = pooled.double(), _counts(len(labels) // copies).repeat(1, copies) / copies
    confidence, predicted = values.max(1)
    place = (confidence * BINS).ceil().long().sub(1).clamp(0, BINS - 1)
    gaps = torch.zeros(len(labels), BINS, dtype=torch.float64)
    gaps[torch.arange(len(labels)), place] = confidence - (predicted == labels).double()
    found = {}
    for name in measures:
        metric = METRICS[name]
        if metric.per_row is not None:
            resampled = counts @ metric.per_row(values, labels)
            resampled = resampled if metric.of_mean is None else metric.of_mean(resampled)
        else:
            assert metric.binned is not None
            resampled = metric.binned(counts @ gaps)
        found[name] = ((resampled[1:] - resampled[0]) / UNIT).round().long().tolist()
    return found


@cache
def _counts(rows: int) -> Tensor:
    """The share of each row in each resample, (1 + resamples, rows); first all rows as they are."""
    generator = torch.Generator().manual_seed(rows)
    drawn = [torch.randint(rows, (rows,), generator=generator).bincount(minlength=rows) for _ in range(RESAMPLES)]
    return torch.stack([torch.ones(rows, dtype=torch.long), *drawn]).double() / rows
