"""From sums over rows to metrics: the state of a streamed evaluation, reliability diagrams, calibration errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mixupmp.core.errors import BadData, check
from mixupmp.metrics.catalog import METRICS, Metric
from mixupmp.metrics.checks import checked_labels, checked_probabilities, pooled

# Cells of the histogram of confidences within each bin. The bins themselves are unions of cells, so ECE is exact;
# the adaptive bins, whose edges are known only at the end, fall on the nearest cell's edge.
CELLS_PER_BIN = 256
# Sums that `Scores` computes together in one pass over a block. Any other metric of the catalog is added by name.
FUSED = frozenset(("acc", "nll", "brier", "entropy", "mutual_information", "gini", "gini_rescaled"))


@dataclass
class Totals:
    """Sums over rows, of a size that does not depend on their number.

    The first row of the histogram is for wrong predictions, the second for correct ones.
    """

    counts: Tensor  # (2, cells) int64
    confidences: Tensor  # (2, cells) float64: the sum of the confidences in each cell
    rows: int = 0
    member_rows: int = 0  # rows that came with members
    log_loss: float = 0.0
    squares: float = 0.0  # of sum_k p_k^2
    true: float = 0.0  # of p_y
    entropy: float = 0.0
    member_entropy: float = 0.0  # of the mean over members
    others: dict[str, Tensor] = field(default_factory=dict)  # of `per_row` of the metrics that are not FUSED

    @classmethod
    def empty(cls, bins: int) -> Totals:
        """No rows yet."""
        shape = (2, bins * CELLS_PER_BIN)
        return cls(torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.float64))

    def __add__(self, other: Totals) -> Totals:
        added = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in dataclasses.fields(self)[:-1]}
        shared = self.others.keys() & other.others.keys() if self.rows and other.rows else self.others | other.others
        none = torch.zeros((), dtype=torch.float64)
        others = {name: self.others.get(name, none) + other.others.get(name, none) for name in shared}
        return Totals(**added, others=others)

    def to_dict(self) -> dict[str, object]:
        """Plain numbers and lists; of the histogram only the cells that hold anything."""
        held = self.counts.view(-1).nonzero().squeeze(1)
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {
            **plain,
            "others": {name: total.tolist() for name, total in self.others.items()},
            "cells": held.tolist(),
            "counts": self.counts.view(-1)[held].tolist(),
            "confidences": self.confidences.view(-1)[held].tolist(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, object], bins: int) -> Totals:
        """What `to_dict` gave, for the same number of bins."""
        totals = cls.empty(bins)
        cells = torch.tensor(state["cells"], dtype=torch.int64)
        if cells.numel() and not 0 <= int(cells.min()) <= int(cells.max()) < totals.counts.numel():
            raise BadData(f"the state names cells outside 0..{totals.counts.numel() - 1}: it was damaged.")
        totals.counts.view(-1)[cells] = torch.tensor(state["counts"], dtype=torch.int64)
        totals.confidences.view(-1)[cells] = torch.tensor(state["confidences"], dtype=torch.float64)
        for name in (f.name for f in dataclasses.fields(cls)[2:-1]):
            setattr(totals, name, type(getattr(totals, name))(state[name]))
        others = dict(state.get("others", {}))  # type: ignore[call-overload]
        totals.others = {name: torch.tensor(total, dtype=torch.float64) for name, total in others.items()}
        if int(totals.counts.sum()) != totals.rows:
            raise BadData(f"the state counts {totals.rows} rows but its histogram {int(totals.counts.sum())}.")
        return totals


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
    """Every metric of one evaluation, as fractions and nats: ``result.nll`` is ``result.values["nll"]``."""

    rows: int
    values: Mapping[str, float]  # without those that need members, unless every row came with them
    reliability: tuple[ReliabilityBin, ...]

    def __getattr__(self, name: str) -> float:
        values = self.__dict__.get("values", {})  # not there yet while a copy is being made
        if name not in values:
            raise AttributeError(f"there is no metric {name!r}; there are {', '.join(values)}")
        return values[name]

    @property
    def mutual_information(self) -> float | None:
        """None unless every row came with members."""
        return self.values.get("mutual_information")

    def to_dict(self) -> dict[str, float | None]:
        """The rows and the metrics by name, without the reliability diagram."""
        missing = {name: None for name, metric in METRICS.items() if metric.needs_members and name not in self.values}
        return {"rows": self.rows, **self.values, **missing}

    def reliability_table(self) -> list[dict[str, float | None]]:
        """The bins as plain dictionaries, for JSON and for tables."""
        return [dataclasses.asdict(line) for line in self.reliability]


def result_of(totals: Totals, classes: int, bins: int) -> Result:
    """The metrics of these totals, which hold at least one row."""
    n = totals.rows
    cells = totals.counts.sum(0), totals.counts[1], totals.confidences.sum(0)
    counts, correct, confidences = (part.view(bins, CELLS_PER_BIN).sum(1) for part in cells)
    gaps = (confidences - correct) / n  # |B|/n (Conf - Acc): empty bins need no care
    gini = max(0.0, 1 - totals.squares / n)
    found = {
        "acc": int(correct.sum()) / n,
        "nll": totals.log_loss / n,
        "brier": max(0.0, (totals.squares - 2 * totals.true) / n + 1),
        "adaptive_ece": _equal_mass_error(*cells, bins),
        "entropy": max(0.0, totals.entropy / n),
        "gini": gini,
        "gini_rescaled": gini * classes / (classes - 1),
    }
    found |= {name: float(metric.binned(gaps)) for name, metric in METRICS.items() if metric.binned is not None}
    found |= {name: _of_mean(METRICS[name], total / n) for name, total in totals.others.items() if name in METRICS}
    if totals.member_rows == n:
        found["mutual_information"] = max(0.0, (totals.entropy - totals.member_entropy) / n)
    else:
        found = {name: value for name, value in found.items() if name not in METRICS or not METRICS[name].needs_members}
    ordered = {name: found[name] for name in METRICS if name in found}
    return Result(n, ordered, _table(counts, correct, confidences))


def _of_mean(metric: Metric, mean: Tensor) -> float:
    return float(mean if metric.of_mean is None else metric.of_mean(mean))


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
    gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, (confidences - correct).double())
    return float(gaps.abs().sum()) / int(mass[-1])


@torch.no_grad()
def adaptive_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """ECE over bins of equal mass (Nguyen & O'Connor, 2015), exactly.

    The k-th of n rows in the order of confidence is in bin ceil(k bins / n); rows of equal confidence go together.
    All confidences are held in memory; `Scores` approximates the same in a state of constant size.
    """
    check(bins >= 1, "bins", bins, "at least 1")
    values = checked_probabilities(probabilities, members=None)
    labels = checked_labels(labels, *values.shape[-2:]).to(values.device)
    confidence, predicted = pooled(values).max(-1)
    distinct, inverse, counts = torch.unique(confidence, return_inverse=True, return_counts=True)
    right = torch.zeros(len(distinct), dtype=torch.float64, device=values.device)
    right.index_add_(0, inverse, (predicted == labels).double())
    return _equal_mass_error(counts.cpu(), right.cpu(), (distinct.double() * counts).cpu(), bins)
