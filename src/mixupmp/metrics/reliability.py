"""From totals to measures: reliability tables, calibration errors and the result that holds them all."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from mixupmp.core.errors import check
from mixupmp.metrics.checks import checked_labels, checked_probabilities, pooled
from mixupmp.metrics.totals import CELLS_PER_BIN, Totals


@dataclass(frozen=True)
class ReliabilityBin:
    """The rows whose top confidence c lies in lower < c <= upper. Without rows it has neither mean."""

    lower: float
    upper: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Result:
    """Every measure of one evaluation, as fractions and nats."""

    rows: int
    acc: float
    nll: float
    brier: float
    ece: float
    oe: float
    ue: float
    adaptive_ece: float
    entropy: float
    mutual_information: float | None  # None unless every row came with members
    gini: float
    gini_rescaled: float
    reliability: tuple[ReliabilityBin, ...]

    def to_dict(self) -> dict[str, float | None]:
        """The single numbers by name, without the reliability table."""
        fields = dataclasses.fields(self)
        return {f.name: getattr(self, f.name) for f in fields if f.name != "reliability"}

    def reliability_table(self) -> list[dict[str, float | None]]:
        """The reliability table as plain dictionaries, for JSON and for tables."""
        return [dataclasses.asdict(line) for line in self.reliability]


def result_of(totals: Totals, classes: int, bins: int) -> Result:
    """The measures of these totals, which hold at least one row."""
    n = totals.rows
    counts = totals.counts.sum(0)
    correct = totals.counts[1]
    confidences = totals.confidences.sum(0)
    coarse = [cells.view(bins, CELLS_PER_BIN).sum(1) for cells in (counts, correct, confidences)]
    over, under = _errors(*coarse)
    members = totals.member_rows == n
    gini = 1 - totals.squares / n
    return Result(
        rows=n,
        acc=int(correct.sum()) / n,
        nll=totals.log_loss / n,
        brier=max(0.0, (totals.squares - 2 * totals.true) / n + 1),
        ece=over + under,
        oe=over,
        ue=under,
        adaptive_ece=_equal_mass_error(counts, correct, confidences, bins),
        entropy=max(0.0, totals.entropy / n),
        mutual_information=max(0.0, (totals.entropy - totals.member_entropy) / n) if members else None,
        gini=max(0.0, gini),
        gini_rescaled=max(0.0, gini) * classes / (classes - 1),
        reliability=_table(*coarse),
    )


def _errors(counts: Tensor, correct: Tensor, confidences: Tensor) -> tuple[float, float]:
    """(OE, UE) of bins with these counts, correct predictions and sums of confidences."""
    # |B|/n (Conf - Acc) is the difference of the two sums over n, so empty bins need no care.
    gap = (confidences - correct) / counts.sum()
    return float(gap.clamp_min(0).sum()), float((-gap).clamp_min(0).sum())


def _table(counts: Tensor, correct: Tensor, confidences: Tensor) -> tuple[ReliabilityBin, ...]:
    bins = len(counts)
    lines = zip(counts.tolist(), correct.tolist(), confidences.tolist(), strict=True)
    return tuple(
        ReliabilityBin(i / bins, (i + 1) / bins, n, total / n if n else None, right / n if n else None)
        for i, (n, right, total) in enumerate(lines)
    )


def _equal_mass_error(counts: Tensor, correct: Tensor, confidences: Tensor, bins: int) -> float:
    """ECE over bins of equal mass made of these cells, which are in the order of their confidence.

    A cell goes whole into the bin in which its last row falls, so equal confidences are never parted and the
    order of the rows does not matter.
    """
    mass = counts.cumsum(0)
    place = ((mass * bins + mass[-1] - 1) // mass[-1] - 1).clamp_(0, bins - 1)
    cells = (counts, correct, confidences)
    over, under = _errors(*(torch.zeros(bins, dtype=torch.float64).index_add_(0, place, c.double()) for c in cells))
    return over + under


@torch.no_grad()
def adaptive_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """ECE over bins of equal mass, exactly. It holds all confidences in memory; `Scores` approximates it in little.

    The k-th of n rows in the order of confidence is in bin ceil(k bins / n); rows of equal confidence go together.
    """
    check(bins >= 1, "bins", bins, "at least 1")
    values = checked_probabilities(probabilities, members=None)
    labels = checked_labels(labels, *values.shape[-2:]).to(values.device)
    confidence, predicted = pooled(values).max(-1)
    distinct, inverse, counts = torch.unique(confidence, return_inverse=True, return_counts=True)
    right = torch.zeros(len(distinct), dtype=torch.float64, device=values.device)
    right.index_add_(0, inverse, (predicted == labels).double())
    return _equal_mass_error(counts.cpu(), right.cpu(), (distinct.double() * counts).cpu(), bins)
