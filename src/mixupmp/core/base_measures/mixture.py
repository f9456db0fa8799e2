"""A mixture of base measures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import inf

import torch
from torch import Generator

from mixupmp.core.base_measures.paper import AdaptiveBaseMeasure, BaseMeasure
from mixupmp.core.batch import Batch, concatenate
from mixupmp.core.errors import check, is_number


@dataclass(frozen=True)
class Mixture:
    """H = sum_k p_k H_k: Mixture((Mixup(), CutMix())) is half Mixup, half CutMix.

    Parameters
    ----------
    measures
        The H_k.
    weights
        p_k up to a factor; None: equal. In a batch each measure has the whole number of rows next to its share,
        upward or downward at random, so that p_k is right on average.
    """

    measures: tuple[BaseMeasure, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        measures = tuple(self.measures)
        object.__setattr__(self, "measures", measures)
        must = "at least one base measure, with sample(seen, count, generator)"
        known = len(measures) > 0 and all(hasattr(m, "sample") and not isinstance(m, type) for m in measures)
        check(known, "measures", self.measures, must)
        adaptive = any(isinstance(measure, AdaptiveBaseMeasure) for measure in measures)
        check(not adaptive, "measures", self.measures, "measures that do not adapt to validation rows")
        if self.weights is not None:
            weights = tuple(self.weights)
            object.__setattr__(self, "weights", weights)
            known = len(weights) == len(measures) and all(is_number(w) and 0 <= w < inf for w in weights)
            must = f"{len(measures)} numbers, zero or more, not all zero"
            check(known and sum(weights) > 0, "weights", self.weights, must)

    @property
    def takes_tokens(self) -> bool:
        """Whether all of them join sentences."""
        return all(getattr(measure, "takes_tokens", False) for measure in self.measures)

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        weights = torch.tensor(self.weights or (1.0,) * len(self.measures), dtype=torch.float64)
        offset = torch.rand((), generator=generator, dtype=torch.float64)
        ends = (weights.cumsum(0) / weights.sum() * count + offset).floor().long()
        ends[-1] = count
        counts = ends.clamp(max=count).diff(prepend=ends.new_zeros(1)).tolist()
        drawn = [m.sample(seen, rows, generator) for m, rows in zip(self.measures, counts, strict=True) if rows]
        return reduce(concatenate, drawn)
