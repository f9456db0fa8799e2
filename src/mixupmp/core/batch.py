"""A minibatch of one simulated future: what a `Predictive` makes and the loss takes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """Rows of one simulated future.

    Attributes
    ----------
    inputs, targets, weights
        Each with one entry a row: what goes into the network, what the likelihood compares with, and how much the row
        counts.
    """

    inputs: Tensor  # (rows, *features), float32
    targets: Tensor  # (rows, classes) probabilities, so Mixup needs no second loss; (rows, 1) values in regression
    weights: Tensor  # (rows,) of mean one, so r does not rescale the learning rate

    def reweighted(self, factor: float) -> Batch:
        """The same rows with their weights times `factor`."""
        return self._replace(weights=self.weights * factor)


def concatenate(first: Batch, second: Batch) -> Batch:
    """The rows of both, in order."""
    return Batch(*(torch.cat(pair) for pair in zip(first, second, strict=True)))
