"""Networks for tables: a piecewise linear encoding of each number, then fully connected layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from mixupmp.core.errors import check, check_dropout, is_whole

BINS = 16


def quantile_edges(inputs: Tensor, bins: int = BINS) -> tuple[tuple[float, ...], ...]:
    """Edges of at most `bins` bins for each column of (rows, features): its distinct quantiles.

    A column with fewer distinct values gets an edge for each of them, and a constant column one bin.
    """
    check(is_whole(bins), "bins", bins, "a whole number, at least 1")
    check(inputs.ndim == 2 and len(inputs) > 0, "inputs", tuple(inputs.shape), "of shape (rows, features), not empty")
    shares = torch.linspace(0, 1, bins + 1, dtype=torch.float64)
    edges = []
    for column in inputs.double().T:
        found = torch.unique(column)
        if len(found) > bins + 1:
            # In float32, in which the encoding is computed: closer edges would be one.
            found = torch.unique(torch.quantile(column, shares).float()).double()
        if len(found) == 1:
            found = torch.cat([found, found + 1])
        edges.append(tuple(found.tolist()))
    return tuple(edges)


def normal_edges(columns: int, bins: int = BINS) -> tuple[tuple[float, ...], ...]:
    """Edges at the quantiles of a standard normal, for standardized columns of which nothing else is known."""
    shares = (torch.arange(bins + 1, dtype=torch.float64) + 0.5) / (bins + 1)
    return (tuple(torch.special.ndtri(shares).tolist()),) * columns


class PiecewiseLinear(nn.Module):
    """Piecewise linear encoding of numbers (Gorishniy et al. 2022, On embeddings for numerical features).

    A number x becomes, for each bin [a, b) of its column, 2 clip((x - a) / (b - a), 0, 1) - 1. The outer bins continue
    for one more of their widths, so that a number beyond all seen ones is bounded but not the same as the largest.
    """

    feature: Tensor
    center: Tensor
    factor: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, edges: Sequence[Sequence[float]]) -> None:
        super().__init__()
        check(len(edges) > 0, "edges", edges, "given for at least one column")
        for column in edges:
            rising = len(column) >= 2 and all(a < b for a, b in pairwise(column))
            check(rising, "edges", tuple(column), "at least two numbers for each column, in rising order")
        bins = [len(column) - 1 for column in edges]
        centers = [(a + b) / 2 for column in edges for a, b in pairwise(column)]
        factors = [2 / (b - a) for column in edges for a, b in pairwise(column)]
        first = [place == 0 for count in bins for place in range(count)]
        last = [place == count - 1 for count in bins for place in range(count)]
        self.columns, self.outputs = len(edges), sum(bins)
        feature = [column for column, count in enumerate(bins) for _ in range(count)]
        self.register_buffer("feature", torch.tensor(feature), persistent=False)
        self.register_buffer("center", torch.tensor(centers), persistent=False)
        self.register_buffer("factor", torch.tensor(factors), persistent=False)
        self.register_buffer("low", torch.tensor([-3.0 if outer else -1.0 for outer in first]), persistent=False)
        self.register_buffer("high", torch.tensor([3.0 if outer else 1.0 for outer in last]), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """(rows, columns) to (rows, bins of all columns)."""
        place = inputs.index_select(-1, self.feature).sub_(self.center).mul_(self.factor)
        return place.clamp_(self.low, self.high)

    def extra_repr(self) -> str:
        return f"columns={self.columns}, outputs={self.outputs}"


class TabularMLP(nn.Sequential):
    """Piecewise linear encoding, then fully connected layers with ReLU and dropout.

    Parameters
    ----------
    edges
        Of each column, in the scale of the standardized inputs: see `quantile_edges` and `normal_edges`.
    """

    def __init__(
        self, edges: Sequence[Sequence[float]], outputs: int, hidden: Sequence[int] = (256, 256), dropout: float = 0.1
    ) -> None:
        check_dropout(dropout)
        encoding = PiecewiseLinear(edges)
        widths = [encoding.outputs, *hidden]
        layers: list[nn.Module] = [nn.Flatten(), encoding]
        for width, following in pairwise(widths):
            layers += [nn.Linear(width, following), nn.ReLU()]
            if dropout:
                layers.append(nn.Dropout(dropout))
        super().__init__(*layers, nn.Linear(widths[-1], outputs))
