"""The one weighted loss that every path shares, and the likelihoods it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from mixupmp.batch import Batch
from mixupmp.errors import check


class Likelihood(Protocol):
    """What a network's outputs say about a label."""

    @property
    def outputs(self) -> int:
        """How many numbers the network puts out for a row."""
        ...

    def encode(self, labels: Tensor) -> Tensor:
        """Labels as targets that can be mixed: (rows, columns) float32."""
        ...

    def negative_log(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """-log p(target | outputs), for each row."""
        ...


@dataclass(frozen=True)
class Categorical:
    """A label is one of `classes`; outputs are logits, targets are probabilities."""

    classes: int

    def __post_init__(self) -> None:
        check(self.classes >= 2, "classes", self.classes, "at least 2", "Labels of one class leave nothing to learn.")

    @property
    def outputs(self) -> int:
        return self.classes

    def encode(self, labels: Tensor) -> Tensor:
        return functional.one_hot(labels, self.classes).float()

    def negative_log(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -(targets * functional.log_softmax(outputs, -1)).sum(-1)


@dataclass(frozen=True)
class Gaussian:
    """A label is a number; outputs are its mean and the log of its variance."""

    @property
    def outputs(self) -> int:
        return 2

    def encode(self, labels: Tensor) -> Tensor:
        return labels.float().view(-1, 1)

    def negative_log(self, outputs: Tensor, targets: Tensor) -> Tensor:
        mean, log_variance = outputs.unbind(-1)
        # A variance under e^-12 of the (standardised) label's is a network that has memorised; it would only overflow.
        log_variance = log_variance.clamp(-12, 12)
        error = targets.squeeze(-1) - mean
        return 0.5 * (log(2 * pi) + log_variance + error.square() * torch.exp(-log_variance))


def weighted_loss(likelihood: Likelihood, outputs: Tensor, batch: Batch) -> Tensor:
    """sum_i w_i l_i / rows. With weights of mean one the total weight of a step is one, whatever r is."""
    return (likelihood.negative_log(outputs, batch.targets) * batch.weights).mean(-1)
