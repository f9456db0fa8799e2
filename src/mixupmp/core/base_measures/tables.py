"""Base measures for tables, (rows, features)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Generator, Tensor

from mixupmp.core.base_measures.paper import blend, choose
from mixupmp.core.base_measures.warped import parts
from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument, check, is_number, is_whole


@dataclass(frozen=True)
class FeatureSwap:
    """A seen row with some features from another row of its class (swap noise; random corruption, Bahri et al. 2022).

    Parameters
    ----------
    rate
        The probability with which each feature is replaced.
    """

    rate: float = 0.2

    def __post_init__(self) -> None:
        check(is_number(self.rate) and 0 < self.rate <= 1, "rate", self.rate, "a probability in (0, 1]")

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        _check_table(seen, "FeatureSwap")
        if seen.targets.shape[1] == 1:
            hint = "FeatureSwap swaps within a class; use Mixup, Smote or GaussianCopula."
            raise InvalidArgument("base", self, "a base measure for regression", hint)
        draws = torch.rand(2, count, generator=generator).to(seen.inputs.device)
        swapped = torch.rand(count, seen.inputs.shape[1], generator=generator) < self.rate
        first = choose(draws[0], len(seen.inputs))
        labels = seen.targets.argmax(1)
        order = labels.argsort(stable=True)
        sizes = labels.bincount(minlength=seen.targets.shape[1])
        starts = sizes.cumsum(0) - sizes
        size, start = sizes[labels[first]], starts[labels[first]]
        second = order[start + torch.minimum((draws[1] * size).long(), size - 1)]
        inputs = torch.where(swapped.to(seen.inputs.device), seen.inputs[second], seen.inputs[first])
        # The mean of the class, not of all rows: the partner is one of the class, and its weight must cancel out there.
        mean = torch.zeros_like(sizes, dtype=seen.weights.dtype).index_add_(0, labels, seen.weights) / sizes
        mean = mean.clamp_(min=torch.finfo(mean.dtype).tiny)[labels[first]]
        return Batch(inputs, seen.targets[first], seen.weights[first] * seen.weights[second] / mean)


@dataclass(frozen=True)
class Smote:
    """SMOTE: a point between a row and one of its nearest neighbors of the same class (Chawla et al. 2002).

    x' = x_i + u (x_j - x_i) with u uniform. In regression neighbors are of any target, and y' is between the two
    (Torgo et al. 2013). Neighbors are found among the rows of the batch.

    Parameters
    ----------
    neighbors
        How many of the nearest rows one is drawn from.
    """

    neighbors: int = 5

    def __post_init__(self) -> None:
        check(is_whole(self.neighbors), "neighbors", self.neighbors, "a whole number, at least 1")

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        _check_table(seen, "Smote")
        draws = torch.rand(3, count, generator=generator).to(seen.inputs.device)
        first = choose(draws[0], len(seen.inputs))
        labels = _class_of(seen)
        second = first.clone()
        for some in parts(count, len(seen.inputs)):
            rows = first[some]
            distance = torch.cdist(seen.inputs[rows], seen.inputs)
            distance.masked_fill_(labels[rows].unsqueeze(1) != labels, inf).scatter_(1, rows.unsqueeze(1), inf)
            nearest = distance.topk(min(self.neighbors, len(seen.inputs)), 1, largest=False)
            there = (nearest.values < inf).sum(1)
            chosen = torch.minimum((draws[1, some] * there).long(), (there - 1).clamp(min=0)).unsqueeze(1)
            partner = nearest.indices.gather(1, chosen).squeeze(1)
            second[some] = torch.where(there > 0, partner, rows)  # the only row of its class has no neighbor
        inputs = blend(seen.inputs[second], seen.inputs[first], draws[2])
        targets = blend(seen.targets[second], seen.targets[first], draws[2])
        return Batch(inputs, targets, seen.weights[first])


@dataclass(frozen=True)
class GaussianCopula:
    """Draws from a Gaussian copula of each class, with the class's own marginals (Patki et al. 2016).

    The features' ranks within the class, as normal scores, give the correlations; a draw of that Gaussian goes back
    through the quantiles of each feature, interpolated. In regression the target is one more column of a single copula.
    Ranks are those of the batch.
    """

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        _check_table(seen, "GaussianCopula")
        features = seen.inputs.shape[1]
        rows = choose(torch.rand(count, generator=generator), len(seen.inputs)).to(seen.inputs.device)
        regression = seen.targets.shape[1] == 1
        columns = torch.cat([seen.inputs, seen.targets], 1) if regression else seen.inputs
        normal = torch.randn(count, columns.shape[1], generator=generator).to(columns)
        labels = _class_of(seen)
        drawn = torch.empty_like(normal)
        for label in labels[rows].unique():
            here = labels[rows] == label
            drawn[here] = _copula(columns[labels == label], normal[here])
        targets = drawn[:, features:] if regression else seen.targets[rows]
        return Batch(drawn[:, :features].contiguous(), targets, seen.weights[rows])


def _copula(columns: Tensor, normal: Tensor) -> Tensor:
    """Standard normal rows as rows with the marginals, and the rank correlations, of these columns."""
    count = len(columns)
    ordered = columns.sort(0).values
    # Equal values share their mean rank: ranks by row order would correlate columns of few values with each other.
    wanted, known = columns.T.contiguous(), ordered.T.contiguous()
    ranks = (torch.searchsorted(known, wanted) + torch.searchsorted(known, wanted, right=True)).T / 2
    scores = torch.special.ndtri(ranks / count)
    scores = torch.nn.functional.normalize(scores - scores.mean(0), dim=0, eps=1e-3)
    correlation = scores.T @ scores
    jitter = 1e-4 * torch.eye(columns.shape[1], device=columns.device)  # fewer rows than columns: a singular matrix
    factor = torch.linalg.cholesky(correlation + jitter)
    place = (torch.special.ndtr(normal @ factor.T) * count - 0.5).clamp(0, count - 1)
    below = place.floor().long()
    return torch.lerp(ordered.gather(0, below), ordered.gather(0, (below + 1).clamp(max=count - 1)), place - below)


def _class_of(seen: Batch) -> Tensor:
    """The class of each row; one class for all in regression."""
    return seen.targets.argmax(1)


def _check_table(seen: Batch, name: str) -> None:
    if seen.inputs.ndim != 2:
        raise InvalidArgument("inputs", tuple(seen.inputs.shape), f"a table (rows, features) for {name}")
