"""H: what the part of the future that does not repeat the data looks like.

A base measure is anything with `sample(seen, count, generator) -> Batch`: `count` pseudo rows given the (augmented,
scaled) rows that were seen. Yours needs nothing more. The ones here draw their uniform numbers first and then apply
them, so that the vectorized engine can draw for many steps and apply for all members at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, pi
from typing import Protocol, runtime_checkable

import torch
from torch import Generator, Tensor

from mixupmp.core.batch import Batch
from mixupmp.core.errors import InvalidArgument, check, number


class BaseMeasure(Protocol):
    """H. Must be picklable and, to be shown in a run's configuration, have a telling repr."""

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch: ...


@runtime_checkable
class AdaptiveBaseMeasure(BaseMeasure, Protocol):
    """A base measure that learns, after each epoch, how over-confident the network is on validation rows."""

    def adapted(self, over_confidence: Tensor) -> BaseMeasure:
        """The measure for the next epoch; `over_confidence` is mean confidence minus accuracy, by class."""
        ...


def symmetric_beta(alpha: float, first: Tensor, second: Tensor) -> Tensor:
    """Beta(alpha, alpha) from two uniforms, to the resolution of their type (1e-7 in float32).

    Devroye's one-liner (1996): 1/2 + S / (2 sqrt(1 + 1 / ((U^(-1/alpha) - 1) cos^2(2 pi V)))), with S the sign of the
    cosine. Elementwise and vectorized, where a pair of Gamma draws is a rejection loop: ten times faster on a CPU.
    """
    cosine = torch.cos(second * (2 * pi))
    # 1 - U is uniform too and never zero. Where the power overflows, the share is exactly zero or one: its limit.
    odds = ((1 - first).pow_(-1 / alpha).sub_(1)).mul_(cosine.square()).clamp_(min=torch.finfo(first.dtype).tiny)
    return odds.reciprocal_().add_(1).rsqrt_().mul_(cosine.sign_()).mul_(0.5).add_(0.5)


def choose(uniform: Tensor, count: int) -> Tensor:
    """Indices below `count` from uniforms in [0, 1)."""
    return (uniform * count).long().clamp_(max=count - 1)


def blend(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """share * first + (1 - share) * second, row by row; writes over `second`."""
    return second.lerp_(first, share.view(-1, *(1,) * (first.ndim - 1)))


@dataclass(frozen=True)
class Mixup:
    """Blends of random pairs of seen rows, with one share lambda ~ Beta(alpha, alpha) for each (Zhang et al. 2018).

    x' = lambda x_i + (1 - lambda) x_j and y' likewise, with i and j independent and uniform.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def draw(self, count: int, generator: Generator) -> Tensor:
        """Four uniforms a row: which two rows, and two for their share."""
        return torch.rand(4, count, generator=generator)

    def share(self, draws: Tensor) -> Tensor:
        """lambda, from the last two of the four draws."""
        return symmetric_beta(self.alpha, draws[2], draws[3])

    def sample(self, seen: Batch, count: int, generator: Generator, into: Tensor | None = None) -> Batch:
        """`into` is where the inputs' blends are written, if there is a place for them."""
        draws = self.draw(count, generator)
        first, second = choose(draws[:2], len(seen.inputs)).to(seen.inputs.device)
        share = self.share(draws).to(seen.inputs.device)
        return mix(seen, first, second, share, into)


@dataclass(frozen=True)
class ClassAdjustedMixup:
    """Mixup only for rows of classes on which the network is over-confident (CAMixup, Wen et al. 2021).

    `mixed` marks those classes; all of them until the first epoch has been judged. A row of another class keeps its
    input and target: its share is one.
    """

    alpha: float = 1.0
    mixed: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def adapted(self, over_confidence: Tensor) -> ClassAdjustedMixup:
        return replace(self, mixed=tuple((over_confidence > 0).tolist()))

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        plain = Mixup(self.alpha)
        draws = plain.draw(count, generator)
        first, second = choose(draws[:2], len(seen.inputs)).to(seen.inputs.device)
        share = plain.share(draws).to(seen.inputs.device)
        if self.mixed is not None:
            mixed = torch.tensor(self.mixed, device=share.device)[seen.targets[first].argmax(1)]
            share = torch.where(mixed, share, torch.ones_like(share))
        return mix(seen, first, second, share)


@dataclass(frozen=True)
class Perturbed:
    """Seen rows with Gaussian noise of this variance on their inputs, and their own labels."""

    variance: float = 4.0

    def __post_init__(self) -> None:
        check(number(self.variance) and 0 < self.variance < inf, "variance", self.variance, "positive and finite")

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        rows = choose(torch.rand(count, generator=generator), len(seen.inputs)).to(seen.inputs.device)
        inputs = seen.inputs[rows]
        noise = torch.randn(inputs.shape, generator=generator).to(inputs.device)
        return Batch(inputs.add_(noise, alpha=self.variance**0.5), seen.targets[rows], seen.weights[rows])


@dataclass(frozen=True)
class Uniform:
    """Inputs uniform in a box and labels uniform over the classes: next to no prior knowledge."""

    low: float = -15.0
    high: float = 15.0

    def __post_init__(self) -> None:
        check(number(self.low) and self.low > -inf, "low", self.low, "a finite number")
        check(
            number(self.high) and self.low < self.high < inf,
            "high",
            self.high,
            f"finite and greater than low, which is {self.low}",
        )

    def sample(self, seen: Batch, count: int, generator: Generator) -> Batch:
        inputs = torch.rand(count, *seen.inputs.shape[1:], generator=generator)
        inputs.mul_(self.high - self.low).add_(self.low)
        classes = seen.targets.shape[1]
        if classes == 1:
            must = "a measure for numbers as labels"
            raise InvalidArgument("base", self, must, "Uniform draws classes; use Mixup or Perturbed.")
        labels = choose(torch.rand(count, generator=generator), classes)
        targets = torch.nn.functional.one_hot(labels, classes).to(seen.targets.dtype)
        device = seen.inputs.device
        return Batch(inputs.to(device), targets.to(device), seen.weights.mean().expand(count))


def mix(seen: Batch, first: Tensor, second: Tensor, share: Tensor, into: Tensor | None = None) -> Batch:
    """The rows `first` and `second` of what was seen, blended."""
    inputs = blend(seen.inputs.index_select(0, first), torch.index_select(seen.inputs, 0, second, out=into), share)
    targets = blend(seen.targets.index_select(0, first), seen.targets.index_select(0, second), share)
    return Batch(inputs, targets, pair_weights(seen.weights, first, second))


def pair_weights(weights: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """What pairs of rows count: a row that stands for three is three times as likely to be either of the two."""
    mean = weights.mean(-1, keepdim=True).clamp_(min=torch.finfo(weights.dtype).tiny)
    return weights.gather(-1, first) * weights.gather(-1, second) / mean


def _check_alpha(alpha: float) -> None:
    check(number(alpha) and 0 < alpha < inf, "alpha", alpha, "a positive number", "The paper uses 0.1 to 2.")
