"""The state of a streamed evaluation: sums that add up, of a size that does not depend on the number of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mixupmp.core.errors import BadData

# Cells of the histogram of confidences within each bin. The bins themselves are unions of cells, so ECE is exact;
# the adaptive bins, whose edges are known only at the end, fall on the nearest cell's edge.
CELLS_PER_BIN = 256


@dataclass
class Totals:
    """Sums over rows. The histogram's first row is for wrong predictions and its second for correct ones."""

    counts: Tensor  # (2, cells) int64
    confidences: Tensor  # (2, cells) float64: the sum of the confidences in each cell
    rows: int = 0
    member_rows: int = 0  # rows that came with members
    log_loss: float = 0.0
    squares: float = 0.0  # of sum_k p_k^2
    true: float = 0.0  # of p_y
    entropy: float = 0.0
    member_entropy: float = 0.0  # of the mean over members

    @classmethod
    def empty(cls, bins: int) -> Totals:
        """No rows yet."""
        shape = (2, bins * CELLS_PER_BIN)
        return cls(torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.float64))

    def __add__(self, other: Totals) -> Totals:
        added = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in dataclasses.fields(self)}
        return Totals(**added)

    def to_dict(self) -> dict[str, object]:
        """Plain numbers and lists; of the histogram only the cells that hold anything."""
        held = self.counts.view(-1).nonzero().squeeze(1)
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in HISTOGRAM}
        return {
            **plain,
            "cells": held.tolist(),
            "counts": self.counts.view(-1)[held].tolist(),
            "confidences": self.confidences.view(-1)[held].tolist(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], bins: int) -> Totals:
        """What `to_dict` gave, for the same number of bins."""
        totals = cls.empty(bins)
        cells = torch.tensor(state["cells"], dtype=torch.int64)
        if cells.numel() and not 0 <= int(cells.min()) <= int(cells.max()) < totals.counts.numel():
            raise BadData(f"the state names cells outside 0..{totals.counts.numel() - 1}: it was damaged.")
        totals.counts.view(-1)[cells] = torch.tensor(state["counts"], dtype=torch.int64)
        totals.confidences.view(-1)[cells] = torch.tensor(state["confidences"], dtype=torch.float64)
        for name in (f.name for f in dataclasses.fields(cls) if f.name not in HISTOGRAM):
            setattr(totals, name, type(getattr(totals, name))(state[name]))
        if int(totals.counts.sum()) != totals.rows:
            raise BadData(f"the state counts {totals.rows} rows but its histogram {int(totals.counts.sum())}.")
        return totals


HISTOGRAM = ("counts", "confidences")
