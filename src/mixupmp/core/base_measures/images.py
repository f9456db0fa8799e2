"""Base measures for images, (rows, channels, height, width)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from mixupmp.core.base_measures.paper import blend, check_alpha, choose, pair_weights, symmetric_beta
from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument


@dataclass(frozen=True)
class CutMix:
    """A box of one image pasted into another, with the label of each in proportion to its pixels (Yun et al. 2019).

    The box has the area 1 - lambda, lambda ~ Beta(alpha, alpha), and its center is uniform; what lies outside of the
    image is cut off, and the label's share is that of the pixels that are left.

    Parameters
    ----------
    alpha
        Of Beta(alpha, alpha), which lambda is drawn from.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        if seen.inputs.ndim != 4:
            must = "images (rows, channels, height, width) for CutMix"
            raise InvalidArgument("inputs", tuple(seen.inputs.shape), must)
        draws = torch.rand(6, count, generator=generator).to(seen.inputs.device)
        first, second = choose(draws[:2], len(seen.inputs))
        side = (1 - symmetric_beta(self.alpha, draws[2], draws[3])).sqrt()
        height, width = seen.inputs.shape[2:]
        rows, columns = _covered(side, draws[4], height), _covered(side, draws[5], width)
        box = (rows.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1)
        inputs = torch.where(box, seen.inputs[second], seen.inputs[first])
        share = 1 - rows.sum(1) * columns.sum(1) / (height * width)
        targets = blend(seen.targets[first], seen.targets[second], share)
        return Batch(inputs, targets, pair_weights(seen.weights, first, second))


def _covered(side: Tensor, center: Tensor, size: int) -> Tensor:
    """Which of `size` pixels a box of this relative side covers, (rows, size)."""
    middle = (center * size).floor()
    half = (side * size).floor() / 2
    position = torch.arange(size, device=side.device)
    return (position >= (middle - half).floor().unsqueeze(1)) & (position < (middle + half).floor().unsqueeze(1))
