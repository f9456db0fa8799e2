"""The likelihood of a label given a network's outputs, and the one weighted loss that every engine minimizes."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from mixupmp.core.batch import Batch
from mixupmp.core.errors import check, is_whole


class Likelihood(Protocol):
    """p(label | outputs of the network)."""

    @property
    def outputs(self) -> int:
        """How many outputs the network has for a row."""

    @property
    def classes(self) -> int | None:
        """How many classes there are; None in regression."""

    def encode(self, labels: Tensor) -> Tensor:
        """Labels as targets that can be mixed: (rows, columns) float32."""

    def row_losses(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        """-log p(target | outputs) of each row; outputs and targets lie along `dim`."""

    def output_gradient(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        """Gradient of `row_losses` with respect to the outputs, for the engine with its own backward pass."""

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the encoded label, given outputs along the last dimension."""


@dataclass(frozen=True)
class Categorical:
    """A label is one of `classes`; outputs are logits, targets are probabilities.

    -log p = -sum_k y_k log softmax(f)_k, the cross-entropy, for mixed targets y too.

    Parameters
    ----------
    classes
        How many.
    """

    classes: int

    def __post_init__(self) -> None:
        hint = "Labels of one class leave nothing to learn."
        check(is_whole(self.classes, 2), "classes", self.classes, "at least 2", hint)

    @property
    def outputs(self) -> int:
        return self.classes

    def encode(self, labels: Tensor) -> Tensor:
        return functional.one_hot(labels.long(), self.classes).float()

    def row_losses(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        return -(targets * functional.log_softmax(outputs, dim)).sum(dim)

    def output_gradient(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        """softmax(f) - y, as targets sum to one, mixed or not."""
        return outputs.softmax(dim).sub_(targets)

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Class probabilities p, and sqrt(p (1 - p))."""
        mean = outputs.softmax(-1)
        return mean, (mean * (1 - mean)).sqrt()


@dataclass(frozen=True)
class Gaussian:
    """A label is a number; outputs are its mean m and log-variance s.

    -log p = (log 2 pi + s + (y - m)^2 exp(-s)) / 2.
    """

    classes: ClassVar[None] = None
    outputs: ClassVar[int] = 2

    def encode(self, labels: Tensor) -> Tensor:
        return labels.float().view(-1, 1)

    def row_losses(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        mean, log_variance = outputs.unbind(dim)
        log_variance = _bounded(log_variance)
        error = targets.squeeze(dim) - mean
        return 0.5 * (log(2 * pi) + log_variance + error.square() * torch.exp(-log_variance))

    def output_gradient(self, outputs: Tensor, targets: Tensor, dim: int = -1) -> Tensor:
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            return torch.autograd.grad(self.row_losses(leaf, targets, dim).sum(), leaf)[0]

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """m, and exp(s / 2)."""
        mean, log_variance = outputs.unbind(-1)
        return mean, (0.5 * _bounded(log_variance)).exp()


def _bounded(log_variance: Tensor) -> Tensor:
    # A variance below e^-12 of the standardized label's means that the network has memorized it, and would overflow.
    return log_variance.clamp(-12, 12)


def weighted_loss(likelihood: Likelihood, outputs: Tensor, batch: Batch) -> Tensor:
    """sum_i w_i l_i / rows, with l_i = -log p(y_i | f(x_i)).

    With weights of mean one the total weight of a step is one, whatever r is.
    """
    return (likelihood.row_losses(outputs, batch.targets) * batch.weights).mean(-1)
