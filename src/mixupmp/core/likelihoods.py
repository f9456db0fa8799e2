"""The one weighted loss that every path shares, and the likelihoods it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from mixupmp.core.batch import Batch
from mixupmp.core.errors import check, whole


class Likelihood(Protocol):
    """What a network's outputs say about a label."""

    @property
    def outputs(self) -> int:
        """How many numbers the network puts out for a row."""
        ...

    def encode(self, labels: Tensor) -> Tensor:
        """Labels as targets that can be mixed: (rows, columns) float32."""
        ...

    def negative_log(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        """-log p(target | outputs), for each row; outputs and targets lie along `dim`."""
        ...

    def slope(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        """The gradient of `negative_log` in the outputs, for the engine that writes its own backward pass."""
        ...


@dataclass(frozen=True)
class Categorical:
    """A label is one of `classes`; outputs are logits, targets are probabilities."""

    classes: int

    def __post_init__(self) -> None:
        check(
            whole(self.classes, 2), "classes", self.classes, "at least 2", "Labels of one class leave nothing to learn."
        )

    @property
    def outputs(self) -> int:
        return self.classes

    def encode(self, labels: Tensor) -> Tensor:
        return functional.one_hot(labels.long(), self.classes).float()

    def negative_log(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        return -(targets * functional.log_softmax(outputs, dim)).sum(dim)

    def slope(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        # Targets sum to one, whether mixed or not.
        return outputs.softmax(dim).sub_(targets)


@dataclass(frozen=True)
class Gaussian:
    """A label is a number; outputs are its mean and the log of its variance."""

    @property
    def outputs(self) -> int:
        return 2

    def encode(self, labels: Tensor) -> Tensor:
        return labels.float().view(-1, 1)

    def negative_log(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        mean, log_variance = outputs.unbind(dim)
        # A variance under e^-12 of the (standardized) label's is a network that has memorized; it would only overflow.
        log_variance = log_variance.clamp(-12, 12)
        error = targets.squeeze(dim) - mean
        return 0.5 * (log(2 * pi) + log_variance + error.square() * torch.exp(-log_variance))

    def slope(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            return torch.autograd.grad(self.negative_log(leaf, targets, dim).sum(), leaf)[0]


def weighted_loss(likelihood: Likelihood, outputs: Tensor, batch: Batch) -> Tensor:
    """sum_i w_i l_i / rows. With weights of mean one the total weight of a step is one, whatever r is."""
    return (likelihood.negative_log(outputs, batch.targets) * batch.weights).mean(-1)
