"""Stratified splits of labeled rows."""

from __future__ import annotations

from typing import TypeVar

import torch

from mixupmp.core.errors import check
from mixupmp.core.rows import Rows
from mixupmp.core.streams import DatasetRows

LabeledRows = TypeVar("LabeledRows", Rows, DatasetRows, Rows | DatasetRows)


def split(rows: LabeledRows, fraction: float, seed: int = 0) -> tuple[LabeledRows, LabeledRows]:
    """A stratified split into (training, validation) rows.

    Parameters
    ----------
    rows
        Rows with class numbers as labels, in memory or streamed.
    fraction
        Share of the rows for validation. Of each class it gets this share, rounded so that the total is right; every
        class keeps at least one training row.
    seed
        Of the random choice within each class.

    Returns
    -------
    tuple
        (training rows, validation rows).
    """
    check(0 < fraction < 1, "fraction", fraction, "between 0 and 1, both excluded")
    wanted = round(fraction * len(rows))
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(rows), generator=generator)
    # A row's rank within its class, over the size of the class: sorting by it interleaves the classes evenly.
    assert rows.labels is not None  # see `streams.has_labels`
    labels = rows.labels[order]
    _, inverse, counts = labels.unique(return_inverse=True, return_counts=True)
    must = f"such that each side gets a row and every class keeps one ({len(rows)} rows, {len(counts)} classes)"
    check(0 < wanted <= len(rows) - len(counts), "fraction", fraction, must)
    by_class = torch.argsort(inverse, stable=True)
    starts = torch.cumsum(counts, 0) - counts
    rank = torch.empty(len(rows), dtype=torch.float64)
    place = torch.arange(len(rows)) - starts[inverse[by_class]]
    # The first of each class has rank zero: it is the last to go to validation.
    rank[by_class] = (place > 0) * (place.double() + 0.5) / counts[inverse[by_class]]
    ordered = order[torch.argsort(rank, descending=True, stable=True)]
    return rows.take(ordered[wanted:].sort().values), rows.take(ordered[:wanted].sort().values)
