"""Mixup of similar rows: by how much a pair is blended, or which pairs are, depends on their distance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Literal

import torch
from torch import Generator, Tensor

from mixupmp.core.base_measures.paper import Mixup, check_alpha, choose, mix, symmetric_beta
from mixupmp.core.batch import Batch
from mixupmp.core.errors import check, is_number


@dataclass(frozen=True)
class WarpedMixup:
    """Warped Mixup: near pairs are blended evenly, far pairs hardly (Similarity Kernel Mixup, Bouniot et al. 2025).

    lambda ~ Beta(tau, tau) with tau = alpha exp(-(d - 1) / (2 width^2)), where d is the pair's squared distance over
    the mean of the batch's pairs. It is the authors' uniform share warped by the inverse of that Beta's distribution
    function. At the mean distance, and at any for a large width, it is `Mixup(alpha)`.

    Parameters
    ----------
    alpha
        The authors' tau_max.
    width
        The authors' tau_std: the smaller, the more the distance matters.
    distance
        Between scaled inputs, or between targets, as the authors have it in regression. (For classes they take the
        distance of the network's features.)
    """

    alpha: float = 1.0
    width: float = 0.5
    distance: Literal["inputs", "targets"] = "inputs"

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check(is_number(self.width) and 0 < self.width < inf, "width", self.width, "positive and finite")
        known = self.distance in ("inputs", "targets")
        check(known, "distance", self.distance, "'inputs' or 'targets'")

    def draw(self, count: int, generator: Generator) -> Tensor:
        """(4, count) uniforms, as `Mixup` draws them."""
        return torch.rand(4, count, generator=generator)

    def share(self, draws: Tensor, squared: Tensor) -> Tensor:
        """lambda, from the last two of the four uniforms and the squared distances of pairs along the last axis."""
        mean = squared.mean(-1, keepdim=True).clamp_(min=torch.finfo(squared.dtype).tiny)
        warped = self.alpha * torch.exp((1 - squared / mean) / (2 * self.width**2))
        return symmetric_beta(warped, draws[2], draws[3])

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        draws = self.draw(count, generator).to(seen.inputs.device)
        first, second = choose(draws[:2], len(seen.inputs))
        # Inside a network (`AtLayer`) the share is a draw, not something that the layers before it learn.
        rows = (seen.inputs if self.distance == "inputs" else seen.targets).detach().flatten(1)
        squared = (rows.index_select(0, first) - rows.index_select(0, second)).square().sum(1)
        return mix(seen, first, second, self.share(draws, squared))


@dataclass(frozen=True)
class CMixup:
    """C-Mixup: pairs whose targets are near are blended more often (for regression, Yao et al. 2022).

    i is uniform, P(j | i) is proportional to w_j exp(-|y_i - y_j|^2 / (2 bandwidth^2)) with w the rows' weights, and
    lambda ~ Beta(alpha, alpha). The blend has the weight w_i.

    Parameters
    ----------
    alpha
        Of Beta(alpha, alpha), which lambda is drawn from.
    bandwidth
        On the scale of the targets in a fit, which have deviation one for `MixupMPRegressor`.
    """

    alpha: float = 1.0
    bandwidth: float = 1.0

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check(
            is_number(self.bandwidth) and 0 < self.bandwidth < inf, "bandwidth", self.bandwidth, "positive and finite"
        )

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        draws = Mixup(self.alpha).draw(count, generator).to(seen.inputs.device)
        first = choose(draws[0], len(seen.inputs))
        partners = []
        for some in parts(count, len(seen.inputs)):
            squared = torch.cdist(seen.targets[first[some]], seen.targets).square()
            density = (torch.exp(squared / (-2 * self.bandwidth**2)) * seen.weights).cumsum(1)
            wanted = draws[1, some].unsqueeze(1) * density[:, -1:]
            partners.append(torch.searchsorted(density, wanted, right=True).squeeze(1))
        second = torch.cat(partners).clamp_(max=len(seen.inputs) - 1)
        mixed = mix(seen, first, second, Mixup(self.alpha).share(draws))
        return mixed._replace(weights=seen.weights[first])


def parts(count: int, width: int, most: int = 4_000_000) -> Iterator[slice]:
    """Slices of `count` rows, so that a matrix with `width` columns for each has at most about `most` numbers."""
    step = max(1, most // width)
    return (slice(start, start + step) for start in range(0, count, step))
